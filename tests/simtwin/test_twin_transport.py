"""Queue pairs' configuration from the fabric: the line rate, and the rule for a loss."""

from __future__ import annotations

import pytest
from twin_fabrics import GBPS, single_switch, twin_of

from genie.config.congestion import CONTROLS, Dcqcn, Hpcc
from genie.config.units import Duration, Rate
from simtwin.fabric.schema import (
    Domain,
    Explicit,
    Fabric,
    Link,
    LoadBalancing,
    NamedHost,
    NamedLink,
    NamedSwitch,
    RailOptimized,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.fabric.transport import line_rate_bps, queue_pair_config
from simtwin.play.twin import SimulationError, Twin

NVLINK = Rate(3600 * GBPS)


@pytest.mark.parametrize(
    "domain",
    [None, Domain(NVLINK), Domain(NVLINK, kind="mesh"), Domain(NVLINK, pxn=True)],
    ids=["none", "switch", "mesh", "pxn"],
)
def test_congestion_control_starts_from_the_rate_of_the_port_to_the_network(domain: Domain | None) -> None:
    fabric = Fabric(
        topology=RailOptimized(servers=2, rails=2, spines=1, domain=domain, spine_link=Link(Rate(800 * GBPS))),
        link=Link(Rate(100 * GBPS), Duration(1000)),
        congestion=Dcqcn(),
    )
    assert twin_of(fabric)._config.congestion.line_rate_bps == 100 * GBPS


def by_name(*cables: NamedLink) -> Fabric:
    hosts, switches = [NamedHost("a"), NamedHost("b")], [NamedSwitch("s")]
    return Fabric(topology=Explicit(host=hosts, switch=switches, link=list(cables)))


def test_of_ports_that_differ_it_is_the_fastest() -> None:
    slow, fast = NamedLink("a", "s", rate=Rate(GBPS)), NamedLink("b", "s", rate=Rate(GBPS), rate_back=Rate(9 * GBPS))
    assert line_rate_bps(build_network(by_name(slow, fast))) == GBPS
    faster = NamedLink("b", "s", rate=Rate(4 * GBPS))
    assert line_rate_bps(build_network(by_name(slow, faster))) == 4 * GBPS


def test_hosts_that_only_have_each_other_start_from_their_cable() -> None:
    assert line_rate_bps(build_network(by_name(NamedLink("a", "b", rate=Rate(7 * GBPS))))) == 7 * GBPS


def test_ports_without_a_limit_start_from_what_soft_nics_do() -> None:
    assert twin_of(single_switch(2, 0, congestion="dcqcn"))._config.congestion.line_rate_bps == 100 * GBPS


@pytest.mark.parametrize("kind", [kind for kind in CONTROLS if kind not in ("none", "window", "hpcc")])
def test_no_least_rate_is_above_the_ports(kind: str) -> None:
    """Those of the defaults are for fast ports."""
    congestion = twin_of(single_switch(2, 10**6, congestion=kind))._config.congestion
    assert getattr(getattr(congestion, kind.replace("-", "_")), "minimum_rate_bps", 0) <= 10**6


@pytest.mark.parametrize(("window", "expected"), [(1, 0), (2, 1), (4, 1), (64, 16), (256, 64), (None, 64), (4096, 64)])
def test_fewer_make_a_loss_than_a_window_has(window: int | None, expected: int) -> None:
    transport = Transport(window_packets=window)
    fabric = single_switch(2)
    sprayed = Fabric(
        topology=fabric.topology, link=fabric.link, transport=transport, load_balancing=LoadBalancing(mode="spray")
    )
    assert queue_pair_config(sprayed).reordering_packets == expected
    selective = single_switch(2, window_packets=window, recovery="selective-repeat")
    assert queue_pair_config(selective).reordering_packets == expected
    assert queue_pair_config(single_switch(2, window_packets=window)).reordering_packets == 0


def test_a_control_that_an_option_asks_for_is_checked_too() -> None:
    with pytest.raises(SimulationError, match=r"transport\.congestion = hpcc asks how much of their rate ports use"):
        twin_of(single_switch(2, downlink_bps=0, congestion="hpcc"))


def test_hpcc_plays_on_one_thread_whatever_is_asked_for() -> None:
    for control, expected in ((Hpcc(), 1), (Dcqcn(), 2)):
        fabric = single_switch(4)
        fabric = Fabric(topology=fabric.topology, link=fabric.link, congestion=control)
        assert Twin(fabric, build_network(fabric), range(4), threads=2).threads == expected
