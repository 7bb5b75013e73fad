"""Collectives that carry the cost of a slow component."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genie.verdict.decompose import Collective

SHARE_MIN = 0.05  # of the whole cost: a smaller part is not reported
Key = tuple[str, int, str, int]


@dataclass(frozen=True)
class Carrier:
    """A collective that every iteration has, and the time that it adds to an iteration."""

    op: str
    group: str
    seq: int
    size_bytes: int
    extra_ns: int  # mean over iterations: means add up, and medians do not
    share: float  # of an iteration's cost


def carriers_of(collectives: Iterable[Collective], level: float, cost_ns: int) -> list[Carrier]:
    """Collectives that take longer than the twin's time at the fleet's own `level`, the largest part first.

    Their parts add up to `cost_ns` at most, the extra time of an iteration.
    """
    by_iteration: dict[int, list[Collective]] = defaultdict(list)
    for item in collectives:
        by_iteration[item.iteration].append(item)
    table: dict[Key, list[float]] = defaultdict(list)
    for items in by_iteration.values():
        for item, part in zip(items, parts_of(items, level), strict=True):
            table[item.group, item.seq, item.op, item.size_bytes].append(part)
    extra = {key: sum(values) / len(by_iteration) for key, values in table.items()}
    total = sum(extra.values())
    scale = min(1.0, cost_ns / total) if total > 0 else 0.0
    found = [
        Carrier(op, group, seq, size_bytes, int(value * scale), value * scale / cost_ns)
        for (group, seq, op, size_bytes), value in extra.items()
        if cost_ns > 0 and value * scale >= SHARE_MIN * cost_ns
    ]
    return sorted(found, key=lambda carrier: -carrier.extra_ns)


def parts_of(items: list[Collective], level: float) -> list[float]:
    """For each collective of one iteration: its part of the time in which some take longer than in the twin.

    Time in which another collective is on the wire as simulated adds nothing to the iteration. Where several take
    longer at the same time, each has an equal part.
    """
    expected = [item.start_ns + item.wire_ns * level for item in items]
    moments: list[tuple[float, int, int]] = []  # time, change of the number on time, change of the number overdue
    for item, due in zip(items, expected, strict=True):
        end = item.start_ns + item.measured_ns
        moments += [(item.start_ns, 1, 0), (due, -1, 0)]
        if end > due:
            moments += [(due, 0, 1), (end, 0, -1)]
    moments.sort()
    times, spent = [0.0], [0.0]  # time that one overdue collective has been charged until then
    as_expected = beyond = 0
    for time, more_expected, more_beyond in moments:
        alone = 1 / beyond if beyond and not as_expected else 0.0
        spent.append(spent[-1] + alone * (time - times[-1]))
        times.append(time)
        as_expected += more_expected
        beyond += more_beyond
    ends = [max(due, item.start_ns + item.measured_ns) for item, due in zip(items, expected, strict=True)]
    parts = np.interp(ends, times, spent) - np.interp(expected, times, spent)
    return [float(part) for part in parts]
