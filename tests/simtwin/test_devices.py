"""Hosts, switches and links besides queueing: latencies, cut-through, trimming, token buckets, weights."""

from __future__ import annotations

from typing import Any

import pytest
from twin_fabrics import ACK_BYTES, GBPS, NS, US, incast, run_native, transmission_ps, twin_of, wire_bytes

from genie.config.congestion import Dcqcn, Window
from genie.config.units import Duration, Rate, Size
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.reading import FabricError, parse_fabric
from simtwin.fabric.schema import (
    Domain,
    Downlink,
    Ecn,
    Fabric,
    Fault,
    Host,
    LeafSpine,
    Link,
    LoadBalancing,
    Path,
    Priority,
    RailOptimized,
    SingleSwitch,
    Switch,
    Transport,
)

MIB = 1 << 20
RATE, DELAY = 100 * GBPS, 500 * NS


def two_hosts(**more: Any) -> Fabric:
    return Fabric(topology=SingleSwitch(2), **{"link": Link(Rate(RATE), Duration(DELAY)), **more})


def first_and_last(fabric: Fabric, size_bytes: int) -> tuple[int, int]:
    run = run_native(twin_of(fabric), point_to_point(0, 1, size_bytes))
    receives = run.records[1]["receives"]
    return int(receives["first_ps"][0]), int(receives["last_ps"][0])


def test_a_switch_takes_its_latency() -> None:
    plain, later = (first_and_last(two_hosts(switch=Switch(latency=Duration(t))), 50_000) for t in (0, 700 * NS))
    assert later == (plain[0] + 700 * NS, plain[1] + 700 * NS)


def test_cutting_through_forwards_after_the_header() -> None:
    """One packet: serialised once, and a header of 64 bytes on the second link's account."""
    sizes = wire_bytes(4000)
    _, stored = first_and_last(two_hosts(), 4000)
    _, cut = first_and_last(two_hosts(switch=Switch(cut_through=True)), 4000)
    assert stored == 2 * DELAY + 2 * transmission_ps(sizes[0], RATE)
    assert cut == 2 * DELAY + transmission_ps(sizes[0], RATE) + transmission_ps(64, RATE)


def test_a_faster_port_is_fed_whole_packets() -> None:
    slow_up = {"link": Link(Rate(RATE // 4), Duration(DELAY)), "downlink": Downlink(Rate(RATE))}
    assert first_and_last(two_hosts(**slow_up, switch=Switch(cut_through=True)), 90_000) == first_and_last(
        two_hosts(**slow_up), 90_000
    )


def test_a_doorbell_delays_what_is_posted() -> None:
    plain, later = (first_and_last(two_hosts(host=Host(doorbell_latency=Duration(t))), 9000) for t in (0, 300 * NS))
    assert later == (plain[0] + 300 * NS, plain[1] + 300 * NS)


def test_doorbells_count_for_every_step_of_a_collective() -> None:
    """A ring all-reduce of 4 ranks has 6 steps, each of which is posted once."""
    ends = []
    for latency in (0, 10 * US):
        fabric = Fabric(
            topology=SingleSwitch(4),
            link=Link(Rate(RATE), Duration(DELAY)),
            host=Host(doorbell_latency=Duration(latency)),
        )
        ring = Lowering(algorithms={"all_reduce": "ring"})
        ends.append(run_native(twin_of(fabric), collective(Op.ALL_REDUCE, 4, 4096), ring).end_ps)
    assert abs(ends[1] - ends[0] - 6 * 10 * US) < 100 * NS


def test_late_notifications_let_the_queue_grow() -> None:
    queues = []
    for latency in (0, 100 * US):
        fabric = Fabric(
            topology=SingleSwitch(9),
            link=Link(Rate(RATE), Duration(US)),
            ecn=Ecn(minimum=Size(50_000), maximum=Size(200_000), probability=0.1),
            congestion=Dcqcn(),
            host=Host(notification_latency=Duration(latency)),
            transport=Transport(window_packets=4096),
        )
        result = twin_of(fabric).play(incast(8, 4 * MIB))
        queues.append(max(result.counters["links"]["longest_queue_bytes"]))
    assert queues[1] > 1.3 * queues[0]


def test_a_token_bucket_lets_bursts_pass_and_keeps_the_rate() -> None:
    """With tokens for all of it a message arrives at once; a longer one at the rate, less the burst."""
    rate, burst, size = GBPS, 256 << 10, 2 * MIB
    plain = Link(Rate(rate), Duration(DELAY))
    bucket = Link(Rate(rate), Duration(DELAY), burst=Size(burst))
    transport = Transport(window_packets=8192)
    _, short = first_and_last(two_hosts(link=bucket, transport=transport), 100_000)
    assert short == 2 * DELAY
    (_, last), (_, without) = (
        first_and_last(two_hosts(link=link, transport=transport), size) for link in (bucket, plain)
    )
    wire = sum(wire_bytes(size))
    # Both buckets in a row let the same burst pass; without, the largest packet counts on both links.
    assert abs(last - (transmission_ps(wire - burst, rate) + 2 * DELAY)) <= 2 * transmission_ps(4200, rate)
    assert last < without


def test_a_packet_waits_for_as_many_tokens_as_it_needs() -> None:
    """A full packet empties the bucket, and a short one behind it leaves when there are tokens for that."""
    rate = GBPS
    full, short = wire_bytes(4096 + 100)
    link, downlink = Link(Rate(0), Duration(DELAY)), Downlink(Rate(rate), burst=Size(full))
    times = first_and_last(two_hosts(link=link, downlink=downlink), 4096 + 100)
    assert times == (2 * DELAY, 2 * DELAY + transmission_ps(short, rate))


def test_a_host_waits_for_as_many_tokens_as_a_packet_needs() -> None:
    rate = GBPS
    full, short = wire_bytes(4096 + 100)
    link, downlink = Link(Rate(rate), Duration(DELAY), burst=Size(full)), Downlink(Rate(0))
    times = first_and_last(two_hosts(link=link, downlink=downlink), 4096 + 100)
    assert times == (2 * DELAY, 2 * DELAY + transmission_ps(short, rate))


def test_a_port_with_a_token_bucket_is_fed_whole_packets() -> None:
    """It sends a packet at once: the header alone must not set it going."""
    downlink = Downlink(Rate(RATE // 2), burst=Size(64 << 10))
    stored, cut = (two_hosts(switch=Switch(cut_through=c), downlink=downlink) for c in (False, True))
    assert first_and_last(cut, 4000) == first_and_last(stored, 4000)


def test_a_link_that_slows_down_feeds_no_switch_that_cuts_through() -> None:
    """It would run dry: the packet is stored and forwarded, as without."""
    slow = [Fault(at=Duration(0), link="host0->switch", rate=Rate(GBPS))]
    stored, cut = (first_and_last(two_hosts(switch=Switch(cut_through=c), fault=slow), 4000)[1] for c in (False, True))
    size = wire_bytes(4000)[0]
    assert stored == cut == 2 * DELAY + transmission_ps(size, GBPS) + transmission_ps(size, RATE)


def test_headers_of_trimmed_packets_find_room_where_data_has_none() -> None:
    """They go with the control packets, whose queue the data that fills the port's buffer is not in."""
    fabric = Fabric(
        topology=SingleSwitch(9),
        link=Link(Rate(RATE), Duration(DELAY)),
        priority=Priority(data=3, control=6),
        switch=Switch(buffer=Size(400 << 10), trimming=True),
        transport=Transport(recovery="selective-repeat", ack_timeout=Duration(1000 * US)),
    )
    result = twin_of(fabric).play(incast(8, 1_000_000))
    assert sum(result.counters["links"]["trimmed"]) > 0
    assert result.counters["dropped"] == 0
    assert result.timeline["end_ns"].max() < 1_000_000  # 0.64 ms at the line rate, and no timeout


@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_what_is_trimmed_is_asked_for_without_a_timeout(recovery: str) -> None:
    def played(trimming: bool) -> Any:
        fabric = Fabric(
            topology=SingleSwitch(5),
            link=Link(Rate(RATE), Duration(DELAY)),
            switch=Switch(buffer=Size(64 << 10), trimming=trimming),
            priority=Priority(data=3, control=6),
            transport=Transport(
                recovery=recovery,  # type: ignore[arg-type]
                ack_timeout=Duration(20_000 * US),
                window_packets=32,
            ),
        )
        return twin_of(fabric).play(incast(4, MIB))

    kept, dropped = played(True), played(False)
    assert sum(kept.counters["links"]["trimmed"]) > 0
    assert kept.counters["dropped"] == 0
    assert dropped.counters["dropped"] > 0
    # 4 MiB at 100 Gb/s take 340 us: nobody waited for a timeout of 20 ms
    assert kept.timeline["end_ns"].max() < 5_000_000
    assert kept.timeline["end_ns"].max() <= dropped.timeline["end_ns"].max()


@pytest.mark.parametrize(("data", "control"), [(1, 1), (3, 1), (1, 4), (20, 1)])
def test_weights_share_a_port_by_bytes(data: int, control: int) -> None:
    """Host 0 gets data, and acknowledgements of what it sends, by one slow downlink that both fill. Acknowledgements
    want a quarter of it: at 20 to 1 their weight alone decides when they are through."""
    slow, sent = RATE // 32, 512 << 10
    fabric = Fabric(
        topology=SingleSwitch(3),
        link=Link(Rate(RATE), Duration(DELAY)),
        downlink=Downlink(Rate(slow)),
        priority=Priority(data=3, control=6, data_weight=data, control_weight=control),
        transport=Transport(window_packets=100_000, mtu=256, ack_every_packets=1, ack_timeout=Duration(10**12)),
    )
    workload = Workload("both ways", 3, [Group("0", (0, 1, 2))], {})
    size = 16 * MIB
    sender, feeder, sink = RankBuilder(0), RankBuilder(1), RankBuilder(2)
    sender.add(0, "send", Kind.SEND, size_bytes=sent, peer=2, tag=0)
    sender.add(1, "recv", Kind.RECV, size_bytes=size, peer=1, tag=1)
    feeder.add(0, "send", Kind.SEND, size_bytes=size, peer=0, tag=1)
    sink.add(0, "recv", Kind.RECV, size_bytes=sent, peer=0, tag=0)
    for rank, builder in enumerate((sender, feeder, sink)):
        workload.ranks[rank], _ = builder.finish()
    fast_sink = twin_of(fabric)
    run = run_native(fast_sink, workload)
    acknowledged = int(run.records[0]["sends"]["acked_ps"][0])
    # The receiver's own downlink is as slow: acknowledgements come as data gets there, or as their share lets them.
    arrives = sum(wire_bytes(sent, 256)) * 8 * 10**12 / slow
    share = (sent // 256) * ACK_BYTES * 8 * 10**12 / (slow * control / (data + control))
    assert acknowledged == pytest.approx(max(arrives, share), rel=0.05)


def up_by_spine(fabric: Fabric, hosts: tuple[int, ...], seed: int = 1) -> list[int]:
    twin = twin_of(fabric, hosts=hosts, seed=seed)
    result = twin.play(collective(Op.BROADCAST, 2, MIB))
    names = twin.network.link_names
    return [result.counters["links"]["packets"][names.index(f"leaf0->spine{s}")] for s in range(4)]


def leaves(**more: Any) -> Fabric:
    return Fabric(
        topology=LeafSpine(leaves=2, spines=4, hosts_per_leaf=4), link=Link(Rate(RATE), Duration(DELAY)), **more
    )


def test_a_pinned_path_is_kept_to() -> None:
    for spine in range(4):
        for mode in ("ecmp", "spray"):
            fabric = leaves(
                path=[Path("host0", "host5", ("leaf0", f"spine{spine}", "leaf1"))],
                load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
            )
            packets = up_by_spine(fabric, (0, 5))
            assert packets[spine] == 256
            assert sum(packets) == 256


def test_source_ports_decide_the_path() -> None:
    """With ports by ranks paths do not depend on the seed; with one port for all only addresses differ."""
    by_rank = {
        tuple(up_by_spine(leaves(load_balancing=LoadBalancing(source_ports="pair")), (0, 5), s)) for s in range(6)
    }
    assert len(by_rank) == 1
    by_queue_pair = {tuple(up_by_spine(leaves(), (0, 5), seed)) for seed in range(12)}
    assert len(by_queue_pair) > 1
    ports = {
        tuple(up_by_spine(leaves(load_balancing=LoadBalancing(source_ports=str(port))), (0, 5)))
        for port in range(50_000, 50_012)
    }
    assert len(ports) > 1


def rails(pxn: bool) -> Fabric:
    domain = Domain(Rate(900 * GBPS), Duration(100 * NS), "switch", pxn)
    return Fabric(
        topology=RailOptimized(servers=2, rails=4, spines=2, domain=domain), link=Link(Rate(RATE), Duration(DELAY))
    )


def test_pxn_goes_through_the_domain_to_the_rail_of_the_receiver() -> None:
    """From accelerator 0 of server 0 to accelerator 3 of server 1 (host 7): no spine is passed."""

    def by_link(fabric: Fabric, hosts: tuple[int, int]) -> dict[str, int]:
        twin = twin_of(fabric, hosts=hosts)
        result = twin.play(collective(Op.BROADCAST, 2, MIB))
        counts = zip(twin.network.link_names, result.counters["links"]["packets"], strict=True)
        return {name: count for name, count in counts if count >= 256}

    plain, through = by_link(rails(False), (0, 7)), by_link(rails(True), (0, 7))
    assert any("spine" in name for name in plain)
    assert not any("spine" in name for name in through)
    assert through["rail3leaf0->port7"] == 256
    assert through["server0->port3"] == 256
    same_rail = by_link(rails(True), (0, 4))
    assert same_rail["port0->rail0leaf0"] == 256
    assert not any("server" in name or "spine" in name for name in same_rail)


def test_within_a_server_the_domain_is_used() -> None:
    for pxn in (False, True):
        end = run_native(twin_of(rails(pxn), hosts=(0, 1)), point_to_point(0, 1, 4000)).records[1]["receives"][
            "last_ps"
        ][0]
        assert int(end) == 2 * (100 * NS + transmission_ps(wire_bytes(4000)[0], 900 * GBPS))


HEAD = '[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n[link]\nrate = "100Gb/s"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[path]]\nsource = "leaf0"\ntarget = "host1"\nvia = []\n', '"leaf0" is not a host'),
        ('[[path]]\nsource = "host0"\ntarget = "host3"\nvia = ["leaf0", "spine7", "leaf1"]\n', '"spine7" is not a'),
        (
            '[[path]]\nsource = "host0"\ntarget = "host3"\nvia = ["leaf0", "leaf1"]\n',
            "no link leads from leaf0 to leaf1",
        ),
        ('[[path]]\nsource = "host0"\ntarget = "host0"\nvia = []\n', 'path[0].target = "host0" is the source too'),
        (
            '[[path]]\nsource = "host0"\ntarget = "host1"\nvia = ["leaf0"]\n' * 2,
            "path[1].source: path[0] leads from host0 to host1 already: leave one of them out",
        ),
        ("[priority]\ndata_weight = 3\n", "control_weight is missing: give both weights or none"),
        ("[priority]\ndata_weight = 3\ncontrol_weight = 1\n", "weights are for priorities that differ"),
        ('[load_balancing]\nsource_ports = "80"\n', "source ports '80': must be pair, nccl, a port"),
        ('[link.x]\nrate = "1Gb/s"\n', "x"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_place(text: str, says: str) -> None:
    with pytest.raises(FabricError) as told:
        parse_fabric(HEAD + text)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_a_queue_pair_keeps_to_its_rate() -> None:
    """And its port serves others meanwhile."""
    rate, size = 10 * GBPS, MIB
    fabric = Fabric(
        topology=SingleSwitch(3),
        link=Link(Rate(RATE), Duration(DELAY)),
        congestion=Window(window=Size(-1), rate=Rate(rate)),
    )
    _, last = first_and_last(two_hosts(congestion=fabric.congestion), size)
    sizes = wire_bytes(size)
    expected = transmission_ps(sum(sizes[:-1]), rate) + 2 * transmission_ps(sizes[-1], RATE) + 2 * DELAY
    assert last == pytest.approx(expected, rel=1e-6)
    both = run_native(
        twin_of(fabric), collective(Op.ALL_TO_ALL, 3, 3 * size), Lowering(algorithms={"all_to_all": "direct"})
    )
    assert both.end_ps < 1.2 * last
