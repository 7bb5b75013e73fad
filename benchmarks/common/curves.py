"""Measured and predicted curves as one HTML page: a panel for each curve, with logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log2, log10

from genie.page import amount, as_table, key, section
from genie.page.document import document

WIDTH, HEIGHT = 344, 236
LEFT, RIGHT, TOP, BOTTOM = 52, 20, 24, 34
SIZE_LABELS, SIZE_LABEL_WIDTH = 5, 52  # along an axis, at most; of one, in px
MEASURED, PREDICTED, NAMED = "--ink", "--two", "--mark"


@dataclass(frozen=True)
class Point:
    """One size of a curve. `is_named`: it has set a constant, and is no test of a prediction."""

    size_bytes: int
    measured_us: float
    predicted_us: float
    is_named: bool = False


@dataclass(frozen=True)
class Curve:
    """The sizes of one measured column, in order."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    title: str
    why: str
    curves: tuple[Curve, ...]


def page(title: str, lines: Sequence[str], parts: Iterable[Part]) -> str:
    """Return the page as HTML. `lines`: under the title, plain text."""
    names = key(measured=f"var({MEASURED})", predicted=f"var({PREDICTED})", has_set_a_constant=f"var({NAMED})")
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in lines),
        f'<div class="key">{names}</div>',
    ]
    for part in parts:
        drawn = "".join(_panel(curve) for curve in part.curves)
        rows = [
            [curve.title, amount(at.size_bytes), f"{at.measured_us:.1f}", f"{at.predicted_us:.1f}",
             f"{at.predicted_us / at.measured_us - 1:+.1%}", "set a constant" if at.is_named else ""]
            for curve in part.curves for at in curve.points
        ]  # fmt: skip
        header = ["curve", "size", "measured us", "predicted us", "error", ""]
        figure = f'<figure style="display:flex;flex-wrap:wrap;gap:8px 20px">{drawn}</figure>'
        body.append(section(part.title, part.why, figure, as_table(header, rows)))
    return document(title, body, {}, ())


def _panel(curve: Curve) -> str:
    sizes = [log2(point.size_bytes) for point in curve.points]
    times = [log10(time) for point in curve.points for time in (point.measured_us, point.predicted_us)]
    low, high = floor(min(times)), floor(max(times)) + 1
    first, last = min(sizes), max(max(sizes), min(sizes) + 1)

    def x(size_bytes: float) -> float:
        return LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * (log2(size_bytes) - first) / (last - first)

    def y(time_us: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(time_us) - low) / (high - low)

    parts = [f'<text x="{LEFT}" y="14" class="soft">{escape(curve.title)}</text>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--grid)"/>')
        label = f"{10.0 ** (power - 3):g} ms" if power >= 3 else f"{10**power:g} us"
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" class="soft small">{label}</text>')
    step = max(-(-len(curve.points) // SIZE_LABELS), 1)
    free = 0.0  # the right end of the last label
    for point in curve.points[::step]:
        if x(point.size_bytes) - SIZE_LABEL_WIDTH / 2 < free:
            continue
        free = x(point.size_bytes) + SIZE_LABEL_WIDTH / 2
        parts.append(
            f'<text x="{x(point.size_bytes):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" class="small">'
            f"{amount(point.size_bytes)}</text>"
        )
    path = " ".join(f"{x(point.size_bytes):.1f},{y(point.predicted_us):.1f}" for point in curve.points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="var({PREDICTED})" stroke-width="1.8"/>')
    for point in curve.points:
        tip = (
            f"{amount(point.size_bytes)}: measured {point.measured_us:.1f} us, predicted {point.predicted_us:.1f} us "
            f"({point.predicted_us / point.measured_us - 1:+.1%})"
        )
        colour = NAMED if point.is_named else MEASURED
        place = f'cx="{x(point.size_bytes):.1f}" cy="{y(point.measured_us):.1f}" r="4" fill="var({colour})"'
        parts.append(f'<circle {place} data-tip="{escape(tip, quote=True)}"/>')
    label = escape(f"{curve.title}: time by size, measured and predicted", quote=True)
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run one that uses it.")
