"""Flow completion times (FCT) relative to those of an idle network, for scripts, sweeps and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from simtwin.levels.idle_network import IdleNetwork

SEND = "send"
COLUMNS = (
    "iteration", "src", "dst", "node_id", "op", "size_bytes", "messages", "start_ns", "fct_ns", "idle_ns", "slowdown",
    "in_turn",
)  # fmt: skip


def flow_completion(timeline: pl.DataFrame, transfers: pl.DataFrame, idle: IdleNetwork) -> pl.DataFrame:
    """Return one row per finished transfer between two hosts, in the order of `transfers`, with COLUMNS.

    - op: the collective, or "send" for a message of the trace's own.
    - fct_ns: the time with a message posted and not acknowledged; for a single message, from its posting until its
      sender has the acknowledgement.
    - idle_ns: of the same bytes on an idle network, posted at once.
    - slowdown: fct_ns / idle_ns.
    - in_turn: the slowdown on an idle network if each message is posted when the one before has arrived.
    """
    import polars as pl

    ops = timeline.filter(pl.col("kind") == "coll").select("iteration", "node_id", "op", "end_ns", src="rank")
    # A transfer of several messages has ended when its collective has: later messages may not have been posted.
    ended = transfers.filter((pl.col("acked_ns") >= 0) & (pl.col("post_ns") >= 0))
    table = ended.join(ops, on=["iteration", "src", "node_id"], how="left", maintain_order="left").with_columns(
        op=pl.when(pl.col("seq").is_null()).then(pl.lit(SEND)).otherwise(pl.col("op")),
        start_ns="post_ns",
        fct_ns=pl.when(pl.col("messages") == 1).then(pl.col("acked_ns") - pl.col("post_ns")).otherwise("busy_ns"),
    )
    table = table.filter((pl.col("messages") == 1) | (pl.col("end_ns").fill_null(0) >= 0))
    pairs = table.select("src", "dst").unique(maintain_order=True)
    number: dict[Any, int] = {}  # of each route
    routes = [idle.route(src, dst) for src, dst in pairs.iter_rows()]
    pairs = pairs.with_columns(way=pl.Series([number.setdefault(way, len(number)) for way in routes], dtype=pl.Int64))
    table = table.join(pairs, on=["src", "dst"], maintain_order="left")
    of_row, size, messages = (table[it].to_numpy() for it in ("way", "size_bytes", "messages"))
    idle_ns, in_turn_ns = np.full(len(table), np.nan), np.full(len(table), np.nan)
    for way, at in number.items():
        rows = of_row == at
        if way is not None:
            idle_ns[rows] = idle.completion_ns(way, size[rows], messages[rows])
            each, one = size[rows] / messages[rows], np.ones(rows.sum())
            in_turn_ns[rows] = (messages[rows] - 1) * idle.arrival_ns(way, each, one)
            in_turn_ns[rows] += idle.completion_ns(way, each, one)
    least_ns = np.maximum(idle_ns, 1.0)
    found = {"idle_ns": idle_ns, "slowdown": table["fct_ns"].to_numpy() / least_ns, "in_turn": in_turn_ns / least_ns}
    return table.hstack(pl.DataFrame(found)).filter(pl.col("idle_ns").is_not_nan()).select(COLUMNS)
