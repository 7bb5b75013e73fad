"""Flow completion times over those of an idle network: percentiles by size, and their distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.page import amount

if TYPE_CHECKING:
    import polars as pl

    from genie.record import Run
    from simtwin.idle_network import IdleNetwork

SIZES_MAX = 12  # distinct sizes that have a place of their own; of more those between two powers of 4 share one
CDF_POINTS = 200
PERCENTILES = (50, 95, 99)
SEND = "send"


def slowdowns(run: Run, idle: IdleNetwork) -> pl.DataFrame:
    """One row per transfer between hosts: op ("send" for a message of the trace's own), size_bytes, messages, slowdown,
    in_turn.

    The slowdown is the time with a message posted and not acknowledged over the time that the same bytes take on an
    idle network, posted at once. For a single message that is its flow completion time (FCT) over the ideal one.
    `in_turn`: what it would be on an idle network if each message were posted when the one before has arrived.
    """
    import polars as pl

    ops = run.timeline.filter(pl.col("kind") == "coll").select("iteration", "node_id", "op", src="rank")
    moved = run.transfers.filter((pl.col("src") != pl.col("dst")) & (pl.col("busy_ns") > 0) & (pl.col("acked_ns") >= 0))
    table = moved.join(ops, on=["iteration", "src", "node_id"], how="left").with_columns(
        op=pl.when(pl.col("seq").is_null()).then(pl.lit(SEND)).otherwise(pl.col("op"))
    )
    pairs = table.select("src", "dst").unique(maintain_order=True)
    number: dict[Any, int] = {}
    ways = [idle.way(src, dst) for src, dst in pairs.iter_rows()]
    pairs = pairs.with_columns(way=pl.Series([number.setdefault(way, len(number)) for way in ways], dtype=pl.Int64))
    table = table.join(pairs, on=["src", "dst"])
    of_row, size, messages, busy = (table[it].to_numpy() for it in ("way", "size_bytes", "messages", "busy_ns"))
    ideal, in_turn = np.full(len(table), np.nan), np.full(len(table), np.nan)
    for way, at in number.items():
        rows = of_row == at
        if way is not None:
            ideal[rows] = idle.completion_ns(way, size[rows], messages[rows])
            each, one = size[rows] / messages[rows], np.ones(rows.sum())
            in_turn[rows] = (messages[rows] - 1) * idle.arrival_ns(way, each, one) + idle.completion_ns(way, each, one)
    ideal = np.maximum(ideal, 1.0)
    found = {"slowdown": busy / ideal, "in_turn": in_turn / ideal}
    kept = table.select("op", "size_bytes", "messages").hstack(pl.DataFrame(found))
    return kept.filter(pl.col("slowdown").is_not_nan())


def figures(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Operation → what is drawn of its flows, the trace's own messages first, then what moved most bytes.

    `count`, `messages`: of a flow, the mean; `sizes`: of each size, or range of sizes, [label, count, each percentile
    of the slowdown, median of what it would be in turn]; `cdf`: [slowdown, share of flows that have at most that].
    """
    import polars as pl

    moved = table.group_by("op").agg(pl.col("size_bytes").sum()).sort("size_bytes", descending=True)
    ops = sorted(moved["op"].drop_nulls().to_list(), key=lambda op: op != SEND)
    result = {}
    for op in ops:
        rows = table.filter(pl.col("op") == op)
        result[op] = {
            "count": len(rows),
            "messages": round(float(rows["messages"].to_numpy().mean()), 1),
            "sizes": _by_size(*(rows[it].to_numpy() for it in ("size_bytes", "slowdown", "in_turn"))),
            "cdf": _cdf(rows["slowdown"].to_numpy()),
        }
    return result


def _by_size(size: NDArray[np.int64], slowdown: NDArray[np.float64], in_turn: NDArray[np.float64]) -> list[list[Any]]:
    distinct = np.unique(size)
    if len(distinct) <= SIZES_MAX:
        place, labels = np.searchsorted(distinct, size), [amount(float(it)) for it in distinct]
    else:
        power = np.floor(np.log2(np.maximum(size, 1)) / 2).astype(np.int64)
        distinct = np.unique(power)
        place = np.searchsorted(distinct, power)
        labels = [f"{amount(4.0**it)} to {amount(4.0 ** (it + 1))}" for it in distinct]
    result = []
    for at, label in enumerate(labels):
        own = place == at
        percentiles = [*np.percentile(slowdown[own], PERCENTILES), np.median(in_turn[own])]
        result.append([label, int(own.sum()), *(round(float(it), 3) for it in percentiles)])
    return result


def _cdf(slowdown: NDArray[np.float64]) -> list[list[float]]:
    ordered = np.sort(slowdown)
    at = np.unique(np.linspace(0, len(ordered) - 1, min(CDF_POINTS, len(ordered))).round().astype(np.int64))
    return [[round(float(ordered[it]), 4), round((int(it) + 1) / len(ordered), 4)] for it in at]
