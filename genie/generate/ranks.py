"""Graphs of pipeline stages as the job of all ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genie.generate.degrees import Domain, Grid
from genie.workload.classes import NO_GROUP, Classes
from genie.workload.graph import Group, Kind, RankGraph, Workload

GROUP_NAMES = {
    Domain.TENSOR: "tp", Domain.CONTEXT: "cp", Domain.DATA: "dp", Domain.EXPERT: "ep", Domain.EXPERT_TENSOR: "etp",
    Domain.EXPERT_DATA: "edp", Domain.TOKENS: "tokens", Domain.MODEL: "mp", Domain.SHARD: "shard",
    Domain.REPLICA: "replica", Domain.ENDS: "ends", Domain.WORLD: "world",
}  # fmt: skip


def workload_of(name: str, grid: Grid, templates: tuple[RankGraph, ...], class_of: NDArray[np.int32]) -> Workload:
    """Return a job whose ranks share graphs.

    templates: groups are domains. Peers are columns: the rank at the same place of each stage, then the neighbours in
    context parallelism. class_of: (ranks,) the template of each rank.
    """
    degrees = grid.degrees
    groups: list[Group] = []
    group_of = np.full((degrees.ranks, len(Domain)), NO_GROUP, np.int32)
    for domain in Domain:
        if any((graph.group[graph.kind == Kind.COLL] == domain).any() for graph in templates):
            members, number = grid.groups_of(domain)
            group_of[:, domain] = np.where(number >= 0, number + len(groups), NO_GROUP)
            label = GROUP_NAMES[domain]
            groups += [Group(f"{label}{at}", ranks) for at, ranks in enumerate(members)]
    peers = [grid.at_stage(stage) for stage in range(degrees.pipeline)]
    inside = np.arange(degrees.ranks)
    place = inside // degrees.tensor % degrees.context
    for step in (-1, 1):
        peers.append(inside + ((place + step) % degrees.context - place) * degrees.tensor)
    classes = Classes(templates, class_of, group_of, np.stack(peers, axis=1).astype(np.int32))
    return Workload(name, degrees.ranks, groups, classes.view())
