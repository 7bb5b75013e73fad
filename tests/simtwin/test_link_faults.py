"""Links that fail, slow down and come back, and how paths follow."""

from __future__ import annotations

from typing import Any

import genie_core
import numpy as np
import pytest
from twin_fabrics import GBPS, NS, US, incast, run_native, transmission_ps, twin_of, wire_bytes

from genie.config.units import Duration, Rate, Size
from genie.plan.build import build_plan
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.faults import Change, changes_of
from simtwin.fabric.reading import FabricError, parse_fabric
from simtwin.fabric.schema import (
    Downlink,
    DualPlane,
    Fabric,
    Fault,
    LeafSpine,
    Link,
    LoadBalancing,
    Path,
    Pfc,
    Routing,
    SingleSwitch,
    Switch,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.play.twin import SimulationError

MIB = 1 << 20
MS = 1000 * US
TRANSPORT = Transport(ack_timeout=Duration(200 * US))


def after(time_ps: int, **what: Any) -> Fault:
    return Fault(at=Duration(time_ps), **what)


def leaves(*faults: Fault, delay_ps: int = 20 * US, **more: Any) -> Fabric:
    """Two leaves with two hosts each, two spines."""
    return Fabric(
        topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=2),
        link=Link(Rate(100 * GBPS), Duration(US)),
        fault=list(faults),
        routing=Routing(Duration(delay_ps)),
        **{"transport": TRANSPORT, **more},
    )


def spine_used(fabric: Fabric) -> int:
    """By the connection from host 0 to host 3 while nothing is wrong."""
    twin = twin_of(fabric, hosts=(0, 3))
    result = twin.play(collective(Op.BROADCAST, 2, 4096))
    names = twin.network.link_names
    return int(np.argmax([result.counters["links"]["packets"][names.index(f"leaf0->spine{s}")] for s in (0, 1)]))


def packets_by_spine(fabric: Fabric, size_bytes: int = 8 * MIB) -> tuple[list[int], Any]:
    twin = twin_of(fabric, hosts=(0, 3))
    result = twin.play(collective(Op.BROADCAST, 2, size_bytes))
    names = twin.network.link_names
    return [result.counters["links"]["packets"][names.index(f"leaf0->spine{s}")] for s in (0, 1)], result


def test_a_flow_goes_around_a_link_that_fails() -> None:
    used = spine_used(leaves())
    before, whole = packets_by_spine(leaves())
    fabric = leaves(after(200 * US, cable=("leaf0", f"spine{used}")))
    packets, result = packets_by_spine(fabric)
    assert before[1 - used] == 0
    assert packets[used] > 0
    assert packets[1 - used] > 0
    assert sum(packets) > 2048  # the lost packets were sent again
    assert result.counters["dropped"] > 0
    slower = result.timeline["end_ns"].max() - whole.timeline["end_ns"].max()
    assert 20_000 < slower < 1_000_000  # the rerouting, and a timeout


def test_nobody_sends_by_a_link_that_is_down_once_paths_are_found_anew() -> None:
    used = spine_used(leaves())
    packets, result = packets_by_spine(leaves(after(0, switch=f"spine{used}"), delay_ps=0))
    assert packets[used] == 0
    assert result.counters["dropped"] == 0


def test_until_paths_are_found_anew_packets_are_lost() -> None:
    used = spine_used(leaves())
    lost = []
    for delay_ps in (10 * US, 60 * US):
        _, result = packets_by_spine(leaves(after(200 * US, cable=("leaf0", f"spine{used}")), delay_ps=delay_ps))
        lost.append(result.counters["dropped"])
    # at 100 Gb/s 12 packets of 4 KiB leave in 4 us, as long as the window lets them
    assert 0 < lost[0] < lost[1]


def test_paths_come_back_with_a_link() -> None:
    used = spine_used(leaves())
    fault = Fault(at=Duration(100 * US), until=Duration(300 * US), cable=("leaf0", f"spine{used}"))
    packets, _ = packets_by_spine(leaves(fault), 16 * MIB)
    whole, _ = packets_by_spine(leaves(after(100 * US, cable=("leaf0", f"spine{used}"))), 16 * MIB)
    assert whole[used] < packets[used]


@pytest.mark.parametrize("rate_gbps", [10, 50])
def test_a_link_that_slows_down_takes_its_time(rate_gbps: int) -> None:
    """One flow, a window that fills the link: the rest of it goes at the rate that is left."""
    size, at = 4 * MIB, 100 * US
    fabric = Fabric(
        topology=SingleSwitch(2),
        link=Link(Rate(100 * GBPS), Duration(500 * NS)),
        fault=[after(at, link="switch->host1", rate=Rate(rate_gbps * GBPS))],
        transport=Transport(window_packets=8192),
    )
    run = run_native(twin_of(fabric), point_to_point(0, 1, size))
    last = int(run.records[1]["receives"]["last_ps"][0])
    sizes = wire_bytes(size)
    # Until the change packets have left the switch at the first rate, from then on at the other.
    first = 2 * 500 * NS + transmission_ps(sizes[0], 100 * GBPS)
    done = (at - (first - 500 * NS)) // transmission_ps(sizes[1], 100 * GBPS)
    rest = sum(sizes[int(done) :]) * 8 * 10**12 // (rate_gbps * GBPS)
    assert abs(last - (at + rest)) < 2 * transmission_ps(sizes[0], rate_gbps * GBPS) + US


def test_a_link_with_nothing_to_go_around_by_is_named() -> None:
    fabric = leaves(after(100 * US, cable=("leaf1", "host3")), transport=Transport(ack_timeout=Duration(50 * US)))
    with pytest.raises(SimulationError) as told:
        packets_by_spine(fabric)
    says = str(told.value)
    assert "leaf1->host3 is down since 100us, and no other path is left; " in says
    assert "rank 0 gave up sending to rank 1" in says
    assert "\n" not in says


def test_a_path_that_is_pinned_to_a_link_that_is_down_is_named() -> None:
    fabric = leaves(
        after(100 * US, link="leaf0->spine0"),
        transport=Transport(ack_timeout=Duration(50 * US)),
        path=[Path("host0", "host3", ("leaf0", "spine0", "leaf1"))],
    )
    with pytest.raises(SimulationError) as told:
        packets_by_spine(fabric)
    says = "leaf0->spine0 is down since 100us, and the [[path]] from host0 to host3 is pinned to it; "
    assert str(told.value).startswith(says)


def test_a_link_that_will_be_down_again_is_down_since_the_last_time() -> None:
    cable = ("leaf1", "host3")
    faults = [Fault(at=Duration(at * MS), until=Duration((at + 20) * MS), cable=cable) for at in (0, 50)]
    fabric = leaves(*faults, transport=Transport(ack_timeout=Duration(10 * US), retry_limit=1))
    with pytest.raises(SimulationError, match="leaf1->host3 is down since 0ns, and no other path"):
        packets_by_spine(fabric)


def test_a_link_that_comes_back_in_time_is_waited_for() -> None:
    fault = Fault(at=Duration(100 * US), until=Duration(400 * US), cable=("leaf1", "host3"))
    packets, result = packets_by_spine(leaves(fault))
    assert sum(packets) > 2048
    assert result.counters["dropped"] > 0


def test_a_host_moves_to_its_other_port() -> None:
    """Two planes: with a port of the host down, its connections go by the other plane."""

    def by_plane(*faults: Fault) -> tuple[list[int], Any]:
        fabric = Fabric(
            topology=DualPlane(leaves=2, spines=2, hosts_per_leaf=2),
            link=Link(Rate(100 * GBPS), Duration(US)),
            fault=list(faults),
            routing=Routing(Duration(10 * US)),
            transport=TRANSPORT,
        )
        twin = twin_of(fabric, hosts=(0, 3))
        result = twin.play(collective(Op.BROADCAST, 2, 8 * MIB))
        names = twin.network.link_names
        return [result.counters["links"]["packets"][names.index(f"host0->plane{p}leaf0")] for p in (0, 1)], result

    before, _ = by_plane()
    used = int(np.argmax(before))
    assert before[1 - used] == 0
    packets, _ = by_plane(after(200 * US, cable=("host0", f"plane{used}leaf0")))
    assert packets[used] > 100
    assert packets[1 - used] > 1000


@pytest.mark.parametrize("mode", ["spray", "adaptive", "round-robin", "flowlet"])
def test_sprayed_packets_keep_away_from_what_is_down(mode: str) -> None:
    fabric = leaves(
        after(100 * US, switch="spine0"),
        load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
    )
    packets, result = packets_by_spine(fabric)
    assert sum(packets) >= 2048
    assert packets[1] > packets[0]
    assert result.counters["dropped"] < 200


def test_pauses_end_with_the_cable_that_they_came_by() -> None:
    """A lossless incast, of which one sender's cable fails and comes back: all ends, nothing stays paused."""
    fabric = Fabric(
        topology=SingleSwitch(5),
        link=Link(Rate(100 * GBPS), Duration(US)),
        switch=Switch(shared_buffer=Size(MIB // 2)),
        pfc=Pfc(),
        fault=[Fault(at=Duration(50 * US), until=Duration(120 * US), cable=("host0", "switch"))],
        transport=TRANSPORT,
    )
    result = twin_of(fabric).play(incast(4, 4 * MIB))
    assert sum(result.counters["links"]["pauses"]) > 0
    assert result.counters["dropped"] > 0


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_faults_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    fabric = leaves(
        Fault(at=Duration(30 * US), until=Duration(130 * US), switch="spine0"),
        after(50 * US, link="spine1->leaf1", rate=Rate(20 * GBPS)),
    )

    def played(count: int) -> list[Any]:
        twin = twin_of(fabric)
        plan = build_plan(collective(Op.ALL_TO_ALL, 4, 4 * MIB))
        simulator = genie_core.Simulator(
            twin._native, twin._config, plan.native, twin.host_of_rank, twin.seed, threads=count
        )
        simulator.start()
        while simulator.run(1000):
            pass
        assert simulator.done, simulator.problems()
        links = simulator.links()
        times = [simulator.records(rank)["nodes"]["end_ps"].tolist() for rank in plan.ranks]
        return [simulator.events, times, {name: links[name].tolist() for name in links}]

    assert played(1) == played(threads)


def test_changes_are_in_the_order_of_time_and_the_worst_fault_holds() -> None:
    fabric = leaves(
        Fault(at=Duration(10 * US), until=Duration(40 * US), link="leaf0->spine0", rate=Rate(50 * GBPS)),
        Fault(at=Duration(20 * US), until=Duration(60 * US), link="leaf0->spine0", rate=Rate(10 * GBPS)),
        Fault(at=Duration(30 * US), until=Duration(50 * US), link="leaf0->spine0"),
        delay_ps=5 * US,
    )
    network = build_network(fabric)
    link = network.link_names.index("leaf0->spine0")
    changes, routes = changes_of(fabric, network)
    assert changes == [
        Change(10 * US, "rate", link, 50 * GBPS),
        Change(20 * US, "rate", link, 10 * GBPS),
        Change(30 * US, "down", link),
        Change(35 * US, "routes", 1),
        Change(50 * US, "up", link),
        Change(50 * US, "rate", link, 10 * GBPS),
        Change(55 * US, "routes", 0),
        Change(60 * US, "rate", link, 100 * GBPS),
    ]
    assert [any(link in table.hops.to(group) for group in range(table.groups)) for table in routes] == [False]


HEAD = '[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n[link]\nrate = "100Gb/s"\n'


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[[fault]]\nat = "1us"\n', 9, "give one of link, cable and switch"),
        (
            '[[fault]]\nat = "1us"\nlink = "leaf0->spine0"\nswitch = "spine0"\n',
            11,
            "give one of link, cable and switch",
        ),
        ('[[fault]]\nat = "1us"\nlink = "leaf0-spine0"\n', 10, '"leaf0-spine0" is not a link: give one such as "host'),
        ('[[fault]]\nat = "1us"\ncable = ["leaf0", "leaf1"]\n', 10, "no cable joins these two"),
        ('[[fault]]\nat = "1us"\nswitch = "host0"\n', 10, '"host0" is not a switch'),
        ('[[fault]]\nat = "5us"\nuntil = "5us"\nswitch = "spine0"\n', 10, "until is not after at"),
        ('[[fault]]\nat = "5us"\nswitch = "spine0"\nrate = "200Gb/s"\n', 11, "rate is above that of leaf0->spine0"),
        ('[[fault]]\nat = "5us"\nswitch = "spine0"\nrate = "0Gb/s"\n', 11, "a rate above 0"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_place(text: str, line: int, says: str) -> None:
    with pytest.raises(FabricError) as told:
        parse_fabric(HEAD + text)
    assert says in str(told.value)
    assert f"line {line}" in str(told.value) or f":{line}:" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("link", ["switch->host0", "host0->switch"])
@pytest.mark.parametrize("start_us", range(30, 130, 10))
def test_pauses_do_not_outlive_the_cable_by_which_they_are_said(start_us: int, link: str) -> None:
    """The switch cannot end host 0's pauses while the link to it is down, and forgets them while the link from it is.

    Afterwards the traffic goes on.
    """
    fabric = Fabric(
        topology=SingleSwitch(5),
        link=Link(Rate(100 * GBPS), Duration(US)),
        switch=Switch(shared_buffer=Size(MIB // 2)),
        pfc=Pfc(),
        fault=[after(start_us * US, until=Duration((start_us + 20) * US), link=link)],
        transport=Transport(window_packets=1000, ack_timeout=Duration(200 * US)),
    )
    result = twin_of(fabric).play(incast(4, 2 * MIB))
    assert sum(result.counters["links"]["pauses"]) > 0
    assert result.timeline["end_ns"].max() < 3_000_000  # 0.7 ms at the line rate, and a few timeouts


def test_a_fault_on_an_idle_link_changes_nothing() -> None:
    """Links without delay: all of the network is one process, whose events a fault must leave alone."""

    def ends(*faults: Fault) -> list[int]:
        fabric = Fabric(topology=SingleSwitch(6), link=Link(Rate(400 * GBPS)), fault=list(faults))
        twin = twin_of(fabric, ranks=4)
        return list(twin.play(collective(Op.ALL_TO_ALL, 4, MIB)).timeline["end_ns"])

    for host in (4, 5):
        assert ends(after(5 * US, until=Duration(6 * US), link=f"host{host}->switch")) == ends()


@pytest.mark.parametrize(
    ("at_host", "rate_bps"), [(True, GBPS // 2), (False, GBPS // 2), (False, GBPS // 10), (False, GBPS // 1000)]
)
def test_a_slow_spell_costs_a_token_bucket_no_more_than_the_spell(at_host: bool, rate_bps: int) -> None:
    """The bucket keeps its tokens, and what it lacks comes at the rate of the time."""

    def end_ns(*faults: Fault) -> int:
        slow, fast = Link(Rate(GBPS), Duration(US), burst=Size(500_000)), Link(Rate(0), Duration(US))
        fabric = Fabric(
            topology=SingleSwitch(2),
            link=slow if at_host else fast,
            downlink=Downlink(Rate(0)) if at_host else Downlink(slow.rate, burst=slow.burst),
            fault=list(faults),
        )
        return int(twin_of(fabric).play(point_to_point(0, 1, 2_000_000)).timeline["end_ns"].max())

    name = "host0->switch" if at_host else "switch->host1"
    spell = after(MS, until=Duration(2 * MS), link=name, rate=Rate(rate_bps))
    lost_ns = 1_000_000 * (1 - rate_bps / GBPS)
    packet_ns = 4200 * 8 * (GBPS / rate_bps if at_host else 1)  # a host's packet has begun to wait at one rate
    assert end_ns(spell) - end_ns() == pytest.approx(lost_ns, abs=2 * packet_ns)


def test_a_dead_way_back_is_named() -> None:
    fabric = Fabric(
        topology=SingleSwitch(2),
        link=Link(Rate(100 * GBPS), Duration(US)),
        transport=Transport(ack_timeout=Duration(50 * US)),
        fault=[after(10 * US, link="switch->host0")],
    )
    with pytest.raises(SimulationError, match="switch->host0 is down since 10us"):
        twin_of(fabric).play(point_to_point(0, 1, MIB))


def test_a_workload_that_is_over_before_the_fault_does_not_mind_it() -> None:
    workload: Workload = collective(Op.BROADCAST, 2, 4096)
    twin = twin_of(leaves(after(10 * MS, cable=("leaf1", "host3"))), hosts=(0, 3))
    assert twin.play(workload).counters["dropped"] == 0
