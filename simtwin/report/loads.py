"""The load of each link of a simulation: its utilisation, queue, marks, pauses and drops, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from genie.record import RecordError
from genie.record.played import iteration_ends
from simtwin.report.servers import port_links

if TYPE_CHECKING:
    import polars as pl

    from genie.record import Run
    from simtwin.fabric.network import Network

COUNTED = ("size_bytes", "longest_queue_bytes", "marked", "trimmed", "pauses", "paused_ps", "dropped")
FULL = 0.9


def link_loads(run: Run, network: Network) -> pl.DataFrame:
    """Return one row per directed link, in the order of the network's.

    Over all iterations: number, link, rate_bps (0: unlimited), to_port (whether it joins a host and its own port),
    size_bytes, longest_queue_bytes, marked, trimmed, pauses, paused_ns and dropped. mean: utilisation over all of their
    time, null at an unlimited rate. With a series also peak, of any interval, and full_ns, the length of the intervals
    that were at least FULL busy. Raises RecordError when the record is of another network.
    """
    import polars as pl

    counted = run.counters.get("links")
    if not isinstance(counted, list) or [it.get("link") for it in counted] != list(network.link_names):
        raise RecordError(f"{run.path / 'counters.json'}: its links are not those of fabric.toml; make the run again")
    total_ns = sum(iteration_ends(run).values())
    rate_bps = network.rate_bps
    table = pl.DataFrame(
        {
            "number": np.arange(network.links),
            "link": network.link_names,
            "rate_bps": rate_bps,
            "to_port": port_links(network),
            **{name: np.array([it.get(name, 0) for it in counted], np.int64) for name in COUNTED},
        }
    ).with_columns(paused_ns=pl.col("paused_ps") // 1000)
    able = pl.col("rate_bps") * (total_ns / 8e9)
    table = table.with_columns(mean=pl.when(able > 0).then(pl.col("size_bytes") / able)).drop("paused_ps")
    if run.series is None:
        return table.with_columns(peak=pl.lit(None, pl.Float64), full_ns=pl.lit(None, pl.Int64))
    interval_ns = int(run.info.get("series_interval_ns") or 0)
    over_time = run.series.filter(pl.col("kind") == "link").group_by(link=pl.col("name")).agg(
        peak=pl.col("utilisation").max(), full_ns=(pl.col("utilisation") >= FULL).sum().cast(pl.Int64) * interval_ns
    )  # fmt: skip
    joined = table.join(over_time, on="link", how="left", maintain_order="left")
    limited = pl.col("rate_bps") > 0
    return joined.with_columns(
        pl.when(limited).then(pl.col(name).fill_null(0)).alias(name) for name in ("peak", "full_ns")
    )


def hottest(loads: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the busiest links that carried data.

    They are ordered by mean utilisation in whole permille, then by the highest of any interval in whole percent, then
    by their longest queue. Of equal means and intervals, cables come before the links to ports that they leave by.
    """
    import polars as pl

    used = loads.filter((pl.col("size_bytes") > 0) & pl.col("mean").is_not_null())
    peak = pl.col("peak").fill_null(0.0).round(2)
    order = [pl.col("mean").round(3), peak, ~pl.col("to_port"), pl.col("longest_queue_bytes"), -pl.col("number")]
    return used.sort(order, descending=True).head(most)
