"""Flow completion times against those of an idle network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from path_oracle import one_message
from twin_fabrics import GBPS, NS, US, Cable, incast, leaf_spine, path, single_switch, twin_of

from genie.collectives.nccl.shape import NcclShape
from genie.plan.lowering import Lowering
from genie.record import Run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network
from simtwin.levels.idle_network import IdleNetwork, Route
from simtwin.play.flow_completion import flow_completion
from simtwin.play.run import simulate_to_folder
from simtwin.play.watching import Watch
from simtwin.report.flows import figures, slowdowns
from simtwin.report.sections import flows

MIB = 1 << 20


def _played(fabric: Fabric, workload: Workload, out: Path) -> Run:
    return simulate_to_folder(twin_of(fabric), workload, out, workload_path="jobs/job")


def _idle(fabric: Fabric, paths: pl.DataFrame | None = None) -> IdleNetwork:
    network = build_network(fabric)
    return IdleNetwork(fabric, network, range(network.hosts), paths)


def _completion_ns(idle: IdleNetwork, way: Route | None, size_bytes: int, messages: int = 1) -> float:
    assert way is not None
    return float(idle.completion_ns(way, np.array([size_bytes]), np.array([messages]))[0])


RATES = st.sampled_from([0, 3 * GBPS, 10 * GBPS, 40 * GBPS, 100 * GBPS, 400 * GBPS])
CABLES = st.lists(st.builds(Cable, RATES, RATES, st.integers(0, 5 * US)), min_size=2, max_size=5)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CABLES, st.integers(0, 100_000), st.tuples(st.integers(0, 3 * US), st.integers(0, 3 * US)))
def test_the_ideal_completion_is_that_of_one_flow_on_an_idle_network(
    cables: list[Cable], size_bytes: int, latencies_ps: tuple[int, int]
) -> None:
    """Oracle 1."""
    idle = _idle(path(cables, latencies_ps))
    expected = one_message(cables, size_bytes, latencies_ps, ack_every_packets=1000).acked_ps / 1000
    found = _completion_ns(idle, idle.route(0, 1), size_bytes)
    assert abs(found - expected) <= 1


@pytest.mark.parametrize("size_bytes", [1, 4096, 100_000, MIB])
def test_a_flow_that_is_alone_has_no_slowdown(size_bytes: int, tmp_path: Path) -> None:
    fabric = leaf_spine(2, 2, 2, 100 * GBPS, 500 * NS, spine_bps=25 * GBPS)
    run = _played(fabric, _sends([(0, 3, size_bytes)], 4), tmp_path / "run")
    table = slowdowns(run, _idle(fabric, run.paths))
    assert table["op"].to_list() == ["send"]
    assert table["slowdown"].to_list() == pytest.approx([1.0], abs=0.002)


def test_a_bottleneck_shared_by_all_slows_them_by_their_number(tmp_path: Path) -> None:
    fabric = single_switch(8, 100 * GBPS, 500 * NS)
    run = _played(fabric, incast(7, 4 * MIB), tmp_path / "run")
    drawn = figures(slowdowns(run, _idle(fabric, run.paths)))
    assert list(drawn) == ["send"]
    ((label, count, _, _, p99, in_turn),) = drawn["send"]["sizes"]
    assert (label, count) == ("4 MiB", 7)
    assert p99 == pytest.approx(7, rel=0.03)
    assert in_turn == 1
    assert drawn["send"]["cdf"][-1][1] == 1.0


def test_a_ring_that_is_alone_takes_its_messages_in_turn(tmp_path: Path) -> None:
    fabric = single_switch(4)
    lowering = Lowering(algorithms={"all_reduce": "ring"})
    workload = collective(Op.ALL_REDUCE, 4, 64 * 1024)
    run = simulate_to_folder(twin_of(fabric), workload, tmp_path / "run", workload_path="ring", lowering=lowering)
    ((_, _, median, _, p99, in_turn),) = figures(slowdowns(run, _idle(fabric, run.paths)))["all_reduce"]["sizes"]
    assert in_turn > 1.5
    assert median == pytest.approx(in_turn, rel=0.01)
    assert p99 == pytest.approx(in_turn, rel=0.01)


@pytest.mark.parametrize(
    ("op", "lowering", "messages"),
    [
        (Op.ALL_REDUCE, Lowering(nccl=NcclShape(channels=2)), 12),
        (Op.ALL_REDUCE, Lowering(channels=2, algorithms={"all_reduce": "ring"}), 12),
        (Op.BROADCAST, Lowering(algorithms={"broadcast": "ring"}), None),
    ],
)
def test_messages_that_overlap_have_no_mark(op: Op, lowering: Lowering, messages: int | None, tmp_path: Path) -> None:
    """One after the other they would take longer than they do, so it would say nothing of contention."""
    fabric = single_switch(4)
    workload = collective(op, 4, 256 * 1024)
    run = simulate_to_folder(twin_of(fabric), workload, tmp_path / "run", workload_path="job", lowering=lowering)
    assert run.transfers["messages"].max() > 1  # type: ignore[operator]
    assert messages is None or run.transfers["messages"].to_list() == [messages] * 4
    drawn = figures(slowdowns(run, _idle(fabric, run.paths)))
    assert [row[-1] for row in drawn[op.name.lower()]["sizes"]] == [None]
    words = flows(drawn)
    assert "not known and not marked" in words
    assert "dashed mark" not in words


def test_flows_of_collectives_are_their_own_and_never_below_one(tmp_path: Path) -> None:
    fabric = leaf_spine(2, 2, 2)
    run = _played(fabric, collective(Op.ALL_REDUCE, 4, MIB, count=2), tmp_path / "run")
    drawn = figures(slowdowns(run, _idle(fabric, run.paths)))
    assert list(drawn) == ["all_reduce"]
    assert drawn["all_reduce"]["count"] == len(run.transfers) == 8
    assert drawn["all_reduce"]["messages"] == run.transfers["messages"].mean()
    assert drawn["all_reduce"]["cdf"][0][0] >= 1


def test_what_has_not_ended_is_no_flow() -> None:
    """A ring is stopped when some of its messages have been acknowledged and others have not been posted."""
    fabric = single_switch(4)
    watch = Watch(stop_after_ps=150 * US)
    run = twin_of(fabric).play(collective(Op.ALL_REDUCE, 4, 4 << 20), watch=watch)
    assert run.stopped is not None
    acknowledged = run.transfers.filter(pl.col("acked_ns") >= 0)
    assert len(acknowledged) == 4
    assert len(flow_completion(run.timeline, run.transfers, _idle(fabric))) == 0


def test_many_sizes_share_places_between_powers_of_four(tmp_path: Path) -> None:
    fabric = single_switch(2)
    sizes = [4**power + extra for power in range(5, 10) for extra in range(4)]
    run = _played(fabric, _sends([(0, 1, size) for size in sizes], 2), tmp_path / "run")
    rows = figures(slowdowns(run, _idle(fabric, run.paths)))["send"]["sizes"]
    assert [row[0] for row in rows][:2] == ["1 KiB to 4 KiB", "4 KiB to 16 KiB"]
    assert [row[1] for row in rows] == [4] * 5


def test_ways_without_known_paths_have_all_shortest_ones_together() -> None:
    ports = parse_fabric(
        'topology = { kind = "dual-plane", leaves = 2, spines = 2, hosts_per_leaf = 2 }\n'
        'link = { rate = "100Gb/s", delay = "500ns" }\n'
    )
    idle = _idle(ports)
    near, far = idle.route(0, 1), idle.route(0, 3)
    assert near is not None
    assert far is not None
    assert near.there == ((200 * GBPS, 500 * NS, False),) * 2
    assert far.there == tuple((gbps * GBPS, 500 * NS, False) for gbps in (200, 400, 400, 200))
    assert idle.route(1, 2) is far is idle.route(0, 2)
    paths = pl.DataFrame(
        [(0, 3, 7, hop, link) for hop, link in enumerate(("host0->plane0leaf0", "plane0leaf0->plane0spine1",
                                                         "plane0spine1->plane0leaf1", "plane0leaf1->host3"))],
        schema=["src", "dst", "source_port", "hop", "link"], orient="row",
    )  # fmt: skip
    known = _idle(ports, paths).route(0, 3)
    assert known is not None
    assert known.there == ((100 * GBPS, 500 * NS, False),) * 4


def test_ranks_of_one_host_have_no_way() -> None:
    fabric = single_switch(2)
    network = build_network(fabric)
    idle = IdleNetwork(fabric, network, [0, 0, 1], None)
    assert idle.route(0, 1) is None
    assert idle.route(1, 2) is not None


def _sends(messages: Sequence[tuple[int, int, int]], ranks: int) -> Workload:
    """(source, target, size), one after the other at each sender."""
    workload = Workload("sends", ranks, [Group("0", tuple(range(ranks)))], {})
    builders = [RankBuilder(rank) for rank in range(ranks)]
    last: dict[int, tuple[int, ...]] = {}
    for tag, (source, target, size) in enumerate(messages):
        sender, receiver = builders[source], builders[target]
        number = len(sender)
        sender.add(number, "send", Kind.SEND, last.get(source, ()), size_bytes=size, peer=target, tag=tag)
        last[source] = (number,)
        receiver.add(len(receiver), "recv", Kind.RECV, size_bytes=size, peer=source, tag=tag)
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    return workload
