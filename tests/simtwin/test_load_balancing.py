"""How switches share equally short ways, and receivers that take packets out of order."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from twin_fabrics import GBPS, US, incast, to_other_leaf, twin_of

from genie.config.congestion import Hpcc
from genie.config.units import Duration, Rate, Size
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.schema import (
    Ecn,
    Explicit,
    Fabric,
    LeafSpine,
    Link,
    LoadBalancing,
    NamedHost,
    NamedLink,
    NamedSwitch,
    Transport,
)
from simtwin.play.twin import Loss, Simulation

MIB = 1 << 20
SPINES = 4


def two_leaves(mode: str, **transport: Any) -> Fabric:
    return Fabric(
        topology=LeafSpine(leaves=2, spines=SPINES, hosts_per_leaf=2),
        link=Link(Rate(100 * GBPS), Duration(US)),
        load_balancing=LoadBalancing(mode=mode, flowlet_gap=Duration(20 * US)),  # type: ignore[arg-type]
        transport=Transport(ack_timeout=Duration(10**9), **transport),
    )


def test_a_connection_keeps_its_path() -> None:
    _, packets = to_other_leaf(two_leaves("ecmp"))
    assert sorted(packets) == [0, 0, 0, 1024]


@pytest.mark.parametrize("mode", ["spray", "round-robin", "adaptive"])
def test_packets_of_one_flow_take_all_ways(mode: str) -> None:
    result, packets = to_other_leaf(two_leaves(mode))
    assert packets.sum() == 1024  # none was sent again: receivers keep what comes early
    if mode == "round-robin":
        assert set(packets) == {256}
    else:
        assert (abs(packets - 256) < 5 * np.sqrt(256)).all()
    assert result.counters["dropped"] == 0


def test_flowlets_move_after_a_gap_and_not_before() -> None:
    _, packets = to_other_leaf(two_leaves("flowlet"))
    assert sorted(packets) == [0, 0, 0, 1024]
    slow = two_leaves("flowlet", window_packets=1, ack_every_packets=1)
    far = Fabric(
        topology=slow.topology,
        link=Link(Rate(100 * GBPS), Duration(10 * US)),
        load_balancing=slow.load_balancing,
        transport=slow.transport,
    )
    _, packets = to_other_leaf(far, MIB)
    assert (packets > 30).all()  # each packet is a flowlet: a round trip takes 80 us


def test_adaptive_keeps_away_from_a_slow_spine() -> None:
    def packets(mode: str) -> np.ndarray:
        leaves, spines = ("a", "b"), ("s0", "s1", "s2", "s3")
        cables = [NamedLink("h0", "a"), NamedLink("h1", "b")]
        rates = {spine: Rate((10 if spine == "s0" else 100) * GBPS) for spine in spines}
        cables += [NamedLink(leaf, spine, rate=rates[spine]) for leaf in leaves for spine in spines]
        fabric = Fabric(
            topology=Explicit(
                host=[NamedHost("h0"), NamedHost("h1")],
                switch=[NamedSwitch(name) for name in (*leaves, *spines)],
                link=cables,
            ),
            link=Link(Rate(100 * GBPS), Duration(US)),
            load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
            transport=Transport(ack_timeout=Duration(10**9), reordering_packets=4096),
        )
        twin = twin_of(fabric)
        result = twin.play(collective(Op.BROADCAST, 2, 4 * MIB))
        return np.array([result.counters["links"]["packets"][twin.network.link_names.index(f"a->{s}")] for s in spines])

    sprayed, adaptive = packets("spray"), packets("adaptive")
    assert sprayed[0] > 200
    assert adaptive[0] < 120
    assert adaptive.sum() == sprayed.sum() == 1024


def across(mode: str, **transport: Any) -> Simulation:
    """A ring each step of which goes to another leaf: all flows meet at the spines, whose queues differ."""
    fabric = Fabric(
        topology=LeafSpine(leaves=4, spines=4, hosts_per_leaf=4),
        link=Link(Rate(100 * GBPS), Duration(US)),
        load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
        transport=Transport(**transport),
    )
    order = [rank % 4 * 4 + rank // 4 for rank in range(16)]
    return twin_of(fabric, hosts=order).play(collective(Op.ALL_REDUCE, 16, 4 * MIB))


@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_sprayed_packets_come_out_of_order_and_none_is_sent_again(recovery: str) -> None:
    """By default: what overtakes is kept, and less overtakes than makes a loss."""
    assert across("spray", recovery=recovery).transfers["retransmits"].sum() == 0


def test_without_room_for_what_comes_early_spraying_sends_again() -> None:
    """So the test above can fail."""
    assert across("spray", reordering_packets=0).transfers["retransmits"].sum() > 1000
    assert across("ecmp", reordering_packets=0).transfers["retransmits"].sum() == 0


@pytest.mark.parametrize("control", ["none", "window", "hpcc", "nscc", "swift", "dctcp"])
@pytest.mark.parametrize(
    ("mode", "recovery"),
    [
        ("ecmp", "selective-repeat"),
        ("spray", "selective-repeat"),
        ("round-robin", "go-back-n"),
        ("adaptive", "go-back-n"),
    ],
)
def test_a_loss_is_noticed_long_before_the_timeout(mode: str, recovery: str, control: str) -> None:
    """By default, also where packets may come out of order: within a round trip and the packets that make a loss."""
    fabric = Fabric(
        topology=LeafSpine(leaves=2, spines=SPINES, hosts_per_leaf=2),
        link=Link(Rate(100 * GBPS), Duration(US)),
        load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
        transport=Transport(recovery=recovery, congestion=control),  # type: ignore[arg-type]
        ecn=Ecn(minimum=Size(400_000), maximum=Size(400_000)),
    )
    whole, _ = to_other_leaf(fabric)
    result, _ = to_other_leaf(fabric, losses=[Loss(0, 1, numbers=(100, 500))])
    assert 2 <= result.transfers["retransmits"].sum() < 600
    assert result.transfers["acked_ns"].max() < whole.transfers["acked_ns"].max() + 300_000


@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_a_lost_packet_is_sent_again_alone_or_with_all_after_it(recovery: str) -> None:
    numbers = (100, 300, 301, 302, 900)
    fabric = two_leaves("ecmp", recovery=recovery, reordering_packets=0 if recovery == "go-back-n" else 8)
    losses = [Loss(0, 1, numbers=numbers)]
    result, packets = to_other_leaf(fabric, losses=losses)
    again = int(result.transfers["retransmits"].sum())
    if recovery == "selective-repeat":
        assert again == len(numbers)
    else:
        assert again > 5 * len(numbers)
    assert packets.sum() == 1024 + again - len(numbers)


def test_incasts_end_under_every_balance() -> None:
    for mode in ("ecmp", "flowlet", "spray", "round-robin", "adaptive"):
        fabric = Fabric(
            topology=LeafSpine(leaves=4, spines=4, hosts_per_leaf=4),
            link=Link(Rate(100 * GBPS), Duration(US)),
            load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
        )
        result = twin_of(fabric).play(incast(15, MIB))
        least_ns = 15 * MIB * 8 / 100
        assert least_ns < result.transfers["acked_ns"].max() < 1.1 * least_ns, mode


@pytest.mark.parametrize("mode", ["spray", "round-robin", "adaptive"])
def test_all_of_many_ways_are_used(mode: str) -> None:
    fabric = Fabric(
        topology=LeafSpine(leaves=2, spines=100, hosts_per_leaf=1),
        link=Link(Rate(100 * GBPS), Duration(US)),
        load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
    )
    twin = twin_of(fabric, hosts=(0, 1))
    result = twin.play(collective(Op.BROADCAST, 2, 16 * MIB))
    up = [link for link, name in enumerate(twin.network.link_names) if name.startswith("leaf0->spine")]
    assert sum(result.counters["links"]["packets"][link] > 0 for link in up) == 100


@pytest.mark.parametrize("mode", ["spray", "round-robin", "adaptive"])
def test_hpcc_compares_a_port_with_itself(mode: str) -> None:
    """Utilisation of another path's ports does not apply to this path: alone, a flow keeps nearly its rate."""
    ends = {}
    for name in ("ecmp", mode):
        fabric = msgspec.structs.replace(two_leaves(name, ack_every_packets=1), congestion=Hpcc())
        ends[name] = to_other_leaf(fabric, 16 * MIB)[0].timeline["end_ns"].max()
    assert ends[mode] < 1.1 * ends["ecmp"]


@pytest.mark.parametrize("mode", ["ecmp", "spray", "round-robin", "adaptive"])
def test_hpcc_hears_of_a_full_port_by_every_path(mode: str) -> None:
    """The last port is common to all: an incast's queue there stays far below what the windows would fill."""

    def longest_bytes(name: str) -> int:
        fabric = Fabric(
            topology=LeafSpine(leaves=3, spines=SPINES, hosts_per_leaf=4),
            link=Link(Rate(100 * GBPS), Duration(US)),
            load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
            transport=Transport(congestion=name, ack_every_packets=1),  # type: ignore[arg-type]
        )
        result = twin_of(fabric, ranks=9).play(incast(8, 4 * MIB))
        assert result.counters["dropped"] == 0
        assert result.timeline["end_ns"].max() < 1.3 * 8 * 4 * MIB * 8 / 100
        return max(result.counters["links"]["longest_queue_bytes"])

    assert longest_bytes("hpcc") < longest_bytes("none") / 4


def test_loads_are_even_where_packets_are_sprayed() -> None:
    """An all-to-all of two leaves: all links between leaf and spine carry as much within 5 %."""
    fabric = two_leaves("round-robin")
    twin = twin_of(fabric)
    result = twin.play(collective(Op.ALL_TO_ALL, 4, 16 * MIB))
    carried = [
        result.counters["links"]["size_bytes"][number]
        for number, name in enumerate(twin.network.link_names)
        if name.startswith("leaf") and "spine" in name
    ]
    assert max(carried) < 1.05 * min(carried)
