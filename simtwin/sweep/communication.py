"""A job's communication in a few numbers: exposed time, and the bus bandwidth of each kind of group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genie.record.bus_bandwidth import bus_bytes
from simtwin.report.rank_time import mean_iteration, with_members

if TYPE_CHECKING:
    from simtwin.play.simulated import Simulated

KINDS = ("tp", "cp", "dp", "ep")  # of the groups of generated jobs: tp0, tp1, ...
BUS_BANDWIDTHS = {kind: f"{kind}_bus_bytes_per_s" for kind in KINDS}


def communication_of(run: Simulated) -> dict[str, float | None]:
    """Return `exposed_s` and the bus bandwidths; None where there is none.

    exposed_s: time of an iteration in which a rank computes nothing and waits for the network; mean over ranks.

    A bus bandwidth is that of all collectives of a kind of group together. Their bytes, as nccl-tests counts them, are
    divided by their times from the last member's start to the last end.
    """
    import polars as pl

    found: dict[str, float | None] = {"exposed_s": mean_iteration(run).exposed_ns / 1e9}
    collectives = run.timeline.filter(pl.col("kind") == "coll")
    each = (
        with_members(run, collectives)
        .with_columns(what=pl.col("group").str.extract(rf"^({'|'.join(KINDS)})\d+$"))
        .filter(pl.col("what").is_not_null())
        .group_by("what", "iteration", "group", "seq", "op", "size_bytes", "members")
        .agg(took=pl.col("end_ns").max() - pl.col("there_ns").max())
    )
    kinds = each.group_by("what", "op", "size_bytes", "members").agg(count=pl.len(), took_ns=pl.col("took").sum())
    moved, took_ns = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
    for what, op, size_bytes, members, count, own_ns in kinds.iter_rows():
        moved[what] += count * bus_bytes(op, size_bytes, members)
        took_ns[what] += own_ns
    return found | {
        name: moved[kind] / took_ns[kind] * 1e9 if took_ns[kind] else None for kind, name in BUS_BANDWIDTHS.items()
    }
