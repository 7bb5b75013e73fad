"""Cumulative distributions of times, one curve for each run."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from genie.figures.figure import COLOURS, LETTER, WIDTH, Figure, figure, rule, words
from genie.figures.scale import ticks_of, unit_of_time
from genie.page import duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEFT, TOP, PLOT_HEIGHT, RIGHT = 44, 28, 170, 14
POINTS_MAX = 200  # of a curve
DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 3", "4 4")


def distribution(title: str, axis: str, times_ns: Mapping[str, NDArray[Any]]) -> Figure:
    """Return the share of values at or below each time.

    `axis`: the name of the times; `times_ns`: name of a curve -> times in ns, in any order. Empty curves are named in
    the text and not drawn.
    """
    curves = {name: np.sort(np.asarray(values, np.float64)) for name, values in times_ns.items()}
    highest = max((float(values[-1]) for values in curves.values() if len(values)), default=0.0) or 1.0
    unit, of_unit = unit_of_time(highest)
    ticks = ticks_of(highest / of_unit)
    wide, floor = WIDTH - LEFT - RIGHT, TOP + PLOT_HEIGHT
    parts = [words(0, 14, title, bold=True)]
    for percent in (0, 25, 50, 75, 100):
        y = floor - PLOT_HEIGHT * percent / 100
        parts += [rule(LEFT, y, WIDTH - RIGHT, y), words(LEFT - 6, y + 4, f"{percent} %", "end")]
    for tick in ticks:
        parts.append(words(LEFT + wide * tick / ticks[-1], floor + 16, f"{tick:g}", "middle"))
    parts.append(words(LEFT + wide / 2, floor + 34, f"{axis} ({unit})", "middle"))
    told, key_x, key_y = [], float(LEFT), floor + 54.0
    for number, (name, values) in enumerate(curves.items()):
        if not len(values):
            told.append(f"{name}: no transfers")
            continue
        median, p99 = (duration(float(np.quantile(values, at))) for at in (0.5, 0.99))
        told.append(f"{name}: median {median}, 99th percentile {p99}")
        style = f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"'
        if dash := DASHES[number % len(DASHES)]:
            style += f' stroke-dasharray="{dash}"'
        path = _steps(values / of_unit / ticks[-1] * wide)
        parts.append(f'<path d="{path}" {style}><title>{escape(told[-1])}</title></path>')
        if len(curves) > 1:
            needed = 34 + LETTER * len(name)
            if key_x > LEFT and key_x + needed > WIDTH:
                key_x, key_y = float(LEFT), key_y + 18
            parts += [f'<path d="M{key_x:.0f} {key_y - 4:.0f}h22" {style}/>', words(key_x + 28, key_y, name)]
            key_x += needed + 16
    height = key_y + 8 if len(curves) > 1 else floor + 42
    return figure(height, parts, f"{title}: {'; '.join(told) or 'no transfers'}")


def _steps(along: NDArray[np.float64]) -> str:
    """Return the path of a curve from sorted places along the axis, with POINTS_MAX steps at most."""
    count = len(along)
    shares = np.unique(np.ceil(np.linspace(1, count, min(count, POINTS_MAX))).astype(np.int64))
    path = f"M{LEFT + along[0]:.1f} {TOP + PLOT_HEIGHT}"
    for rank in shares:
        path += f"H{LEFT + along[rank - 1]:.1f}V{TOP + PLOT_HEIGHT * (1 - rank / count):.1f}"
    return path
