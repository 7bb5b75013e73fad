"""Classes of ranks: ranks whose graphs are equal up to their groups and peers share one template.

A rank's graph is a view: it shares all columns with its template but `group` and `peer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import RankGraph, Workload

NO_GROUP = -1


@dataclass(frozen=True)
class Classes:
    """Templates and each rank's place in them.

    In a template `group` is a domain, a column of `group_of`, and `peer` is a column of `peer_of`.
    """

    templates: tuple[RankGraph, ...]
    class_of: NDArray[np.int32]  # (ranks,) index of the rank's template
    group_of: NDArray[np.int32]  # (ranks, domains) index into Workload.groups; -1: none
    peer_of: NDArray[np.int32]  # (ranks, columns) rank; -1: none

    @property
    def ranks(self) -> int:
        return len(self.class_of)

    def graph(self, rank: int) -> RankGraph:
        """Return a rank's graph."""
        template = self.templates[int(self.class_of[rank])]
        return replace(
            template,
            rank=rank,
            group=_looked_up(template.group, self.group_of[rank]),
            peer=_looked_up(template.peer, self.peer_of[rank]),
        )

    def members(self, number: int) -> NDArray[np.int64]:
        """Return the ranks of a class, ascending."""
        return np.flatnonzero(self.class_of == number)

    def view(self) -> RankViews:
        """Return all graphs by rank, each made when it is asked for."""
        return RankViews(self)


class RankViews(Mapping[int, RankGraph]):
    """The graphs of all ranks of classes. A graph is made anew each time."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes

    def __getitem__(self, rank: int) -> RankGraph:
        if not 0 <= rank < self.classes.ranks:
            raise KeyError(rank)
        return self.classes.graph(rank)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.classes.ranks))

    def __len__(self) -> int:
        return self.classes.ranks


def templates_of(workload: Workload) -> list[RankGraph]:
    """Return a graph for each class of ranks, or all graphs of a workload without classes.

    Groups and peers of a template are columns, not numbers of groups and ranks.
    """
    ranks = workload.ranks
    return list(ranks.classes.templates) if isinstance(ranks, RankViews) else list(ranks.values())


def _looked_up(column: NDArray[np.int32], table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the entries of `table` that a column of indices names; -1 for -1."""
    if not len(table):
        return column
    return np.where(column < 0, np.int32(-1), table[np.maximum(column, 0)]).astype(np.int32)
