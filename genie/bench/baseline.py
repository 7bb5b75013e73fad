"""A bench beside an earlier one of the same kind: which sizes became slower. Pure but for reading reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct, ValidationError, convert

from genie.record import RecordError
from genie.record.marks import has_mark
from genie.record.reading import read_object

REPORT_KIND = "bench-report"
PRACTICAL = 0.1  # smallest change of a size's time that counts
SPREADS = 2.0  # robust standard deviations of an iteration, of both benches, beyond which a change counts
# Facts that two benches of one job share. Devices stand for the places of the ranks.
CONFIG = ("aggregated_iterations", "blocking_collectives", "devices")
SETTINGS = ("rate_bps", "transport", "transports", "queue_pairs", "split", "mtu", "congestion")
ASKED = ("operation", "world", *CONFIG)  # those that are known before a bench measures


class _Times(Struct):
    times_us: list[float]
    skipped_iterations: int = 0  # the first ones, of `times_us`

    @property
    def counted_us(self) -> list[float]:
        return self.times_us[self.skipped_iterations :]


class _Result(Struct):
    size: int
    type: str
    root: str
    out_of_place_per_iter: _Times


class _Lab(Struct):
    fabric: str | None = None


class _Settings(Struct):
    lab: _Lab | None = None


class _Run(Struct):
    settings: _Settings | None = None


class _Size(Struct):
    slower: bool


class _Compared(Struct):
    sizes: list[_Size] = []


class _Ours(Struct):
    collective: str
    world: str
    run: _Run | None = None
    baseline: _Compared | None = None


class _Report(Struct):
    """A report as far as a comparison needs it. `genie` is read as it is: see job_of()."""

    config: dict[str, Any]
    results: list[_Result]
    errors: list[str]
    out_of_bounds: dict[str, Any]
    average_bus_bandwidth: dict[str, Any]
    genie: dict[str, Any]
    end_time: str = ""

    @property
    def ours(self) -> _Ours:
        return convert(self.genie, _Ours)


@dataclass(frozen=True)
class SizeChange:
    """A size's median time in two benches, in us."""

    size_bytes: int
    root: str
    before_us: float
    after_us: float
    noise: float  # fraction: change that chance explains

    @property
    def fraction(self) -> float:
        return self.after_us / self.before_us - 1 if self.before_us > 0 else 0.0

    @property
    def is_slower(self) -> bool:
        return self.fraction >= max(PRACTICAL, self.noise)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fraction": self.fraction, "slower": self.is_slower}


@dataclass(frozen=True)
class BenchBaseline:
    """An earlier bench."""

    path: Path
    report: _Report

    @property
    def passed(self) -> bool:
        """Whether it ended without an error, a wrong byte, a bandwidth below its minimum, or a slower size."""
        checks = (self.report.out_of_bounds, self.report.average_bus_bandwidth)
        earlier = self.report.ours.baseline or _Compared()
        is_slower = any(each.slower for each in earlier.sizes)
        return not self.report.errors and not is_slower and all(each.get("okay") != "false" for each in checks)


def read_baseline(path: Path) -> BenchBaseline:
    """Return the bench of a report file. Raises RecordError."""
    with suppress(OSError):  # read_object() says what is wrong
        if path.is_file() and not has_mark(path, REPORT_KIND):
            raise RecordError(f"{path}: is no report of `genie bench -J`")
    if "results" not in read_object(path):
        raise RecordError(f"{path}: is a report of `genie bench` on paths: a baseline is one of a collective")
    report = convert(read_object(path, _Report), _Report)
    try:
        _ = report.ours
    except ValidationError as error:
        raise RecordError(f"{path}: is damaged: genie: {error}; run the bench again") from error
    return BenchBaseline(path, report)


def newest_bench(folder: Path, job: Mapping[str, Any]) -> BenchBaseline | None:
    """Return the newest bench of this job in a folder that passed; None without one."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            earlier = read_baseline(path)
        except RecordError:
            continue
        if earlier.passed and job_of(earlier.report.config, earlier.report.genie) == job:
            found.append(earlier)
    return max(found, key=lambda each: each.report.end_time, default=None)


def job_of(config: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that benches of one job share. `config` and `ours`: the report's keys `config` and `genie`."""
    run = ours.get("run") or {}
    settings = run.get("settings") or {}
    return {
        "operation": ours.get("collective"),
        "world": ours.get("world"),
        **{key: config.get(key) for key in CONFIG},
        **{key: settings.get(key) for key in SETTINGS},
        "lowering": run.get("lowering"),
        "level": run.get("level"),
        "asked": ours.get("asked"),
        "fabric": run.get("fabric") or (settings.get("lab") or {}).get("fabric"),
    }


def asked_of(config: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a job that are known before it is measured, as job_of() does."""
    return {key: value for key, value in job_of(config, ours).items() if key in ASKED}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the facts in which two jobs differ."""
    return [key for key, value in after.items() if before.get(key) != value]


def changes_of(before: BenchBaseline, report: Mapping[str, Any]) -> list[SizeChange]:
    """Return the sizes that both benches have. `report`: the later one, as its file holds it."""
    earlier: dict[tuple[int, str], list[float]] = {}
    for each in before.report.results:
        earlier.setdefault((each.size, each.root), []).extend(each.out_of_place_per_iter.counted_us)
    later: dict[tuple[int, str], list[float]] = {}
    for result in report["results"]:
        times_us = convert(result["out_of_place_per_iter"], _Times).counted_us
        later.setdefault((result["size"], result["root"]), []).extend(times_us)
    found = []
    for (size_bytes, root), after_us in later.items():
        before_us = earlier.get((size_bytes, root))
        if before_us and after_us and min(median(before_us), median(after_us)) > 0:
            noise = SPREADS * (_spread(before_us) ** 2 + _spread(after_us) ** 2) ** 0.5
            found.append(SizeChange(size_bytes, root, median(before_us), median(after_us), noise))
    return found


def _spread(times_us: Sequence[float]) -> float:
    middle = median(times_us)
    return 1.4826 * median(abs(each - middle) for each in times_us) / middle


def in_words(path: Path, changes: Sequence[SizeChange]) -> str:
    """Return the result of the comparison, in one line."""
    slower = [each for each in changes if each.is_slower]
    if not changes:
        return f"INCONCLUSIVE {path} has none of these sizes: nothing is compared"
    if not slower:
        return (
            f"SAME none of {len(changes)} sizes takes {100 * PRACTICAL:.0f} % longer than in {path}, beyond the noise "
            "of both"
        )
    worst = max(slower, key=lambda each: each.fraction)
    return (
        f"SLOWER {len(slower)} of {len(changes)} sizes take longer than in {path}: {worst.size_bytes} bytes "
        f"{100 * worst.fraction:+.0f} % ({worst.before_us:.1f} to {worst.after_us:.1f} us, noise "
        f"{100 * worst.noise:.0f} %)"
    )
