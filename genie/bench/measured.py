"""A line of nccl-tests' table, computed from the times of a played size, for both worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.bench.asked import Asked, Average, Blocking
from genie.bench.collectives import TIMED, Operation
from genie.record import Run

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class IterationTimes:
    """Times of iterations in us, by nccl-tests' definitions: nearest rank; the median is the upper of two."""

    minimum_us: float
    maximum_us: float
    average_us: float
    percentile_50_us: float
    percentile_95_us: float
    percentile_99_us: float
    deviation_us: float  # population standard deviation

    @property
    def variation_percent(self) -> float:
        """Coefficient of variation."""
        return 100 * self.deviation_us / self.average_us if self.average_us > 0 else 0.0


def iteration_times(times_us: list[float]) -> IterationTimes:
    """Statistics of one or more times."""
    ordered = np.sort(np.asarray(times_us, np.float64))
    high = np.quantile(ordered, (0.95, 0.99), method="inverted_cdf")
    return IterationTimes(
        minimum_us=float(ordered[0]),
        maximum_us=float(ordered[-1]),
        average_us=float(ordered.mean()),
        percentile_50_us=float(ordered[len(ordered) // 2]),
        percentile_95_us=float(high[0]),
        percentile_99_us=float(high[1]),
        deviation_us=float(ordered.std()),
    )


@dataclass(frozen=True)
class MessageTimes:
    """Times of messages in us, from the post until the sender knows that they have arrived; nearest rank."""

    count: int
    single: bool  # False: each value is the mean over the messages of one transfer
    percentile_50_us: float
    percentile_95_us: float
    percentile_99_us: float
    maximum_us: float


def message_times(transfers: pl.DataFrame) -> MessageTimes | None:
    """Times of transfers (columns of genie/record); None unless there are transfers and all have ended."""
    import polars as pl

    ended = transfers.filter((pl.col("acked_ns") >= 0) & (pl.col("post_ns") >= 0))
    if ended.height == 0:
        return None
    single = bool((ended["messages"] == 1).all())
    took_ns = ended["acked_ns"] - ended["post_ns"] if single else ended["busy_ns"] / ended["messages"]
    return messages_of(took_ns.to_numpy() / 1e3, single=single)


def messages_of(took_us: NDArray[np.float64], *, single: bool = True) -> MessageTimes:
    """Percentiles of one or more times."""
    middle, high, higher = np.quantile(took_us, (0.5, 0.95, 0.99), method="inverted_cdf")
    return MessageTimes(len(took_us), single, float(middle), float(high), float(higher), float(took_us.max()))


@dataclass(frozen=True)
class Measured:
    """One line of the table: one size."""

    size_bytes: int
    count: int  # elements, by nccl-tests' convention
    time_us: float  # of one operation: the mean over ranks, or according to --average
    rank_times_us: list[float]
    rank_iterations_us: list[list[float]]  # per operation: by rank and iteration
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    verified_bytes: int | None  # None: not checked
    wrong_bytes: int | None
    retransmitted: int  # packets that all ranks retransmitted, warm-up iterations included
    messages: MessageTimes | None = None

    @property
    def times_us(self) -> list[float]:
        """The time of each iteration on its slowest rank."""
        return [max(times) for times in zip(*self.rank_iterations_us, strict=True)]

    def iterations(self, skipped: int = 0) -> IterationTimes:
        """Statistics of the iterations, without the first `skipped`."""
        return iteration_times(self.times_us[skipped:])


_AVERAGES: dict[Average, Callable[[list[float]], float]] = {
    Average.RANK_0: lambda times: times[0],
    Average.MEAN: lambda times: sum(times) / len(times),
    Average.LEAST: min,
    Average.MOST: max,
}


def measured(operation: Operation, asked: Asked, size_bytes: int, run: Run) -> Measured:
    """The line of a played size.

    A rank's time runs from the start of the first timed iteration to the end of the last, divided by the number of
    operations. With --blocking 3 it is the sum of its iterations' times, without the barriers between them.
    """
    import polars as pl

    named = run.timeline.filter(pl.col("name").str.starts_with(f"{TIMED} "))
    by_iteration = (
        named.group_by("rank", "name")
        .agg(start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max())
        .with_columns(
            number=pl.col("name").str.slice(len(TIMED) + 1).cast(pl.Int64),
            took_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .sort("rank", "number")
    )
    whole = pl.col("took_ns").sum() if asked.blocking is Blocking.UNTIMED_BARRIER else (
        pl.col("end_ns").max() - pl.col("start_ns").min()
    )  # fmt: skip
    by_rank = by_iteration.group_by("rank", maintain_order=True).agg(span_ns=whole, took_ns=pl.col("took_ns"))
    operations = asked.iterations * asked.aggregated
    rank_times_us = (by_rank["span_ns"] / operations / 1e3).to_list()
    time_us = float(_AVERAGES[asked.average](rank_times_us))
    total_bytes = operation.total_bytes(size_bytes, asked.ranks)
    algorithm = total_bytes / time_us * 1e6 if time_us > 0 else 0.0
    of_timed = named.filter(pl.col("op").ne_missing("barrier")).select(src="rank", node_id="node_id")
    counters = run.counters.get("ranks", [])  # missing in the twin, which has no payload
    checked = bool(asked.check) and bool(counters)
    return Measured(
        size_bytes=total_bytes,
        count=operation.share_bytes(size_bytes, asked.ranks) // operation.element_bytes,
        time_us=time_us,
        rank_times_us=rank_times_us,
        rank_iterations_us=[[took / asked.aggregated / 1e3 for took in times] for times in by_rank["took_ns"]],
        algorithm_bytes_per_s=algorithm,
        bus_bytes_per_s=algorithm * float(operation.bus_factor(asked.ranks)),
        verified_bytes=_sum(counters, "verified_bytes") if checked else None,
        wrong_bytes=_sum(counters, "wrong_bytes") if checked else None,
        retransmitted=_sum(counters, "retransmitted") or 0,
        messages=message_times(run.transfers.join(of_timed, on=["src", "node_id"], how="semi")),
    )


def _sum(counters: list[dict[str, Any] | None], name: str) -> int | None:
    """Sum over the ranks that recorded counters; None when one of them lacks this counter."""
    known = [each for each in counters if each]
    return sum(int(each[name]) for each in known) if all(name in each for each in known) else None
