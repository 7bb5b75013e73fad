"""A figure: SVG with a text alternative, and the elements that all figures share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH = 640  # units of all figures; a notebook shows one unit as one pixel, or less where it is narrow
LETTER = 6.6  # width of a letter at the size of the text, rounded up
# Each has a contrast of at least 3 with white and with the ground of dark themes.
BLUE, ORANGE, PURPLE, GREEN, PINK, GREY = "#3b82c4", "#c8641b", "#8a63d2", "#2b9456", "#d0478b", "#7d8794"
COLOURS = (BLUE, ORANGE, PURPLE, GREEN, PINK, GREY)


@dataclass(frozen=True)
class Figure:
    """A drawing that a notebook shows where a cell ends with it.

    svg: the drawing, one `<svg>` element that loads nothing.
    text: the same in words, for screen readers and for `print`.
    """

    svg: str
    text: str

    def __repr__(self) -> str:
        return f"<Figure: {self.text}>"

    def _repr_html_(self) -> str:
        return f'<div style="max-width:{WIDTH}px">{self.svg}</div>'

    def write(self, path: str | Path) -> None:
        """Write the drawing as a file.

        path: of the file, such as "links.svg".
        Raises OSError.
        """
        Path(path).write_text(self.svg, encoding="utf-8")


def figure(height: float, parts: Iterable[str], text: str) -> Figure:
    """Return a figure of WIDTH units. `parts`: elements; `text`: the text alternative, in plain text."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(text, quote=True)}" '
        'style="display:block;width:100%;height:auto;font:12px system-ui,sans-serif">'
    )
    return Figure(f"{head}{''.join(parts)}</svg>", text)


def words(x: float, y: float, text: str, anchor: str = "start", *, bold: bool = False) -> str:
    """Return a text element in the notebook's colour. `anchor`: start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor"{where}{weight}>{escape(text)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a faint line of a grid."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="currentColor" stroke-opacity="0.2"/>'


def shortened(text: str, letters: int) -> str:
    """Return a text cut in its middle, so that it has `letters` letters at most."""
    if len(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[: letters - 1 - half]}…{text[len(text) - half :]}"
