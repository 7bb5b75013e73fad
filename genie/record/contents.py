"""Contents of each kind of output folder, and the files in one that are not Genie's."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from genie.record.atomic_write import final_name
from genie.record.marks import has_mark, kind_of, mark

METRICS_FILE, JUNIT_KIND = "metrics", "junit"  # single files
LIVE, CALIBRATION, TWIN, VALIDATION = "live", "calibration", "twin", "validation"
CHECK, BENCH, PROBE = "check", "bench", "probe"
EXPECTED = "expected"  # folder of a validation: the iteration that its cost is taken from

RUN_FILES = ("run.json", "timeline.parquet", "transfers.parquet", "counters.json")
PATHS_FILE, SERIES_FILE = "paths.parquet", "series.parquet"
LIMITS, LIMITS_FILE = "limits", "limits.json"  # of a simulation's collectives
LAUNCH_FILE, LOG_FILE = "launch.json", "mpirun.log"
COLLECTIVES, COLLECTIVES_FILE = "collectives", "collectives.about.json"  # traces that a validation has made; their mark
WORDS = {
    LIVE: "run", CALIBRATION: "calibration", TWIN: "simulation", VALIDATION: "validation", CHECK: "check",
    BENCH: "bench", PROBE: "probe",
}  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """Contents of a kind of folder: file name → kind of its mark, folder name → its kind."""

    files: dict[str, str]
    folders: dict[str, str] = field(default_factory=dict)


_TABLES = {name: name.partition(".")[0] for name in (*RUN_FILES[1:], PATHS_FILE, SERIES_FILE)}


def launch_mark(kind: str) -> str:
    """The mark of the launch file in a folder of this kind."""
    return mark(f"{kind}-launch")


def _launched(kind: str) -> dict[str, str]:
    """Files of a folder in which ranks ran."""
    return {"run.json": kind, LAUNCH_FILE: f"{kind}-launch", "lab.json": "lab", LOG_FILE: "mpirun-log"}


CONTENTS = {
    LIVE: Contents(_TABLES | _launched(LIVE)),
    CALIBRATION: Contents(_TABLES | _launched(CALIBRATION)),
    TWIN: Contents(
        _TABLES | {"run.json": TWIN, "fabric.toml": "fabric", "report.html": "simulation-page", LIMITS_FILE: LIMITS}
    ),
    CHECK: Contents(_launched(CHECK)),
    BENCH: Contents(_launched(BENCH)),
    PROBE: Contents(_launched(PROBE)),
    VALIDATION: Contents(
        {"verdict.json": "verdict", "report.html": "verdict-page", "timeline.pftrace": "timeline-trace"},
        {"live": LIVE, "twin": TWIN, EXPECTED: TWIN, "calibration": CALIBRATION, "probe": PROBE},
    ),
}
# Temporary folders beside the launch file while ranks run, and the names in them.
_WORKING = {
    "parts": re.compile(
        r"(\d{5,}(-\d{5,}(\.cut)?)?|lines|progress)(\.next)?\.(npz|pid|reserve|(facts|failed)\.(json|reserve))|mpirun\.log"
    ),
    "rings": re.compile(r"rings\.(\d+\.et|json)(\.part)?"),
}


_TRACES = re.compile(r"collectives\.(\d+\.et|json|about\.json)(\.\d+\.part|\.part)?")


def strangers(folder: Path, kind: str) -> list[Path]:
    """Entries of an output folder that Genie did not write there for this kind; links are never followed."""
    contents = CONTENTS[kind]
    ran_here = kind_of(folder / LAUNCH_FILE) == contents.files.get(LAUNCH_FILE, LAUNCH_FILE)
    found = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and (kind, entry.name) == (VALIDATION, COLLECTIVES):
            is_ours = kind_of(entry / COLLECTIVES_FILE) == COLLECTIVES
            found += [part for part in sorted(entry.iterdir()) if not (is_ours and _is_working(part, _TRACES))]
        elif is_folder and entry.name in contents.folders:
            found += strangers(entry, contents.folders[entry.name])
        elif is_folder and entry.name in _WORKING and ran_here:
            names = _WORKING[entry.name]
            found += [part for part in sorted(entry.iterdir()) if not _is_working(part, names)]
        elif not is_folder and entry.name in contents.files:
            found += [] if kind_of(entry) == contents.files[entry.name] else [entry]
        elif is_folder or not _is_half_written(entry, contents):
            found.append(entry)
    return found


def _is_half_written(path: Path, contents: Contents) -> bool:
    """Whether a file is an unfinished write of a killed process: empty, or with the right beginning.

    The mark of a table is at its end. Its first bytes count as the beginning if a file with a mark lies beside it.
    """
    name = final_name(path.name)
    if path.is_symlink() or name == path.name or name not in contents.files:
        return False
    if path.stat().st_size == 0:
        return True
    if name.endswith(".parquet"):
        with path.open("rb") as file:
            return file.read(4) == b"PAR1" and any(kind_of(path.parent / other) for other in contents.files)
    return has_mark(path, contents.files[name])


def _is_working(path: Path, names: re.Pattern[str]) -> bool:
    return path.is_file() and not path.is_symlink() and names.fullmatch(path.name) is not None
