"""Routes against networkx, over drawn networks."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simtwin.fabric.reading import loopback_fabric
from simtwin.fabric.routing import RoutingError, check_joined, shortest_path_routes
from simtwin.fabric.topology import Network, NetworkBuilder, build_network


@st.composite
def connected_networks(draw: st.DrawFn) -> Network:
    """A random tree of switches with extra cables (parallel ones too), and hosts of one to three cables."""
    switches = draw(st.integers(1, 7))
    hosts = draw(st.integers(1, 7))
    builder = NetworkBuilder()
    for h in range(hosts):
        builder.host(f"h{h}", 0, 0)
    for s in range(switches):
        builder.switch(f"s{s}", -1)
    cables = [(hosts + s, hosts + draw(st.integers(0, s - 1))) for s in range(1, switches)]
    switch = st.integers(hosts, hosts + switches - 1)
    cables += draw(st.lists(st.tuples(switch, switch).filter(lambda pair: pair[0] != pair[1]), max_size=8))
    for h in range(hosts):
        cables += [(h, s) for s in draw(st.lists(switch, min_size=1, max_size=3))]
    for a, b in draw(st.permutations(cables)):
        builder.cable(a, b, 1, 1, 1)
    return builder.build()


def oracle_graph(network: Network, source: int, destination: int) -> nx.MultiDiGraph:
    """The network without the hosts that are neither end of the path."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from([source, destination, *range(network.hosts, network.nodes)])
    for link, (a, b) in enumerate(zip(network.src_node.tolist(), network.dst_node.tolist(), strict=True)):
        if a in graph and b in graph:
            graph.add_edge(a, b, key=link)
    return graph


@settings(max_examples=60, deadline=None, derandomize=True)
@given(connected_networks())
def test_choices_are_the_first_links_of_all_shortest_paths(network: Network) -> None:
    routes = shortest_path_routes(network)
    for destination in range(network.hosts):
        assert not len(routes.choices(destination, destination))
        for source in set(range(network.nodes)) - {destination}:
            graph = oracle_graph(network, source, destination)
            first_hops = {path[1] for path in nx.all_shortest_paths(graph, source, destination)}
            expected = sorted(link for b in first_hops for link in graph[source][b])
            assert routes.choices(source, destination).tolist() == expected


def hops_to(network: Network, destination: int) -> np.ndarray:
    """Links on a shortest path from each node; other hosts do not forward."""
    back = nx.DiGraph()
    back.add_nodes_from(range(network.nodes))
    for a, b in zip(network.src_node.tolist(), network.dst_node.tolist(), strict=True):
        if b >= network.hosts or b == destination:
            back.add_edge(b, a)
    lengths = nx.single_source_shortest_path_length(back, destination)
    return np.array([lengths[node] for node in range(network.nodes)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(connected_networks())
def test_every_choice_gets_one_hop_closer(network: Network) -> None:
    """So every walk along the routes is loop-free and arrives, whatever the hash picks."""
    routes = shortest_path_routes(network)
    for destination in range(network.hosts):
        hops = hops_to(network, destination)
        for node in set(range(network.nodes)) - {destination}:
            choices = routes.choices(node, destination)
            assert len(choices)
            assert (network.src_node[choices] == node).all()
            assert (hops[network.dst_node[choices]] == hops[node] - 1).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(connected_networks(), st.data())
def test_routes_to_some_hosts_are_those_of_all_routes(network: Network, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, network.hosts - 1), max_size=network.hosts, unique=True))
    every, routes = shortest_path_routes(network), shortest_path_routes(network, to=np.array(some, np.int32))
    groups = {int(every.group_of_host[host]) for host in some}
    assert routes.groups == min(len(groups) + 1, every.groups)
    for source in range(network.nodes):
        for destination in some:
            assert routes.choices(source, destination).tolist() == every.choices(source, destination).tolist()


def test_single_switch_goes_up_and_down() -> None:
    routes = shortest_path_routes(build_network(loopback_fabric(5, 10**9)))
    for a in range(5):
        for b in set(range(5)) - {a}:
            assert routes.choices(a, b).tolist() == [2 * a]
            assert routes.choices(5, b).tolist() == [2 * b + 1]


def test_hosts_do_not_forward() -> None:
    """h1 joins both switches, but h0 and h2 must not talk through it."""
    builder = NetworkBuilder()
    for h in range(3):
        builder.host(f"h{h}", 0, 0)
    for s in range(2):
        builder.switch(f"s{s}", -1)
    for a, b in ((0, 3), (1, 3), (1, 4), (2, 4)):
        builder.cable(a, b, 1, 0, 1)
    network = builder.build()
    for check in (shortest_path_routes, check_joined):
        with pytest.raises(RoutingError, match="no path from h2 to h0"):
            check(network)


def drawn(hosts: int, switches: int, cables: list[tuple[int, int]], lengths: list[int]) -> Network:
    builder = NetworkBuilder()
    for h in range(hosts):
        builder.host(f"h{h}", 0, 0)
    for s in range(switches):
        builder.switch(f"s{s}", -1)
    for (a, b), length in zip(cables, lengths, strict=True):
        builder.cable(a, b, 1, 0, 1, length=length)
    return builder.build()


@st.composite
def any_networks(draw: st.DrawFn) -> Network:
    """Of a few cables of several lengths, which may leave hosts apart or join them without a switch."""
    hosts, switches = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    node = st.integers(0, hosts + switches - 1)
    cables = draw(st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=12))
    return drawn(hosts, switches, cables, [draw(st.integers(1, 4)) for _ in cables])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_networks())
def test_hosts_that_are_not_joined_are_found_without_routes(network: Network) -> None:
    said = []
    for check in (shortest_path_routes, check_joined):
        try:
            check(network)
            said.append("")
        except RoutingError as error:
            said.append(str(error))
    assert said[0] == said[1]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_networks())
def test_longer_cables_count_as_several_links(network: Network) -> None:
    """Where hosts reach each other; otherwise there are no links."""
    routes = shortest_path_routes(network, np.zeros(network.links, np.bool_))
    for destination in range(network.hosts):
        for source in set(range(network.nodes)) - {destination}:
            graph = oracle_graph(network, source, destination)
            for link in range(network.links):
                a, b = int(network.src_node[link]), int(network.dst_node[link])
                if graph.has_edge(a, b, link):  # the last link is a door, whatever its length
                    graph[a][b][link]["length"] = 1e-9 if b == destination else int(network.length[link])
            if graph.has_edge(source, destination):
                expected = sorted(graph[source][destination])
            elif nx.has_path(graph, source, destination):
                paths = nx.all_shortest_paths(graph, source, destination, weight="length")
                least = nx.shortest_path_length(graph, source, destination, weight="length")
                expected = sorted(
                    link
                    for b in {path[1] for path in paths}
                    for link, data in graph[source][b].items()
                    if data["length"] + nx.shortest_path_length(graph, b, destination, weight="length")
                    == pytest.approx(least, abs=1e-6)
                )
            else:
                expected = []
            assert routes.choices(source, destination).tolist() == expected


def test_arrays_have_the_types_that_the_kernel_reads() -> None:
    routes = shortest_path_routes(build_network(loopback_fabric(3, 10**9)))
    assert routes.group_of_host.dtype == routes.last_hops.dtype == routes.hops.of(0, 0).dtype == np.int32
    assert routes.hops.of(0, 0).tolist() == [0]
    assert routes.hops.to(0).tolist() == [0, 2, 4]
    assert routes.hops.runs == 3
