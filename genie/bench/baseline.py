"""A bench beside an earlier one of the same kind: which sizes became slower. Pure but for reading reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

from genie.record import RecordError
from genie.record.marks import kind_of
from genie.record.reading import read_object

if TYPE_CHECKING:
    from genie.bench.asked import Asked
    from genie.bench.nccl_json import Device

REPORT_KIND = "bench-report"
PRACTICAL = 0.1  # smallest change of a size's time that counts
SPREADS = 2.0  # robust standard deviations of an iteration, of both benches, beyond which a change counts
MTU = "mtu"  # the fact of a job that a bench may find only when it runs
# Settings that two benches of one job share, beside their operation and the places of their ranks.
SETTINGS = ("rate_bps", "transport", "transports", "queue_pairs", "split", MTU, "congestion")


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


class _Size(Struct):
    slower: bool


class _Compared(Struct):
    sizes: list[_Size] = []


class _Ours(Struct):
    collective: str
    world: str
    job: dict[str, Any] = {}
    baseline: _Compared | None = None


class _Report(Struct):
    """A report as far as a comparison needs it."""

    results: list[_Result]
    errors: list[str]
    out_of_bounds: dict[str, Any]
    average_bus_bandwidth: dict[str, Any]
    genie: _Ours
    end_time: str = ""


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
        earlier = self.report.genie.baseline or _Compared()
        is_slower = any(each.slower for each in earlier.sizes)
        return not self.report.errors and not is_slower and all(each.get("okay") != "false" for each in checks)

    @property
    def job(self) -> dict[str, Any]:
        """The facts that benches of its job share."""
        return self.report.genie.job


def read_baseline(path: Path) -> BenchBaseline:
    """Return the bench of a report file. Raises RecordError."""
    if path.is_file() and kind_of(path.resolve()) != REPORT_KIND:  # read_object() says what else is wrong
        raise RecordError(f"{path}: is no report of `genie bench -J`")
    if "results" not in read_object(path):
        raise RecordError(f"{path}: is a report of `genie bench` on paths: a baseline is one of a collective")
    report = convert(read_object(path, _Report), _Report)
    if not report.genie.job:
        raise RecordError(f"{path}: does not say of which job it is: run that bench again with this version")
    return BenchBaseline(path, report)


def newest_bench(folder: Path, job: Mapping[str, Any]) -> BenchBaseline | None:
    """Return the newest bench of this job in a folder that passed; None without one."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            earlier = read_baseline(path)
        except RecordError:
            continue
        if earlier.passed and earlier.job == job:
            found.append(earlier)
    return max(found, key=lambda each: each.report.end_time, default=None)


def asked_facts(operation: str, world: str, asked: Asked) -> dict[str, Any]:
    """Return the facts of a job that options alone decide."""
    facts = {"operation": operation, "world": world, "aggregated": asked.aggregated, "blocking": asked.blocking.name}
    return facts | {"ranks": asked.ranks} if asked.ranks else facts


def job_of(asked: Mapping[str, Any], devices: Sequence[Device], world: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that benches of one job share, as a report has them.

    `world`: the facts of the network or the twin: SETTINGS, `lowering`, and the fabric's name where a file names it.
    """
    plain: dict[str, Any] = json.loads(json.dumps({**asked, "devices": [asdict(each) for each in devices], **world}))
    return plain


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the facts in which two jobs differ, of those that are known of the later one."""
    return [key for key, value in after.items() if value is not None and before.get(key) != value]


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


def in_words(path: Path, changes: Sequence[SizeChange], measured: int) -> str:
    """Return the result of the comparison, in one line. `measured`: sizes of the later bench, compared or not."""
    slower = [each for each in changes if each.is_slower]
    if not changes:
        return f"INCONCLUSIVE {path} has none of these sizes: nothing is compared"
    others = f"; {path} lacks {measured - len(changes)} other sizes" if measured > len(changes) else ""
    if not slower:
        return (
            f"SAME none of {len(changes)} sizes takes {100 * PRACTICAL:.0f} % longer than in {path}, beyond the noise "
            f"of both{others}"
        )
    worst = max(slower, key=lambda each: each.fraction)
    return (
        f"SLOWER {len(slower)} of {len(changes)} sizes take longer than in {path}: {worst.size_bytes} bytes "
        f"{100 * worst.fraction:+.0f} % ({worst.before_us:.1f} to {worst.after_us:.1f} us, noise "
        f"{100 * worst.noise:.0f} %){others}"
    )
