"""Queues over time with their marks and pauses, for the links with the longest ones; utilisation where none has any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

LINKS_MAX = 12
POINTS_MAX = 600  # of each link; intervals are put together where there are more
HIGHEST = ("longest_queue_bytes", "utilisation")
SUMMED = ("marked", "pauses", "paused_ns", "dropped")


def queue_depths(
    series: pl.DataFrame, ends_ns: dict[int, int], interval_ns: int, ecn_bytes: dict[str, list[int]]
) -> dict[str, Any]:
    """What the page draws of the iteration with the longest queue. `ecn_bytes`: link → where marks begin and end.

    `step_ns`: length of a point; `end_ns`; `iteration`; `links`: name, ecn, and for each point the greatest queue
    (bytes) and utilisation, marks, pauses, paused time (ns) and drops; `rates`: for each point the least, the median
    and the greatest rate (b/s) that congestion control lets a pair of ranks send with, null where it limits none.
    """
    import polars as pl

    rates = series.filter((pl.col("kind") == "pair") & pl.col("rate_bps").is_not_null())
    series = series.filter(pl.col("kind") == "link")
    troubled = pl.sum_horizontal("marked", "pauses", "dropped")
    longest = series.group_by("iteration").agg(pl.col("longest_queue_bytes").max(), troubled=troubled.sum())
    ordered = longest.sort(["longest_queue_bytes", "troubled", -pl.col("iteration")], descending=True)
    iteration = int(ordered["iteration"][0]) if len(ordered) else min(ends_ns, default=0)
    own = series.filter(pl.col("iteration") == iteration)
    last_ns = max([ends_ns.get(iteration, 0), *own["time_ns"].tail(1).to_list()])
    together = max(-(-last_ns // (max(interval_ns, 1) * POINTS_MAX)), 1)
    step_ns = max(interval_ns, 1) * together
    points = max(-(-last_ns // step_ns), 1)
    chosen = (
        own.group_by("name")
        .agg(pl.col("longest_queue_bytes").max(), pl.col("utilisation").max(), troubled=troubled.sum())
        .filter(pl.any_horizontal(pl.col("longest_queue_bytes", "utilisation", "troubled") > 0))
        .sort(["longest_queue_bytes", "troubled", "utilisation", "name"], descending=[True, True, True, False])
        .head(LINKS_MAX)
    )
    links = []
    for name in chosen["name"]:
        of_link = own.filter(pl.col("name") == name)
        # An interval is called by its end.
        place = np.clip((of_link["time_ns"].to_numpy() - 1) // step_ns, 0, points - 1)
        columns: dict[str, NDArray[Any]] = {column: np.zeros(points) for column in (*HIGHEST, *SUMMED)}
        for column in HIGHEST:
            np.maximum.at(columns[column], place, of_link[column].fill_null(0).to_numpy())
        for column in SUMMED:
            np.add.at(columns[column], place, of_link[column].fill_null(0).to_numpy())
        shown = {column: np.round(values).astype(np.int64).tolist() for column, values in columns.items()}
        shown["utilisation"] = np.round(columns["utilisation"], 3).tolist()
        links.append({"name": name, "ecn": ecn_bytes.get(name), **shown})
    return {
        "step_ns": step_ns,
        "end_ns": points * step_ns,
        "iteration": iteration,
        "links": links,
        "rates": _rates(rates.filter(pl.col("iteration") == iteration), step_ns, points),
    }


def _rates(rates: pl.DataFrame, step_ns: int, points: int) -> list[list[float | None]]:
    """Three columns; none where nothing is limited."""
    import polars as pl

    if rates.is_empty():
        return []
    rate = pl.col("rate_bps")
    place = ((pl.col("time_ns") - 1) // step_ns).clip(0, points - 1)
    found = rates.group_by(place=place).agg(rate.min().alias("low"), rate.median().alias("middle"), rate.max())
    columns: list[list[float | None]] = [[None] * points for _ in range(3)]
    for at, *values in found.iter_rows():
        for column, value in zip(columns, values, strict=True):
            column[at] = float(f"{value:.4g}")
    return columns
