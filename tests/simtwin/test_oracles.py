"""Oracles: closed forms that the packet level must meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from path_oracle import Expected, one_message
from twin_fabrics import (
    ACK_BYTES,
    GBPS,
    HEADERS,
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
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.schema import Fabric
from simtwin.play.twin import Twin

DRAWS = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def _one_flow(fabric: Fabric, size_bytes: int, source: int = 0, target: int = 1) -> Expected:
    run = run_native(twin_of(fabric), _padded(point_to_point(source, target, size_bytes), fabric.hosts))
    sends, receives = run.records[source]["sends"], run.records[target]["receives"]
    assert run.dropped == 0
    return Expected(int(receives["first_ps"][0]), int(receives["last_ps"][0]), int(sends["acked_ps"][0]))


def _padded(workload: Workload, ranks: int) -> Workload:
    """With ranks that do nothing, one for each host."""
    for rank in range(workload.world_size, ranks):
        workload.ranks[rank], _ = RankBuilder(rank).finish()
    workload.world_size = max(workload.world_size, ranks)
    return workload


# Oracle 1: one flow on an idle network, exact to the picosecond

RATES = st.sampled_from([0, 3 * GBPS, 7 * GBPS, 10 * GBPS, 25 * GBPS, 40 * GBPS, 100 * GBPS, 400 * GBPS])
CABLES = st.lists(st.builds(Cable, RATES, RATES, st.integers(0, 5 * US)), min_size=2, max_size=5)
LATENCIES = st.tuples(st.integers(0, 3 * US), st.integers(0, 3 * US))
MTUS = st.sampled_from([256, 512, 1024, 2048, 4096])


@DRAWS
@given(CABLES, st.integers(0, 50_000), LATENCIES, MTUS, st.sampled_from([1, 2, 5, 16, 1000]))
def test_one_flow_over_any_path(
    cables: list[Cable], size_bytes: int, latencies_ps: tuple[int, int], mtu: int, ack_every: int
) -> None:
    fabric = path(cables, latencies_ps, mtu=mtu, ack_every_packets=ack_every, window_packets=4096)
    assert _one_flow(fabric, size_bytes) == one_message(cables, size_bytes, latencies_ps, mtu, ack_every)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 4097, 65536, 1 << 20])
def test_one_flow_through_one_switch_is_the_closed_form(size_bytes: int) -> None:
    """FCT = base RTT + wire bytes x 8 / rate: over two equal links, and the largest packet once more."""
    rate, delay, latency = 100 * GBPS, 500 * NS, 900 * NS
    found = _one_flow(single_switch(2, rate, delay, packet_latency_ps=latency), size_bytes)
    sizes = wire_bytes(size_bytes)
    base = 2 * delay + latency
    assert found.first_ps == base + 2 * transmission_ps(sizes[0], rate)
    assert found.last_ps == base + transmission_ps(sum(sizes), rate) + transmission_ps(max(sizes), rate)
    assert found.acked_ps == found.last_ps + base + 2 * transmission_ps(ACK_BYTES, rate)


@pytest.mark.parametrize("size_bytes", [1, 5000, 300_000])
def test_one_flow_across_leaf_and_spine(size_bytes: int) -> None:
    """Whichever spine the hash picks; to the same leaf it is one switch."""
    fabric = leaf_spine(2, 3, 2, 25 * GBPS, 700 * NS, spine_bps=40 * GBPS)
    host, up = Cable(25 * GBPS, 25 * GBPS, 700 * NS), Cable(40 * GBPS, 40 * GBPS, 700 * NS)
    assert _one_flow(fabric, size_bytes, 0, 3) == one_message([host, up, up, host], size_bytes)
    assert _one_flow(fabric, size_bytes, 0, 1) == one_message([host, host], size_bytes)


def test_a_small_rate_in_the_middle_is_the_bottleneck() -> None:
    cables = [Cable(100 * GBPS, 100 * GBPS, US), Cable(3 * GBPS, 3 * GBPS, US), Cable(100 * GBPS, 100 * GBPS, US)]
    found = _one_flow(path(cables), 400_000)
    assert found == one_message(cables, 400_000)
    assert found.last_ps > transmission_ps(sum(wire_bytes(400_000)), 3 * GBPS)


# Oracle 2: M/D/1


def test_a_queue_fed_at_random_waits_as_md1_says() -> None:
    """Messages of one packet at Poisson times over an unlimited link into a port of 1 byte a nanosecond."""
    payload, load, count, batches = 900, 0.8, 60_000, 40
    service_ns = sum(wire_bytes(payload))
    draw = np.random.default_rng(7)
    times = np.cumsum(draw.exponential(service_ns / load, count)).astype(np.int64)
    workload = Workload("poisson", 2, [Group("0", (0, 1))], {})
    for rank, kind in ((0, Kind.SEND), (1, Kind.RECV)):
        builder = RankBuilder(rank)
        for row in range(count):
            builder.add(row, "message", kind, size_bytes=payload, peer=1 - rank)
        workload.ranks[rank], _ = builder.finish()
    fabric = single_switch(2, 0, 0, downlink_bps=8 * GBPS, window_packets=1 << 20)
    arrivals = {0: {0: times, 1: np.zeros(count, np.int64)}}
    transfers = twin_of(fabric).play(workload, arrivals_ns=arrivals).transfers.sort("node_id")
    assert transfers["post_ns"].to_list() == times.tolist()
    waits = transfers["last_ns"].to_numpy() - times - service_ns
    # Lindley's recursion, by the latest start of a busy period: exact.
    idle_at = np.maximum.accumulate(times - service_ns * np.arange(count))
    assert np.array_equal(waits, idle_at + service_ns * np.arange(count) - times)
    means = waits.reshape(batches, -1).mean(axis=1)
    error = means.std(ddof=1) / batches**0.5
    assert abs(waits.mean() - load * service_ns / (2 * (1 - load))) < 3 * error < 0.15 * waits.mean()


# Oracle 3: incast


@pytest.mark.parametrize(("senders", "size_bytes"), [(2, 1 << 20), (7, 1 << 20), (16, 4 << 20), (31, 64 << 10)])
def test_incast_is_bound_by_the_receivers_link(senders: int, size_bytes: int) -> None:
    """N to 1 with buffers of N x S: last FCT = N x S_wire x 8 / C + base delay, within 2 %."""
    rate, delay = 100 * GBPS, 500 * NS
    each = sum(wire_bytes(size_bytes))
    fabric = single_switch(senders + 1, rate, delay, buffer_bytes=senders * each)
    run = run_native(twin_of(fabric), _incast(senders, size_bytes))
    assert run.dropped == 0
    last = int(run.records[senders]["receives"]["last_ps"].max())
    base = 2 * delay + transmission_ps(min(wire_bytes(size_bytes)), rate)
    bound = base + transmission_ps(senders * each, rate)
    assert bound <= last <= 1.02 * bound


def _incast(senders: int, size_bytes: int) -> Workload:
    """Ranks 0 ... senders - 1 each send one message to the last rank, all at once."""
    workload = Workload("incast", senders + 1, [Group("0", tuple(range(senders + 1)))], {})
    receiver = RankBuilder(senders)
    for rank in range(senders):
        builder = RankBuilder(rank)
        builder.add(0, "send", Kind.SEND, size_bytes=size_bytes, peer=senders)
        workload.ranks[rank], _ = builder.finish()
        receiver.add(rank, "receive", Kind.RECV, size_bytes=size_bytes, peer=rank)
    workload.ranks[senders], _ = receiver.finish()
    return workload


# Oracle 5: collectives on a ring


def _ring(op: Op, ranks: int, size_bytes: int, rate_bps: int, delay_ps: int, latency_ps: int) -> int:
    name = op.name.lower()
    fabric = single_switch(ranks, rate_bps, delay_ps, packet_latency_ps=latency_ps, message_latency_ps=latency_ps)
    lowering = Lowering(algorithms={name: "ring"})
    run = run_native(twin_of(fabric), collective(op, ranks, size_bytes), lowering)
    return int(max(it["receives"]["last_ps"].max() for it in run.records))


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER])
@pytest.mark.parametrize(("ranks", "rate_gbps", "latency_us"), [(4, 100, 0), (8, 400, 0), (16, 25, 0), (8, 100, 2)])
@pytest.mark.parametrize("block_bytes", [64, 4096, 64 << 10, 1 << 20, 8 << 20])
def test_ring_collectives(op: Op, ranks: int, rate_gbps: int, latency_us: int, block_bytes: int) -> None:
    """Rounds x (block / B + alpha), within 2 %, for blocks of one packet up to many windows.

    B is the link's share of payload. alpha is the remaining cost of a round. It has two propagations, the switch's own
    serialisation of the last packet, the acknowledgement that leaves first, and the host's latencies.
    """
    rate, delay, latency = rate_gbps * GBPS, 500 * NS, latency_us * US
    size = block_bytes if op is Op.ALL_GATHER else block_bytes * ranks
    rounds = (2 if op is Op.ALL_REDUCE else 1) * (ranks - 1)
    sizes = wire_bytes(block_bytes)
    alpha = 2 * delay + transmission_ps(sizes[-1], rate) + transmission_ps(ACK_BYTES, rate) + 2 * latency
    expected = rounds * (transmission_ps(sum(sizes), rate) + alpha) - latency
    assert _ring(op, ranks, size, rate, delay, latency) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("ranks", [4, 16])
def test_large_ring_all_reduce_is_bandwidth_bound(ranks: int) -> None:
    """2 (N - 1) / N x S / B with B the payload's share of the link: within 2 % of the textbook's form."""
    rate, size = 100 * GBPS, 64 << 20
    share = 4096 / (4096 + HEADERS)
    expected_ps = 2 * (ranks - 1) / ranks * size * 8e12 / (rate * share)
    assert _ring(Op.ALL_REDUCE, ranks, size, rate, 500 * NS, 0) == pytest.approx(expected_ps, rel=0.02)


# Oracle 13: metamorphic


def _busy_fabric(scale: int = 1, **transport: int) -> Fabric:
    """Every rate over `scale` and every delay times `scale`."""
    return leaf_spine(
        2,
        1,
        4,
        100 * GBPS // scale,
        500 * NS * scale,
        spine_bps=50 * GBPS // scale,
        buffer_bytes=48 << 10,
        ack_timeout=100 * US * scale,
        **transport,
    )


def _play(twin: Twin, workload: Workload, **arguments: object):  # type: ignore[no-untyped-def]
    return twin.play(workload, keep_trace=True, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [2, 8, 64])
def test_everything_scales_with_rates_delays_and_timers(scale: int) -> None:
    """Drops, retransmissions and timeouts included: the same packets, each at `scale` times the time."""
    durations = [(1, 3_000), (scale, 3_000 * scale)]
    traces, timelines = [], []
    for factor, compute_ns in durations:
        workload = collective(Op.ALL_TO_ALL, 8, 512 << 10, count=2, compute_ns=compute_ns)
        lowering = Lowering(algorithms={"all_to_all": "direct"})
        result = _play(twin_of(_busy_fabric(factor)), workload, lowering=lowering)
        assert result.counters["dropped"] > 0
        assert result.transfers["retransmits"].sum() > 0
        traces.append([(entry[0] // factor, *entry[1:]) for entry in result.traces[0]])
        timelines.append((result.timeline["end_ns"] // factor).to_list())
    assert traces[0] == traces[1]
    assert timelines[0] == pytest.approx(timelines[1], abs=1)


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER, Op.ALL_TO_ALL])
def test_relabelling_the_hosts_of_one_switch_changes_nothing(op: Op) -> None:
    workload = collective(op, 8, 300_000, count=3, compute_ns=1000)
    fabric = single_switch(8, 100 * GBPS, 500 * NS, message_latency_ps=US)
    plain = twin_of(fabric).play(workload)
    for hosts in ([7, 6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 7, 2, 5, 4]):
        relabelled = twin_of(fabric, hosts=hosts).play(workload)
        assert relabelled.timeline.equals(plain.timeline)
        assert relabelled.transfers.equals(plain.transfers)


def test_relabelling_the_ranks_of_flows_relabels_their_times() -> None:
    """Flows of different sizes into two receivers: names decide nothing but ties, and there are none."""
    flows = [(0, 5, 100_000), (1, 5, 230_000), (2, 6, 70_000), (3, 6, 410_000), (4, 5, 55_000)]
    names = [6, 2, 0, 5, 1, 3, 4]
    fabric = single_switch(7, 100 * GBPS, 500 * NS)
    plain, renamed = (
        {(row["src"], row["dst"]): (row["first_ns"], row["last_ns"]) for row in _flows(fabric, it)}
        for it in (flows, [(names[source], names[target], size) for source, target, size in flows])
    )
    assert {(names[source], names[target]): times for (source, target), times in plain.items()} == renamed


def _flows(fabric: Fabric, flows: list[tuple[int, int, int]]) -> list[dict[str, int]]:
    """Each from its own start: 1,009 ns after the one of the next smaller size."""
    order = sorted(flows, key=lambda flow: flow[2])
    workload = Workload("flows", fabric.hosts, [Group("0", tuple(range(fabric.hosts)))], {})
    builders = [RankBuilder(rank) for rank in range(fabric.hosts)]
    for number, (source, target, size) in enumerate(order):
        sleep = builders[source].add(2 * number, "sleep", Kind.COMP, duration_ns=1_009 * (number + 1))
        builders[source].add(2 * number + 1, "send", Kind.SEND, (sleep,), size_bytes=size, peer=target)
        builders[target].add(2 * number, "receive", Kind.RECV, size_bytes=size, peer=source)
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    return twin_of(fabric).play(workload).transfers.to_dicts()


@pytest.mark.parametrize("buffer_bytes", [-1, 40_000, 100_000])
def test_bytes_in_are_bytes_out_and_bytes_dropped(buffer_bytes: int) -> None:
    fabric = leaf_spine(3, 2, 3, 100 * GBPS, 500 * NS, spine_bps=40 * GBPS, buffer_bytes=buffer_bytes)
    twin = twin_of(fabric)
    lowering = Lowering(algorithms={"all_to_all": "direct"})
    run = run_native(twin, collective(Op.ALL_TO_ALL, 9, 400_000), lowering)
    assert (run.dropped > 0) == (buffer_bytes > 0)
    network, links = twin.network, {name: values[: twin.network.links] for name, values in run.links.items()}
    for switch in range(network.hosts, network.nodes):
        came, left = network.dst_node == switch, network.src_node == switch
        for what, dropped in (("packets", "dropped"), ("size_bytes", "dropped_bytes")):
            assert links[what][came].sum() == links[what][left].sum() + links[dropped][left].sum() > 0
    # And at the ends: what left the hosts' queue pairs arrived at other queue pairs or was dropped.
    sent = sum(it["data_sent"] + it["acks_sent"] + it["naks_sent"] for it in run.counters)
    received = sum(it["data_received"] + it["acks_received"] for it in run.counters)
    assert sent == received + run.dropped
    assert sum(it["data_sent"] for it in run.counters) == run.data_packets


def test_a_seed_gives_the_same_bits() -> None:
    """And another seed other paths."""
    fabric = leaf_spine(3, 4, 2, 25 * GBPS, 500 * NS, buffer_bytes=64 << 10)
    workload = collective(Op.ALL_TO_ALL, 6, 600_000, count=2, compute_ns=500)
    first, second, other = (_play(twin_of(fabric, seed=seed), workload) for seed in (3, 3, 4))
    assert first.timeline.equals(second.timeline)
    assert first.transfers.equals(second.transfers)
    assert first.traces == second.traces
    assert first.traces[0]
    assert {**first.counters, "wall_s": 0} == {**second.counters, "wall_s": 0}
    assert first.counters["links"] != other.counters["links"]
