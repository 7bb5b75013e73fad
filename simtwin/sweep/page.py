"""The page of a sweep: its results over the grid, as lines in small panels, and all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any

from genie.figures.scale import ticks_of
from genie.page import as_table, document, section
from genie.record import mark
from simtwin.sweep.communication import BUS_BANDWIDTHS

if TYPE_CHECKING:
    import polars as pl

# Kind of quantity -> its units, the largest first, and the value of each.
UNITS: dict[str, tuple[tuple[str, float], ...]] = {
    "time": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)),
    "size": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)),
    "ratio": (("x", 1.0),),
    "bandwidth": (("GB/s", 1e9), ("MB/s", 1e6)),
    "packets": (("packets", 1.0),),
    "frames": (("frames", 1.0),),
}
COUNTS = ("packets", "frames")
# Column -> title, kind, and value of the column's own unit.
FIGURES: dict[str, tuple[str, str, float]] = {
    "completion_s": ("Completion", "time", 1.0),
    "exposed_s": ("Exposed communication", "time", 1.0),
    **{name: (f"Bus bandwidth of {kind} groups", "bandwidth", 1.0) for kind, name in BUS_BANDWIDTHS.items()},
    "fct_p50_ns": ("Flow completion time, median", "time", 1e-9),
    "fct_p99_ns": ("Flow completion time, 99th percentile", "time", 1e-9),
    "slowdown_p99": ("Slowdown, 99th percentile", "ratio", 1.0),
    "longest_queue_bytes": ("Longest queue", "size", 1.0),
    "marked": ("Marks", "packets", 1.0),
    "pauses": ("Pauses", "frames", 1.0),
    "dropped": ("Drops", "packets", 1.0),
}
COLOURS = ("--one", "--two", "--three", "--four", "--five", "--six")
PANELS_MAX = 24
LABEL_MAX, SLOPED_PX = 6, 4  # letters of a level label; height of each further letter of a sloped one
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 250, 190, 52, 26, 30
Row = Mapping[str, Any]


def sweep_page(table: pl.DataFrame, axes: Sequence[str], name: str) -> str:
    """Return one self-contained page.

    `axes`: the grid's keys with several values; the last is the horizontal axis.
    """
    rows = table.to_dicts()
    failed = sum(bool(row["error"]) for row in rows)
    title = f"{name}: {len(rows)} runs" + (f", {failed} failed" if failed else "")
    along, coloured, others = (axes[-1] if axes else "run"), axes[0] if len(axes) > 1 else "", axes[1:-1]
    body = [f"<h1>{escape(title)}</h1>", _key(rows, coloured)]
    for column, (words, kind, of_column) in FIGURES.items():
        if highest := max((row[column] or 0 for row in rows), default=0):
            unit, of_unit = unit_of(kind, highest * of_column)
            divisor = of_unit / of_column
            ticks = ticks_of(highest / divisor, kind in COUNTS)
            why = f"{unit}, along {short(along)}" + (
                f"; a panel for each {', '.join(map(short, others))}" * bool(others)
            )
            body.append(section(words, why, *_panels(rows, column, divisor, unit, ticks, along, coloured, others)))
    shown = [column for column in table.columns if column != "id"]
    cells = ([_cell(row[column]) for column in shown] for row in rows)
    body.append(section("All runs", "As in sweep.csv.", as_table(shown, cells, rest_is_in="sweep.csv")))
    return document(title, body, {}, (), mark("sweep-page"))


def short(key: str) -> str:
    """Return a grid's key without its tables."""
    return key.rpartition(".")[2]


def _key(rows: Sequence[Row], coloured: str) -> str:
    if not coloured:
        return ""
    marks = (
        f'<span><i style="background:{_colour(at)}"></i>{escape(str(value))}</span>'
        for at, value in enumerate(_values(rows, coloured))
    )
    return f'<div class="key"><b>{escape(short(coloured))}</b>{"".join(marks)}</div>'


def _values(rows: Sequence[Row], key: str) -> list[Any]:
    """Return the values of a key, in the order of the grid."""
    return list(dict.fromkeys(row[key] for row in rows))


def _colour(at: int) -> str:
    return f"var({COLOURS[at] if at < len(COLOURS) else '--mark'})"


def _panels(
    rows: Sequence[Row], column: str, divisor: float, unit: str, ticks: Sequence[float], along: str, coloured: str,
    others: Sequence[str],
) -> list[str]:  # fmt: skip
    """Return a drawing for each combination of the other axes, all at one scale."""
    combinations = list(product(*(_values(rows, key) for key in others)))
    drawn = []
    for values in combinations[:PANELS_MAX]:
        own = [row for row in rows if all(row[key] == value for key, value in zip(others, values, strict=True))]
        head = ", ".join(f"{short(key)} {value}" for key, value in zip(others, values, strict=True))
        drawn.append(_panel(own, _values(rows, along), column, divisor, unit, ticks, along, coloured, head))
    html = [f'<figure style="display:flex;flex-wrap:wrap;gap:8px 20px">{"".join(drawn)}</figure>']
    if len(combinations) > PANELS_MAX:
        html.append(f"<p>{len(combinations) - PANELS_MAX} more panels are left out: see sweep.csv.</p>")
    return html


def _panel(
    rows: Sequence[Row], places: list[Any], column: str, divisor: float, unit: str, ticks: Sequence[float], along: str,
    coloured: str, head: str,
) -> str:  # fmt: skip
    width = max(WIDTH, LEFT + 20 + 34 * len(places))
    longest = max((len(str(place)) for place in places), default=0)
    slope = SLOPED_PX * max(longest - LABEL_MAX, 0)  # room below for long names, which slope
    height = HEIGHT + slope
    floor = HEIGHT - BOTTOM

    def x(value: Any) -> float:
        return LEFT + 14 + (width - LEFT - 34) * places.index(value) / max(len(places) - 1, 1)

    def y(value: float) -> float:
        return floor - (floor - TOP) * value / ticks[-1]

    parts = [f'<text x="{LEFT}" y="14" class="soft">{escape(head)}</text>']
    for tick in ticks:
        at = y(tick)
        parts.append(f'<line x1="{LEFT}" x2="{width - 6}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--grid)"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" class="soft small">{tick:g}</text>')
    for place in places:
        label, left = escape(str(place)), f"{x(place):.1f}"
        how = f'text-anchor="end" transform="rotate(-40 {left} {floor + 14})"' if slope else 'text-anchor="middle"'
        parts.append(f'<text x="{left}" y="{floor + (14 if slope else 18)}" {how} class="small">{label}</text>')
    for number, line in enumerate(_values(rows, coloured) if coloured else [None]):
        own = [row for row in rows if row[column] is not None and (line is None or row[coloured] == line)]
        points = [(x(row[along]), y(row[column] / divisor), row) for row in own]
        path = " ".join(f"{at_x:.1f},{at_y:.1f}" for at_x, at_y, _ in points)
        parts.append(f'<g><polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-width="1.6"/>')
        for at_x, at_y, row in points:
            named = "" if line is None else f"{line}\n"
            tip = escape(f"{named}{short(along)} {row[along]}: {row[column] / divisor:.4g} {unit}", quote=True)
            dot = f'cx="{at_x:.1f}" cy="{at_y:.1f}" r="4" fill="{_colour(number)}"'
            parts.append(f'<circle {dot} data-tip="{tip}"/>')
        parts.append("</g>")
    label = escape(f"{column} along {along}" + f", {head}" * bool(head), quote=True)
    return f'<svg width="{width}" height="{height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def unit_of(kind: str, highest: float) -> tuple[str, float]:
    """Return the largest unit of which `highest` is at least one, else the smallest, with its value."""
    units = UNITS[kind]
    return next((unit for unit in units if highest >= unit[1]), units[-1])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return float(f"{value:.5g}") if isinstance(value, float) else value
