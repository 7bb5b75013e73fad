"""Generators: the networks that fabric files make."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simtwin.fabric.reading import loopback_fabric, parse_fabric
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.topology import Network, build_network

LEAF_SPINE = """\
[topology]
kind = "leaf-spine"
leaves = {leaves}
spines = {spines}
hosts_per_leaf = {hosts_per_leaf}
{more}
[link]
rate = "100Gb/s"
delay = "500ns"
[switch]
buffer = "1MiB"
[host]
packet_latency = "2us"
message_latency = "300ns"
"""


def leaf_spine(leaves: int, spines: int, hosts_per_leaf: int, more: str = "") -> Network:
    text = LEAF_SPINE.format(leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, more=more)
    return build_network(parse_fabric(text))


def test_loopback_columns() -> None:
    network = build_network(loopback_fabric(3, 200_000_000, packet_latency_ns=61_000, message_latency_ns=5_000))
    assert network.node_names == ("host0", "host1", "host2", "switch")
    assert network.link_names[:2] == ("host0->switch", "switch->host0")
    assert network.src_node.tolist() == [0, 3, 1, 3, 2, 3]
    assert network.dst_node.tolist() == [3, 0, 3, 1, 3, 2]
    assert network.rate_bps.tolist() == [200_000_000, 0] * 3
    assert network.delay_ps.tolist() == [0] * 6
    assert network.buffer_bytes.tolist() == [-1] * 6
    assert network.packet_latency_ps.tolist() == [61_000_000] * 3
    assert network.message_latency_ps.tolist() == [5_000_000] * 3
    assert network.frame_overhead_bytes == 38


def test_column_types() -> None:
    network = build_network(loopback_fabric(2, 1))
    assert network.src_node.dtype == network.dst_node.dtype == np.int32
    for column in (network.rate_bps, network.delay_ps, network.buffer_bytes, network.packet_latency_ps):
        assert column.dtype == np.int64
        assert column.flags.c_contiguous


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_leaf_spine_shape(leaves: int, spines: int, hosts_per_leaf: int) -> None:
    network = leaf_spine(leaves, spines, hosts_per_leaf)
    hosts = leaves * hosts_per_leaf
    assert (network.hosts, network.nodes) == (hosts, hosts + leaves + spines)
    assert network.links == 2 * (hosts + leaves * spines)
    assert (network.src_node[0::2] == network.dst_node[1::2]).all()
    assert (network.dst_node[0::2] == network.src_node[1::2]).all()
    graph = nx.DiGraph(zip(network.src_node.tolist(), network.dst_node.tolist(), strict=True))
    routes = shortest_path_routes(network)
    for a in range(hosts):
        for b in set(range(hosts)) - {a}:
            same_leaf = a // hosts_per_leaf == b // hosts_per_leaf
            assert nx.shortest_path_length(graph, a, b) == (2 if same_leaf else 4)
            leaf = hosts + a // hosts_per_leaf
            assert len(routes.choices(leaf, b)) == (1 if same_leaf else spines)


def test_buffers_are_at_switch_ports_only() -> None:
    network = leaf_spine(2, 2, 2)
    at_host = network.src_node < network.hosts
    assert set(network.buffer_bytes[at_host].tolist()) == {-1}
    assert set(network.buffer_bytes[~at_host].tolist()) == {2**20}


def test_spine_links_and_downlinks_have_rates_of_their_own() -> None:
    more = '[topology.spine_link]\nrate = "400Gb/s"\ndelay = "1us"\n[downlink]\nrate = "50Gb/s"\n'
    network = leaf_spine(2, 2, 2, more)
    by_name = dict(zip(network.link_names, zip(network.rate_bps.tolist(), network.delay_ps.tolist(), strict=True),
                       strict=True))  # fmt: skip
    assert by_name["host3->leaf1"] == (100 * 10**9, 500_000)
    assert by_name["leaf1->host3"] == (50 * 10**9, 500_000)
    assert by_name["leaf0->spine1"] == by_name["spine1->leaf0"] == (400 * 10**9, 1_000_000)


def test_explicit_takes_defaults_and_its_own_values() -> None:
    network = build_network(
        parse_fabric("""
        [topology]
        kind = "explicit"
        host = [{name = "a", packet_latency = "9us"}, {name = "b"}]
        switch = [{name = "s", buffer = "1MB"}, {name = "t"}]
        link = [
          {a = "a", b = "s"},
          {a = "s", b = "t", rate = "1Gb/s", delay = "2us", rate_back = "3Gb/s"},
          {a = "t", b = "b", rate = "unlimited"},
        ]
        [link]
        rate = "10Gb/s"
        delay = "1us"
        [switch]
        buffer = "2MB"
        [host]
        packet_latency = "4us"
        """)
    )
    assert network.node_names == ("a", "b", "s", "t")
    assert network.link_names == ("a->s", "s->a", "s->t", "t->s", "t->b", "b->t")
    assert network.rate_bps.tolist() == [10**10, 10**10, 10**9, 3 * 10**9, 0, 0]
    assert network.delay_ps.tolist() == [10**6, 10**6, 2 * 10**6, 2 * 10**6, 10**6, 10**6]
    assert network.buffer_bytes.tolist() == [-1, 10**6, 10**6, 2 * 10**6, 2 * 10**6, -1]
    assert network.packet_latency_ps.tolist() == [9 * 10**6, 4 * 10**6]


def test_a_cable_s_token_buckets_and_its_length() -> None:
    text = """
        [topology]
        kind = "explicit"
        host = [{name = "a"}, {name = "b"}]
        switch = [{name = "s"}, {name = "t"}, {name = "u"}]
        link = [
          {a = "a", b = "s", burst_back = "16KiB"},
          {a = "s", b = "t", length = 3},
          {a = "s", b = "u", burst = "8KiB"},
          {a = "u", b = "t", burst = "8KiB", burst_back = "32KiB"},
          {a = "t", b = "b"},
        ]
        [link]
        rate = "10Gb/s"
    """
    network = build_network(parse_fabric(text))
    kib = 1024
    assert network.burst_bytes.tolist() == [0, 16 * kib, 0, 0, 8 * kib, 8 * kib, 8 * kib, 32 * kib, 0, 0]
    # Two links are shorter than one that counts as three.
    assert [network.link_names[way] for way in shortest_path_routes(network).choices(2, 1)] == ["s->u"]
    shared = build_network(parse_fabric(text + 'burst = "64KiB"'))
    assert shared.burst_bytes.tolist()[:4] == [0, 16 * kib, 64 * kib, 64 * kib]


def test_a_thousand_hosts_route_in_little_memory() -> None:
    routes = shortest_path_routes(leaf_spine(32, 32, 32))
    assert len(routes.group_of_host) == 1024
    # A host has one run, a leaf those before, at and after itself, and a spine one for each leaf.
    assert routes.hops.runs <= 1024 + 3 * 32 + 32 * 32


def test_sixteen_thousand_hosts_of_servers_have_few_routes() -> None:
    text = '[topology]\nkind = "rail-optimized"\nservers = 2048\nrails = 8\nspines = 64\nservers_per_leaf = 64\n'
    network = build_network(parse_fabric(text + 'domain = {rate = "1Tb/s"}\n[link]\nrate = "100Gb/s"\n'))
    some = np.array([0, 7, 8, 8192, 16383], np.int32)
    routes = shortest_path_routes(network, to=some)
    names = [[network.link_names[link] for link in routes.choices(0, int(host))] for host in some[1:]]
    assert names == [["host0->server0"], *([["host0->rail0leaf0"]] * 3)]
    leaf = network.node_names.index("rail0leaf0")
    assert len(routes.choices(leaf, 8192)) == 64
    assert routes.hops.runs < 4 * network.nodes
