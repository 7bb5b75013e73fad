"""Wait, wire and excess of each collective, time of each iteration, and bus bandwidth by nccl-tests' convention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.record.bus_bandwidth import bus_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genie.record import Run
    from genie.verdict.align import Aligned


@dataclass(frozen=True)
class Collective:
    """One collective of one iteration, in ns. Lists are in the order of `ranks`."""

    iteration: int
    group: str
    seq: int
    op: str
    size_bytes: int
    ranks: list[int]
    wait_ns: list[int]  # time until the last rank arrived
    wait_bound_ns: list[int]  # error bound of the wait, from the clocks
    overshoot_ns: list[int]  # delay of this rank by sleeps that ended late since its last collective
    start_ns: int  # the last arrival, measured
    measured_ns: int  # from the last arrival to the last end
    wire_ns: int  # wire time of the twin, from the same moment
    excess_ns: int
    last_rank: int
    late_ns: int  # compute time of the last rank since its last collective, less the median rank's, without overshoot

    def to_dict(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "group": self.group,
            "seq": self.seq,
            "op": self.op,
            "size_bytes": self.size_bytes,
            "measured_ns": self.measured_ns,
            "wire_ns": self.wire_ns,
            "excess_ns": self.excess_ns,
            "last_rank": self.last_rank,
            "wait_ns": {str(rank): wait for rank, wait in zip(self.ranks, self.wait_ns, strict=True)},
            "wait_bound_ns": max(self.wait_bound_ns),
            "overshoot_ns": {str(rank): late for rank, late in zip(self.ranks, self.overshoot_ns, strict=True)},
        }


def decompose(aligned: Aligned, live: Run) -> list[Collective]:
    """Split every matched collective, in the order of its first arrival."""
    bounds = clock_bounds(live, aligned.ranks)
    lateness = _Overshoot(live.timeline)
    result = []
    for row in aligned.collectives.iter_rows(named=True):
        start = np.asarray(row["live_start"])
        end = np.asarray(row["live_end"])
        twin_start, twin_end = np.asarray(row["twin_start"]), np.asarray(row["twin_end"])
        measured = int(end.max() - start.max())
        wire = int(twin_end.max() - twin_start.max())
        last = int(start.argmax())
        epsilon = np.array([bounds[rank] for rank in row["ranks"]])
        overshoot = [
            lateness.before(row["iteration"], rank, int(at)) for rank, at in zip(row["ranks"], start, strict=True)
        ]
        since = [
            lateness.last_end(row["iteration"], rank, int(at)) for rank, at in zip(row["ranks"], start, strict=True)
        ]
        computed = start - np.asarray(since) - np.asarray(overshoot)
        result.append(
            Collective(
                iteration=row["iteration"],
                group=row["group"] or "",
                seq=row["seq"],
                op=row["op"] or "",
                size_bytes=row["size_bytes"],
                ranks=row["ranks"],
                wait_ns=[int(v) for v in start.max() - start],
                wait_bound_ns=[int(v) for v in epsilon + epsilon[last]],
                overshoot_ns=overshoot,
                start_ns=int(start.max()),
                measured_ns=measured,
                wire_ns=wire,
                excess_ns=measured - wire,
                last_rank=row["ranks"][last],
                late_ns=max(0, int(computed[last] - np.median(computed))),
            )
        )
    return result


def clock_bounds(live: Run, ranks: list[int]) -> dict[int, int]:
    """Error bound of each rank's clock in ns; 0 where ranks share a clock."""
    bounds = live.info.get("clock_bound_ns") or {}
    if isinstance(bounds, int | float):
        return {rank: int(bounds) for rank in ranks}
    if isinstance(bounds, list):
        bounds = dict(enumerate(bounds))
    return {rank: int(bounds.get(rank, bounds.get(str(rank), 0)) or 0) for rank in ranks}


class _Overshoot:
    """Lateness of each rank's next start because of sleeps that ended late.

    A sleep is timed from when the sleep before it was due, so that only the lateness of the latest one counts.
    """

    def __init__(self, timeline: pl.DataFrame) -> None:
        self._sleeps: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._ends: dict[tuple[int, int], NDArray[np.int64]] = {}
        sleeps = timeline.filter(pl.col("kind").is_in(["comp", "mem"]) & (pl.col("overshoot_ns") > 0))
        for key, part in sleeps.sort("end_ns").group_by("iteration", "rank"):
            columns = part["end_ns"].to_numpy(), part["overshoot_ns"].to_numpy()
            self._sleeps[(int(key[0]), int(key[1]))] = columns
        for key, part in timeline.filter(pl.col("kind") == "coll").sort("end_ns").group_by("iteration", "rank"):
            self._ends[(int(key[0]), int(key[1]))] = part["end_ns"].to_numpy()

    def before(self, iteration: int, rank: int, start_ns: int) -> int:
        """Lateness in ns, at most the time since the rank's last collective ended."""
        sleeps = self._sleeps.get((iteration, rank))
        if sleeps is None:
            return 0
        last = int(np.searchsorted(sleeps[0], start_ns, side="right")) - 1
        since = self.last_end(iteration, rank, start_ns)
        if last < 0 or sleeps[0][last] <= since:
            return 0
        return min(int(sleeps[1][last]), start_ns - since)

    def last_end(self, iteration: int, rank: int, start_ns: int) -> int:
        """Time at which the rank's last collective before that moment ended; 0 if there was none."""
        ends = self._ends.get((iteration, rank), np.zeros(0, np.int64))
        done = int(np.searchsorted(ends, start_ns, side="right"))
        return int(ends[done - 1]) if done else 0


@dataclass(frozen=True)
class IterationTotals:
    """One iteration: bus bandwidth in both worlds, and communication times in ns."""

    iteration: int
    measured_bytes_per_s: float
    simulated_bytes_per_s: float
    measured_ns: int  # time with some collective on the wire
    simulated_ns: int
    span_ns: int  # the whole iteration, measured

    @property
    def ratio(self) -> float:
        """Measured over simulated bus bandwidth."""
        return self.measured_bytes_per_s / self.simulated_bytes_per_s if self.simulated_bytes_per_s else float("nan")


def totals(aligned: Aligned, collectives: list[Collective], live: Run) -> list[IterationTotals]:
    """Totals of each judged iteration.

    Without collectives, the single messages count, by the time that their senders were busy.
    """
    spans = {
        int(row[0]): int(row[1])
        for row in live.timeline.group_by("iteration")
        .agg(pl.col("end_ns").max() - pl.col("start_ns").min())
        .iter_rows()
    }
    moved = aligned.transfers.group_by("iteration").agg(
        pl.col("size_bytes").sum(), pl.col("live_busy").sum(), pl.col("twin_busy").sum()
    )
    sent = {int(row[0]): row[1:] for row in moved.iter_rows()}
    by_iteration: dict[int, list[Collective]] = {iteration: [] for iteration in aligned.iterations}
    for item in collectives:
        if item.size_bytes > 0 and item.wire_ns > 0 and item.measured_ns > 0:
            by_iteration[item.iteration].append(item)
    result = []
    for iteration, items in by_iteration.items():
        if items:
            volume = sum(bus_bytes(item.op, item.size_bytes, len(item.ranks)) for item in items)
            measured = sum(item.measured_ns for item in items)
            simulated = sum(item.wire_ns for item in items)
            on_wire = _union([(item.start_ns, item.start_ns + item.measured_ns) for item in items])
            in_twin = _union([(item.start_ns, item.start_ns + item.wire_ns) for item in items])
        elif iteration in sent:
            volume, measured, simulated = sent[iteration]
            share = len(aligned.ranks)
            on_wire, in_twin = measured // share, simulated // share
        else:
            continue
        result.append(
            IterationTotals(
                iteration, volume / measured * 1e9, volume / simulated * 1e9, on_wire, in_twin, spans.get(iteration, 0)
            )
        )
    return result


def _union(intervals: list[tuple[int, int]]) -> int:
    """Length of the union of the intervals."""
    covered, reach = 0, -(1 << 62)
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, reach))
        reach = max(reach, end)
    return covered
