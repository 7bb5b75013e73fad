"""Level `analytic`: what each collective and each message of a workload costs, by closed forms.

A plan's nodes share few costs: `cost_keys` lists them, a `CostModel` says what each takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from genie.plan.build import TIME_MAX_PS
from genie.workload.graph import Kind, Op, RankGraph, Workload

MESSAGE = "message"  # from `ranks[0]` to `ranks[1]`, as an operation


class CostKey(NamedTuple):
    """A collective, or a message. `size_bytes`: as genie/workload/graph.py has it."""

    op: str
    ranks: tuple[int, ...]
    size_bytes: int
    root: int = 0  # position


class CostModel(Protocol):
    """How long what a key says takes once all of its ranks are there."""

    def prepare(self, keys: Sequence[CostKey]) -> None:
        """Learn of the network what these keys will ask: as long as it takes, and whatever their sizes are."""

    def cost_ps(self, key: CostKey) -> int: ...

    def acknowledgement_ps(self, key: CostKey) -> int:
        """From a message's arrival until its sender hears of it."""


@dataclass(frozen=True)
class CostKeys:
    """Which key each node of each rank has, -1: none (it is neither a collective nor a send)."""

    keys: list[CostKey]
    of_node: list[NDArray[np.int32]]  # by rank: (n,)


def cost_keys(workload: Workload) -> CostKeys:
    """The keys of all ranks. Of uneven splits a rank's key has what it sends or receives, whichever is more."""
    number: dict[CostKey, int] = {}
    columns = []
    for rank in sorted(workload.ranks):
        graph = workload.ranks[rank]
        column = np.full(len(graph), -1, np.int32)
        for row in np.flatnonzero((graph.kind == Kind.COLL) | (graph.kind == Kind.SEND)).tolist():
            key = _key_of(workload, graph, row)
            column[row] = number.setdefault(key, len(number))
        columns.append(column)
    return CostKeys(list(number), columns)


def _key_of(workload: Workload, graph: RankGraph, row: int) -> CostKey:
    size_bytes = max(int(graph.size_bytes[row]), 0)
    if graph.kind[row] == Kind.SEND:
        return CostKey(MESSAGE, (graph.rank, int(graph.peer[row])), size_bytes)
    if (splits := graph.splits.get(row)) is not None:
        size_bytes = max(int(np.sum(each)) for each in splits)
    ranks = workload.groups[int(graph.group[row])].ranks
    return CostKey(Op(graph.op[row]).name.lower(), ranks, size_bytes, int(graph.root[row]))


def costs_of(model: CostModel, keys: Sequence[CostKey]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(keys,) ps each: costs, and what acknowledgements take after them; at most TIME_MAX_PS."""
    return (
        np.array([min(model.cost_ps(key), TIME_MAX_PS) for key in keys], np.int64),
        np.array([min(model.acknowledgement_ps(key), TIME_MAX_PS) for key in keys], np.int64),
    )
