"""By how much counters have grown, although some wrap and some are set back."""

from __future__ import annotations

from collections.abc import Mapping

WIDTHS_BITS = (32, 48, 64)  # of counters in devices


def growth(before: int, after: int) -> int:
    """What was counted between two readings.

    A smaller second reading has wrapped, if in the smallest width that holds the first one that means less than half a
    turn; otherwise somebody has set the counter back, and it has counted `after` at least.
    """
    if after >= before:
        return after - before
    turn = next(1 << width for width in WIDTHS_BITS if before < 1 << width or width == WIDTHS_BITS[-1])
    wrapped = after + turn - before
    return wrapped if 0 <= wrapped < turn // 2 else after


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The growth of each counter that was there at both readings."""
    return {name: growth(before[name], value) for name, value in after.items() if name in before}
