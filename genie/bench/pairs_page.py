"""Matrices of all pairs as heat maps on a self-contained page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from genie.bench.pairs import SLOW_SHARE, Cells, Matrix, PairsAsked, slow_in_words, warnings
from genie.bench.pairs_table import rate_unit
from genie.record import mark

PAGE_KIND = "pairs-page"
CELLS_MAX = 256  # cells along an edge; with more ranks, neighbours share a cell, which shows their worst
VALUES_MAX = 16  # ranks up to which a cell has room for a number
LABEL_PX = (16, 36)  # space for one label, down and across
WORDS_MAX = 20
MAP_PX, CELL_PX, LETTER_PX, HEAD_PX = 760, 46, 8, 22

# Shades of one hue: darker is further from the best. Values below the mark stand out. Latencies have no mark, because
# paths with more switches take more time.
FINE = ("#f4f7fb", "#c9dbef")
SLOW = ("#f3b8ae", "#8f1d14")
LONG = ("#f4f7fb", "#1d4f8c")
NOTHING = "#eceff3"

STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dde3ea; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 24px; line-height: 1.3; margin: 0 0 6px; font-weight: 650; }
h2 { font-size: 19px; margin: 36px 0 2px; font-weight: 650; }
p { margin: 6px 0; max-width: 90ch; } .soft { color: var(--soft); font-size: 14px; }
ul { margin: 6px 0; padding-left: 20px; }
svg { display: block; max-width: 100%; height: auto; }
svg rect { shape-rendering: crispEdges; }
svg text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
svg text.soft { fill: var(--soft); } svg text.on { fill: #fff; }
.key { display: flex; gap: 18px; flex-wrap: wrap; font-size: 13.5px; color: var(--soft); margin: 6px 0; }
.key i { display: inline-block; width: 14px; height: 12px; margin-right: 6px; border: 1px solid var(--line); }
"""


def page(asked: PairsAsked, matrix: Matrix, world: str) -> str:
    """The page as HTML text. `world`: a phrase on what was measured."""
    unit, name = rate_unit(matrix.best_bytes_per_s)
    slow = int(matrix.is_slow.sum())
    pairs = int((~np.isnan(matrix.bytes_per_s)).sum())
    title = f"{slow or 'None'} of {pairs} directed pairs below {SLOW_SHARE} of the best"
    words = [*warnings(asked, matrix), *slow_in_words(matrix)]
    listed = "".join(f"<li>{escape(text)}</li>" for text in words[:WORDS_MAX])
    more = f"<p class=soft>and {len(words) - WORDS_MAX} more</p>" if len(words) > WORDS_MAX else ""
    key = "".join(
        f'<span><i style="background:{colour}"></i>{text}</span>'
        for colour, text in (
            (FINE[0], "the best"),
            (FINE[1], f"{SLOW_SHARE} of it"),
            (SLOW[0], "just below"),
            (SLOW[1], "half of it or less"),
            (NOTHING, "not measured"),
        )
    )
    parts = [
        f"<h1>{title}</h1>",
        f"<p class=soft>{escape(world)}: {asked.ranks} ranks, {asked.words()}, "
        f"{asked.messages} messages of {asked.size_bytes} bytes each. "
        f"A row is a sender, a column a receiver.</p><ul>{listed}</ul>{more}",
        f"<h2>Bandwidth, {name}</h2><div class=key>{key}</div>",
        heat_map(
            "bandwidth", matrix.hosts, matrix.bytes_per_s / unit, f"{{:.4g}} {name}", 1 - matrix.shares, colour_of
        ),
    ]
    if not np.isnan(matrix.latency_us).all():
        least, most = float(np.nanmin(matrix.latency_us)), float(np.nanmax(matrix.latency_us))
        longer = (matrix.latency_us - least) / ((most - least) or 1)
        parts += [
            "<h2>Latency, us</h2><p class=soft>The median from a small message's post to its acknowledgement; darker "
            f"is longer, from {least:.4g} to {most:.4g} us. Paths with more switches take more time.</p>",
            heat_map(
                "latency", matrix.hosts, matrix.latency_us, "{:.4g} us", longer, lambda part: _between(*LONG, part)
            ),
        ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="generator" content="{mark(PAGE_KIND)}">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style></head>\n'
        f"<body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def heat_map(
    name: str, hosts: Sequence[str], values: Cells, form: str, worse: Cells, colour: Callable[[float], str]
) -> str:
    """One matrix as SVG. `form`: format of a value with its unit; `worse`: distance from the best (0), shaded by
    `colour`.
    """
    block = -(-len(hosts) // CELLS_MAX)
    worse, values = _worst(worse, values, block)
    edge, label = len(values), _labels(hosts, block)
    cell = min(CELL_PX, MAP_PX / edge)
    left = 12 + LETTER_PX * max(len(label(at)) for at in range(edge))
    width, height = left + cell * edge + 4, HEAD_PX + cell * edge + 4
    parts = [f'<svg id="{name}" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">']
    down, across = (range(0, edge, math.ceil(room / cell)) for room in LABEL_PX)
    for at in down:
        y = HEAD_PX + (at + 0.5) * cell + 4
        parts.append(f'<text class=soft x="{left - 6}" y="{y:.1f}" text-anchor="end">{escape(label(at))}</text>')
    for at in across:
        x = left + (at + 0.5) * cell
        parts.append(f'<text class=soft x="{x:.1f}" y="16" text-anchor="middle">{at * block}</text>')
    for row in range(edge):
        for column in range(edge):
            value, part = float(values[row, column]), float(worse[row, column])
            x, y, known = left + column * cell, HEAD_PX + row * cell, not np.isnan(value)
            fill = colour(part) if known else NOTHING
            tip = escape(f"{label(row)} to {label(column)}: {form.format(value) if known else 'not measured'}")
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell:.2f}" height="{cell:.2f}" fill="{fill}">'
                f"<title>{tip}</title></rect>"
            )
            if edge <= VALUES_MAX and known:
                shade = ' class="on"' if _is_dark(fill) else ""
                parts.append(
                    f'<text{shade} x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" text-anchor="middle" '
                    f'pointer-events="none">{value:.3g}</text>'
                )
    return "".join(parts) + "</svg>"


def _labels(hosts: Sequence[str], block: int) -> Callable[[int], str]:
    """Function for the label of a row: its rank and host, or the ranks that share it."""
    if block == 1:
        return lambda at: f"{at} {hosts[at]}"
    return lambda at: f"{at * block} to {min((at + 1) * block, len(hosts)) - 1}"


def _worst(worse: Cells, values: Cells, block: int) -> tuple[Cells, Cells]:
    """Cells of block x block ranks, each with the value of its worst pair."""
    if block == 1:
        return worse, values
    edge = -(-len(worse) // block)
    kept = []
    for given in (worse, values):
        whole = np.full((edge * block,) * 2, np.nan)
        whole[: len(given), : len(given)] = given
        kept.append(whole.reshape(edge, block, edge, block).transpose(0, 2, 1, 3).reshape(edge * edge, block * block))
    worst = np.where(np.isnan(kept[0]), -np.inf, kept[0]).argmax(axis=1)[:, None]
    found = [np.take_along_axis(each, worst, axis=1).reshape(edge, edge) for each in kept]
    return found[0], found[1]


def colour_of(worse: float) -> str:
    """Colour for a distance from the best bandwidth; the two sides of the mark have different shades."""
    mark = 1 - SLOW_SHARE
    if worse <= mark:
        return _between(*FINE, worse / mark)
    return _between(*SLOW, min((worse - mark) / (0.5 - mark), 1.0))


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def _between(one: str, other: str, part: float) -> str:
    pairs = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(here * (1 - part) + there * part):02x}" for here, there in pairs)


def _is_dark(colour: str) -> bool:
    """Whether white text is easier to read on it."""
    red, green, blue = _channels(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 130
