"""Horizontal bars: a value for each of some names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from genie.figures.figure import BLUE, LETTER, WIDTH, Figure, figure, rule, shortened, words

ROW, BAR, TOP = 22, 12, 26
NAME_LETTERS_MAX = 34


@dataclass(frozen=True)
class Bar:
    """A row of a figure. `length`: at least 0; `value`: the same in words; `is_bound`: an outline, not a full bar."""

    name: str
    length: float
    value: str
    colour: str = BLUE
    is_bound: bool = False


def bars(title: str, rows: Sequence[Bar], *, full: float = 0.0, limit: float = 0.0, beside: str = "") -> Figure:
    """Return a figure of bars.

    `full`: the length of a bar over the whole width, if no bar is longer. `limit`: the length at which a line marks a
    limit; 0: none. `beside`: a line below the bars.
    """
    left = min(max((len(row.name) for row in rows), default=0), NAME_LETTERS_MAX) * LETTER + 8
    right = max((len(row.value) for row in rows), default=0) * LETTER + 8
    longest = max(full, limit, *(row.length for row in rows), 1e-9)
    scale = (WIDTH - left - right) / longest
    bottom, line = TOP + ROW * len(rows), left + limit * scale
    parts = [words(0, 14, title, bold=True), rule(left, TOP - 4, left, bottom)]
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        width = max(row.length * scale, 1.0)
        how = f'fill="none" stroke="{row.colour}" stroke-dasharray="4 2"' if row.is_bound else f'fill="{row.colour}"'
        parts += [
            words(left - 6, y + 11, shortened(row.name, NAME_LETTERS_MAX), "end"),
            f'<rect x="{left:.1f}" y="{y + 1}" width="{width:.1f}" height="{BAR}" {how}>'
            f"<title>{escape(f'{row.name}: {row.value}')}</title></rect>",
            words(max(left + width, line if row.length < limit else 0.0) + 6, y + 11, row.value),
        ]
    if limit:
        parts.append(f'<path d="M{line:.1f} {TOP - 4}V{bottom}" stroke="currentColor" stroke-dasharray="1 3"/>')
    told = "; ".join(f"{row.name} {row.value}" for row in rows) or "none"
    lines = wrap(beside, int(WIDTH / LETTER))
    parts += [words(0, bottom + 16 * number, line) for number, line in enumerate(lines, start=1)]
    return figure(bottom + 16 * len(lines) + 8, parts, f"{title}: {told}" + (f". {beside}" if beside else ""))
