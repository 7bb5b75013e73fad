"""Topologies by name: as many nodes and cables as they should have, joined as their papers say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from twin_fabrics import GBPS, US, twin_of

from genie.config.units import Duration, Rate, Size
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.api import simulate
from simtwin.fabric.network import Network
from simtwin.fabric.reading import FabricError, parse_fabric, to_toml
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import (
    Domain,
    Dragonfly,
    DualPlane,
    Explicit,
    Fabric,
    LeafSpine,
    Link,
    NamedHost,
    NamedLink,
    NamedSwitch,
    RailOptimized,
    Switch,
    Torus,
)
from simtwin.fabric.size import size_of
from simtwin.fabric.topology import build_network

LINK = Link(Rate(100 * GBPS), Duration(US // 2))
TOPOLOGIES = {
    "rail-optimized": RailOptimized(servers=4, rails=4, spines=2),
    "rails and domains": RailOptimized(
        servers=4, rails=4, servers_per_leaf=2, spines=2, domain=Domain(Rate(900 * GBPS), Duration(US // 10))
    ),
    "rails and meshes": RailOptimized(servers=2, rails=4, spines=1, domain=Domain(Rate(900 * GBPS), kind="mesh")),
    "leaves and domains": LeafSpine(2, 2, 4, hosts_per_server=2, domain=Domain(Rate(900 * GBPS), Duration(US // 10))),
    "dual-plane": DualPlane(leaves=3, spines=2, hosts_per_leaf=4),
    "dragonfly": Dragonfly(routers=4, hosts_per_router=2, global_links=2),
    "torus": Torus(size=(4, 3, 2)),
    "mesh": Torus(size=(4, 3), hosts_per_router=2, wraps=False),
}


def network_of(name: str) -> Network:
    return build_network(Fabric(topology=TOPOLOGIES[name], link=LINK))


def degrees(network: Network, prefix: str) -> Counter[int]:
    """Cables of the switches whose name begins so."""
    cables = np.bincount(network.src_node, minlength=network.nodes)
    return Counter(int(cables[node]) for node, name in enumerate(network.node_names) if name.startswith(prefix))


def hops(network: Network, a: int, b: int) -> int:
    """Links of a shortest path, by the routes."""
    routes, node, count = shortest_path_routes(network), a, 0
    while node != b:
        node = int(network.dst_node[routes.choices(node, b)[0]])
        count += 1
    return count


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_files_name_them_and_all_pairs_are_joined(name: str) -> None:
    fabric = Fabric(topology=TOPOLOGIES[name], link=LINK)
    assert parse_fabric(to_toml(fabric)) == fabric
    network = build_network(fabric)
    assert network.hosts == fabric.hosts
    shortest_path_routes(network)
    result = twin_of(fabric).play(collective(Op.ALL_TO_ALL, fabric.hosts, fabric.hosts * 4096))
    assert result.counters["dropped"] == 0


def test_servers_of_a_leaf_have_a_switch_inside() -> None:
    made = network_of("leaves and domains")
    assert degrees(made, "leaf") == {4 + 2: 2}
    assert degrees(made, "server") == {2: 4}
    assert [hops(made, 0, other) for other in (1, 2, 4)] == [2, 2, 4]
    routes, inside = shortest_path_routes(made), made.link_names.index("host0->server0")
    assert [routes.choices(0, other).tolist() for other in (1, 2)] == [
        [inside],
        [made.link_names.index("host0->leaf0")],
    ]
    assert (int(made.rate_bps[inside]), int(made.delay_ps[inside])) == (900 * GBPS, US // 10)
    assert bool(made.is_bridge[made.node_names.index("server3")])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("hosts_per_server = 2", "hosts_per_server needs domain beside it"),
        ('domain = {rate = "1Tb/s"}', "domain needs hosts_per_server beside it"),
        ('hosts_per_server = 3\ndomain = {rate = "1Tb/s"}', "hosts_per_server = 3 does not divide hosts_per_leaf 4"),
        ('hosts_per_server = 2\ndomain = {rate = "1Tb/s", pxn = true}', 'pxn is for kind = "rail-optimized"'),
    ],
)
def test_servers_that_cannot_be_are_refused(keys: str, said: str) -> None:
    text = (
        f'[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\n{keys}\n[link]\nrate = "1Gb/s"\n'
    )
    with pytest.raises(FabricError) as wrong:
        parse_fabric(text, "f.toml")
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_rails_meet_at_spines_and_servers_in_their_domains() -> None:
    plain, domains, mesh = (network_of(name) for name in ("rail-optimized", "rails and domains", "rails and meshes"))
    assert degrees(plain, "rail") == {4 + 2: 4}
    assert degrees(domains, "rail") == {2 + 2: 8}
    assert degrees(domains, "server") == {4: 4}
    assert hops(plain, 0, 4) == 2  # the same rail of two servers
    assert hops(plain, 0, 1) == 4  # two rails
    assert hops(domains, 0, 1) == 2  # inside a server
    assert hops(mesh, 0, 3) == 1


def test_both_planes_reach_every_host() -> None:
    network = network_of("dual-plane")
    assert degrees(network, "host") == {2: 12}
    routes = shortest_path_routes(network)
    planes = {network.node_names[network.dst_node[link]][:6] for link in routes.choices(0, 11)}
    assert planes == {"plane0", "plane1"}


@pytest.mark.parametrize(("routers", "global_links"), [(2, 1), (4, 2), (3, 1)])
def test_a_path_of_a_dragonfly_crosses_one_global_link_at_most(routers: int, global_links: int) -> None:
    """Two global links would often be as few links as one with links of its groups."""
    topology = Dragonfly(routers=routers, hosts_per_router=1, global_links=global_links)
    network = build_network(Fabric(topology=topology, link=Link(Rate(100 * GBPS), Duration(US))))
    routes = shortest_path_routes(network)

    def most(node: int, destination: int) -> int:
        """Global links on the paths from a node, at most."""
        if node == destination:
            return 0
        links = routes.choices(node, destination).tolist()
        assert links
        return max(int(network.length[link] > 1) + most(int(network.dst_node[link]), destination) for link in links)

    counts = {most(a, b) for a in range(network.hosts) for b in range(network.hosts) if a != b}
    assert counts == {0, 1}


def test_groups_of_a_dragonfly_are_joined_once_each() -> None:
    network = network_of("dragonfly")
    assert network.hosts == 9 * 4 * 2
    assert degrees(network, "group") == {2 + 3 + 2: 36}
    ends = [network.node_names[node].split("router")[0] for node in (*network.src_node[::2], *network.dst_node[::2])]
    half = len(ends) // 2
    between = Counter(frozenset(pair) for pair in zip(ends[:half], ends[half:], strict=True) if len(set(pair)) == 2)
    groups = [pair for pair in between if all(name.startswith("group") for name in pair)]
    assert len(groups) == 9 * 8 // 2
    assert {between[pair] for pair in groups} == {1}
    assert max(hops(network, 0, other) for other in range(1, network.hosts)) == 5


def test_a_torus_wraps_and_a_mesh_does_not() -> None:
    torus, mesh = network_of("torus"), network_of("mesh")
    assert degrees(torus, "router") == {1 + 2 + 2 + 1: 24}
    assert hops(torus, 0, 3 * 3 * 2) == 2 + 1  # the last of four in the first dimension is a neighbour
    assert hops(mesh, 0, 3 * 3 * 2) == 2 + 3


def test_too_many_hosts_are_refused() -> None:
    text = '[topology]\nkind = "torus"\nsize = [300, 300]\n[link]\nrate = "1Gb/s"\n'
    with pytest.raises(FabricError, match=r"f:1: topology makes 90000 hosts: give at most 65536"):
        parse_fabric(text, "f")


def test_bridges_by_name_are_those_of_a_generator() -> None:
    """They hold all that comes, take no time and neither mark nor share: as a server's own switch does."""
    switch = Switch(buffer=Size(2**20), latency=Duration(700_000))
    made = build_network(Fabric(topology=TOPOLOGIES["rails and domains"], link=LINK, switch=switch))
    names, domain = made.node_names, (Rate(900 * GBPS), Duration(US // 10))
    cables = [(names[made.src_node[at]], names[made.dst_node[at]]) for at in range(0, made.links, 2)]
    named = Explicit(
        host=[NamedHost(name) for name in names[: made.hosts]],
        switch=[NamedSwitch(name, bridge=name.startswith("server")) for name in names[made.hosts :]],
        link=[NamedLink(a, b, *(domain if b.startswith("server") else (LINK.rate, LINK.delay))) for a, b in cables],
    )
    fabric = Fabric(topology=named, switch=switch)
    assert parse_fabric(to_toml(fabric)) == fabric
    generated = size_of(Fabric(topology=TOPOLOGIES["rails and domains"], link=LINK))
    by_name = build_network(fabric)
    assert size_of(fabric).groups == generated.groups
    assert shortest_path_routes(by_name).hops.runs <= min(size_of(fabric).routes, generated.routes)
    assert by_name.is_bridge.sum() == 4
    for column in ("is_bridge", "rate_bps", "delay_ps", "buffer_bytes", "src_node", "dst_node"):
        assert np.array_equal(getattr(by_name, column), getattr(made, column)), column


def test_a_table_of_many_links_has_the_tiers_of_switches_inside_servers() -> None:
    """More than a hundred links, the first of which are cables of hosts."""
    topology = RailOptimized(servers=8, rails=8, spines=2, domain=Domain(Rate(900 * GBPS)))
    run = simulate(Fabric(topology=topology, link=LINK), collective(Op.ALL_REDUCE, 8, 1 << 16), level="analytic")
    assert run.links.height > 200
    assert run.links["tier"].n_unique() == 2
