"""Queues, marks and pauses over time, for the links with the longest queues; utilisation where no link has a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl

LINKS_MAX = 12
POINTS_MAX = 600  # of each link; neighbouring intervals are merged above it
SUMMED = ("marked", "pauses", "paused_ns", "dropped")


def queue_depths(
    series: pl.DataFrame, ends_ns: dict[int, int], interval_ns: int, ecn_bytes: dict[str, list[int]]
) -> dict[str, Any]:
    """Return the drawing data of the iteration with the longest queue.

    `ecn_bytes`: link → queue lengths at which marks begin and all packets are marked. The result has:

    - `step_ns`: length of a point; `end_ns`; `iteration`.
    - `links`: name, ecn, and for each point the longest queue (bytes), the mean utilisation, marks, pauses, paused time
      (ns) and drops.
    - `rates`: for each point the least, the median and the greatest rate (b/s) of a pair of ranks; null where
      congestion control sets no limit.
    """
    import polars as pl

    rates = series.filter((pl.col("kind") == "pair") & pl.col("rate_bps").is_not_null())
    series = series.filter(pl.col("kind") == "link")
    troubled = pl.sum_horizontal("marked", "pauses", "dropped")
    longest = series.group_by("iteration").agg(pl.col("longest_queue_bytes").max(), troubled=troubled.sum())
    ordered = longest.sort(["longest_queue_bytes", "troubled", -pl.col("iteration")], descending=True)
    iteration = int(ordered["iteration"][0]) if len(ordered) else min(ends_ns, default=0)
    own = series.filter(pl.col("iteration") == iteration)
    last_ns = max(ends_ns.get(iteration, 0), int(own["time_ns"].to_numpy().max(initial=0)))
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
    place = ((pl.col("time_ns") - 1) // step_ns).clip(0, points - 1).alias("place")  # an interval is named by its end
    binned = own.join(chosen.select("name"), on="name", how="semi").group_by("name", place).agg(
        pl.col("longest_queue_bytes").max(), pl.col(SUMMED).sum(), (pl.col("utilisation").sum() / together).round(3)
    )  # fmt: skip
    links = []
    for name in chosen["name"]:
        of_link = binned.filter(pl.col("name") == name)
        columns: dict[str, Any] = {"name": name, "ecn": ecn_bytes.get(name)}
        for column in ("longest_queue_bytes", "utilisation", *SUMMED):
            values = np.zeros(points, of_link[column].to_numpy().dtype)
            values[of_link["place"].to_numpy()] = of_link[column].to_numpy()
            columns[column] = values.tolist()
        links.append(columns)
    return {
        "step_ns": step_ns,
        "end_ns": points * step_ns,
        "iteration": iteration,
        "links": links,
        "rates": _rates(rates.filter(pl.col("iteration") == iteration), step_ns, points),
    }


def _rates(rates: pl.DataFrame, step_ns: int, points: int) -> list[list[float | None]]:
    """Return three columns; none where nothing is limited."""
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
