"""A bench of one collective, as nccl-tests measures it: what is played for each size, and what its times mean.

Sizes, shares and the factors of bus bandwidth are those of nccl-tests (its PERFORMANCE page): a size is what the whole
operation is about, S; algorithm bandwidth is S / t; bus bandwidth compares with a link's rate whatever the number of
ranks. Where each rank has a share of S, shares are multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload

ELEMENT_BYTES = 4  # of `float`, the type that tables name; bytes are moved and none is reduced
SHARE_BYTES = 16  # shares are multiples of it
TIMED, WARM_UP = "timed", "warm-up"  # what nodes are called, and their number
SENDRECV = "sendrecv"


@dataclass(frozen=True)
class Operation:
    """An operation that can be measured. `op` is NONE for sendrecv, which is sends and receives around a ring."""

    name: str  # as in genie/collectives
    op: Op
    redop: str  # columns of nccl-tests
    root: int
    shared: bool  # each rank has a share of the size
    size_is_share: bool  # the graph's size is that share (genie/workload/graph.py), not the whole

    def share_bytes(self, size_bytes: int, ranks: int) -> int:
        """What of a size each rank has."""
        if not self.shared:
            return size_bytes // ELEMENT_BYTES * ELEMENT_BYTES
        return size_bytes // ELEMENT_BYTES // ranks * ELEMENT_BYTES // SHARE_BYTES * SHARE_BYTES

    def total_bytes(self, size_bytes: int, ranks: int) -> int:
        """The size that is really played: whole elements, whole shares."""
        return self.share_bytes(size_bytes, ranks) * (ranks if self.shared else 1)

    def node_bytes(self, size_bytes: int, ranks: int) -> int:
        """The size by the graph's convention."""
        return self.share_bytes(size_bytes, ranks) if self.size_is_share else self.total_bytes(size_bytes, ranks)

    def bus_factor(self, ranks: int) -> Fraction:
        """Bus bandwidth over algorithm bandwidth."""
        if self.op is Op.ALL_REDUCE:
            return Fraction(2 * (ranks - 1), ranks)
        return Fraction(ranks - 1, ranks) if self.shared else Fraction(1)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("all_reduce", Op.ALL_REDUCE, "sum", -1, False, False),
        Operation("all_gather", Op.ALL_GATHER, "none", -1, True, True),
        Operation("reduce_scatter", Op.REDUCE_SCATTER, "sum", -1, True, False),
        Operation("all_to_all", Op.ALL_TO_ALL, "none", -1, True, False),
        Operation("broadcast", Op.BROADCAST, "none", 0, False, False),
        Operation("reduce", Op.REDUCE, "sum", 0, False, False),
        Operation("gather", Op.GATHER, "none", 0, True, True),
        Operation("scatter", Op.SCATTER, "none", 0, True, False),
        Operation(SENDRECV, Op.NONE, "sum", -1, False, False),
    )
}


def chain(operation: Operation, ranks: int, size_bytes: int, count: int, warmup: int) -> Workload:
    """What is played for one size: the warm-ups one after another, a barrier, and `count` operations likewise."""
    workload = Workload(f"{operation.name}-{ranks}x{size_bytes}", ranks, [Group("0", tuple(range(ranks)))], {})
    node_bytes = operation.node_bytes(size_bytes, ranks)
    for rank in range(ranks):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(warmup):
            last = _add(builder, operation, f"{WARM_UP} {number}", last, node_bytes, ranks)
        if warmup:
            last = (builder.add(len(builder), "barrier", Kind.COLL, last, size_bytes=0, op=Op.BARRIER, group=0),)
        for number in range(count):
            last = _add(builder, operation, f"{TIMED} {number}", last, node_bytes, ranks)
        workload.ranks[rank], _ = builder.finish()
    return workload


def _add(
    builder: RankBuilder, operation: Operation, name: str, after: tuple[int, ...], node_bytes: int, ranks: int
) -> tuple[int, ...]:
    """One operation of one rank; what the next has to wait for."""
    first = len(builder)
    if operation.op is not Op.NONE:
        root = max(operation.root, 0)
        return (builder.add(first, name, Kind.COLL, after, size_bytes=node_bytes, op=operation.op, group=0, root=root),)
    rank = builder.rank
    return tuple(
        builder.add(first + at, name, kind, after, size_bytes=node_bytes, peer=(rank + step) % ranks, tag=0)
        for at, (kind, step) in enumerate(((Kind.SEND, 1), (Kind.RECV, -1)))
    )


Counters = list[dict[str, Any] | None]  # of all ranks; None: a rank's are lost


@dataclass(frozen=True)
class Measured:
    """One line of the table: one size."""

    size_bytes: int
    count: int  # elements, by nccl-tests' convention
    time_us: float  # of one operation, the mean of the ranks' times
    rank_times_us: list[float]
    times_us: list[float]  # of each operation: of the rank that it took longest
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    verified_bytes: int | None  # None: nothing was checked
    wrong_bytes: int | None
    retransmitted: int  # packets sent again, by all ranks, in the warm-ups too

    def percentile_us(self, percent: int) -> float:
        """Nearest rank, of the operations' times."""
        return float(np.percentile(self.times_us, percent, method="inverted_cdf"))


def measured(
    operation: Operation, ranks: int, size_bytes: int, timeline: pl.DataFrame, counters: Counters, checked: bool
) -> Measured:
    """A played size's line. `checked`: receivers have compared its payload.

    Each rank's time is that from the start of the first timed operation to the end of the last, over their number.
    """
    by_operation = (
        timeline.filter(pl.col("name").str.starts_with(f"{TIMED} "))
        .group_by("rank", "name")
        .agg(start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max())
        .with_columns(number=pl.col("name").str.slice(len(TIMED) + 1).cast(pl.Int64))
    )
    spans = (
        by_operation.group_by("rank")
        .agg(span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(), count=pl.len())
        .sort("rank")
    )
    rank_times_us = (spans["span_ns"] / spans["count"] / 1e3).to_list()
    longest = by_operation.group_by("number").agg(took_ns=(pl.col("end_ns") - pl.col("start_ns")).max()).sort("number")
    time_us = sum(rank_times_us) / len(rank_times_us)
    total_bytes = operation.total_bytes(size_bytes, ranks)
    algorithm = total_bytes / time_us * 1e6 if time_us > 0 else 0.0
    return Measured(
        size_bytes=total_bytes,
        count=operation.share_bytes(size_bytes, ranks) // ELEMENT_BYTES,
        time_us=time_us,
        rank_times_us=rank_times_us,
        times_us=(longest["took_ns"] / 1e3).to_list(),
        algorithm_bytes_per_s=algorithm,
        bus_bytes_per_s=algorithm * float(operation.bus_factor(ranks)),
        verified_bytes=_sum(counters, "verified_bytes") if checked else None,
        wrong_bytes=_sum(counters, "wrong_bytes") if checked else None,
        retransmitted=_sum(counters, "retransmitted") or 0,
    )


def _sum(counters: Counters, name: str) -> int | None:
    """Of all ranks that have left theirs; None when one of them does not count this."""
    known = [each for each in counters if each]
    return sum(int(each[name]) for each in known) if all(name in each for each in known) else None
