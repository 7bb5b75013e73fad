"""All pairs of ranks in the fewest rounds: the circle method of round-robin tournaments."""

from __future__ import annotations

from collections.abc import Iterator

Pair = tuple[int, int]  # the lower rank first


def rounds_of(ranks: int) -> Iterator[list[Pair]]:
    """Rounds of disjoint pairs in which each pair of ranks meets once: ranks - 1 when they are even, else ranks.

    One rank stays while the others rotate. With an odd number of ranks, one rank rests in each round.
    """
    circle = ranks - 1 if ranks % 2 == 0 else ranks  # number of ranks that rotate
    for turn in range(circle if ranks > 1 else 0):
        pairs = [] if ranks % 2 else [(turn, circle)]
        for away in range(1, (circle + 1) // 2):
            one, other = (turn + away) % circle, (turn - away) % circle
            pairs.append((one, other) if one < other else (other, one))
        yield pairs
