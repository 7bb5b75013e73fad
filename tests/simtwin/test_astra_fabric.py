"""ASTRA-sim's networks as fabrics: who is joined with whom, how fast, and that the twin plays them."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.workload.load import load
from simtwin.fabric.reading import parse_fabric, to_toml
from simtwin.fabric.schema import Explicit, Fabric, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.imports.astra.fabric import fabric_of, read_fabric
from simtwin.imports.astra.files import AstraError
from simtwin.imports.astra.network import Dimension, Network
from simtwin.play.twin import Twin

RATE_BPS = 50 * 2**30 * 8
KINDS = ("Ring", "Switch", "FullyConnected")


def network_of(kind: str, *npus: int) -> Network:
    return Network(tuple(Dimension(kind, n, 50.0, 500.0) for n in npus))  # type: ignore[arg-type]


def cables(fabric: Fabric) -> Counter[tuple[str, str]]:
    assert isinstance(fabric.topology, Explicit)
    return Counter((link.a, link.b) for link in fabric.topology.link)


def delays_ps(fabric: Fabric) -> np.ndarray:
    """(hosts, hosts) delays of the fastest paths."""
    network = build_network(fabric)
    graph = nx.DiGraph()
    for source, target, delay in zip(network.src_node, network.dst_node, network.delay_ps, strict=True):
        graph.add_edge(int(source), int(target), weight=int(delay))
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    return np.array([[lengths[a][b] for b in range(network.hosts)] for a in range(network.hosts)])


def test_a_switch_is_a_switch(shared_data: Path) -> None:
    path = shared_data / "astra-sim" / "config" / "network" / "Switch_8npus.yml"
    fabric, notes = read_fabric(path)
    assert fabric.name == "Switch_8npus"
    assert fabric.topology == SingleSwitch(8)
    assert fabric.link is not None
    assert (fabric.link.rate, fabric.link.delay) == (RATE_BPS, 500_000)
    assert notes == (f"{path}: bandwidth: a GB is 2^30 bytes: 429.497 Gb/s",)


@pytest.mark.parametrize(
    ("kind", "npus", "joined"),
    [
        ("Ring", 4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
        ("Ring", 2, [(0, 1)]),
        ("FullyConnected", 4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    ],
)
def test_routers_are_joined_and_hosts_hang_on_them(kind: str, npus: int, joined: list[tuple[int, int]]) -> None:
    fabric = fabric_of(network_of(kind, npus))
    expected = [(f"host{npu}", f"router{npu}") for npu in range(npus)]
    assert cables(fabric) == Counter(expected + [(f"router{a}", f"router{b}") for a, b in joined])
    assert isinstance(fabric.topology, Explicit)
    own = fabric.topology.link[:npus]
    assert {(link.rate, link.delay) for link in own} == {(0, 0)}
    assert {(link.rate, link.delay) for link in fabric.topology.link[npus:]} == {(RATE_BPS, 500_000)}


def test_dimensions_are_rings_and_switches_across_each_other(shared_data: Path) -> None:
    fabric, notes = read_fabric(shared_data / "astra-sim" / "config" / "network" / "RingSwitch_4x4.yml")
    found = cables(fabric)
    assert fabric.hosts == 16
    assert len(found) == 16 + 16 + 16
    assert found["router4", "router5"] == found["router7", "router4"] == 1
    assert {b for a, b in found if a == "router6"} == {"router7", "dimension1switch2"}
    assert [a for a, b in found if b == "dimension1switch2"] == ["router2", "router6", "router10", "router14"]
    assert any("1717.99, 429.497 Gb/s" in note for note in notes)
    assert any("paths may take the dimensions in any order" in note for note in notes)
    # A ring's two links and a switch's two.
    assert delays_ps(fabric)[0, 6] == 2 * 50_000 + 2 * 500_000


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(2, 5)), min_size=1, max_size=3),
)
def test_a_path_takes_what_its_dimensions_take_together(shape: list[tuple[str, int]]) -> None:
    dimensions = tuple(Dimension(kind, npus, 1.0 + i, 10.0**i) for i, (kind, npus) in enumerate(shape))  # type: ignore[arg-type]
    network = Network(dimensions)
    fabric = fabric_of(network)
    assert parse_fabric(to_toml(fabric)) == fabric
    assert fabric.hosts == prod(npus for _, npus in shape)
    found = delays_ps(fabric)
    places = list(np.ndindex(*(npus for _, npus in reversed(shape))))  # the first dimension counts fastest
    for source, target in [(0, b) for b in range(len(places))] + [(len(places) - 1, 0)]:
        ends = list(zip(places[source][::-1], places[target][::-1], dimensions, strict=True))
        hops = [dimension.hops(a, b) * dimension.latency_ps for a, b, dimension in ends if a != b]
        assert found[source, target] == sum(hops)


def test_what_the_twin_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yml"
    path.write_text("topology: [FullyConnected]\nnpus_count: [4000]\nbandwidth: [50]\nlatency: [500]\n")
    with pytest.raises(AstraError, match=r"large.yml: npus_count: makes 8002000 cables; give NPUs for at most 1000000"):
        read_fabric(path)


def test_the_packet_level_plays_a_ring_of_routers(shared_data: Path) -> None:
    folder = shared_data / "astra-sim"
    fabric, _ = read_fabric(folder / "config" / "network" / "Ring_8npus.yml")
    workload = load(folder / "microbenchmarks" / "all_reduce" / "8npus_1MB")
    timeline = Twin(fabric, build_network(fabric), range(8)).play(workload).timeline
    least_ns = 14 * (500 + 2**17 / 53.687)  # of a ring all-reduce
    assert least_ns < timeline["end_ns"].max() < 1.1 * least_ns
