"""Assembly of a page as one file: style, text, data and scripts, with nothing fetched from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

Asset = tuple[str, str]  # package and path in it

BASE = "genie.page"
COMMON = tuple((BASE, f"assets/{name}") for name in ("base.css", "base.js", "view.js", "tables.js", "keys.js"))
PAGE_BYTES_MAX = 3_000_000  # of a page of 128 ranks; figures leave out what would not fit


def document(
    title: str, body: Iterable[str], data: Mapping[str, Any], assets: Sequence[Asset], generator: str = "genie"
) -> str:
    """The page as HTML text.

    `title`: plain text; `body`: HTML of its parts in order; `data`: the scripts' variable `data`.

    `assets`: the page's own .css and .js, placed after the common ones and in this order.

    `generator`: the mark of the page's kind.
    """
    every = [*COMMON, *assets]
    style, script = ("\n".join(_text(it) for it in every if it[1].endswith(end)) for end in (".css", ".js"))
    # Escape "<", so that no name in the data can end the script element.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    shown = "\n".join(part for part in body if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="generator" content="{escape(generator)}">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>\n{style}</style></head>\n"
        '<body><a class="skip" href="#content">Skip to the content</a>\n'
        "<noscript><p>Figures and the filter need JavaScript; the tables have the same numbers.</p></noscript>\n"
        f'<main id="content" tabindex="-1">\n{shown}\n</main>\n<div id="tip" role="tooltip"></div>\n'
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>\n{script}</script></body></html>\n"
    )


def _text(asset: Asset) -> str:
    package, path = asset
    return files(package).joinpath(path).read_text(encoding="utf-8")
