"""The quotient of a workload of classes: one rank for each class, where all ranks of a class do the same at one time.

The partition of ranks into classes must be equitable. The groups of a column then have the same classes in the same
places, and its peers are of one class. A node starts and ends at the same time on all ranks of such a class. The
quotient therefore has the findings and the critical path of the whole workload.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from genie.workload.classes import Classes, RankViews
from genie.workload.graph import Group, Kind, RankGraph, Workload

Key = tuple[bytes, bytes]  # of a group: the class of each member, and the column in which it has the group


def quotient(workload: Workload) -> Workload | None:
    """Return the quotient, whose ranks are classes; None for a workload without classes, or if it is not the same.

    Splits, and several queues between two classes, tell ranks of a class apart.
    """
    if not isinstance(workload.ranks, RankViews):
        return None
    classes = workload.ranks.classes
    if any(template.splits for template in classes.templates):
        return None
    groups = _groups(workload, classes)
    peers = _peers(classes)
    if groups is None or peers is None:
        return None
    made, columns = groups
    graphs: dict[int, RankGraph] = {}
    for number, template in enumerate(classes.templates):
        if len(classes.members(number)):
            group = _looked_up(template.group, columns[number])
            graphs[number] = replace(template, rank=number, group=group, peer=_looked_up(template.peer, peers[number]))
    return Workload(workload.name, len(classes.templates), made, graphs, workload.dangling)


def _looked_up(column: NDArray[np.int32], table: dict[int, int]) -> NDArray[np.int32]:
    out = np.full(len(column), -1, np.int32)
    for index, found in table.items():
        out[column == index] = found
    return out


def _used(template: RankGraph, column: NDArray[np.int32], *kinds: Kind) -> list[int]:
    found: list[int] = np.unique(column[np.isin(template.kind, kinds)]).tolist()
    return found


def _groups(workload: Workload, classes: Classes) -> tuple[list[Group], list[dict[int, int]]] | None:
    """Return the groups of classes, and for each class column -> group; None: they are not the same for all ranks."""
    used = [_used(template, template.group, Kind.COLL) for template in classes.templates]
    is_used = np.zeros((len(used), classes.group_of.shape[1]), np.bool_)
    for number, own in enumerate(used):
        is_used[number, own] = True
    keys: dict[int, Key | None] = {}
    made: dict[Key, Group] = {}
    columns: list[dict[int, int]] = [{} for _ in used]
    for number, own in enumerate(used):
        for column in own:
            found = set()
            for group in np.unique(classes.group_of[classes.members(number), column]).tolist():
                if group not in keys:
                    keys[group] = _key(classes, is_used, group, workload.groups[group].ranks) if group >= 0 else None
                found.add(keys[group])
            if not found:  # a class without ranks
                continue
            key = found.pop()
            if key is None or found:
                return None
            if key not in made:
                members = tuple(np.unique(np.frombuffer(key[0], np.int32)).tolist())
                made[key] = Group(f"{number}/{column}", members)
            columns[number][column] = list(made).index(key)
    return list(made.values()), columns


def _key(classes: Classes, is_used: NDArray[np.bool_], group: int, ranks: tuple[int, ...]) -> Key | None:
    """Return a group's key; None where a class does not have it in exactly one column that it uses."""
    members = np.array(ranks, np.int64)
    numbers = classes.class_of[members].astype(np.int32)
    has = (classes.group_of[members] == group) & is_used[numbers]
    if not (has.sum(axis=1) == 1).all():
        return None
    columns = np.argmax(has, axis=1).astype(np.int32)
    pairs = np.unique(np.stack([numbers, columns]), axis=1)
    if len(np.unique(pairs[0])) != pairs.shape[1]:
        return None
    return numbers.tobytes(), columns.tobytes()


def _peers(classes: Classes) -> list[dict[int, int]] | None:
    """Return for each class column -> class of the peers; None: it is not the same, or two columns have one queue."""
    peers: list[dict[int, int]] = [{} for _ in classes.templates]
    queues: tuple[dict[tuple[int, int], int], ...] = ({}, {})  # of sends and receives: (class, other class) -> column
    for number, template in enumerate(classes.templates):
        ranks = classes.members(number)
        if not len(ranks):
            continue
        for columns, kind in zip(queues, (Kind.SEND, Kind.RECV), strict=True):
            for column in _used(template, template.peer, kind):
                others = classes.peer_of[ranks, column]
                if (others < 0).any() or len(other := np.unique(classes.class_of[others])) != 1:
                    return None
                if columns.setdefault((number, int(other[0])), column) != column:
                    return None
                peers[number][column] = int(other[0])
    for (number, receiver), column in queues[0].items():
        back = queues[1].get((receiver, number))
        ranks = classes.members(number)
        if back is not None and (classes.peer_of[classes.peer_of[ranks, column], back] != ranks).any():
            return None
    return peers
