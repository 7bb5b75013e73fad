"""Classes of a plan: ranks whose nodes are equal, and what these nodes are bound to.

Ranks of a class share all columns but groups and peers. A binding is what collectives of one shape, or messages with
one peer, have in common; many nodes share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genie.workload.classes import Classes, RankViews
from genie.workload.graph import Kind, RankGraph, Workload

COLUMNS = (
    "kind", "duration_ns", "size_bytes", "op", "root", "tag", "stream", "on_cpu", "group", "peer", "dep_start", "deps",
)  # fmt: skip
# Columns that decide a binding, but for uneven splits; `peer` of messages, `group` of collectives.
FACTS = ("kind", "op", "group", "peer", "size_bytes", "root")


class Binding(NamedTuple):
    """Facts that some nodes of a class share. `column`: of the class's groups, or of its peers for a message."""

    kind: Kind
    op: int
    column: int
    size_bytes: int  # as in genie/workload/graph.py; -1 of a receive
    root: int
    row: int  # its first node
    nodes: int  # their number


@dataclass(frozen=True)
class PlanClass:
    """Ranks with equal nodes. In the template `group` and `peer` are columns of `groups` and `peers`."""

    template: RankGraph
    ranks: NDArray[np.int32]  # (ranks,)
    groups: NDArray[np.int32]  # (ranks, columns) index into Workload.groups; one rank's differ from each other
    peers: NDArray[np.int32]  # (ranks, columns) rank
    bindings: list[Binding]
    binding_of: NDArray[np.int32]  # (n,) -1: of a node that is neither a collective nor a message


def plan_classes(workload: Workload) -> list[PlanClass]:
    """Return the classes of all ranks, in the order of their lowest ranks.

    A workload of views gives its classes. In others, ranks with equal graphs are found.
    """
    if isinstance(workload.ranks, RankViews):
        found = list(_of_views(workload.ranks.classes))
    else:
        found = list(_of_graphs([workload.ranks[rank] for rank in sorted(workload.ranks)]))
    return sorted(found, key=lambda each: int(each.ranks[0]))


def class_of_one(graph: RankGraph) -> PlanClass:
    """Return a class of one rank."""
    template, groups, peers = _canonical(graph)
    return _made(template, [graph.rank], groups[None], peers[None])


def _of_views(classes: Classes) -> Iterator[PlanClass]:
    """Tell ranks of a class apart by which of their columns hold the same group: sequence numbers follow from it."""
    for number, template in enumerate(classes.templates):
        ranks = classes.members(number)
        if not len(ranks):
            continue
        groups, peers = classes.group_of[ranks], classes.peer_of[ranks]
        first = np.argmax(groups[:, :, None] == groups[:, None, :], axis=2) if groups.size else groups
        patterns, pattern_of = np.unique(first, axis=0, return_inverse=True)
        for at, pattern in enumerate(patterns):
            own = np.flatnonzero(pattern_of.reshape(-1) == at)
            group = template.group
            if len(pattern):
                group = np.where(group < 0, np.int32(-1), pattern[np.maximum(group, 0)]).astype(np.int32)
            yield _made(replace(template, group=group), ranks[own], groups[own], peers[own])


def _of_graphs(graphs: list[RankGraph]) -> Iterator[PlanClass]:
    alike: dict[bytes, list[tuple[RankGraph, NDArray[np.int32], NDArray[np.int32]]]] = {}
    for graph in graphs:
        canonical = _canonical(graph)
        alike.setdefault(_digest(canonical[0]), []).append(canonical)
    for members in alike.values():
        ranks = [template.rank for template, _, _ in members]
        yield _made(
            members[0][0], ranks, np.stack([each for _, each, _ in members]), np.stack([each for _, _, each in members])
        )


def _canonical(graph: RankGraph) -> tuple[RankGraph, NDArray[np.int32], NDArray[np.int32]]:
    """Return the graph with groups and peers numbered in the order of their first nodes, and these groups and peers."""
    group, groups = _numbered(graph.group)
    peer, peers = _numbered(graph.peer)
    return replace(graph, group=group, peer=peer), groups, peers


def _numbered(column: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    used = np.flatnonzero(column >= 0)
    values, first, inverse = np.unique(column[used], return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(values), np.int32)
    place[order] = np.arange(len(values), dtype=np.int32)
    out = np.full(len(column), -1, np.int32)
    out[used] = place[inverse.reshape(-1)]
    return out, values[order].astype(np.int32)


def _digest(graph: RankGraph) -> bytes:
    digest = blake2b(str(len(graph)).encode())
    for name in COLUMNS:
        digest.update(np.ascontiguousarray(getattr(graph, name)).tobytes())
    for row in sorted(graph.splits):
        sent, received = graph.splits[row]
        digest.update(f"{row}/{len(sent)}/{len(received)}".encode() + sent.tobytes() + received.tobytes())
    return digest.digest()


def _made(
    template: RankGraph,
    ranks: list[int] | NDArray[np.int64],
    groups: NDArray[np.int32],
    peers: NDArray[np.int32],
) -> PlanClass:
    bindings, binding_of = _bindings(template)
    return PlanClass(template, np.asarray(ranks, np.int32), groups, peers, bindings, binding_of)


def _bindings(template: RankGraph) -> tuple[list[Binding], NDArray[np.int32]]:
    """Return the bindings in the order of their first nodes, and the binding of each node."""
    kind = template.kind
    binding_of = np.full(len(template), -1, np.int32)
    rows = np.flatnonzero((kind == Kind.COLL) | (kind == Kind.SEND) | (kind == Kind.RECV))
    if not len(rows):
        return [], binding_of
    facts = np.stack([getattr(template, name)[rows].astype(np.int64) for name in FACTS], axis=1)
    facts[kind[rows] == Kind.RECV, FACTS.index("size_bytes")] = -1
    uneven = np.isin(rows, list(template.splits)) * (rows + 1)
    _, first, of_row, counts = np.unique(
        np.concatenate([facts, uneven[:, None]], axis=1), axis=0, return_index=True, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    order = np.argsort(first)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    binding_of[rows] = place[of_row.reshape(-1)]
    bindings = []
    for at in order.tolist():
        own, op, group, peer, size_bytes, root = facts[first[at]].tolist()
        column = group if own == Kind.COLL else peer
        bindings.append(Binding(Kind(own), op, column, size_bytes, root, int(rows[first[at]]), int(counts[at])))
    return bindings, binding_of
