"""Comparison of two runs of one workload: the later one judged against the earlier one's typical iteration."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK
from genie.page.words import amount, count_of, duration, percent, upper_bound
from genie.verdict.align import align
from genie.verdict.compatibility import VerdictError, bound_of_estimates, communication
from genie.verdict.history.reference import as_measured, check_complete, ended_iterations, reference_of
from genie.verdict.judge import judge, noise_model
from genie.verdict.options import Options
from genie.verdict.probed.probes import Probes, relative_to
from genie.verdict.series import both_directions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genie.record import Run
    from genie.verdict.model import Suspect, Verdict

Result = Literal["same", "slower", "faster", "inconclusive"]
EXIT_CODES = {"same": EXIT_OK, "faster": EXIT_OK, "slower": EXIT_FAILED, "inconclusive": EXIT_INCONCLUSIVE}
SURE = 3.0  # standard errors of a median, beyond which a change is not noise
MEDIAN_ERROR = 1.2533 * 1.4826  # standard error of a median, over median absolute deviation and root of the number
UNSURE_MIN = 0.05  # a change within the noise that is not called none
EXACT_MIN = 0.005  # smallest change that counts between two simulations, which have no noise
OF_THE_FABRIC = {"nic_gb_per_s", "scale_up_gb_per_s"}  # in a lowering
Key = tuple[str, int, str, int]


@dataclass(frozen=True)
class Change:
    """A time in both runs. Times are medians over iterations; `noise` is the standard error of their ratio."""

    before_ns: int
    after_ns: int
    fraction: float  # after / before, minus 1
    noise: float
    iterations: tuple[int, int]  # before, after

    @property
    def is_sure(self) -> bool:
        """Whether the change is beyond the noise of both runs."""
        return bool(abs(np.log1p(self.fraction)) > SURE * self.noise)

    def words(self) -> str:
        """`8 % longer (+34 ms, ± 3 ms)`, or `as long (+0.2 ms, ± 3 ms)` within the noise."""
        more = self.after_ns - self.before_ns
        beside = f", ± {duration(self.noise * SURE * self.before_ns)}" if self.noise else ""
        change = f"({'+' if more >= 0 else '-'}{duration(abs(more))}{beside})"
        if not self.is_sure and abs(self.fraction) >= UNSURE_MIN:
            return f"times that vary too much to compare {change}"
        if not self.is_sure:
            return f"as long {change}"
        size = f"{100 * abs(self.fraction):.1f} %" if abs(self.fraction) < 0.1 else percent(abs(self.fraction))
        return f"{size} {'longer' if more >= 0 else 'less long'} {change}"


@dataclass(frozen=True)
class CollectiveChange:
    """A collective that every iteration has, from its last arrival to its last end."""

    op: str
    group: str
    seq: int
    size_bytes: int
    change: Change

    @property
    def name(self) -> str:
        group = "" if self.group in ("", "0") else f" of group {self.group}"
        return f"{self.op} #{self.seq}{group} ({amount(self.size_bytes)})"


@dataclass(frozen=True)
class GroupChange:
    """The collectives of a group that every iteration of both runs has, their times added up."""

    group: str
    collectives: int
    change: Change

    @property
    def name(self) -> str:
        return f"group {self.group or '0'}, {count_of(self.collectives, 'collective')}"


@dataclass(frozen=True)
class Comparison:
    """Two runs of one workload, and the changes from the first to the second."""

    result: Result
    before: str  # path of the run
    after: str
    iteration: Change
    collectives: list[CollectiveChange]  # the largest change in time first
    groups: list[GroupChange]  # likewise
    suspects: list[Suspect]
    coverage: str  # `8 of 8 NICs and 8 of 8 links between switches`
    fleet: float  # change of the median rank's transfers
    verdict: Verdict  # on the later run, with the earlier one in place of a twin
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 same or faster, 1 slower, 4 inconclusive."""
        return EXIT_CODES[self.result]

    def line(self) -> str:
        """The result in one line."""
        return f"{self.result.upper()} {self.runs()}: {'; '.join(self.parts())}"

    def runs(self) -> str:
        """`runs/tuesday than runs/monday`, to follow the result."""
        beside = {"same": "as", "inconclusive": "beside"}.get(self.result, "than")
        return f"{self.after} {beside} {self.before}"

    def parts(self) -> list[str]:
        """The findings, the most important one first."""
        took = f"iterations take {self.iteration.words()}"
        parts = [took]
        if self.suspects:
            first = self.suspects[0].evidence.split(";")[0]
            first += f" (and {len(self.suspects) - 1} more)" if len(self.suspects) > 1 else ""
            # A simulation shows slower parts that the iterations do not wait for.
            parts = [first, took] if self.result in ("slower", "inconclusive") else [f"{took}, although {first}"]
        elif self.result == "same" and not self.verdict.judged.is_empty:
            parts.append("no NIC or link that was compared became slower by 10 % or more")
        return [*parts, *self.notes, f"{self.coverage} compared"]

    def to_dict(self) -> dict[str, Any]:
        """Content of compare.json, for one pair of runs."""
        return {
            "result": self.result,
            "summary": self.line(),
            "before": self.before,
            "after": self.after,
            "iteration": asdict(self.iteration),
            "fleet": self.fleet,
            "suspects": [asdict(suspect) for suspect in self.suspects],
            "coverage": self.coverage,
            "collectives": [{**asdict(each), "name": each.name} for each in self.collectives],
            "groups": [asdict(each) for each in self.groups],
            "upper_bound": self.verdict.upper_bound,
            "notes": self.notes,
        }


def compare(
    before: Run,
    after: Run,
    twins: tuple[Run | None, Run | None] = (None, None),
    probes: tuple[Probes | None, Probes | None] = (None, None),
) -> Comparison:
    """Compare two runs of one workload. `twins`: of both, which know the fabric. `probes`: of links after both runs.

    Raises VerdictError where they are of different workloads, one was cut short, or no iteration ended.
    """
    for run in (before, after):
        check_complete(run)
    reference, measured = reference_of(before, twins[0]), as_measured(after)
    _check_alike(before, after)
    _check_fabrics(before, after, twins)
    options = Options()
    first = align(as_measured(before), reference)
    spread, stride = noise_model(both_directions(first))
    error = MEDIAN_ERROR * spread.spread / 1.4826 / np.sqrt(max(1, spread.units / stride))
    practical = options.practical
    verdict = judge(
        measured,
        reference,
        Options(
            reference="before",
            time_of="the time before",
            margin=options.margin + SURE * float(error),
            fleet_large=practical,
            fleet_small=practical,
        ),
        relative_to(probes[0], probes[1]) if probes[0] is not None and probes[1] is not None else None,
    )
    iteration = change_of(_spans(before), _spans(after))
    # A simulation that followed a live run has the noise of that run's arrivals.
    is_exact = all(run.info.get("world") == "twin" and not run.info.get("follow") for run in (before, after))
    bounds = bound_of_estimates(before), bound_of_estimates(after)
    if is_exact:
        iteration = replace(iteration, noise=0.0)
        result, notes = _exact_result(iteration.fraction, *bounds)
    elif any(bounds):
        result, notes = "inconclusive", ["simulate without --skip-error to compare"]
    else:
        result, notes = _result(verdict, iteration, practical)
    notes += [note for run in (before, after) for note in _estimated(run)]
    if verdict.judged.is_empty and min(iteration.iterations) == 1:
        notes.append("with one iteration no NIC or link is compared")
    return Comparison(
        result,
        str(before.path),
        str(after.path),
        iteration,
        collective_changes(before, after),
        group_changes(before, after),
        verdict.suspects,
        verdict.judged.words().removesuffix(" judged"),
        verdict.fleet.slow_down,
        verdict,
        notes,
    )


def _exact_result(fraction: float, before: float, after: float) -> tuple[Result, list[str]]:
    """Return the result for two simulations.

    `fraction`: the change of the iteration time. `before`, `after`: the bounds of their estimates, as shares.
    """
    least = (1 + fraction) * max(1 - after, 0.0) / (1 + before) - 1
    most = (1 + fraction) * (1 + after) / (1 - before) - 1 if before < 1 else math.inf
    if least > -EXACT_MIN and most < EXACT_MIN:
        return "same", []
    if least >= EXACT_MIN:
        return "slower", []
    if most <= -EXACT_MIN:
        return "faster", []
    return "inconclusive", ["the change is within the bounds of the estimates: simulate without --skip-error"]


def _result(verdict: Verdict, iteration: Change, practical: float) -> tuple[Result, list[str]]:
    doubt = verdict.suspects[0].doubt if verdict.suspects else ""  # the certain ones come first
    if verdict.suspects and not doubt:
        return "slower", []
    if doubt and not (iteration.is_sure and iteration.fraction >= practical) and verdict.fleet.result != "fail":
        return "inconclusive", [f"open: {doubt}"]
    if doubt:
        return "slower", [f"open: {doubt}"]
    if iteration.is_sure and iteration.fraction >= practical:
        return "slower", ["no single NIC or link stands out"]
    if verdict.fleet.result == "fail":
        return "slower", [verdict.fleet.words]
    if iteration.is_sure and iteration.fraction <= -practical:
        return "faster", []
    seen = verdict.smallest_detectable["whole"]
    if seen is None or seen > 2 * practical:
        return "inconclusive", ["too few iterations, or too noisy, to see a NIC or link that became 20 % slower"]
    return "same", []


def _estimated(run: Run) -> list[str]:
    """A note where a simulation's times may be apart from those of level packet, none where they are its times."""
    bound = bound_of_estimates(run)
    if bound > 0:
        ends = "not all with a bound" if math.isinf(bound) else f"ends of messages within {upper_bound(bound)}"
        return [f"{run.path} has estimates (--skip-error), {ends}"]
    if run.info.get("error_bound", 0.0) is None:
        return [f"{run.path} is of level {run.info.get('level')}, whose error has no bound"]
    return []


def _check_alike(before: Run, after: Run) -> None:
    """Raises VerdictError unless both runs are of one world, one workload and one set of messages."""
    worlds = before.info.get("world"), after.info.get("world")
    if worlds[0] != worlds[1]:
        raise VerdictError(
            f"{before.path} is of the {worlds[0]} world and {after.path} of the {worlds[1]} world: compare live runs "
            "with live runs and simulations with simulations; genie diff judges a live run against its twin"
        )
    for key in ("ranks", "lowering", "algorithms"):
        one, other = before.info.get(key), after.info.get(key)
        if one is not None and other is not None and (differs := _first_difference(one, other)) is not None:
            place, values = ".".join((key, *differs[0])), f"{differs[1]} and {differs[2]}"
            raise VerdictError(f"{before.path} and {after.path} differ in {place} ({values}): compare runs of one job")
    one, other = (communication(run, ended_iterations(run)[0]) for run in (before, after))
    if not one.sort(one.columns).equals(other.sort(other.columns)):
        raise VerdictError(f"{before.path} and {after.path} are runs of other workloads: compare runs of one job")


def _first_difference(one: Any, other: Any) -> tuple[tuple[str, ...], Any, Any] | None:
    """Return the place and the values of a difference between two settings; None without one.

    Rates of a fabric's servers are no settings of a job: messages that follow from them are compared by themselves.
    """
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return None if one == other else ((), one, other)
    for key in sorted({*one, *other} - OF_THE_FABRIC):
        if (found := _first_difference(one.get(key), other.get(key))) is not None:
            return (str(key), *found[0]), found[1], found[2]
    return None


def _check_fabrics(before: Run, after: Run, twins: tuple[Run | None, Run | None]) -> None:
    """Raises VerdictError for live runs of validations on different fabrics. Simulations may compare fabrics."""
    one, other = (_fabric_of(run, twin) for run, twin in zip((before, after), twins, strict=True))
    if before.info.get("world") == "live" and one and other and one != other:
        raise VerdictError(
            f"{before.path} and {after.path} are runs on different fabrics ({one} and {other}): compare runs of one job"
        )


def _fabric_of(run: Run, twin: Run | None) -> str:
    """The name of a run's fabric; "" where it is not known."""
    if twin is not None:
        return str(twin.info.get("fabric") or "")
    return str((run.info.get("settings") or {}).get("fabric") or "")


def change_of(before: NDArray[np.float64], after: NDArray[np.float64]) -> Change:
    """Return the change of a time, from its values in the iterations of both runs."""
    typical = float(np.median(before)), float(np.median(after))
    noise = float(np.hypot(_error(before), _error(after)))
    fraction = typical[1] / typical[0] - 1 if typical[0] > 0 else 0.0
    return Change(round(typical[0]), round(typical[1]), fraction, noise, (len(before), len(after)))


def _error(values: NDArray[np.float64]) -> float:
    """Standard error of the median, relative to it."""
    middle = float(np.median(values))
    deviation = float(np.median(np.abs(values - middle)))
    return MEDIAN_ERROR * deviation / np.sqrt(len(values)) / middle if middle > 0 else 0.0


def _spans(run: Run) -> NDArray[np.float64]:
    kept = run.timeline.filter(pl.col("iteration").is_in(ended_iterations(run)))
    spans = kept.group_by("iteration").agg(span=pl.col("end_ns").max() - pl.col("start_ns").min())
    return spans.sort("iteration")["span"].to_numpy().astype(np.float64)


def collective_changes(before: Run, after: Run) -> list[CollectiveChange]:
    """The changes of all collectives, the largest change in time first."""
    first, second = _wires(before), _wires(after)
    found = [
        CollectiveChange(op, group, seq, size, change_of(first[group, seq, op, size], values))
        for (group, seq, op, size), values in second.items()
        if (group, seq, op, size) in first
    ]
    return sorted(found, key=lambda each: -abs(each.change.after_ns - each.change.before_ns))


def group_changes(before: Run, after: Run) -> list[GroupChange]:
    """The changes of all groups, the largest change in time first."""
    first, second = _wires(before), _wires(after)
    whole = [len(ended_iterations(run)) for run in (before, after)]
    groups: dict[str, list[Key]] = {}
    for key in second:
        if key in first and [len(first[key]), len(second[key])] == whole:
            groups.setdefault(key[0], []).append(key)
    found = [
        GroupChange(
            group, len(keys), change_of(*(np.sum([wires[key] for key in keys], axis=0) for wires in (first, second)))
        )
        for group, keys in groups.items()
    ]
    return sorted(found, key=lambda each: -abs(each.change.after_ns - each.change.before_ns))


def _wires(run: Run) -> dict[Key, NDArray[np.float64]]:
    """Collective -> time from its last arrival to its last end, by iteration."""
    table = (
        run.timeline.filter((pl.col("kind") == "coll") & pl.col("iteration").is_in(ended_iterations(run)))
        .group_by("iteration", "group", "seq")
        .agg(
            pl.col("op").first(),
            pl.col("size_bytes").max(),
            (pl.col("end_ns").max() - pl.col("start_ns").max()).alias("wire"),
            pl.len().alias("members"),
        )
        .filter(pl.col("members") >= 2)
        .sort("group", "seq", "iteration")
    )
    found: dict[Key, list[float]] = {}
    for row in table.iter_rows(named=True):
        key = (row["group"] or "", int(row["seq"]), row["op"] or "", int(row["size_bytes"]))
        found.setdefault(key, []).append(float(row["wire"]))
    return {key: np.array(values) for key, values in found.items()}
