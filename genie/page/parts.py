"""HTML parts of pages. Arguments are escaped, except those called `html`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

TABLE_ROWS_MAX = 2_000


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", rest_is_in: str = "") -> str:
    """A table; numbers are aligned right. `rest_is_in`: the file with the rows beyond TABLE_ROWS_MAX."""
    shown = list(rows)
    lines = ["<table>"]
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    lines.append("<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in header) + "</tr>")
    for row in shown[:TABLE_ROWS_MAX]:
        cells = (
            f"<td{' class=number' if isinstance(cell, int | float) else ''}>{escape(str(cell))}</td>" for cell in row
        )
        lines.append("<tr>" + "".join(cells) + "</tr>")
    lines.append("</table>")
    if len(shown) > TABLE_ROWS_MAX:
        where = f" are in {rest_is_in}" if rest_is_in else ""
        lines.append(f"<p>{len(shown) - TABLE_ROWS_MAX} more rows{escape(where)}.</p>")
    return "".join(lines)


def as_table(header: Sequence[str], rows: Iterable[Sequence[Any]], rest_is_in: str = "") -> str:
    """A figure's numbers as a folded table, for screen readers and exact values."""
    shown = table(header, rows, rest_is_in=rest_is_in)
    return f'<details><summary>The same as a table</summary><div class="scroll" tabindex="0">{shown}</div></details>'


def facts(entries: Iterable[tuple[str, str, str]]) -> str:
    """Tiles of (label, value, explanation)."""
    tiles = (
        f'<div class="fact"><span class="label">{escape(label)}</span><b>{escape(value)}</b>'
        f"<span>{escape(more)}</span></div>"
        for label, value, more in entries
    )
    return f'<div class="facts">{"".join(tiles)}</div>'


def select(name: str, label: str, values: Iterable[str], chosen: str, words: Mapping[str, str] | None = None) -> str:
    """A drop-down list with the id `name`; `words`: value → text shown instead of it."""
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape((words or {}).get(value, value))}</option>"
        for value in values
    )
    return f'<label>{escape(label)} <select id="{name}">{options}</select></label>'


def key(**colours: str) -> str:
    """A legend: name (underscores are spaces) → CSS colour."""
    return "".join(
        f'<span><i style="background:{colour}"></i>{escape(name.replace("_", " "))}</span>'
        for name, colour in colours.items()
    )


def section(title: str, why: str, *html: str, name: str = "") -> str:
    """A section: heading, a line on how to read it, and its content."""
    identity = f' id="{name}"' if name else ""
    line = f'<p class="why">{escape(why)}</p>' if why else ""
    return f"<section{identity}><h2>{escape(title)}</h2>{line}{''.join(html)}</section>"
