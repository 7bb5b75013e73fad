"""The archive: the runs below a folder, their jobs, and where a job's iterations became slower or faster."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.record import CALIBRATION, RUN_FILES, RecordError, open_run
from genie.record.marks import kind_of
from genie.record.reading import read_object
from genie.verdict.compatibility import VerdictError
from genie.verdict.history.reference import ended_iterations

if TYPE_CHECKING:
    from genie.record import Run

VERDICT_FILE = "verdict.json"
# Facts that two runs of one job share. Iterations, seeds and faults of a lab may differ.
JOB_FACTS = ("world", "workload", "ranks", "lowering", "algorithms", "dilation")
JOB_SETTINGS = (
    "rate_bps", "transport", "transports", "queue_pairs", "split", "source_ports", "mtu", "congestion", "addresses",
    "compute", "slots",
)  # fmt: skip
BEFORE_MAX, BEFORE_MIN = 7, 2  # earlier runs of a job that a run is compared with
STEP_MIN = 0.1  # smallest change of an iteration that is marked
STEP_NOISE = 4.0  # robust standard deviations of the earlier runs, beyond which a change is marked
RUN_SPREAD_MIN = 0.01  # between two runs of one job, at least


@dataclass(frozen=True)
class Entry:
    """A run in the archive."""

    folder: Path  # as a command takes it
    command: str  # validate, run or simulate
    recorded_at: str  # ISO 8601, UTC
    workload: str
    fabric: str
    ranks: int
    iterations: int  # that ended after warm-up
    iteration_ns: int  # median
    result: str  # of the verdict; "" without one
    job: str  # digest: equal for runs of one job
    problem: str = ""  # why the run cannot be read, or ended early

    def to_dict(self) -> dict[str, Any]:
        """One row of the archive's JSON."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True)
class Step:
    """A run whose iterations take longer or less long than those of the runs of its job before it."""

    entry: Entry
    before_ns: int  # median of the earlier runs
    fraction: float  # iteration time over that of the earlier runs, minus 1


def entries(root: Path) -> list[Entry]:
    """The runs in the folders of `root`, the newest first. A folder that is no run of Genie's is left out."""
    found = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink()):
        live = folder / "live"
        try:
            place = live if (live / "run.json").is_file() else folder
            is_run = all((place / name).is_file() for name in RUN_FILES)
        except OSError as error:
            found.append(_unreadable(folder, str(error)))
            continue
        if is_run and kind_of(place / "run.json") != CALIBRATION:
            found.append(_entry(folder, place))
    return sorted(found, key=lambda entry: (entry.recorded_at, str(entry.folder)), reverse=True)


def _unreadable(folder: Path, problem: str) -> Entry:
    return Entry(folder, "", "", "", "", 0, 0, 0, "", "", problem)


def _entry(folder: Path, place: Path) -> Entry:
    try:
        run = open_run(place)
    except RecordError as error:
        return _unreadable(folder, str(error))
    command = "validate" if place != folder else "run" if run.info.get("world") == "live" else "simulate"
    spans, problem = _spans(run)
    return Entry(
        folder=folder,
        command=command,
        recorded_at=str(run.info.get("recorded_at", "")),
        workload=Path(str(run.info.get("workload") or "")).name,
        fabric=_fabric(run, place),
        ranks=int(run.info.get("ranks") or 0),
        iterations=len(spans),
        iteration_ns=int(np.median(spans)) if len(spans) else 0,
        result=_result(folder),
        job=job_of(run),
        problem=problem,
    )


def _spans(run: Run) -> tuple[list[int], str]:
    """Return the time of each iteration, and why there are none or fewer."""
    problem = str(run.info.get("problem") or "") if run.info.get("complete") is False else ""
    try:
        kept = ended_iterations(run)
    except VerdictError as error:
        return [], problem or str(error)
    table = run.timeline.filter(pl.col("iteration").is_in(kept)).group_by("iteration")
    return table.agg(span=pl.col("end_ns").max() - pl.col("start_ns").min())["span"].to_list(), problem


def _fabric(run: Run, place: Path) -> str:
    twin = place.parent / "twin" / "run.json"
    if run.info.get("world") == "live" and twin.is_file():
        try:
            return str(read_object(twin).get("fabric") or "")
        except RecordError:
            return ""
    return str(run.info.get("fabric") or "")


def _result(folder: Path) -> str:
    try:
        return str(read_object(folder / VERDICT_FILE).get("result") or "")
    except RecordError:
        return ""


def job_of(run: Run) -> str:
    """A digest that the runs of one job share: workload, ranks, fabric, and the settings that shape its traffic."""
    settings = run.info.get("settings") or {}
    facts = {key: run.info.get(key) for key in JOB_FACTS} | {key: settings.get(key) for key in JOB_SETTINGS}
    if settings.get("collectives"):
        facts["workload"] = settings["collectives"]
    if settings.get("spray", 1) != 1:  # runs from before this setting keep their digest
        facts["spray"] = settings["spray"]
    facts["lab"] = (settings.get("lab") or {}).get("fabric")
    if run.info.get("world") == "twin":
        facts |= {key: run.info.get(key) for key in ("fabric", "level", "load_balancing", "follow")}
        if (described := run.path / "fabric.toml").is_file():
            facts["described"] = sha256(described.read_bytes()).hexdigest()
    return sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def steps_of(found: Sequence[Entry]) -> list[Step]:
    """The runs at which a job's iterations became slower or faster, the newest first."""
    jobs: dict[str, list[Entry]] = defaultdict(list)
    for entry in reversed(found):
        if entry.iteration_ns:
            jobs[entry.job].append(entry)
    steps = []
    for runs in jobs.values():
        since = 0  # the latest step: runs before it are of another time
        for at, entry in enumerate(runs):
            earlier = np.array([it.iteration_ns for it in runs[max(since, at - BEFORE_MAX) : at]], dtype=np.float64)
            if len(earlier) < BEFORE_MIN:
                continue
            usual = float(np.median(earlier))
            spread = max(RUN_SPREAD_MIN, 1.4826 * float(np.median(np.abs(np.log(earlier / usual)))))
            change = float(np.log(entry.iteration_ns / usual))
            if abs(change) >= max(np.log1p(STEP_MIN), STEP_NOISE * spread):
                steps.append(Step(entry, round(usual), float(np.expm1(change))))
                since = at
    return sorted(steps, key=lambda step: step.entry.recorded_at, reverse=True)


def newest_pass(root: Path, job: str, but: Path) -> Path | None:
    """Return the newest validation below `root` of this job that passed; None without one. `but`: left out."""
    if not root.is_dir():
        return None
    passed = (entry for entry in entries(root) if entry.result == "pass" and entry.job == job)
    return next((entry.folder for entry in passed if entry.folder.resolve() != but.resolve()), None)
