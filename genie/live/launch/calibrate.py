"""`genie calibrate`: the latency of a packet on a host, measured before a run and never fitted to the judged run.

A ring all-gather is a ping-pong with all ranks at once: every hop is one message that the next hop waits for. The twin
plays the same collectives from the measured arrivals, with a host latency of 0 and of one unit. Its result is linear in
the latency, so each measured collective gives one sample of it.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from genie.config.hosts import Calibration
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

SIZES_BYTES = (4096, 16384, 65536)  # one, four and sixteen packets a hop
PER_SIZE = 12
ITERATIONS, WARMUP = 3, 1
UNIT_NS = 10_000
PAUSE_NS = 300_000  # before each collective, so that collectives do not overlap
STAGGER_NS = 400_000  # drawn on top in every second round: the latency differs between ranks in step and out of step
SEED = 1


def rings(ranks: int) -> Workload:
    """Return a workload of all-gathers with one, four and sixteen packets a hop, in turn.

    The ranks of every second round are staggered.
    """
    graphs: dict[int, RankGraph] = {}
    workload = Workload("calibration", ranks, [Group("world", tuple(range(ranks)))], graphs)
    for rank in range(ranks):
        builder = RankBuilder(rank)
        draw = random.Random(f"{SEED}/{rank}")
        last: tuple[int, ...] = ()
        for number in range(PER_SIZE):
            for size in SIZES_BYTES:
                pause_ns = PAUSE_NS + (draw.randrange(STAGGER_NS) if number % 2 else 0)
                last = (builder.add(len(builder), "pause", Kind.COMP, last, duration_ns=pause_ns),)
                last = (
                    builder.add(
                        len(builder), "ring", Kind.COLL, last, size_bytes=size, op=Op.ALL_GATHER, group=0
                    ),
                )  # fmt: skip
        graphs[rank], _ = builder.finish()
    return workload


def spans(timeline: pl.DataFrame) -> pl.DataFrame:
    """Return the time from the last arrival to the last end of every collective."""
    return (
        timeline.filter(pl.col("kind") == "coll")
        .group_by("iteration", "group", "seq")
        .agg(span_ns=pl.col("end_ns").max() - pl.col("start_ns").max())
        .sort("iteration", "group", "seq")
    )


def samples_ns(measured: pl.DataFrame, without: pl.DataFrame, with_unit: pl.DataFrame) -> NDArray[np.float64]:
    """Return one latency per collective, in ns.

    It is the measured span minus the span without latency, divided by the span that a unit of latency adds.
    """
    keys = ["iteration", "group", "seq"]
    joined = measured.join(without, on=keys, suffix="_0").join(with_unit, on=keys, suffix="_1")
    per_unit = (joined["span_ns_1"] - joined["span_ns_0"]).to_numpy() / UNIT_NS
    rest = (joined["span_ns"] - joined["span_ns_0"]).to_numpy()
    return rest[per_unit > 0] / per_unit[per_unit > 0]


def summary(samples: NDArray[np.float64]) -> tuple[int, int]:
    """Return median and spread (half the interquartile range) in ns; the median is not below 0."""
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return max(round(float(middle)), 0), round(float(high - low) / 2)


def calibration_of(
    samples: NDArray[np.float64], rate: str, dilation: int, scheduling: str, commit: str | None
) -> Calibration:
    """Return the samples' summary as the [calibration] section of a hosts file."""
    latency_ns, spread_ns = summary(samples)
    return Calibration(
        packet_latency_ns=latency_ns,
        packet_latency_spread_ns=spread_ns,
        samples=len(samples),
        rate=rate,
        dilation=float(dilation),
        scheduling=scheduling,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit or "",
    )
