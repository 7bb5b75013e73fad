"""Which collectives carry what a slow component costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genie.verdict.decompose import Collective

SHARE_MIN = 0.05  # of the whole cost: less is not worth a word


@dataclass(frozen=True)
class Carrier:
    """A collective of each iteration, and what it takes more than in the twin."""

    op: str
    group: str
    seq: int
    size_bytes: int
    extra_ns: int  # the median over iterations
    share: float  # of what all of them take more


def carriers_of(collectives: Iterable[Collective], level: float) -> list[Carrier]:
    """Those that take more than the twin's time at the fleet's own `level`, the one that takes most first."""
    table: dict[tuple[str, int, str, int], list[float]] = {}
    for item in collectives:
        key = (item.group, item.seq, item.op, item.size_bytes)
        table.setdefault(key, []).append(item.measured_ns - item.wire_ns * level)
    extra = {key: float(np.median(values)) for key, values in table.items()}
    total = sum(max(0.0, value) for value in extra.values())
    found = [
        Carrier(op, group, seq, size_bytes, int(value), value / total)
        for (group, seq, op, size_bytes), value in extra.items()
        if value > 0 and value >= SHARE_MIN * total
    ]
    return sorted(found, key=lambda carrier: -carrier.extra_ns)
