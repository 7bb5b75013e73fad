"""Evaluation of a played size's times: of ranks, of iterations and of messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genie.bench.asked import Asked, Average, Blocking
from genie.bench.collectives import OPERATIONS
from genie.bench.measured import Measured, iteration_times, measured, message_times
from genie.record import Run
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA

pytestmark = pytest.mark.live

ASKED = Asked(2, 8000, 8000, 2, None, 1, 2, 1)
# A warm-up and two timed operations: rank 0 takes 30 us from first to last, rank 1 50 us.
ROWS = [
    (0, 0, "warm-up 0", 0, 9_000_000),
    (0, 1, "timed 0", 10_000, 22_000),
    (0, 2, "timed 1", 22_000, 40_000),
    (1, 0, "warm-up 0", 0, 9_000_000),
    (1, 1, "timed 0", 15_000, 40_000),
    (1, 2, "timed 1", 41_000, 65_000),
]
COUNTERS: list[dict[str, Any] | None] = [
    {"verified_bytes": 7, "wrong_bytes": 2, "retransmitted": 3},
    None,  # lost with its rank
    {"verified_bytes": 5, "wrong_bytes": 1, "retransmitted": 4},
]


def table(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """A table of a run folder; what is not given is 0 or nothing."""
    empty = {name: 0 if kind.is_numeric() else None for name, kind in schema.items()}
    return pl.DataFrame([{**empty, **row} for row in rows], schema=schema)


def transfers(*rows: dict[str, Any]) -> pl.DataFrame:
    return table([{"messages": 1, "dst": 1, **row} for row in rows], TRANSFERS_SCHEMA)


def run(counters: list[dict[str, Any] | None] | None = None, rows: Any = ROWS, sent: pl.DataFrame | None = None) -> Run:
    names = ("rank", "node_id", "name", "start_ns", "end_ns")
    timeline = table([dict(zip(names, row, strict=True)) for row in rows], TIMELINE_SCHEMA)
    kept = {} if counters is None else {"ranks": counters}
    return Run(Path(), {}, timeline, transfers() if sent is None else sent, kept)


def line(asked: Asked = ASKED, of: Run | None = None, name: str = "all_reduce") -> Measured:
    return measured(OPERATIONS[name], asked, 8000, of or run(COUNTERS))


def test_times_are_the_mean_of_the_ranks_and_bandwidths_follow() -> None:
    found = line()
    assert found.rank_times_us == [15.0, 25.0]
    assert found.time_us == 20.0
    assert found.rank_iterations_us == [[12.0, 18.0], [25.0, 24.0]]
    assert found.times_us == [25.0, 24.0]
    assert found.algorithm_bytes_per_s == 400e6  # 8000 B in 20 us
    assert found.bus_bytes_per_s == found.algorithm_bytes_per_s  # 2 (2 - 1) / 2
    gathered = line(name="all_gather")
    assert gathered.bus_bytes_per_s == gathered.algorithm_bytes_per_s / 2


def test_only_what_was_checked_is_called_right() -> None:
    found = line()
    assert (found.verified_bytes, found.wrong_bytes, found.retransmitted) == (12, 3, 7)
    uncounted = line(of=run([*COUNTERS, {"retransmitted": 0}]))
    assert uncounted.wrong_bytes is None, "a rank that did not look has not found everything right"
    assert line(replace(ASKED, check=0)).wrong_bytes is None
    assert line(of=run()).wrong_bytes is None, "the twin has no payload"


@pytest.mark.parametrize(
    ("average", "time_us"),
    [(Average.RANK_0, 15.0), (Average.MEAN, 20.0), (Average.LEAST, 15.0), (Average.MOST, 25.0)],
)
def test_the_time_is_what_average_asks_for(average: Average, time_us: float) -> None:
    found = line(replace(ASKED, average=average))
    assert (found.time_us, found.algorithm_bytes_per_s) == (time_us, pytest.approx(8000 / time_us * 1e6))


def test_an_untimed_barrier_is_left_out_and_aggregated_operations_share_their_time() -> None:
    # Without what lies between the iterations: 30 us and 49 us.
    assert line(replace(ASKED, blocking=Blocking.UNTIMED_BARRIER)).rank_times_us == [15.0, 24.5]
    shared = line(replace(ASKED, aggregated=2))
    assert shared.rank_times_us == [7.5, 12.5]
    assert shared.times_us == [12.5, 12.0]


def test_iterations_by_nccl_tests_definitions() -> None:
    times = iteration_times([float(at * 7 % 20 + 1) for at in range(20)])  # 1 to 20, in an order that is none
    assert (times.minimum_us, times.maximum_us, times.average_us) == (1.0, 20.0, 10.5)
    assert times.percentile_50_us == 11.0  # the upper of the two in the middle
    assert (times.percentile_95_us, times.percentile_99_us) == (19.0, 20.0)  # nearest rank
    assert times.deviation_us == pytest.approx(5.766, abs=0.001)  # sqrt((20^2 - 1) / 12)
    assert times.variation_percent == pytest.approx(54.92, abs=0.01)
    assert line().iterations(skipped=1).maximum_us == 24.0


def test_messages_are_those_of_timed_operations() -> None:
    sent = transfers(
        {"src": 0, "node_id": 0, "post_ns": 0, "acked_ns": 8_000_000},  # of the warm-up
        *({"src": 0, "node_id": 1, "post_ns": 10_000, "acked_ns": 10_000 + 1000 * took} for took in range(1, 100)),
        {"src": 1, "node_id": 2, "post_ns": 41_000, "acked_ns": 341_000},
    )
    found = line(of=run(COUNTERS, sent=sent)).messages
    assert found is not None
    assert (found.count, found.single) == (100, True)
    assert (found.percentile_50_us, found.percentile_95_us, found.percentile_99_us) == (50.0, 95.0, 99.0)
    assert found.maximum_us == 300.0


def test_messages_of_one_transfer_are_their_mean_and_barriers_are_none() -> None:
    assert message_times(transfers()) is None
    assert message_times(transfers({"post_ns": 5, "acked_ns": -1})) is None, "it has not ended"
    found = message_times(
        transfers(
            {"messages": 1, "post_ns": 0, "acked_ns": 9_000, "busy_ns": 9_000},
            {"messages": 6, "post_ns": 0, "acked_ns": 99_000, "busy_ns": 30_000},
        )
    )
    assert found is not None
    assert (found.count, found.single, found.percentile_50_us, found.maximum_us) == (2, False, 5.0, 9.0)
    barriers = [{"rank": 0, "node_id": 1, "name": "timed 0", "op": "barrier", "end_ns": 2000}]
    played = replace(run(), timeline=table(barriers, TIMELINE_SCHEMA), transfers=transfers({"src": 0, "node_id": 1}))
    assert measured(OPERATIONS["all_reduce"], replace(ASKED, iterations=1), 8000, played).messages is None
