"""Playing workloads on fabrics: what is recorded, what ranks share, what cannot be played, which seeds are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twin_fabrics import (
    ACK_BYTES,
    GBPS,
    NS,
    US,
    Cable,
    leaf_spine,
    path,
    run_native,
    single_switch,
    transmission_ps,
    twin_of,
    wire_bytes,
)

from genie.plan.lowering import Lowering
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import chain, collective, point_to_point
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Loss, SimulationError, Twin
from simtwin.play.watching import Watch

MIB = 1 << 20
OPERATIONS = [op for op in Op if op is not Op.NONE]


def _error(fabric: Fabric, workload: Workload) -> str:
    with pytest.raises(SimulationError) as caught:
        twin_of(fabric).play(workload)
    text = str(caught.value)
    assert "\n" not in text
    return text


def _waiting_pair(*receiver: dict[str, object], sender: tuple[dict[str, object], ...] = ()) -> Workload:
    workload = Workload("pair", 2, [Group("world", (0, 1))], {})
    for rank, nodes in enumerate((sender, receiver)):
        builder = RankBuilder(rank)
        for number, node in enumerate(nodes):
            builder.add(40 + number, f"node{number}", **node)  # type: ignore[arg-type]
        workload.ranks[rank], _ = builder.finish()
    return workload


# Content of the record


def test_the_tables_are_those_of_a_run_folder() -> None:
    result = twin_of(single_switch(4)).play(chain(40, ranks=4), iterations=range(3))
    assert dict(result.timeline.schema) == TIMELINE_SCHEMA
    assert dict(result.transfers.schema) == TRANSFERS_SCHEMA
    assert len(result.timeline) == 3 * 4 * 40
    assert result.timeline["end_ns"].min() >= 0
    assert result.timeline["overshoot_ns"].max() == 0
    assert result.transfers["iteration"].unique().sort().to_list() == [0, 1, 2]
    assert result.traces == []


def test_times_of_a_transfer_are_in_order() -> None:
    result = twin_of(single_switch(5)).play(collective(Op.ALL_REDUCE, 5, MIB, count=3, compute_ns=700))
    times = result.transfers.select("post_ns", "first_ns", "last_ns", "acked_ns").to_numpy()
    assert (np.diff(times, axis=1) > 0).all()
    busy = result.transfers["busy_ns"].to_numpy()
    assert (busy > 0).all()
    assert (busy <= times[:, 3] - times[:, 0]).all()


def test_a_computation_takes_its_duration() -> None:
    result = twin_of(single_switch(2)).play(collective(Op.BARRIER, 2, 0, compute_ns=12_345))
    compute = result.timeline.filter(pl.col("kind") == "comp")
    assert compute["end_ns"].to_list() == [12_345, 12_345]
    barrier = result.timeline.filter(pl.col("op") == "barrier")
    assert barrier["start_ns"].to_list() == [12_345, 12_345]


def test_a_late_rank_is_waited_for() -> None:
    workload = collective(Op.ALL_REDUCE, 4, MIB, compute_ns=1000)
    workload.ranks[2].duration_ns[0] = 500_000
    timeline = twin_of(single_switch(4)).play(workload).timeline.filter(pl.col("kind") == "coll")
    assert timeline["start_ns"].to_list() == [1000, 1000, 500_000, 1000]
    assert timeline["end_ns"].min() > 500_000


def test_message_latency_delays_what_follows_and_not_what_was_measured() -> None:
    """The network's times are when a message was there; the next one starts a latency later."""
    plain, slow = (
        twin_of(single_switch(2, message_latency_ps=latency)).play(point_to_point(0, 1, 5000, count=2))
        for latency in (0, 3 * US)
    )
    first = [result.transfers.row(0, named=True) for result in (plain, slow)]
    assert {key: first[0][key] for key in ("first_ns", "last_ns", "acked_ns")} == {
        key: first[1][key] for key in ("first_ns", "last_ns", "acked_ns")
    }
    second = [result.transfers.row(1, named=True)["post_ns"] for result in (plain, slow)]
    assert second == [first[0]["acked_ns"], first[0]["acked_ns"] + 3000]


def test_packet_latency_is_of_the_receiving_host() -> None:
    cables = [Cable(10 * GBPS, 10 * GBPS, US), Cable(10 * GBPS, 10 * GBPS, US)]
    results = [
        twin_of(path(cables, latencies)).play(point_to_point(0, 1, 100)).transfers.row(0, named=True)
        for latencies in ((0, 0), (0, 5 * US), (7 * US, 5 * US))
    ]
    assert [row["last_ns"] - results[0]["last_ns"] for row in results] == [0, 5000, 5000]
    assert [row["acked_ns"] - results[0]["acked_ns"] for row in results] == [0, 5000, 12_000]


def test_counters_add_up_over_iterations() -> None:
    twin = twin_of(single_switch(4))
    workload = collective(Op.ALL_REDUCE, 4, MIB)
    once, thrice = twin.play(workload).counters, twin.play(workload, iterations=range(3)).counters
    assert thrice["data_packets"] == 3 * once["data_packets"] == 3 * 4 * 6 * 64
    assert thrice["links"]["packets"] == [3 * packets for packets in once["links"]["packets"]]
    assert thrice["links"]["size_bytes"] == [3 * size for size in once["links"]["size_bytes"]]
    assert thrice["links"]["longest_queue_bytes"] == once["links"]["longest_queue_bytes"]


def test_link_counters_count_what_a_link_carried() -> None:
    twin = twin_of(single_switch(2))
    links = twin.play(point_to_point(0, 1, 10_000)).counters["links"]
    by_name = dict(zip(twin.network.link_names, links["size_bytes"], strict=True))
    data = sum(wire_bytes(10_000))
    assert by_name == {
        "host0->switch": data, "switch->host1": data, "host1->switch": ACK_BYTES, "switch->host0": ACK_BYTES
    }  # fmt: skip


def test_the_longest_queue_is_what_waited() -> None:
    """Three packets at the same instant for one port: one starts at once, two wait."""
    workload = Workload("three", 4, [Group("0", (0, 1, 2, 3))], {})
    receiver = RankBuilder(3)
    for rank in range(3):
        builder = RankBuilder(rank)
        builder.add(0, "send", Kind.SEND, size_bytes=1000, peer=3)
        workload.ranks[rank], _ = builder.finish()
        receiver.add(rank, "receive", Kind.RECV, size_bytes=1000, peer=rank)
    workload.ranks[3], _ = receiver.finish()
    twin = twin_of(single_switch(4))
    links = twin.play(workload).counters["links"]
    longest = links["longest_queue_bytes"][twin.network.link_names.index("switch->host3")]
    assert longest == 2 * sum(wire_bytes(1000))


@pytest.mark.parametrize("delay_ps", [0, 500 * NS])
@pytest.mark.parametrize("level", ["packet", "flow", "analytic"])
def test_times_that_cannot_be_counted_are_said(level: str, delay_ps: int) -> None:
    """Two sleeps of 30 days, one after the other; without delays all is one process."""
    workload = Workload("sleeper", 1, [Group("world", (0,))], {})
    builder = RankBuilder(0)
    for number in range(2):
        days = 30 * 86_400 * 10**9
        builder.add(number, f"sleep {number}", Kind.COMP, duration_ns=days, deps=[number - 1] if number else [])
    workload.ranks[0], _ = builder.finish()
    fabric = single_switch(2, delay_ps=delay_ps, rate_bps=200 * GBPS)
    with pytest.raises(SimulationError, match="simulated time passes 53 days") as caught:
        Twin(fabric, build_network(fabric), [0], level=level).play(workload)
    assert caught.value.partial is not None
    ends_ns = caught.value.partial.timeline["end_ns"].to_list()
    assert ends_ns == [30 * 86_400 * 10**9, -1]


def test_progress_is_told() -> None:
    seen: list[tuple[int, int, int, int, float]] = []

    def progress(simulator: Any, place: int, iterations: int) -> None:
        seen.append((place, iterations, simulator.events, simulator.now_ps, simulator.share_done))

    workload = collective(Op.ALL_REDUCE, 8, 32 * MIB)
    result = twin_of(single_switch(8)).play(workload, watch=Watch(progress), iterations=(4, 7))
    assert sorted({place for place, *_ in seen}) == [0, 1]
    assert {iterations for _, iterations, *_ in seen} == {2}
    assert 0 < seen[0][2] < result.counters["events"]
    assert 0 < seen[0][3] < 1000 * result.timeline["end_ns"].max()  # type: ignore[operator]
    of_one = [(time_ps, share) for place, _, _, time_ps, share in seen if place == 0]
    assert [share for _, share in of_one] == sorted(share for _, share in of_one)
    # A ring that never waits: as much is done as time is over.
    end_ps = 1000 * result.timeline.filter(pl.col("iteration") == 4)["end_ns"].max()  # type: ignore[operator]
    assert max(abs(share - time_ps / end_ps) for time_ps, share in of_one if time_ps < end_ps) < 0.02


# Every operation on every kind of fabric

FABRICS = {
    "single-switch": single_switch(6),
    "unlimited": single_switch(6, 0, 0),
    "slow": single_switch(6, GBPS // 5, 10 * US, message_latency_ps=5 * US, packet_latency_ps=20 * US),
    "leaf-spine": leaf_spine(3, 2, 2, 25 * GBPS, 300 * NS, spine_bps=40 * GBPS),
    "small packets, small window": single_switch(6, mtu=256, window_packets=3, ack_every_packets=2),
}


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS.keys())
@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name.lower())
def test_every_collective_ends_on_every_fabric(op: Op, fabric: Fabric) -> None:
    for size in (0, 1, 70_001):
        for lowering in (Lowering(), Lowering(channels=3, credit=True)):
            result = twin_of(fabric).play(collective(op, 6, size, count=2), lowering=lowering)
            assert result.counters["dropped"] == 0
            assert result.transfers["retransmits"].sum() == 0
            assert result.timeline["end_ns"].min() >= 0


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(OPERATIONS), st.integers(0, 300_000),
    st.lists(st.integers(0, 11), min_size=12, max_size=12),
)  # fmt: skip
def test_ranks_may_sit_on_any_hosts(
    leaves: int, spines: int, hosts_per_leaf: int, op: Op, size: int, hosts: list[int]
) -> None:
    """Several ranks on one host included, and all of them on one."""
    fabric = leaf_spine(leaves, spines, hosts_per_leaf)
    placed = [host % fabric.hosts for host in hosts[:5]]
    result = twin_of(fabric, hosts=placed).play(collective(op, 5, size))
    assert result.timeline["end_ns"].min() >= 0
    if len(set(placed)) == 1:
        assert sum(result.counters["links"]["packets"]) == 0, "it never leaves the host"


def test_ranks_of_one_host_share_its_port() -> None:
    """Ranks 0 and 1 on host 0 send to 2 and 3 on host 1: twice the bytes over one cable."""
    workload = Workload("two", 4, [Group("0", (0, 1, 2, 3))], {})
    for rank in range(4):
        builder = RankBuilder(rank)
        kind = Kind.SEND if rank < 2 else Kind.RECV
        builder.add(0, "message", kind, size_bytes=MIB, peer=(rank + 2) % 4)
        workload.ranks[rank], _ = builder.finish()
    rate, delay = 10 * GBPS, 500 * NS
    fabric = single_switch(2, rate, delay)
    run = run_native(twin_of(fabric, hosts=[0, 0, 1, 1]), workload)
    last = max(int(it["receives"]["last_ps"].max(initial=0)) for it in run.records)
    least = transmission_ps(2 * sum(wire_bytes(MIB)), rate) + 2 * delay
    assert least < last < 1.01 * least


def test_what_stays_on_a_host_leaves_at_the_rate_of_its_cable() -> None:
    """As a soft NIC does it: serialised once, dealt with after the packet latency."""
    fabric = single_switch(1, 10 * GBPS, 500 * NS, packet_latency_ps=2 * US)
    run = run_native(twin_of(fabric, hosts=[0, 0]), point_to_point(0, 1, 50_000))
    last = int(run.records[1]["receives"]["last_ps"][0])
    assert last == transmission_ps(sum(wire_bytes(50_000)), 10 * GBPS) + 2 * US


# Paths and seeds


def test_every_iteration_has_a_seed_of_its_own() -> None:
    """Other seeds, other paths; the same seed, the same paths."""
    fabric = leaf_spine(2, 8, 4, 25 * GBPS)
    workload = collective(Op.ALL_TO_ALL, 8, MIB)
    ends = [
        twin_of(fabric, seed=seed).play(workload, iterations=iterations).timeline["end_ns"].max()
        for seed, iterations in ((5, (0,)), (5, (1,)), (6, (0,)), (5, (0,)))
    ]
    assert ends[0] == ends[3]
    assert ends[1] == ends[2], "iteration k of seed s is iteration 0 of seed s + k"
    assert len(set(ends)) > 1


def test_a_flow_stays_on_one_path() -> None:
    """One message between two leaves: one spine carries all of its packets, and all spines have their share of many."""
    fabric = leaf_spine(2, 4, 8)
    twin = twin_of(fabric)
    network = twin.network
    up = np.flatnonzero([name.startswith("leaf0->spine") for name in network.link_names])

    def carried(workload: Workload) -> list[int]:
        return [twin.play(workload).counters["links"]["packets"][link] for link in up]

    one = point_to_point(0, 15, MIB)
    for rank in range(1, 15):
        one.ranks[rank], _ = RankBuilder(rank).finish()
    assert sorted(carried(one)) == [0, 0, 0, 256]
    shares = carried(collective(Op.ALL_TO_ALL, 16, 16 * 4096))
    assert sum(shares) >= 64
    assert min(shares) > 0
    assert shares == [22, 36, 34, 36], "the paths that a seed draws are the same in every version"


def test_a_buffer_of_more_than_a_mebibyte_holds_that_much() -> None:
    for buffer_bytes in (MIB + 200_000, 64 * MIB, 1 << 40):
        result = twin_of(single_switch(4, buffer_bytes=buffer_bytes)).play(collective(Op.ALL_REDUCE, 4, MIB))
        assert result.counters["dropped"] == 0


@pytest.mark.parametrize("sample", ["explicit", "leaf-spine", "loopback8", "single-switch"])
def test_the_sample_fabrics_play(sample: str) -> None:
    root = Path(__file__).resolve().parents[2]
    fabric = load_fabric(root / "hosts" / "fabrics" / f"{sample}.toml")
    result = twin_of(fabric).play(collective(Op.ALL_REDUCE, fabric.hosts, MIB, compute_ns=10_000))
    assert result.timeline["end_ns"].min() >= 0
    assert result.counters["dropped"] == 0


# Workloads that cannot be played


def test_a_receive_that_nobody_sends_to_is_named() -> None:
    text = _error(single_switch(2), _waiting_pair({"kind": Kind.RECV, "peer": 0, "size_bytes": 77, "tag": 5}))
    assert text == ("the simulation cannot go on: rank 1, node 40 (node0): receive of 77 bytes from rank 0, tag 5")


def test_a_collective_that_a_rank_never_comes_to_is_named() -> None:
    node: dict[str, object] = {"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": 0, "size_bytes": MIB}
    text = _error(single_switch(2), _waiting_pair(node))
    assert text.startswith("the simulation cannot go on: rank 1, node 40 (node0): collective with ")
    assert text.endswith("0 of 2 messages received from rank 0")


def test_ranks_that_disagree_on_a_size_are_named() -> None:
    send: dict[str, object] = {"kind": Kind.SEND, "peer": 1, "size_bytes": 70}
    receive: dict[str, object] = {"kind": Kind.RECV, "peer": 0, "size_bytes": 77}
    text = _error(single_switch(2), _waiting_pair(receive, sender=(send,)))
    assert text == (
        "the simulation cannot go on: rank 1, node 40 (node0): expected 77 bytes from rank 0 and got 70: "
        "the two ranks' graphs disagree"
    )


def test_a_cycle_is_not_a_hang() -> None:
    workload = _waiting_pair({"kind": Kind.META}, {"kind": Kind.META, "deps": (40,)})
    graph = workload.ranks[1]
    graph.dep_start, graph.deps = np.array([0, 1, 2]), np.array([1, 0], np.int32)
    assert "rank 1, node 40 (node0): not started" in _error(single_switch(2), workload)


def test_a_link_that_loses_everything_ends_with_a_rank_that_gave_up() -> None:
    twin = twin_of(single_switch(2, ack_timeout=100 * US, retry_limit=2))
    with pytest.raises(SimulationError, match="rank 0 gave up sending to rank 1: no acknowledgement after all retries"):
        twin.play(point_to_point(0, 1, 100), losses=[Loss(0, 1, every=1)])


def test_a_fabric_with_fewer_hosts_than_ranks() -> None:
    fabric = single_switch(3)
    with pytest.raises(SimulationError, match=r"has 3 hosts, and the workload needs 4: give a larger fabric"):
        Twin(fabric, build_network(fabric), [0, 1, 2, 3])
