"""Scales of axes: round ticks, and a unit for times."""

from __future__ import annotations

import math

# Possible ends of a scale, over a power of ten -> distance of its ticks.
SCALES = {1: 0.25, 1.5: 0.5, 2: 0.5, 2.5: 0.5, 3: 1, 4: 1, 5: 1, 6: 2, 8: 2, 10: 2.5}
TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def ticks_of(highest: float, whole: bool = False) -> list[float]:
    """Return ticks from 0 to the next round number at or above `highest`, which is above 0; `whole`: of counts."""
    power = 10.0 ** math.floor(math.log10(highest))
    top = next(top for top in SCALES if top * power >= highest * (1 - 1e-9))
    step = max(SCALES[top] * power, 1.0) if whole else SCALES[top] * power
    return [at * step for at in range(math.ceil(top * power / step - 1e-9) + 1)]


def unit_of_time(highest_ns: float) -> tuple[str, float]:
    """Return the largest unit of which a time is at least one, else ns, and its length in ns."""
    return next((unit for unit in TIMES if highest_ns >= unit[1]), TIMES[-1])
