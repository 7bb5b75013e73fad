"""Flow completion times relative to those of an idle network: percentiles by size, and their distribution."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.collectives.msccl.algorithm import PREFIX
from genie.page import amount
from genie.plan.lowering import Lowering
from simtwin.play.flow_completion import SEND, flow_completion

if TYPE_CHECKING:
    import polars as pl

    from genie.record import Run
    from simtwin.levels.idle_network import IdleNetwork

NO_SLOWDOWN = "level analytic plays no messages, so slowdowns are not known"
SIZES_MAX = 12  # distinct sizes with an entry each; above it, sizes between two powers of 4 share one
CDF_POINTS = 200
PERCENTILES = (50, 95, 99)
RINGS = ("all_reduce", "all_gather", "reduce_scatter")


def slowdowns(run: Run, idle: IdleNetwork) -> pl.DataFrame:
    """Return rows of `flow_completion` that took time. `in_turn` is NaN where messages of a flow overlap."""
    import polars as pl

    table = flow_completion(run.timeline, run.transfers, idle).filter(pl.col("fct_ns") > 0)
    in_turn = (pl.col("messages") == 1) | pl.col("op").is_in(_taking_turns(run))
    return table.with_columns(in_turn=pl.when(in_turn).then("in_turn").otherwise(float("nan")))


def _taking_turns(run: Run) -> list[str]:
    """Return the collectives in which a rank sends one message to another at a time: plain rings in one channel.

    NCCL's channels and slices, a chain's parts and an MSCCL file's steps overlap.
    """
    lowering = run.info.get("lowering") or asdict(Lowering())
    if lowering.get("wire", "plain") != "plain" or lowering["channels"] != 1:
        return []
    return [op for op in RINGS if not str(lowering["algorithms"].get(op, "")).startswith(PREFIX)]


def figures(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return operation → drawing data of its flows; the trace's own messages first, then by bytes moved.

    - `count`: flows; `messages`: mean number of messages of a flow.
    - `sizes`: for each size, or range of sizes, [label, count, each percentile of the slowdown, median of `in_turn`, or
      None].
    - `cdf`: [slowdown, share of flows with at most that slowdown].
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
        percentiles = [round(float(it), 3) for it in np.percentile(slowdown[own], PERCENTILES)]
        turns = round(float(np.median(in_turn[own])), 3) if not np.isnan(in_turn[own]).any() else None
        result.append([label, int(own.sum()), *percentiles, turns])
    return result


def _cdf(slowdown: NDArray[np.float64]) -> list[list[float]]:
    ordered = np.sort(slowdown)
    at = np.unique(np.linspace(0, len(ordered) - 1, min(CDF_POINTS, len(ordered))).round().astype(np.int64))
    return [[round(float(ordered[it]), 4), round((int(it) + 1) / len(ordered), 4)] for it in at]
