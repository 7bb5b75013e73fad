"""Servers of a fabric: their ranks, the rate inside, and the GPU that is taken where none is named."""

from __future__ import annotations

from typing import Any

import pytest

import simtwin
from genie.config.units import Duration, Rate
from simtwin.fabric.placement import ranks_per_server, scale_up_bps
from simtwin.fabric.schema import Domain, Explicit, Fabric, LeafSpine, Link, NamedHost, NamedLink, NamedSwitch, Server
from simtwin.fabric.schema import RailOptimized as Rails
from simtwin.fabric.topology import build_network

GBPS = 10**9
LINK = Link(Rate(400 * GBPS), Duration(500_000))
DOMAIN = Domain(Rate(3600 * GBPS))


def explicit() -> Explicit:
    """Two servers of two hosts, each with an NVSwitch, a cable between the hosts, and one NIC for both."""
    hosts = [NamedHost(f"gpu{number}") for number in range(4)]
    switches = [NamedSwitch("leaf")]
    links = []
    for server in range(2):
        switches += [NamedSwitch(f"nvswitch{server}", bridge=True), NamedSwitch(f"nic{server}", bridge=True)]
        one, other = (f"gpu{2 * server + at}" for at in range(2))
        links += [NamedLink(host, f"nvswitch{server}", Rate(900 * GBPS)) for host in (one, other)]
        links += [NamedLink(host, f"nic{server}", Rate(200 * GBPS)) for host in (one, other)]
        links += [NamedLink(one, other, Rate(100 * GBPS)), NamedLink(f"nic{server}", "leaf", Rate(400 * GBPS))]
    return Explicit(hosts_per_server=2, host=hosts, switch=switches, link=links)


@pytest.mark.parametrize(
    ("topology", "ranks", "rate_gbps"),
    [
        (Rails(servers=2, rails=4, spines=1, domain=DOMAIN), 4, 3600),
        (Rails(servers=2, rails=4, spines=1, domain=Domain(Rate(100 * GBPS), kind="mesh")), 4, 300),
        (Rails(servers=2, rails=4, spines=1), 4, 0),  # of the GPU's own links
        (LeafSpine(2, 2, 4, hosts_per_server=2, domain=DOMAIN), 2, 3600),
        (explicit(), 2, 1000),  # without the cable to the NIC
    ],
)
def test_ranks_of_a_server_and_the_rate_among_them(topology: Any, ranks: int, rate_gbps: int) -> None:
    fabric = Fabric(topology=topology, link=LINK)
    assert ranks_per_server(fabric) == ranks
    assert scale_up_bps(fabric, build_network(fabric), ranks) == rate_gbps * GBPS


def test_rails_are_servers_unless_gpus_take_no_time() -> None:
    rails = Rails(servers=2, rails=4, spines=1)
    assert ranks_per_server(Fabric(topology=rails, link=LINK)) == 4
    assert ranks_per_server(Fabric(topology=rails, link=LINK, server=Server("h100"))) == 4
    assert ranks_per_server(Fabric(topology=rails, link=LINK), "none") == 1
    assert ranks_per_server(Fabric(topology=rails, link=LINK, server=Server("none"))) == 1


def played(fabric: simtwin.Fabric, **options: Any) -> simtwin.Simulated:
    workload = simtwin.collective(fabric, "all_reduce", "1MiB", ranks=4)  # inside the first server
    return simtwin.simulate(fabric, workload, level="analytic", **options)


def test_servers_have_gpus_by_default_and_say_so() -> None:
    domain = {"rate": "3600Gb/s"}
    fabric = simtwin.Fabric.make(
        topology={"kind": "rail-optimized", "servers": 2, "rails": 4, "spines": 1, "domain": domain},
        link={"rate": "400Gb/s", "delay": "500ns"},
    )
    by_default = played(fabric)
    assert by_default.info["warnings"] == [
        "no GPU is named: the 4 GPUs of a server are taken to be h100, with 450 GB/s to each other: give gpu, or "
        "gpu none"
    ]
    assert by_default.completion_s == played(fabric, gpu="h100").completion_s > 0
    assert played(fabric, gpu="h100").info["warnings"] == []
    left_out = played(fabric, gpu="none")
    assert left_out.completion_s == 0
    assert "1 of 1 collectives stay within servers and take no time" in left_out.info["warnings"][0]
