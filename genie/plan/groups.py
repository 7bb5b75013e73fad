"""Numbers of communicators in a plan, which tell groups apart on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from genie.workload.graph import Group


def colours(groups: Sequence[Group]) -> list[int]:
    """A number for each group; groups that share a member have different numbers (greedy, in the given order).

    Messages carry it instead of a global number. The many disjoint tensor-parallel groups of a large job share one
    number, so 10 bits are enough.
    """
    used: dict[int, int] = {}  # rank -> bit set of colours
    result = []
    for group in groups:
        taken = 0
        for rank in group.ranks:
            taken |= used.get(rank, 0)
        colour = (~taken & (taken + 1)).bit_length() - 1
        for rank in group.ranks:
            used[rank] = used.get(rank, 0) | 1 << colour
        result.append(colour)
    return result
