"""Longest chain of dependencies through all ranks, with a network that takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from genie.workload.graph import Kind, Workload
from genie.workload.matching import GlobalRows, Messages, collective_rows


@dataclass
class CriticalPath:
    """Length in ns, and the nodes on the path. Nodes without a duration count 0 ns."""

    length_ns: int = 0
    across_ranks: bool = True  # False: ranks are independent, and this is the longest of their paths
    nodes: dict[str, int] = field(default_factory=dict)  # number of nodes by kind
    duration_ns: dict[str, int] = field(default_factory=dict)  # time by kind
    # Nodes that wait for each other in a cycle over ranks: global rows, each waiting for the next.
    deadlock: list[int] = field(default_factory=list)


@dataclass
class _Joined:
    """One graph over the nodes of all ranks."""

    successors: memoryview  # CSR
    start: memoryview
    left: list[int]  # dependencies of each node that have not ended
    duration: memoryview
    instance: memoryview  # collective of each node, -1: none
    members: list[list[int]]  # nodes of each collective


def critical_path(workload: Workload, rows: GlobalRows, messages: Messages, across_ranks: bool) -> CriticalPath:
    """The longest path; `across_ranks` joins receives to their sends and the members of each collective.

    Join only a workload whose ranks match (see `lint`). Each rank's own graph must be free of cycles.
    """
    joined = _join(workload, rows, messages, across_ranks)
    end, cause = _play(joined)
    path = CriticalPath(across_ranks=across_ranks)
    if -1 in end:
        path.deadlock = _circle(rows, messages, joined, end)
        return path
    if end:
        _walk_back(path, rows, end, cause)
    return path


def _join(workload: Workload, rows: GlobalRows, messages: Messages, across_ranks: bool) -> _Joined:
    starts = rows.start.tolist()
    empty = np.zeros(0, dtype=np.int64)
    waiting, deps = [empty], [empty]
    for graph, start in zip(rows.graphs, starts, strict=False):
        waiting.append(start + np.repeat(np.arange(len(graph)), np.diff(graph.dep_start)))
        deps.append(start + graph.deps.astype(np.int64))
    instance = np.full(len(rows), -1, dtype=np.int64)
    members: list[list[int]] = []
    if across_ranks:
        waiting.append(messages.recv)
        deps.append(messages.send)
        start_of = {graph.rank: start for graph, start in zip(rows.graphs, starts, strict=False)}
        for by_rank in collective_rows(workload).values():
            together = np.stack([start_of[rank] + own for rank, own in by_rank.items()], axis=1)
            instance[together] = np.arange(len(members), len(members) + len(together))[:, None]
            members.extend(together.tolist())
    all_waiting, all_deps = np.concatenate(waiting), np.concatenate(deps)
    order = np.argsort(all_deps, kind="stable")
    return _Joined(
        successors=all_waiting[order].data,
        start=np.searchsorted(all_deps[order], np.arange(len(rows) + 1)).data,
        left=np.bincount(all_waiting, minlength=len(rows)).tolist(),
        duration=np.maximum(rows.column("duration_ns"), 0).data,
        instance=instance.data,
        members=members,
    )


def _play(graph: _Joined) -> tuple[list[int], list[int]]:
    """(end of each node in ns, -1 if it never starts; the node that it waited for last, -1 if none)."""
    count = len(graph.left)
    ready = [0] * count
    end = [-1] * count
    cause = [-1] * count
    arrived = [0] * len(graph.members)
    queue = [row for row in range(count) if graph.left[row] == 0]
    for row in queue:  # grows during the loop
        ended: tuple[int, ...] = (row,)
        instance = graph.instance[row]
        if instance >= 0:
            members = graph.members[instance]
            arrived[instance] += 1
            if arrived[instance] < len(members):
                continue
            last = max(members, key=ready.__getitem__)
            for member in members:
                ready[member], cause[member] = ready[last], cause[last]
            ended = tuple(members)
        for node in ended:
            end[node] = time = ready[node] + graph.duration[node]
            for index in range(graph.start[node], graph.start[node + 1]):
                successor = graph.successors[index]
                if time >= ready[successor]:
                    ready[successor], cause[successor] = time, node
                graph.left[successor] -= 1
                if graph.left[successor] == 0:
                    queue.append(successor)
    return end, cause


def _walk_back(path: CriticalPath, rows: GlobalRows, end: list[int], cause: list[int]) -> None:
    row = len(end) - 1 - int(np.argmax(np.array(end)[::-1]))
    path.length_ns = end[row]
    while row >= 0:
        graph, local = rows.locate(row)
        kind = Kind(int(graph.kind[local])).name.lower()
        path.nodes[kind] = path.nodes.get(kind, 0) + 1
        path.duration_ns[kind] = path.duration_ns.get(kind, 0) + max(int(graph.duration_ns[local]), 0)
        row = cause[row]


def _circle(rows: GlobalRows, messages: Messages, joined: _Joined, end: list[int]) -> list[int]:
    """The cycle that a stuck node waits for, found by following its dependencies."""
    send_of = dict(zip(messages.recv.tolist(), messages.send.tolist(), strict=True))
    trail: dict[int, int] = {}
    row = end.index(-1)
    while row not in trail:
        trail[row] = len(trail)
        row = _blocker(rows, joined, end, send_of, row)
    return list(trail)[trail[row] :]


def _blocker(rows: GlobalRows, joined: _Joined, end: list[int], send_of: dict[int, int], row: int) -> int:
    if joined.left[row] == 0:  # it waits in its collective for a member that has not arrived
        members: list[int] = joined.members[joined.instance[row]]
        return next(member for member in members if joined.left[member] > 0)
    graph, local = rows.locate(row)
    own = graph.deps[graph.dep_start[local] : graph.dep_start[local + 1]].tolist()
    candidates: list[int] = [row - local + dep for dep in own] + ([send_of[row]] if row in send_of else [])
    return next(candidate for candidate in candidates if end[candidate] < 0)
