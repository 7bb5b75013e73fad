"""Match a live run with its twin: a row for each collective and each transfer of an iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from genie.verdict.compatibility import VerdictError, check_followed, check_nodes, check_settings

if TYPE_CHECKING:
    from genie.record import Run

COLLECTIVE_KEY = ["group", "seq"]
TRANSFER_KEY = ["src", "dst", "group", "order"]


@dataclass
class Aligned:
    """The judged iterations of the live run and its twin, matched.

    `collectives`: a row per (iteration, group, seq), with these columns, lists in the order of `ranks`:
        op, size_bytes, ranks, live_start, live_end, twin_start, twin_end
    `transfers`: a row per (iteration, src, dst, group, order), with these columns:
        size_bytes, live_busy, twin_busy, twin_post, retransmits, twin_retransmits, messages, live_answer, twin_answer
    `order` is the collective's seq, or the sender's node of a single message (group null).
    """

    ranks: list[int]
    iterations: list[int]
    follow: bool
    collectives: pl.DataFrame
    transfers: pl.DataFrame
    coverage: dict[str, int] = field(default_factory=dict)
    # direction -> ranks that sent or received payload in the live run, matched or not
    moved: dict[str, frozenset[int]] = field(default_factory=dict)


def align(live: Run, twin: Run) -> Aligned:
    """Match the live iterations that ended after warm-up with the twin's.

    A twin that followed the run has the same iteration numbers; of any other twin the first iteration counts. Both
    tables are empty where ranks do not communicate. Raises VerdictError when no iteration ended, the runs share no
    iteration or communication, or the twin is not a twin of this run.
    """
    check_settings(live, twin)
    warmup = int(live.info.get("warmup", 0))
    follow = bool(twin.info.get("follow", False))
    ended = _ended(live, twin)
    iterations = sorted(i for i, whole in ended.iter_rows() if whole and i >= warmup)
    if not iterations:
        raise VerdictError(
            f"{live.path}: no iteration ended after the {warmup} warm-up iterations; run with more --iterations"
        )
    if twin.timeline.is_empty():
        raise VerdictError(f"{twin.path}: the timeline is empty; run genie simulate again")
    if follow:
        iterations = [i for i in iterations if i in set(twin.timeline["iteration"].to_list())]
        if not iterations:
            raise VerdictError(
                f"{twin.path}: followed another run and has no iteration in common with this one; "
                "simulate with --follow LIVE"
            )
    twin_iterations = iterations if follow else [int(twin.timeline["iteration"].min())]  # type: ignore[arg-type]
    on = ["iteration"] if follow else []
    check_nodes(live, twin, iterations[0], twin_iterations[0])
    if follow:
        check_followed(live, twin, iterations)

    live_coll = _collectives(live.timeline.filter(pl.col("iteration").is_in(iterations)), "live")
    twin_coll = _collectives(twin.timeline.filter(pl.col("iteration").is_in(twin_iterations)), "twin")
    if not follow:
        twin_coll = twin_coll.drop("iteration")
    collectives = live_coll.join(twin_coll, on=[*on, *COLLECTIVE_KEY, "ranks"], how="inner")

    live_moved = _transfers(live.transfers.filter(pl.col("iteration").is_in(iterations)))
    twin_moved = _transfers(twin.transfers.filter(pl.col("iteration").is_in(twin_iterations)))
    twin_moved = twin_moved.select(
        *on,
        *TRANSFER_KEY,
        pl.col("busy_ns").alias("twin_busy"),
        pl.col("answer_ns").alias("twin_answer"),
        pl.col("post_ns").alias("twin_post"),
        pl.col("retransmits").alias("twin_retransmits"),
    )
    transfers = (
        live_moved.rename({"busy_ns": "live_busy", "answer_ns": "live_answer"})
        .join(twin_moved, on=[*on, *TRANSFER_KEY], how="inner", nulls_equal=True)
        .filter((pl.col("live_busy") > 0) & (pl.col("twin_busy") > 0))
        .sort("iteration", *TRANSFER_KEY)
    )
    if transfers.is_empty() and collectives.is_empty() and (live_coll.height or live_moved.height):
        raise VerdictError(f"{live.path} and {twin.path}: nothing in common; are they runs of the same workload?")
    coverage = {
        "iterations": len(iterations),
        "iterations_not_ended": sum(not whole for _, whole in ended.iter_rows()),
        "collectives": collectives.height,
        "collectives_unmatched": live_coll.height - collectives.height,
        "transfers": transfers.height,
        "transfers_unmatched": live_moved.height - transfers.height,
    }
    ranks = sorted(set(live.timeline["rank"].to_list()))
    moved = {
        direction: frozenset(live_moved[end].unique().to_list())
        for direction, end in (("egress", "src"), ("ingress", "dst"))
    }
    collectives = collectives.sort("iteration", "first_start")
    return Aligned(ranks, iterations, follow, collectives, transfers, coverage, moved)


def _ended(live: Run, twin: Run) -> pl.DataFrame:
    """(iteration, ended): whether all nodes of all ranks ended; ranks without rows in both runs do not count."""
    ranks = {*live.timeline["rank"].unique().to_list(), *twin.timeline["rank"].unique().to_list()}
    return live.timeline.group_by("iteration").agg(
        ((pl.col("end_ns") >= 0).all() & (pl.col("rank").n_unique() == len(ranks))).alias("ended")
    )


def _collectives(timeline: pl.DataFrame, world: str) -> pl.DataFrame:
    """A row per (iteration, group, seq) of collectives with at least two members."""
    table = (
        timeline.filter(pl.col("kind") == "coll")
        .sort("iteration", *COLLECTIVE_KEY, "rank")
        .group_by("iteration", *COLLECTIVE_KEY, maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("size_bytes").max(),
            pl.col("rank").alias("ranks"),
            pl.col("start_ns").alias(f"{world}_start"),
            pl.col("end_ns").alias(f"{world}_end"),
            pl.col("start_ns").min().alias("first_start"),
        )
        .filter(pl.col("ranks").list.len() >= 2)
    )
    return table if world == "live" else table.drop("op", "size_bytes", "first_start")


def _transfers(transfers: pl.DataFrame) -> pl.DataFrame:
    """Payload between two different ranks, with the key that both worlds share."""
    return transfers.filter((pl.col("src") != pl.col("dst")) & (pl.col("size_bytes") > 0)).select(
        "iteration",
        "src",
        "dst",
        "group",
        pl.when(pl.col("group").is_null())
        .then(pl.col("node_id").cast(pl.Int64))
        .otherwise(pl.col("seq").cast(pl.Int64))
        .alias("order"),
        "size_bytes",
        "post_ns",
        "busy_ns",
        "retransmits",
        "messages",
        # Time that the acknowledgement of the last message took, by the clocks of the two ends; 0 where unknown.
        pl.when(pl.col("last_ns") < 0).then(0).otherwise(pl.col("acked_ns") - pl.col("last_ns")).alias("answer_ns"),
    )
