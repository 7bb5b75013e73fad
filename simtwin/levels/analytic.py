"""Level `analytic`: costs of a workload's collectives and messages by closed forms.

The nodes of a plan share few distinct costs. `cost_keys` lists them, and a `CostModel` gives the time of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from genie.plan.build import TIME_MAX_PS
from genie.workload.graph import Kind, Op, RankGraph, Workload

FACTS = ("kind", "op", "group", "size_bytes", "root", "peer")  # that decide a node's key, but for uneven splits
MESSAGE = "message"  # from `ranks[0]` to `ranks[1]`, as an operation


class CostKey(NamedTuple):
    """A collective or a message. `size_bytes` is as in genie/workload/graph.py."""

    op: str
    ranks: tuple[int, ...]
    size_bytes: int
    root: int = 0  # position


class CostModel(Protocol):
    """Times of collectives and messages once all of their ranks have arrived."""

    def prepare(self, keys: Sequence[CostKey]) -> None:
        """Compute everything about the network that these keys need, whatever their sizes are."""

    def cost_ps(self, key: CostKey) -> int: ...

    def acknowledgement_ps(self, key: CostKey) -> int:
        """Return the time from a message's arrival until its sender has the acknowledgement, in ps."""


@dataclass(frozen=True)
class CostKeys:
    """Distinct keys, and the key of each node of each rank; -1 for a node that is neither a collective nor a send."""

    keys: list[CostKey]
    of_node: list[NDArray[np.int32]]  # by rank: (n,)


def cost_keys(workload: Workload) -> CostKeys:
    """Return the keys of all ranks.

    With uneven splits the size is the larger of the bytes that the rank sends and receives.
    """
    number: dict[CostKey, int] = {}
    columns = []
    for rank in sorted(workload.ranks):
        graph = workload.ranks[rank]
        column = np.full(len(graph), -1, np.int32)
        rows = np.flatnonzero((graph.kind == Kind.COLL) | (graph.kind == Kind.SEND))
        # Few nodes differ: each kind is looked up once.
        facts = np.stack([getattr(graph, name)[rows].astype(np.int64) for name in FACTS], axis=1)
        facts = np.concatenate([facts, np.isin(rows, list(graph.splits))[:, None] * (rows[:, None] + 1)], axis=1)
        _, first, kind = np.unique(facts, axis=0, return_index=True, return_inverse=True)
        keys = [_key_of(workload, graph, int(rows[at])) for at in first]
        order = np.argsort(first)  # keys are numbered in the order of nodes
        found = np.zeros(len(keys), np.int32)
        for at in order.tolist():
            found[at] = number.setdefault(keys[at], len(number))
        column[rows] = found[kind.reshape(-1)]
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
    """Return costs in ps, (keys,), and the times of acknowledgements after them, (keys,); at most TIME_MAX_PS each."""
    return (
        np.array([min(model.cost_ps(key), TIME_MAX_PS) for key in keys], np.int64),
        np.array([min(model.acknowledgement_ps(key), TIME_MAX_PS) for key in keys], np.int64),
    )
