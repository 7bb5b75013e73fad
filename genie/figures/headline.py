"""A table of headline facts: a few rows of a name, a value, and the words beside it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

Fact = tuple[str, str] | tuple[str, str, str]  # name, value, words beside it
CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def headline(title: str, facts: Iterable[Fact]) -> str:
    """Return the table as HTML. All arguments are plain text, and are escaped."""
    rows = []
    for name, value, *beside in facts:
        more = f', <span style="opacity:.75">{escape(beside[0])}</span>' if beside and beside[0] else ""
        rows.append(
            f'<tr><th scope="row" style="{CELL};font-weight:600;width:9.5em">{escape(name)}</th>'
            f'<td style="{CELL};overflow-wrap:anywhere">{escape(value)}{more}</td></tr>'
        )
    caption = f'<caption style="text-align:left;caption-side:top;color:inherit;font-weight:600">{escape(title)}'
    return (
        f'<table style="border-collapse:collapse;margin:0;max-width:56em;color:inherit">{caption}</caption>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
