"""The matrices of all pairs as heat maps: one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from genie.live.bench.pairs import SLOW_SHARE, Cells, Matrix, PairsAsked, slow_in_words
from genie.live.bench.pairs_table import rate_unit

CELLS_MAX = 256  # along an edge; of more ranks neighbours share a cell, which shows the worst of them
VALUES_MAX = 16  # ranks whose cells have room for a number
LABELS_MAX = 32
WORDS_MAX = 100
MAP_PX, LABEL_PX, ROW_PX = 720, 150, 30

# Shades of one hue: the further from the best, the darker. What is below the mark stands out from what is not.
FINE = ("#f4f7fb", "#c9dbef")
SLOW = ("#f3b8ae", "#8f1d14")
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
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
svg text.soft { fill: var(--soft); } svg text.on { fill: #fff; }
.key { display: flex; gap: 18px; flex-wrap: wrap; font-size: 13.5px; color: var(--soft); margin: 6px 0; }
.key i { display: inline-block; width: 14px; height: 12px; margin-right: 6px; border: 1px solid var(--line); }
"""


def page(asked: PairsAsked, matrix: Matrix, world: str) -> str:
    """The page as text. `world`: what was measured, in words."""
    unit, name = rate_unit(matrix.best_bytes_per_s)
    slow = int(matrix.is_slow.sum())
    pairs = int((~np.isnan(matrix.bytes_per_s)).sum())
    title = f"{slow or 'None'} of {pairs} directed pairs below {SLOW_SHARE} of the best"
    words = slow_in_words(matrix)
    listed = "".join(f"<li>{escape(text)}</li>" for text in words[:WORDS_MAX])
    more = f"<p class=soft>and {len(words) - WORDS_MAX} more</p>" if len(words) > WORDS_MAX else ""
    how = "both directions at once" if asked.both_ways else "one direction after the other"
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
        f"<p class=soft>{escape(world)}: {asked.ranks} ranks, {asked.rounds} rounds of disjoint pairs, {how}, "
        f"{asked.messages} messages of {asked.size_bytes} bytes each. "
        f"A row is a sender, a column a receiver.</p><ul>{listed}</ul>{more}",
        f"<h2>Bandwidth, {name}</h2><div class=key>{key}</div>",
        heat_map(matrix.hosts, matrix.bytes_per_s / unit, matrix.shares, "bandwidth", f"{{:.4g}} {name}"),
    ]
    if not np.isnan(matrix.latency_us).all():
        least = float(np.nanmin(matrix.latency_us))
        parts += [
            "<h2>Latency, us</h2><p class=soft>The median from a small message's post to its acknowledgement; darker "
            f"is longer, beside the shortest, {least:.4g} us.</p>",
            heat_map(matrix.hosts, matrix.latency_us, least / matrix.latency_us, "latency", "{:.4g} us"),
        ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style></head>\n'
        f"<body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def heat_map(hosts: Sequence[str], values: Cells, shares: Cells, name: str, form: str) -> str:
    """One matrix as SVG. `shares`: of the best, 1 is best, which colours cells; `form`: of a value with its unit."""
    ranks = len(hosts)
    block = -(-ranks // CELLS_MAX)
    shares, values = _worst(shares, values, block)
    edge = len(values)
    cell = min(ROW_PX, MAP_PX / edge)
    side, every = cell * edge, -(-edge // LABELS_MAX)
    label = _labels(hosts, block)
    parts = [f'<svg id="{name}" viewBox="0 0 {LABEL_PX + side + 4:.0f} {side + 26:.0f}" role="img">']
    for at in range(0, edge, every):
        middle = at * cell + cell / 2
        parts.append(
            f'<text class=soft x="{LABEL_PX - 6}" y="{22 + middle + 4:.1f}" text-anchor="end">'
            f"{escape(label(at))}</text>"
            f'<text class=soft x="{LABEL_PX + middle:.1f}" y="16" text-anchor="middle">{at * block}</text>'
        )
    for row in range(edge):
        for column in range(edge):
            value, share = float(values[row, column]), float(shares[row, column])
            x, y = LABEL_PX + column * cell, 22 + row * cell
            text = "not measured" if np.isnan(value) else form.format(value)
            tip = escape(f"{label(row)} to {label(column)}: {text}")
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell:.2f}" height="{cell:.2f}" fill="{colour_of(share)}">'
                f"<title>{tip}</title></rect>"
            )
            if edge <= VALUES_MAX and not np.isnan(value):
                shade = ' class="on"' if share < (SLOW_SHARE + 0.5) / 2 else ""
                parts.append(
                    f'<text{shade} x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" text-anchor="middle" '
                    f'style="font-size:9px;pointer-events:none">{value:.3g}</text>'
                )
    return "".join(parts) + "</svg>"


def _labels(hosts: Sequence[str], block: int) -> Callable[[int], str]:
    """Rank and host of a row, or the ranks that share it."""
    if block == 1:
        return lambda at: f"{at} {hosts[at]}"
    return lambda at: f"{at * block} to {min((at + 1) * block, len(hosts)) - 1}"


def _worst(shares: Cells, values: Cells, block: int) -> tuple[Cells, Cells]:
    """Cells of block x block ranks, each with the share and the value of its worst pair."""
    if block == 1:
        return shares, values
    edge = -(-len(shares) // block)
    padded = [np.full((edge * block,) * 2, np.nan) for _ in range(2)]
    for whole, given in zip(padded, (shares, values), strict=True):
        whole[: len(given), : len(given)] = given
    kept = [_blocks(whole, edge, block) for whole in padded]
    worst = np.where(np.isnan(kept[0]), np.inf, kept[0]).argmin(axis=1)[:, None]
    found = [np.take_along_axis(each, worst, axis=1).reshape(edge, edge) for each in kept]
    return found[0], found[1]


def _blocks(cells: Cells, edge: int, block: int) -> NDArray[np.float64]:
    """(edge * edge, block * block)"""
    return cells.reshape(edge, block, edge, block).transpose(0, 2, 1, 3).reshape(edge * edge, block * block)


def colour_of(share: float) -> str:
    """Of a share of the best; those at the mark and above it have shades of their own."""
    if np.isnan(share):
        return NOTHING
    if share >= SLOW_SHARE:
        return _between(*FINE, (1 - min(share, 1.0)) / (1 - SLOW_SHARE))
    return _between(*SLOW, min((SLOW_SHARE - share) / (SLOW_SHARE - 0.5), 1.0))


def _between(one: str, other: str, part: float) -> str:
    channels = (round(int(one[at : at + 2], 16) * (1 - part) + int(other[at : at + 2], 16) * part) for at in (1, 3, 5))
    return "#" + "".join(f"{channel:02x}" for channel in channels)
