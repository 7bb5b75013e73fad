"""Size of a topology by arithmetic, so that one that would exhaust memory is refused before it is built.

Routing holds a number for each cable and each group of hosts that are attached to the same switches. This takes 12 B at
its peak: 1.7 GB and five seconds at the limit. Two million links with few routes take 2 GB.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import comb, prod

from genie.config.strict_toml import Document
from simtwin.fabric.schema import (
    Dragonfly,
    DualPlane,
    Explicit,
    Fabric,
    FatTree,
    LeafSpine,
    Photonic,
    RailOptimized,
    SingleSwitch,
    Torus,
)

LINKS_MAX = 2_000_000
ROUTES_MAX = 140_000_000


@dataclass(frozen=True)
class NetworkSize:
    """Counts of a network that has not been built."""

    cables: int
    groups: int  # of hosts on the same switches
    local: int = 0  # cables that lead to few groups only
    local_routes: int = 0  # routes of all local cables

    @property
    def links(self) -> int:
        return 2 * self.cables

    @property
    def routes(self) -> int:
        """Upper bound: one direction of a cable lies on shortest paths to a group."""
        return (self.cables - self.local) * self.groups + self.local_routes


def check_size(document: Document, fabric: Fabric) -> None:
    """Raise the document's error for a network that the twin cannot hold."""
    if problem := size_problem(fabric):
        raise document.error(("topology",), problem)


def size_problem(fabric: Fabric) -> str:
    """Return which count exceeds the twin's limit and the remedy; "" where none does."""
    size = size_of(fabric)
    for count, most, what in (
        (size.links, LINKS_MAX, "links"),
        (size.routes, ROUTES_MAX, "routes (cables times groups of hosts on the same switches)"),
    ):
        if count > most:
            return f" makes {count} {what}: give a smaller one, at most {most}"
    return ""


def size_of(fabric: Fabric) -> NetworkSize:
    """Return the size that `simtwin.fabric.topology` builds and `simtwin.fabric.routing` sees."""
    topology, hosts = fabric.topology, fabric.hosts
    if isinstance(topology, SingleSwitch | Photonic):
        return NetworkSize(hosts, 1)
    if isinstance(topology, LeafSpine):
        return _leaf_spine(topology, hosts)
    if isinstance(topology, FatTree):
        return NetworkSize(3 * hosts, topology.k**2 // 2)
    if isinstance(topology, RailOptimized):
        return _rail_optimized(topology, hosts)
    if isinstance(topology, DualPlane):
        return NetworkSize(2 * (hosts + topology.leaves * topology.spines), topology.leaves)
    if isinstance(topology, Dragonfly):
        groups = topology.routers * topology.global_links + 1
        return NetworkSize(hosts + groups * comb(topology.routers, 2) + comb(groups, 2), groups * topology.routers)
    if isinstance(topology, Torus):
        return _torus(topology, hosts)
    return _explicit(topology)


def _leaf_spine(topology: LeafSpine, hosts: int) -> NetworkSize:
    cables, domain = hosts + topology.leaves * topology.spines, topology.domain
    if domain is None or topology.hosts_per_server is None:
        return NetworkSize(cables, topology.leaves)
    servers = hosts // topology.hosts_per_server
    if domain.kind == "mesh":
        return NetworkSize(cables + servers * comb(topology.hosts_per_server, 2), topology.leaves)
    # The hosts of a server are on the same leaf; its switch leads to them alone.
    return NetworkSize(cables + hosts, servers, local=hosts, local_routes=hosts)


def _rail_optimized(topology: RailOptimized, hosts: int) -> NetworkSize:
    leaves = topology.rails * -(-topology.servers // (topology.servers_per_leaf or topology.servers))
    cables, domain = hosts + leaves * topology.spines, topology.domain
    if domain is None:
        return NetworkSize(cables, leaves)
    if domain.kind == "mesh":
        return NetworkSize(cables + topology.servers * comb(topology.rails, 2), leaves)
    # A host is alone on its leaf and server. Without PXN a server's switch leads to its own hosts only.
    if domain.pxn:
        return NetworkSize(cables + 3 * hosts, hosts)
    return NetworkSize(cables + hosts, hosts, local=hosts, local_routes=hosts * topology.rails)


def _torus(topology: Torus, hosts: int) -> NetworkSize:
    routers = prod(topology.size)
    cables = hosts
    for size in topology.size:
        is_ring = topology.wraps and size > 2  # with two routers, one cable joins both ways around
        cables += routers if is_ring else routers // size * (size - 1)
    return NetworkSize(cables, routers)


def _explicit(topology: Explicit) -> NetworkSize:
    switches = {switch.name for switch in topology.switch}
    beside: dict[str, set[str]] = defaultdict(set)
    cables: Counter[str] = Counter()
    for link in topology.link:
        cables.update((link.a, link.b))
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if other in switches:
                beside[end].add(other)
    groups = len({frozenset(beside[host.name]) for host in topology.host})
    nodes = len(topology.host) + len(topology.switch)
    # A switch attached to hosts alone leads to these hosts only.
    alone = [cables[name] for name in switches if not beside[name]]
    total = max(len(topology.link), nodes)  # routing holds a number for each node too
    return NetworkSize(total, groups, local=sum(alone), local_routes=sum(count * min(count, groups) for count in alone))
