"""Places of ranks: families of groups, and which recorded rank stands for which others.

All ranks of a job make all groups, so that each recording has all of them. Groups that follow each other, have one
size and no common member are a family: a dimension of a mesh. Ranks at one place exchange messages alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genie.capture.script import Recording
from genie.errors import UsageError


@dataclass(frozen=True)
class Family:
    """Groups that a rank is in at most one of."""

    name: str
    groups: tuple[tuple[int, ...], ...]

    def position(self, rank: int) -> tuple[int, int]:
        """Return the number of a rank's group and its position there; (-1, -1) for none."""
        for number, ranks in enumerate(self.groups):
            if rank in ranks:
                return number, ranks.index(rank)
        return -1, -1


@dataclass(frozen=True)
class Places:
    """Families of a job, by the groups' names in each recording, and the place of each rank."""

    families: tuple[Family, ...]
    group_of: NDArray[np.int32]  # (ranks, families) number in the family; -1: none
    position_of: NDArray[np.int32]  # (ranks, families)

    def of_names(self, recording: Recording) -> dict[str, int]:
        """Return the families of the groups that a recorded rank is in, by the groups' names there."""
        number_of = {ranks: number for number, family in enumerate(self.families) for ranks in family.groups}
        return {group["name"]: number_of[tuple(group["ranks"])] for group in recording.groups if group["name"]}


def places_of(recording: Recording, world: int) -> Places:
    """Return the families of a job's groups, in the order in which they were made; equal groups count once."""
    found: list[list[tuple[int, ...]]] = []
    names: list[str] = []
    covered: set[int] = set()
    known: set[tuple[int, ...]] = set()
    for group in recording.groups:
        ranks = tuple(group["ranks"])
        if ranks in known:
            continue
        known.add(ranks)
        if not found or len(found[-1][0]) != len(ranks) or covered & set(ranks):
            found.append([])
            names.append("")
            covered = set()
        found[-1].append(ranks)
        names[-1] = names[-1] or str(group.get("description") or "")
        covered |= set(ranks)
    used: set[str] = set()
    families: list[Family] = []
    for own, name in zip(found, names, strict=True):
        plain = "world" if len(own) == 1 and len(own[0]) == world else name.removeprefix("mesh_") or "group"
        unique = plain if plain not in used else f"{plain}_{len(used)}"
        used.add(unique)
        families.append(Family(unique, tuple(own)))
    group_of = np.full((world, len(families)), -1, np.int32)
    position_of = np.full((world, len(families)), -1, np.int32)
    for at, family in enumerate(families):
        for number, ranks in enumerate(family.groups):
            group_of[list(ranks), at] = number
            position_of[list(ranks), at] = np.arange(len(ranks))
    return Places(tuple(families), group_of, position_of)


def class_of_ranks(places: Places, by_place: Sequence[int], recorded: Sequence[int]) -> NDArray[np.int32]:
    """Return for each rank the index of the recorded rank that stands for it.

    by_place: families in which a rank's position decides what it does. Raises UsageError for a rank without one.
    """
    keys = np.concatenate([places.position_of[:, list(by_place)], places.group_of >= 0], axis=1)
    first_with: dict[bytes, int] = {}
    for number, rank in enumerate(recorded):
        first_with.setdefault(keys[rank].tobytes(), number)
    out = np.zeros(len(keys), np.int32)
    for rank in range(len(keys)):
        number = first_with.get(keys[rank].tobytes(), -1)
        if number < 0:
            raise UsageError(f"no rank that is captured stands for rank {rank}: add it to --ranks")
        out[rank] = number
    return out
