"""`genie calibrate`: the latency of a packet on a host, measured before a run and never fitted to the judged run.

A ring all-gather is a ping-pong with all ranks at once: every hop is one message that the next hop waits for. In an
all-to-all each message waits for the acknowledgement of the one before. The twin plays the same collectives from the
measured arrivals, with a host latency of 0 and of one unit. Its result is linear in the latency, so each measured
collective gives one sample of it.
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

# Messages to the next rank of a ring, and to each rank in turn. In a ring of shorter ones, those that wait for the last
# rank follow one another, and its time does not depend on the latency.
MESSAGES_BYTES = (
    (Op.ALL_GATHER, 4096),
    (Op.ALL_TO_ALL, 1024),
    (Op.ALL_GATHER, 16384),
    (Op.ALL_TO_ALL, 4096),
    (Op.ALL_GATHER, 65536),
    (Op.ALL_TO_ALL, 16384),
)
ROUNDS = 12
LEFT_OUT = 0.05  # of the samples, at each end
ITERATIONS, WARMUP = 3, 1
UNIT_NS = 10_000
PAUSE_NS = 300_000  # before each collective, so that collectives do not overlap
# Drawn on top. Ranks of a job come to a collective at different times. Ranks that wake together queue for the cores,
# and a packet then takes longer.
STAGGER_NS = 400_000
SEED = 1


def exchanges(ranks: int) -> Workload:
    """Return a workload of small all-gathers and all-to-alls, in turn, with staggered ranks."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload("calibration", ranks, [Group("world", tuple(range(ranks)))], graphs)
    for rank in range(ranks):
        builder = RankBuilder(rank)
        draw = random.Random(f"{SEED}/{rank}")
        last: tuple[int, ...] = ()
        for _ in range(ROUNDS):
            for op, message_bytes in MESSAGES_BYTES:
                pause_ns = PAUSE_NS + draw.randrange(STAGGER_NS)
                last = (builder.add(len(builder), "pause", Kind.COMP, last, duration_ns=pause_ns),)
                size = message_bytes * (ranks if op is Op.ALL_TO_ALL else 1)
                last = (builder.add(len(builder), "exchange", Kind.COLL, last, size_bytes=size, op=op, group=0),)
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
    """Return mean and spread (half the interquartile range) in ns; the mean is not below 0.

    The latencies of a collective's hops add up, and so do means. The highest and the lowest samples, accidents of the
    hosts, are left out.
    """
    low, high = np.percentile(samples, [25, 75])
    ordered = np.sort(samples)
    left_out = int(len(ordered) * LEFT_OUT)
    mean = float(ordered[left_out : len(ordered) - left_out].mean())
    return max(round(mean), 0), round(float(high - low) / 2)


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
