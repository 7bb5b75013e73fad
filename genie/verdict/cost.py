"""Cost of a slow component: the time that it adds to an iteration, and the collectives that carry it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from genie.verdict.model import Carrier, Cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from genie.record import Run

SHARE_MIN = 0.05  # of the whole cost: a smaller part is not reported
Key = tuple[str, int, str, int]  # group, seq, operation, size in bytes
Wire = tuple[Key | None, int, int]  # None: a single message; start and end in ns


@dataclass(frozen=True)
class Parts:
    """An iteration, divided by its traffic: parts in ns, which add up to its span."""

    by_key: dict[Key | None, float]  # time on the wire; None: of single messages
    idle_ns: float  # time with nothing on the wire

    @property
    def wire_ns(self) -> float:
        """Time with some traffic on the wire."""
        return sum(self.by_key.values())


def cost_of(live: Run, expected: Run, iterations: list[int], fleet_slow_down: float) -> Cost | None:
    """Median time by which iterations of the live run are longer than expected; None if none of them has a span.

    `expected`: a run without the fault, on the same paths and from its own starts. The iterations that are longer
    also delay what comes after, which a twin that follows measured starts takes as given. `fleet_slow_down`: of all
    ranks, which is no fault's cost. Time with nothing on the wire counts only where traffic fills it: hosts that
    compute for longer are no cost of a component.
    """
    level = 1 + max(0.0, fleet_slow_down)
    without = mean_of([parts for _, parts in parts_by_iteration(expected)])
    inside = set(iterations)
    played = [parts for number, parts in parts_by_iteration(live) if number in inside]
    if without is None or not played:
        return None
    extra = [
        max(0.0, parts.wire_ns - without.wire_ns * level + min(0.0, parts.idle_ns - without.idle_ns))
        for parts in played
    ]
    rest = [max(1.0, parts.wire_ns + parts.idle_ns - more) for parts, more in zip(played, extra, strict=True)]
    cost_ns = int(np.median(extra))
    fraction = float(np.median([more / left for more, left in zip(extra, rest, strict=True)]))
    return Cost(cost_ns, int(np.median(rest)), fraction, carriers_of(played, without, level, cost_ns))


def carriers_of(played: list[Parts], without: Parts, level: float, cost_ns: int) -> list[Carrier]:
    """Groups and operations whose parts grew, the largest growth first. They add up to `cost_ns` at most.

    A fault that pushes collectives apart takes time from some and adds it to others, so that only sums say something.
    """
    typical = mean_of(played)
    if typical is None or cost_ns <= 0:
        return []
    grown: dict[tuple[str, str] | None, float] = defaultdict(float)
    members: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key, value in typical.by_key.items():
        kind = None if key is None else (key[0], key[2])
        grown[kind] += value - level * without.by_key.get(key, 0.0)
        if key is not None:
            members[key[0], key[2]].append(key)
    total = sum(value for value in grown.values() if value > 0)
    scale = min(1.0, cost_ns / total) if total > 0 else 0.0
    found = [
        Carrier(
            op, group, len(keys), min(key[1] for key in keys), sum(key[3] for key in keys),
            int(grown[group, op] * scale), grown[group, op] * scale / cost_ns,
        )
        for (group, op), keys in members.items()
        if grown[group, op] * scale >= SHARE_MIN * cost_ns
    ]  # fmt: skip
    return sorted(found, key=lambda carrier: -carrier.extra_ns)


def parts_by_iteration(run: Run) -> Iterator[tuple[int, Parts]]:
    """Divide each iteration of a run in which something has a span."""
    wires: dict[int, list[Wire]] = defaultdict(list)
    of_collectives = (
        run.timeline.filter((pl.col("kind") == "coll") & (pl.col("end_ns") >= 0))
        .group_by("iteration", "group", "seq")
        .agg(
            pl.col("op").first(), pl.col("size_bytes").max(), pl.col("start_ns").max(), pl.col("end_ns").max(), pl.len()
        )
        .filter(pl.col("len") >= 2)
        .sort("iteration", "start_ns", "group", "seq")
    )
    for row in of_collectives.iter_rows(named=True):
        key = (row["group"] or "", int(row["seq"]), row["op"] or "", int(row["size_bytes"]))
        wires[int(row["iteration"])].append((key, int(row["start_ns"]), int(row["end_ns"])))
    sends = run.timeline.filter((pl.col("kind") == "send") & (pl.col("end_ns") >= 0))
    for iteration, start, end in sends.select("iteration", "start_ns", "end_ns").iter_rows():
        wires[int(iteration)].append((None, int(start), int(end)))
    spans = run.timeline.group_by("iteration").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("iteration")
    for iteration, start, end in spans.iter_rows():
        if end > start:
            yield int(iteration), parts_of(wires[int(iteration)], end - start)


def parts_of(wires: Iterable[Wire], span_ns: int) -> Parts:
    """Divide an iteration of this span. Traffic that is on the wire at the same time has equal parts of it."""
    wires = list(wires)
    moments = sorted([(start, 1) for _, start, _ in wires] + [(max(start, end), -1) for _, start, end in wires])
    times, spent, covered = [0.0], [0.0], 0.0  # spent: time that one wire which is there throughout has had until then
    on_wire = 0
    for time, change in moments:
        passed = time - times[-1]
        spent.append(spent[-1] + (passed / on_wire if on_wire else 0.0))
        covered += passed if on_wire else 0.0
        times.append(time)
        on_wire += change
    by_key: dict[Key | None, float] = defaultdict(float)
    for key, start, end in wires:
        by_key[key] += float(np.interp(max(start, end), times, spent) - np.interp(start, times, spent))
    return Parts(dict(by_key), span_ns - covered)


def mean_of(played: list[Parts]) -> Parts | None:
    """Return the mean of some iterations: means add up, and medians do not."""
    if not played:
        return None
    keys = {key for parts in played for key in parts.by_key}
    by_key = {key: sum(parts.by_key.get(key, 0.0) for parts in played) / len(played) for key in keys}
    return Parts(by_key, sum(parts.idle_ns for parts in played) / len(played))
