"""A job of any number of ranks that all play one rank's trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genie.workload.classes import NO_GROUP, Classes
from genie.workload.decode import NodeDecoder
from genie.workload.files import RANK_MAX
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload, WorkloadError
from genie.workload.groups import GroupTable
from genie.workload.pytorch.groups import Members
from genie.workload.pytorch.nodes import DraftRank, protobuf_nodes


def replicate(draft: DraftRank, members: dict[str, Members], world_size: int, ranks: int, path: Path) -> Workload:
    """Return a workload in which each of `ranks` ranks plays the draft.

    members: group name -> its ranks in the trace's job of `world_size` ranks. The group of all ranks becomes the group
    of all new ranks. A smaller group keeps its size and the distance of its ranks, and the job is filled with such
    groups. All-to-alls send equal parts. path: the trace, for messages. Raises WorkloadError.
    """
    if not 1 <= ranks <= RANK_MAX + 1:
        raise WorkloadError(f"--replicate {ranks}: give 1 to {RANK_MAX + 1} ranks")
    graph = _graph(draft, members, world_size, path)
    used = sorted(set(graph.group[graph.kind == Kind.COLL].tolist()))
    table = _table(members, world_size)
    groups: list[Group] = []
    group_of = np.full((ranks, len(used)), NO_GROUP, np.int32)
    notes = []
    for domain, number in enumerate(used):
        old = table.groups[number]
        numbers, blocks = _groups_like(old, world_size, ranks, path)
        made = [Group(f"{old.name}.{at}" if len(blocks) > 1 else old.name, block) for at, block in enumerate(blocks)]
        group_of[:, domain] = numbers + len(groups)
        groups += made
        notes.append(f"group {old.name} of {len(old.ranks)} ranks: {len(blocks)} of {len(blocks[0])} ranks")
    template = _template(graph, used)
    peer_of, peer = _peers(graph, draft, table, world_size, ranks, path)
    template.peer[:] = peer
    classes = Classes((template,), np.zeros(ranks, np.int32), group_of, peer_of)
    workload = Workload(path.name.partition(".")[0], ranks, groups or [Group("0", tuple(range(ranks)))], classes.view())
    workload.notes = notes
    return workload


def _graph(draft: DraftRank, members: dict[str, Members], world_size: int, path: Path) -> RankGraph:
    decoder = NodeDecoder(path, draft.rank, world_size, _table(members, world_size))
    for node in draft.nodes:
        if node.communication is not None:
            node.communication.to_each, node.communication.from_each = [], []
    for written in protobuf_nodes(draft, members):
        decoder.add(written)
    return decoder.finish()


def _table(members: dict[str, Members], world_size: int) -> GroupTable:
    return GroupTable({name: list(ranks) for name, ranks in members.items()}, world_size)


def _template(graph: RankGraph, used: list[int]) -> RankGraph:
    """Return the graph with its own columns of groups and peers; a group is a number in `used`."""
    group = graph.group.copy()
    for domain, number in enumerate(used):
        group[(graph.kind == Kind.COLL) & (graph.group == number)] = domain
    return replace(graph, rank=0, group=group, peer=graph.peer.copy())


def _stride(group: Group, path: Path) -> int:
    """Return the distance of a group's ranks. Raises WorkloadError where they are not evenly apart."""
    apart = set(np.diff(group.ranks).tolist()) or {1}
    if len(apart) > 1:
        raise WorkloadError(
            f"{path}: group {group.name} has ranks {list(group.ranks[:8])}, which are not evenly apart: --replicate "
            "cannot tell the groups of other ranks; give the trace of each rank"
        )
    return int(apart.pop())


def _groups_like(
    group: Group, world_size: int, ranks: int, path: Path
) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """Return the number of each rank's group, and the members of all groups."""
    size, stride = len(group.ranks), _stride(group, path)
    if size == world_size:
        return np.zeros(ranks, np.int64), [tuple(range(ranks))]
    block = size * stride
    if ranks % block:
        apart = f" with ranks {stride} apart" if stride > 1 else ""
        raise WorkloadError(
            f"--replicate {ranks}: group {group.name} has {size} ranks{apart}: {block} does not divide {ranks}"
        )
    each = np.arange(ranks)
    numbers = each // block * stride + each % stride
    order = np.argsort(numbers, kind="stable").reshape(-1, size)
    return numbers, [tuple(members) for members in order.tolist()]


def _peers(
    graph: RankGraph, draft: DraftRank, table: GroupTable, world_size: int, ranks: int, path: Path
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the peers of all ranks, one column for each distance in a group, and the column of each row.

    Each rank sends what it receives. A send to the member at some distance therefore needs a receive of the same bytes
    and tag from the member at the opposite distance. Raises WorkloadError where it has none, as in a pipeline.
    """
    columns: dict[tuple[int, int], int] = {}
    made: list[NDArray[np.int32]] = []
    peer = np.full(len(graph), -1, np.int32)
    balance: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in np.flatnonzero((graph.kind == Kind.SEND) | (graph.kind == Kind.RECV)).tolist():
        communication = draft.nodes[row].communication
        assert communication is not None
        number = table.index[communication.group]
        group = table.groups[number]
        size, own = len(group.ranks), group.ranks.index(draft.rank)
        distance = (communication.peer - own) % size
        is_send = int(graph.kind[row]) == Kind.SEND
        key = (number, distance)
        if key not in columns:
            columns[key] = len(made)
            made.append(_at_distance(_groups_like(group, world_size, ranks, path)[1], distance, size, ranks))
        peer[row] = columns[key]
        sent_along = key if is_send else (number, -distance % size)
        what = (int(graph.size_bytes[row]), int(graph.tag[row]))
        balance[sent_along][what] += 1 if is_send else -1
    for (number, distance), counts in balance.items():
        for (size_bytes, _), count in counts.items():
            if count:
                how = "is not received" if count > 0 else "is received and not sent"
                raise WorkloadError(
                    f"{path}: a message of {size_bytes} bytes to the member {distance} further in group "
                    f"{table.groups[number].name} {how} by this rank: its job is not symmetric (a pipeline, for "
                    "example), so that --replicate cannot make it of one rank; give the trace of each rank"
                )
    return (np.stack(made, axis=1) if made else np.zeros((ranks, 0), np.int32)), peer


def _at_distance(blocks: list[tuple[int, ...]], distance: int, size: int, ranks: int) -> NDArray[np.int32]:
    """Return each rank's peer: the member so much further in its group, around the end."""
    found = np.full(ranks, -1, np.int32)
    # The group of all ranks may have grown: a distance beyond the half counts from the end.
    signed = distance if distance <= size // 2 else distance - size
    for block in blocks:
        found[list(block)] = np.roll(block, -signed)
    return found


def unequal_parts(draft: DraftRank) -> int:
    """Return the number of all-to-alls whose parts are not equal, which a replica makes equal."""
    found = [node.communication for node in draft.nodes if node.communication is not None]
    return sum(each.op is Op.ALL_TO_ALL and len({*each.to_each, *each.from_each}) > 1 for each in found)
