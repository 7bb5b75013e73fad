"""Growth of counters, some of which wrap and some of which are reset."""

from __future__ import annotations

from collections.abc import Mapping

WIDTHS_BITS = (32, 48, 64)  # of counters in devices


def growth(before: int, after: int) -> int:
    """Return the count between two readings.

    A smaller second reading means a wrap or a reset. It is a wrap if, in the smallest width that holds the first
    reading, the growth is less than half of the range. Otherwise the counter was reset, and it has counted at least
    `after`.
    """
    if after >= before:
        return after - before
    turn = next(1 << width for width in WIDTHS_BITS if before < 1 << width or width == WIDTHS_BITS[-1])
    wrapped = after + turn - before
    return wrapped if 0 <= wrapped < turn // 2 else after


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the growth of each counter that is in both readings."""
    return {name: growth(before[name], value) for name, value in after.items() if name in before}
