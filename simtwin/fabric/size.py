"""Size of a topology by arithmetic, so that one that would exhaust memory is refused before it is built.

Routing searches all cables for each group of hosts that are attached to the same switches. It keeps a run of groups
where a node's links change from one group to the next: 8 B each. In networks of tiers these runs are few. In others,
nearly each pair of a node and a group may be one. Two million links with few routes take 2 GB.
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
SEARCHED_MAX = 4_000_000_000  # cables, over all searches: about 20 s


@dataclass(frozen=True)
class NetworkSize:
    """Counts of a network that has not been built. `runs`: an upper bound, in a network of tiers."""

    cables: int
    groups: int  # of hosts on the same switches
    runs: int | None = None

    @property
    def links(self) -> int:
        return 2 * self.cables

    @property
    def routes(self) -> int:
        """Upper bound of the runs that routing keeps."""
        return self.cables * self.groups if self.runs is None else self.runs

    @property
    def searched(self) -> int:
        """Cables that routing looks at."""
        return self.cables * self.groups


def check_size(document: Document, fabric: Fabric) -> None:
    """Raise the document's error for a network that the twin cannot hold."""
    if problem := size_problem(fabric):
        raise document.error(("topology",), problem)


def size_problem(fabric: Fabric) -> str:
    """Return which count exceeds the twin's limit and the remedy; "" where none does."""
    size = size_of(fabric)
    for count, most, what in (
        (size.links, LINKS_MAX, "links"),
        (size.routes, ROUTES_MAX, "routes (at most cables times groups of hosts on the same switches)"),
        (size.searched, SEARCHED_MAX, "steps of routing (cables times groups of hosts on the same switches)"),
    ):
        if count > most:
            return f" makes {count} {what}: give a smaller one, at most {most}"
    return ""


def size_of(fabric: Fabric) -> NetworkSize:
    """Return the size that `simtwin.fabric.topology` builds and `simtwin.fabric.routing` sees."""
    topology, hosts = fabric.topology, fabric.hosts
    if isinstance(topology, SingleSwitch | Photonic):
        return NetworkSize(hosts, 1, runs=hosts + 1)
    if isinstance(topology, LeafSpine):
        return _leaf_spine(topology, hosts)
    if isinstance(topology, FatTree):
        return NetworkSize(3 * hosts, topology.k**2 // 2, runs=12 * hosts)
    if isinstance(topology, RailOptimized):
        return _rail_optimized(topology, hosts)
    if isinstance(topology, DualPlane):
        cables = hosts + topology.leaves * topology.spines  # of one plane
        return NetworkSize(2 * cables, topology.leaves, runs=6 * cables)
    if isinstance(topology, Dragonfly):
        groups = topology.routers * topology.global_links + 1
        return NetworkSize(hosts + groups * comb(topology.routers, 2) + comb(groups, 2), groups * topology.routers)
    if isinstance(topology, Torus):
        return _torus(topology, hosts)
    return _explicit(topology)


def _leaf_spine(topology: LeafSpine, hosts: int) -> NetworkSize:
    cables, domain = hosts + topology.leaves * topology.spines, topology.domain
    # A spine has a run for each leaf; hosts and leaves tell what is their own from the rest.
    runs = 3 * (hosts + topology.leaves) + 2 * cables
    if domain is None or topology.hosts_per_server is None:
        return NetworkSize(cables, topology.leaves, runs=runs)
    servers = hosts // topology.hosts_per_server
    if domain.kind == "mesh":
        return NetworkSize(cables + servers * comb(topology.hosts_per_server, 2), topology.leaves, runs=runs)
    return NetworkSize(cables + hosts, servers, runs=runs + 3 * servers)


def _rail_optimized(topology: RailOptimized, hosts: int) -> NetworkSize:
    leaves = topology.rails * -(-topology.servers // (topology.servers_per_leaf or topology.servers))
    cables, domain = hosts + leaves * topology.spines, topology.domain
    runs = (hosts + leaves + topology.spines) * (2 * leaves + 1)
    if domain is None:
        return NetworkSize(cables, leaves, runs=runs)
    if domain.kind == "mesh":
        return NetworkSize(cables + topology.servers * comb(topology.rails, 2), leaves, runs=runs)
    # A host is alone on its leaf and server. Groups follow one another by leaf, or by server.
    few = min(2 * leaves + 2 * topology.rails, 2 * hosts) + 1
    switches = leaves + topology.spines + topology.servers
    if domain.pxn:  # each port is a switch too, and sends to the hosts of a server in turn by several links
        return NetworkSize(cables + 3 * hosts, hosts)
    return NetworkSize(cables + hosts, hosts, runs=hosts * (2 * topology.rails + 3) + switches * few)


def _torus(topology: Torus, hosts: int) -> NetworkSize:
    routers = prod(topology.size)
    cables = hosts
    for size in topology.size:
        is_ring = topology.wraps and size > 2  # with two routers, one cable joins them in both directions
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
    hosts, joined = len(topology.host), sum(1 for name in switches if beside[name])
    # A switch attached to hosts alone leads to these hosts only. A host has two runs for each that it shares one with.
    alone = [cables[name] for name in switches if not beside[name]]
    runs = (hosts + joined) * groups + sum(2 * count + 1 for count in alone)
    return NetworkSize(len(topology.link), groups, runs=runs)
