"""Topological order of a graph, or a cycle where there is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import RankGraph


def topological_order(graph: RankGraph) -> NDArray[np.int64]:
    """Rows ordered so that each comes after its dependencies; rows on a cycle or behind one are left out."""
    count = len(graph)
    waiting = np.repeat(np.arange(count), np.diff(graph.dep_start))
    if bool(np.all(graph.deps < waiting)):  # ids already ascend along every edge, as in most traces
        return np.arange(count)
    by_dep = np.argsort(graph.deps, kind="stable")
    successors = waiting[by_dep].tolist()
    start = np.searchsorted(graph.deps[by_dep], np.arange(count + 1)).tolist()
    left = np.diff(graph.dep_start).tolist()
    order = [row for row in range(count) if left[row] == 0]
    for row in order:  # grows during the loop
        for successor in successors[start[row] : start[row + 1]]:
            left[successor] -= 1
            if left[successor] == 0:
                order.append(successor)
    return np.array(order, dtype=np.int64)


def find_cycle(graph: RankGraph) -> list[int]:
    """Rows of one cycle, each waiting for the next and the last for the first; empty if there is none."""
    order = topological_order(graph)
    if len(order) == len(graph):
        return []
    stuck = np.ones(len(graph), dtype=np.bool_)
    stuck[order] = False
    row = int(np.flatnonzero(stuck)[0])
    seen: dict[int, int] = {}
    path: list[int] = []
    while row not in seen:
        seen[row] = len(path)
        path.append(row)
        deps = graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
        row = int(deps[stuck[deps]][0])
    return path[seen[row] :]


def describe_cycle(graph: RankGraph, rows: list[int], shown_max: int = 8) -> str:
    """Text of the cycle: node ids and names, cut after `shown_max` nodes."""
    shown = [f"{graph.node_id[row]} ({graph.name[row]})" for row in rows[:shown_max]]
    if len(rows) > shown_max:
        shown.append(f"{len(rows) - shown_max} more")
    return " waits for ".join([*shown, str(graph.node_id[rows[0]])])
