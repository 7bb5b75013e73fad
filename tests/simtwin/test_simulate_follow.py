"""Following measured arrivals: a twin that follows a free run's own starts ends as the free run did."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from twin_fabrics import GBPS, MIB, NS, US, leaf_spine, single_switch, twin_of

from genie.collectives.nccl.shape import NcclShape
from genie.plan.lowering import Lowering
from genie.workload.graph import Kind, Op, Workload
from genie.workload.synthetic import chain, collective, point_to_point
from simtwin.fabric.schema import Fabric
from simtwin.play.twin import Twin, arrivals_of

# A byte takes a nanosecond, so that every time is whole nanoseconds and a table loses nothing.
EXACT = 8 * GBPS
COMM = ["coll", "send", "recv"]

CASES: dict[str, tuple[Fabric, Workload]] = {
    "ring": (single_switch(4, EXACT, 500 * NS), collective(Op.ALL_REDUCE, 4, 300_000, count=4, compute_ns=7_000)),
    "late ranks": (single_switch(8, EXACT, 500 * NS), chain(120, ranks=8, size_bytes=100_000)),
    "latencies": (
        single_switch(5, EXACT, 500 * NS, packet_latency_ps=3 * US, message_latency_ps=2 * US),
        collective(Op.ALL_TO_ALL, 5, 200_000, count=3, compute_ns=9_000),
    ),
    "two tiers": (leaf_spine(2, 2, 3, EXACT, US), collective(Op.ALL_GATHER, 6, 50_000, count=3, compute_ns=5_000)),
    "messages": (single_switch(2, EXACT, 500 * NS), point_to_point(0, 1, 12_345, count=6)),
}


def _late(workload: Workload, seed: int = 3) -> Workload:
    """Every rank computes for another time."""
    draw = np.random.default_rng(seed)
    for graph in workload.ranks.values():
        compute = graph.kind == Kind.COMP
        graph.duration_ns[compute] += draw.integers(0, 40_000, int(compute.sum()))
    return workload


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_following_a_free_run_ends_as_it_did(case: str, channels: int) -> None:
    fabric, workload = CASES[case]
    workload = _late(workload)
    twin, lowering = twin_of(fabric), Lowering(channels)
    free = twin.play(workload, lowering=lowering, iterations=(0,))
    followed = twin.play(workload, lowering=lowering, iterations=(0,), arrivals_ns=arrivals_of(workload, free.timeline))
    expected = free.timeline.filter(pl.col("kind").is_in(COMM))
    columns = ["rank", "node_id", "start_ns", "end_ns"]
    assert followed.timeline.select(columns).equals(expected.select(columns))
    assert followed.transfers.equals(free.transfers)


def test_a_run_is_followed_to_the_same_bits_with_skips() -> None:
    fabric = leaf_spine(2, 2, 4, 100 * GBPS)
    workload = _late(collective(Op.ALL_REDUCE, 8, 64 * MIB, count=2, compute_ns=7_000))
    lowering = Lowering(nccl=NcclShape(buffer_bytes=1 << 18))
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)), level="packet+skip")
    free = twin.play(workload, lowering=lowering, iterations=(0,))
    arrivals_ns = arrivals_of(workload, free.timeline)
    played, skipped = (
        twin.play(workload, lowering=lowering, iterations=(0,), arrivals_ns=arrivals_ns, skips=skips)
        for skips in (False, True)
    )
    assert skipped.timeline.equals(played.timeline)
    assert skipped.transfers.equals(played.transfers)
    assert skipped.counters["links"] == played.counters["links"]
    assert skipped.skipped is not None
    assert skipped.skipped.packets > 0.5 * played.counters["data_packets"]


def test_a_rank_that_came_late_is_waited_for() -> None:
    twin = twin_of(single_switch(3, EXACT))
    workload = collective(Op.ALL_REDUCE, 3, 30_000)
    arrivals = {rank: np.array([start]) for rank, start in ((0, 1_000), (1, 90_000), (2, 2_000))}
    timeline = twin.play(workload, iterations=(7,), arrivals_ns={7: arrivals}).timeline
    assert timeline["iteration"].unique().to_list() == [7]
    assert timeline["start_ns"].to_list() == [1_000, 90_000, 2_000]
    assert timeline["end_ns"].min() > 90_000
    assert timeline["ready_ns"].to_list() == timeline["start_ns"].to_list()


def test_arrivals_of_a_timeline() -> None:
    workload = collective(Op.BARRIER, 2, 0, count=2, compute_ns=10)
    free = twin_of(single_switch(2)).play(workload, iterations=range(2))
    timeline = free.timeline.filter(~((pl.col("iteration") == 1) & (pl.col("rank") == 1)))
    arrivals = arrivals_of(workload, timeline)
    assert sorted(arrivals) == [0, 1]
    starts = {
        (iteration, rank): values.tolist() for iteration, ranks in arrivals.items() for rank, values in ranks.items()
    }
    assert starts[0, 0] == starts[0, 1] == starts[1, 0]
    assert starts[0, 0][0::2] == [-1, -1], "compute is left out: its effect is in the starts"
    assert starts[0, 0][1] == 10
    assert starts[1, 1] == [-1] * 4, "a rank that is not there"


def test_iterations_that_are_followed_share_the_paths() -> None:
    """A live run keeps its source ports; so does the twin that follows it."""
    fabric = leaf_spine(2, 8, 4, 25 * GBPS)
    workload = collective(Op.ALL_TO_ALL, 8, 1 << 20)
    arrivals = {iteration: {rank: np.zeros(1, np.int64) for rank in range(8)} for iteration in range(4)}
    timeline = twin_of(fabric).play(workload, iterations=range(4), arrivals_ns=arrivals).timeline
    assert timeline.group_by("iteration").agg(pl.col("end_ns").sort())["end_ns"].n_unique() == 1
