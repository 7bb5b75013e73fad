"""HTML parts of pages. Arguments are escaped, except those called `html`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

TABLE_ROWS_MAX = 2_000

# Properties of a table's rows that the filter knows (assets/tables.js). "row": a choice of all that the row names.
Key = Literal["rank", "group", "link", "iteration", "row"]
Keys = Mapping[str, Key]  # heading of a column -> the property that its cells have


@dataclass(frozen=True)
class Quantity:
    """A cell in words, with the value by which its column is sorted."""

    words: str
    value: float | None

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Linked:
    """A cell of a column "row", with the links that its row names."""

    words: str
    links: Sequence[str]


def quantity(words: Callable[[float], str], value: float | None, none: str = "") -> Quantity:
    """`duration, 1200` → a cell `1.2 µs` that is sorted as 1200; `none`: the words without a value."""
    return Quantity(none if value is None else words(value), value)


def table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", rest_is_in: str = "",
    keys: Keys | None = None,
) -> str:  # fmt: skip
    """A table; numbers are aligned right. `rest_is_in`: the file with the rows beyond TABLE_ROWS_MAX."""
    shown = list(rows)
    lines = ['<div class="wide"><table>']
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    lines.append("<thead><tr>" + "".join(_heading(name, (keys or {}).get(name, "")) for name in header))
    lines.append("</tr></thead><tbody>")
    for row in shown[:TABLE_ROWS_MAX]:
        lines.append("<tr>" + "".join(map(_cell, row)) + "</tr>")
    lines.append("</tbody></table></div>")
    if len(shown) > TABLE_ROWS_MAX:
        where = f" are in {rest_is_in}" if rest_is_in else ""
        lines.append(f"<p>{len(shown) - TABLE_ROWS_MAX} more rows{escape(where)}.</p>")
    return "".join(lines)


def _heading(name: str, key: str) -> str:
    return f'<th scope="col"{f" data-key={key}" if key else ""}>{escape(name)}</th>'


def _cell(cell: Any) -> str:
    if isinstance(cell, Quantity):
        value = "" if cell.value is None else f' data-value="{cell.value:.12g}"'
        return f"<td class=number{value}>{escape(cell.words)}</td>"
    if isinstance(cell, Linked):
        return f'<td data-link="{escape(",".join(cell.links))}">{escape(cell.words)}</td>'
    return f"<td{' class=number' if isinstance(cell, int | float) else ''}>{escape(str(cell))}</td>"


def as_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], rest_is_in: str = "", keys: Keys | None = None
) -> str:
    """A figure's numbers as a folded table, for screen readers and exact values."""
    return (
        '<details><summary>The same as a table</summary><div class="scroll" tabindex="0">'
        f"{table(header, rows, rest_is_in=rest_is_in, keys=keys)}</div></details>"
    )


def facts(entries: Iterable[tuple[str, str, str]]) -> str:
    """Tiles of (label, value, explanation)."""
    tiles = (
        f'<div class="fact"><span class="label">{escape(label)}</span><b>{escape(value)}</b>'
        f"<span>{escape(more)}</span></div>"
        for label, value, more in entries
    )
    return f'<div class="facts">{"".join(tiles)}</div>'


def select(
    name: str, label: str, values: Iterable[str], chosen: str, words: Mapping[str, str] | None = None, follows: str = ""
) -> str:
    """A drop-down list with the id `name`; `words`: value → text shown instead of it.

    `follows`: the property of the view whose value the list takes, where it has that value.
    """
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape((words or {}).get(value, value))}</option>"
        for value in values
    )
    following = f' data-follows="{follows}"' if follows else ""
    return f'<label>{escape(label)} <select id="{name}"{following}>{options}</select></label>'


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
