"""Ranks over time: the time of each rank in one iteration in computation, waiting, collectives and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from genie.figures.figure import BLUE, GREEN, GREY, LETTER, ORANGE, PURPLE, WIDTH, Figure, figure, rule, words
from genie.figures.scale import ticks_of, unit_of_time
from genie.page import count_of, duration, share
from genie.page.lanes import all_there_ns

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

RANKS_MAX = 16  # rows
STEPS = 300  # of the time axis; shorter parts are merged
ROW, TOP, RIGHT = 20, 28, 14
# Kind of a part -> colour and height of its line. Two heights tell apart the parts of collectives without colours.
STYLES = {
    "computing": (GREY, 12),
    "waiting for other ranks": (ORANGE, 3),
    "collective": (BLUE, 12),
    "sending": (GREEN, 7),
    "receiving": (PURPLE, 4),
}
OF_KIND = {"comp": "computing", "mem": "computing", "coll": "collective", "send": "sending", "recv": "receiving"}


def timeline(title: str, table: pl.DataFrame) -> Figure:
    """Return the figure of one iteration. `table`: its rows, with the columns of a run folder's timeline."""
    import polars as pl

    every = sorted(table["rank"].unique().to_list())
    ranks = every[:RANKS_MAX]
    # A rank waits in a collective until its last member starts.
    parts_of = (
        table.filter((pl.col("end_ns") >= pl.col("start_ns")) & (pl.col("start_ns") >= 0))
        .with_columns(there_ns=pl.min_horizontal(all_there_ns(), "end_ns"))
        .filter(pl.col("rank").is_in(ranks) & pl.col("kind").is_in(list(OF_KIND)))
    )
    highest = max(int(parts_of["end_ns"].to_numpy().max(initial=0)), 1)
    unit, of_unit = unit_of_time(highest)
    ticks = ticks_of(highest / of_unit)
    left = max(len(f"rank {rank}") for rank in ranks or [0]) * LETTER + 8
    wide, bottom = WIDTH - left - RIGHT, TOP + ROW * len(ranks)
    drawn = [words(0, 14, title, bold=True)]
    for tick in ticks:
        x = left + wide * tick / ticks[-1]
        drawn += [rule(x, TOP - 4, x, bottom), words(x, bottom + 14, f"{tick:g}", "middle")]
    drawn.append(words(left + wide / 2, bottom + 30, f"time in the iteration ({unit})", "middle"))
    scale = STEPS / (ticks[-1] * of_unit)
    told, seen = [], set[str]()
    for number, rank in enumerate(ranks):
        y = TOP + ROW * number + ROW / 2
        drawn.append(words(left - 6, y + 4, f"rank {rank}", "end"))
        rows = parts_of.filter(pl.col("rank") == rank)
        spans = _spans(rows)
        for part, (colour, height) in STYLES.items():
            starts, ends = spans[part]
            if len(starts):
                seen.add(part)
                path = _path(starts * scale, ends * scale, left, y, wide / STEPS)
                drawn.append(f'<path d="{path}" stroke="{colour}" stroke-width="{height}" fill="none"/>')
        waited = float((spans["waiting for other ranks"][1] - spans["waiting for other ranks"][0]).sum())
        told.append(f"rank {rank} ends after {duration(float(rows['end_ns'].to_numpy().max(initial=0)))}")
        if waited:
            told[-1] += f" and waits {share(waited / highest)} of it"
    x = left
    for part in (part for part in STYLES if part in seen):
        colour, height = STYLES[part]
        drawn.append(f'<path d="M{x:.0f} {bottom + 46}h18" stroke="{colour}" stroke-width="{height}"/>')
        drawn.append(words(x + 24, bottom + 50, part))
        x += 24 + LETTER * len(part) + 14
    more = f"; {count_of(len(every) - RANKS_MAX, 'more rank')} left out" if len(every) > RANKS_MAX else ""
    return figure(bottom + 58, drawn, f"{title}: {'; '.join(told) or 'no rank has played anything'}{more}")


def _spans(rows: pl.DataFrame) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return part -> starts and ends in ns of a rank's nodes."""
    kind = rows["kind"].to_numpy()
    start, there, end = (rows[name].to_numpy() for name in ("start_ns", "there_ns", "end_ns"))
    spans = {}
    for part in STYLES:
        own = np.isin(kind, [each for each, name in OF_KIND.items() if name == part])
        spans[part] = there[own], end[own]
    is_collective = (kind == "coll") & (there > start)
    spans["waiting for other ranks"] = start[is_collective], there[is_collective]
    return spans


def _path(starts: NDArray[Any], ends: NDArray[Any], left: float, y: float, step: float) -> str:
    """Return the path of horizontal lines; those that share a step of the axis are one."""
    busy = np.zeros(STEPS + 2, np.int64)
    first, last = np.floor(starts).astype(np.int64), np.ceil(ends).astype(np.int64)
    np.add.at(busy, first, 1)
    np.add.at(busy, np.maximum(last, first + 1), -1)
    edges = np.flatnonzero(np.diff(np.cumsum(busy) > 0, prepend=False))
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return "".join(f"M{left + a * step:.1f} {y:.1f}h{(b - a) * step:.1f}" for a, b in pairs)
