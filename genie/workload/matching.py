"""Matching across ranks: sends with receives, and the members' nodes of each collective.

Nodes of all loaded ranks have consecutive numbers ("global rows"), rank after rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Kind, RankGraph, Workload

Rows = NDArray[np.int64]


class GlobalRows:
    """Numbering of the nodes of all loaded ranks."""

    def __init__(self, workload: Workload) -> None:
        self.graphs: list[RankGraph] = list(workload.ranks.values())
        self.start: Rows = np.concatenate([[0], np.cumsum([len(graph) for graph in self.graphs], dtype=np.int64)])

    def __len__(self) -> int:
        return int(self.start[-1])

    def locate(self, row: int) -> tuple[RankGraph, int]:
        """(graph, row in it) of a global row."""
        index = int(np.searchsorted(self.start, row, side="right")) - 1
        return self.graphs[index], row - int(self.start[index])

    def column(self, name: str) -> NDArray[np.int64]:
        """An integer column of all ranks, concatenated."""
        empty: list[Rows] = [np.zeros(0, dtype=np.int64)]
        return np.concatenate(empty + [getattr(graph, name).astype(np.int64) for graph in self.graphs])

    def describe(self, row: int) -> str:
        """Description of a node: rank, id and name."""
        graph, local = self.locate(row)
        return f"rank {graph.rank} node {graph.node_id[local]} ({graph.name[local]})"


@dataclass
class Messages:
    """Sends and receives, matched first in, first out per (source, destination, tag) in the order of ids.

    Messages from or to a rank that is not loaded are left out.
    """

    send: Rows  # (p,) global rows of matched sends
    recv: Rows  # (p,) global rows of their receives
    unmatched_send: Rows  # global rows
    unmatched_recv: Rows


def match_messages(workload: Workload, rows: GlobalRows) -> Messages:
    """Match every send with its receive."""
    kind = rows.column("kind")
    loaded = np.zeros(workload.world_size, dtype=np.bool_)
    loaded[list(workload.ranks)] = True
    chosen = np.flatnonzero((kind == Kind.SEND) | (kind == Kind.RECV))
    chosen = chosen[loaded[rows.column("peer")[chosen]]]
    sends = kind[chosen] == Kind.SEND
    own = np.repeat([graph.rank for graph in rows.graphs], np.diff(rows.start))[chosen]
    peer = rows.column("peer")[chosen]
    source, destination = np.where(sends, own, peer), np.where(sends, peer, own)
    tag = rows.column("tag")[chosen]

    order = np.lexsort((chosen, sends, tag, destination, source))
    same_queue = _equal_to_previous(source[order], destination[order], tag[order], sends[order])
    first = np.maximum.accumulate(np.where(same_queue, 0, np.arange(len(order))))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order)) - first

    order = np.lexsort((sends, position, tag, destination, source))  # each receive is followed by its send
    paired = _equal_to_previous(source[order], destination[order], tag[order], position[order])
    second = np.flatnonzero(paired)
    alone = ~paired
    alone[second - 1] = False
    lonely = chosen[order[alone]]
    return Messages(
        send=chosen[order[second]],
        recv=chosen[order[second - 1]],
        unmatched_send=np.sort(lonely[kind[lonely] == Kind.SEND]),
        unmatched_recv=np.sort(lonely[kind[lonely] == Kind.RECV]),
    )


def _equal_to_previous(*columns: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where a row equals the row before it in every column; False for the first."""
    equal = np.ones(len(columns[0]), dtype=np.bool_)
    equal[:1] = False
    for column in columns:
        equal[1:] &= column[1:] == column[:-1]
    return equal


def collective_rows(workload: Workload) -> dict[int, dict[int, Rows]]:
    """Group index -> rank -> rows of its collectives in the order of ids, for groups that are used.

    The k-th rows of all members form one collective. A loaded member without collectives has an empty array.
    """
    found: dict[int, dict[int, Rows]] = {}
    for rank, graph in workload.ranks.items():
        rows = np.flatnonzero(graph.kind == Kind.COLL)
        for group in np.unique(graph.group[rows]).tolist():
            found.setdefault(group, {})[rank] = rows[graph.group[rows] == group]
    none = np.zeros(0, dtype=np.int64)
    for group, by_rank in found.items():
        members = (rank for rank in workload.groups[group].ranks if rank in workload.ranks)
        found[group] = {rank: by_rank.get(rank, none) for rank in members}
    return dict(sorted(found.items()))
