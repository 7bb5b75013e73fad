"""Every kind of topology as a network, cable by cable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product

from genie.config.units import Rate
from simtwin.fabric.network import UNLIMITED_BUFFER, Network, NetworkBuilder
from simtwin.fabric.schema import (
    Domain,
    Dragonfly,
    DualPlane,
    Explicit,
    Fabric,
    FatTree,
    LeafSpine,
    Link,
    NamedLink,
    Photonic,
    RailOptimized,
    SingleSwitch,
    Torus,
)

__all__ = ["UNLIMITED_BUFFER", "Network", "NetworkBuilder", "build_network", "cable_of"]


def build_network(fabric: Fabric) -> Network:
    """Return the network of a fabric that `simtwin.fabric.reading` has checked."""
    topology = fabric.topology
    if isinstance(topology, Explicit):
        return _explicit(fabric, topology)
    builder = _Generator(fabric)
    if isinstance(topology, SingleSwitch):
        _single_switch(builder, topology)
    elif isinstance(topology, Photonic):
        _photonic(builder, topology)
    elif isinstance(topology, LeafSpine):
        _leaf_spine(builder, topology)
    elif isinstance(topology, FatTree):
        _fat_tree(builder, topology)
    elif isinstance(topology, RailOptimized):
        _rail_optimized(builder, topology)
    elif isinstance(topology, DualPlane):
        _dual_plane(builder, topology)
    elif isinstance(topology, Dragonfly):
        _dragonfly(builder, topology)
    else:
        _torus(builder, topology)
    return builder.build()


class _Generator(NetworkBuilder):
    """All hosts of a fabric, `host0` and on, and the steps that generators share."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric.frame.overhead_bytes, int(fabric.switch.latency))
        assert fabric.link is not None
        self.link, self._fabric, self.buffer_bytes = fabric.link, fabric, fabric.switch.buffer
        for h in range(fabric.hosts):
            self.host(f"host{h}", fabric.host.packet_latency, fabric.host.message_latency)

    def named(self, name: str, count: int) -> list[int]:
        """Add switches `name`0, `name`1, ... and return their numbers."""
        return [self.switch(f"{name}{i}", self.buffer_bytes) for i in range(count)]

    def attach(self, host: int, switch: int, length: int = 1) -> None:
        """Add a host's cable."""
        down = self._fabric.downlink or self.link
        bursts = (self.link.burst or 0, down.burst or 0)
        self.cable(host, switch, self.link.rate, self.link.delay, down.rate, bursts, length, *_errors(self.link))

    def join(self, a: int, b: int, link: Link | None = None, length: int = 1) -> None:
        """Add a cable between two switches."""
        link = link or self.link
        bursts = (link.burst or 0, link.burst or 0)
        self.cable(a, b, link.rate, link.delay, link.rate, bursts, length, *_errors(link))


def _single_switch(builder: _Generator, topology: SingleSwitch) -> None:
    """Link 2h is host h's uplink, link 2h + 1 its downlink."""
    switch = builder.switch("switch", builder.buffer_bytes)
    for h in range(topology.hosts):
        builder.attach(h, switch)


def _photonic(builder: _Generator, topology: Photonic) -> None:
    """As a single switch, where a host's cable has the rate of all its circuits together."""
    switch = builder.switch("switch", builder.buffer_bytes)
    for h in range(topology.hosts):
        rate = builder.link.rate * topology.ports
        builder.cable(h, switch, rate, builder.link.delay, rate)


def _leaf_spine(builder: _Generator, topology: LeafSpine) -> None:
    """Cables of the hosts first, in order on their leaves, then leaf by leaf to each spine, then domains of servers.

    With domains the cables of hosts are longer, so that the hosts of a server meet inside it and not on their leaf.
    """
    leaves, spines = builder.named("leaf", topology.leaves), builder.named("spine", topology.spines)
    for h in range(builder.hosts):
        builder.attach(h, leaves[h // topology.hosts_per_leaf], 1 if topology.domain is None else 2)
    for leaf, spine in product(leaves, spines):
        builder.join(leaf, spine, topology.spine_link)
    if topology.domain is not None and topology.hosts_per_server is not None:
        _domains(builder, topology.domain, topology.hosts_per_server)


def _domains(builder: _Generator, domain: Domain, per_server: int, ports: Sequence[int] = ()) -> None:
    """Links inside each server of so many hosts. `ports`: with PXN, each host's port to the network."""
    link = Link(domain.rate, domain.delay)
    for server in range(builder.hosts // per_server):
        own = range(server * per_server, (server + 1) * per_server)
        if domain.kind == "mesh":
            for a, b in combinations(own, 2):
                builder.join(a, b, link)
            continue
        switch = builder.bridge(f"server{server}")
        for h in own:
            builder.join(h, switch, link)
            if ports:
                builder.join(switch, ports[h], link)


def _fat_tree(builder: _Generator, topology: FatTree) -> None:
    """Cables of the hosts first, then pod by pod: edges to aggregations, aggregations to their cores."""
    half = topology.k // 2
    edge, aggregation = builder.named("edge", topology.k * half), builder.named("aggregation", topology.k * half)
    core = builder.named("core", half * half)
    for h in range(builder.hosts):
        builder.attach(h, edge[h // half])
    for pod in range(topology.k):
        own = slice(pod * half, (pod + 1) * half)
        for lower, upper in product(edge[own], aggregation[own]):
            builder.join(lower, upper)
        for at, lower in enumerate(aggregation[own]):
            for upper in core[at * half : (at + 1) * half]:
                builder.join(lower, upper)


def _rail_optimized(builder: _Generator, topology: RailOptimized) -> None:
    """Cables of the hosts first, then leaves to spines, then the domains of servers.

    With PXN a host's port to the network is a node of its own, and its server's domain reaches it too. The shortest
    path to another rail therefore leads through the domain to the port on that rail.
    """
    rails, servers, domain = topology.rails, topology.servers, topology.domain
    per_leaf = topology.servers_per_leaf or servers
    leaves = [builder.named(f"rail{rail}leaf", -(-servers // per_leaf)) for rail in range(rails)]
    spines = builder.named("spine", topology.spines)
    ports: list[int] = []
    if domain is not None and domain.pxn:
        ports = [builder.bridge(f"port{h}") for h in range(builder.hosts)]
        for h, port in enumerate(ports):
            builder.join(h, port, Link(builder.link.rate))
    for h in range(builder.hosts):
        builder.attach(ports[h] if ports else h, leaves[h % rails][h // rails // per_leaf])
    for leaf, spine in product(chain.from_iterable(leaves), spines):
        builder.join(leaf, spine, topology.spine_link)
    if domain is not None:
        _domains(builder, domain, rails, ports)


def _dual_plane(builder: _Generator, topology: DualPlane) -> None:
    """Plane by plane: cables of the hosts, then leaf by leaf to each spine."""
    for plane in range(2):
        leaves = builder.named(f"plane{plane}leaf", topology.leaves)
        spines = builder.named(f"plane{plane}spine", topology.spines)
        for h in range(builder.hosts):
            builder.attach(h, leaves[h // topology.hosts_per_leaf])
        for leaf, spine in product(leaves, spines):
            builder.join(leaf, spine, topology.spine_link)


def _dragonfly(builder: _Generator, topology: Dragonfly) -> None:
    """Cables of the hosts, then of groups, then between them: the q-th global link of group i goes to i + q + 1.

    A path crosses one global link at most (minimal routing, Kim et al., ISCA 2008), however many links it takes inside
    its groups. Two global links are longer than one with a link of a group at each end.
    """
    count, ports = topology.routers, topology.global_links
    groups = count * ports + 1
    routers = [builder.named(f"group{group}router", count) for group in range(groups)]
    for h in range(builder.hosts):
        router = h // topology.hosts_per_router
        builder.attach(h, routers[router // count][router % count])
    for own in routers:
        for a, b in combinations(own, 2):
            builder.join(a, b)
    for group, port in product(range(groups), range(groups - 1)):
        other, other_port = (group + port + 1) % groups, groups - 2 - port
        if group < other:
            ends = routers[group][port // ports], routers[other][other_port // ports]
            builder.join(*ends, topology.global_link, length=3)


def _torus(builder: _Generator, topology: Torus) -> None:
    """Cables of the hosts first, then from each router to the next one in every dimension; the last counts fastest."""
    places = list(product(*(range(size) for size in topology.size)))
    router = {place: builder.switch(f"router{'_'.join(map(str, place))}", builder.buffer_bytes) for place in places}
    for h in range(builder.hosts):
        builder.attach(h, router[places[h // topology.hosts_per_router]])
    for place, dimension in product(places, range(len(topology.size))):
        size = topology.size[dimension]
        is_last = place[dimension] == size - 1
        if size == 1 or (is_last and (not topology.wraps or size == 2)):  # two: one cable joins them in both directions
            continue
        builder.join(
            router[place], router[(*place[:dimension], (place[dimension] + 1) % size, *place[dimension + 1 :])]
        )


def _explicit(fabric: Fabric, topology: Explicit) -> Network:
    builder = NetworkBuilder(fabric.frame.overhead_bytes, int(fabric.switch.latency))
    node: dict[str, int] = {}
    for host in topology.host:
        packet = fabric.host.packet_latency if host.packet_latency is None else host.packet_latency
        message = fabric.host.message_latency if host.message_latency is None else host.message_latency
        node[host.name] = builder.host(host.name, packet, message)
    for switch in topology.switch:
        buffer_bytes = fabric.switch.buffer if switch.buffer is None else switch.buffer
        node[switch.name] = builder.bridge(switch.name) if switch.bridge else builder.switch(switch.name, buffer_bytes)
    for link in topology.link:
        rate, delay = cable_of(fabric, link)
        rate_back = rate if link.rate_back is None else link.rate_back
        errors = _errors(link, fabric.link)
        builder.cable(node[link.a], node[link.b], rate, delay, rate_back, _bursts(fabric, link), link.length, *errors)
    return builder.build()


def _errors(link: Link | NamedLink, default: Link | None = None) -> tuple[float, bool]:
    """Return the share of frames that a cable corrupts, and whether its ports replay them."""
    loss = default.loss if default and link.loss is None else link.loss
    retry = default.retry if default and link.retry is None else link.retry
    return loss or 0.0, retry == "go-back-n"


def _bursts(fabric: Fabric, link: NamedLink) -> tuple[int, int]:
    """Return the token buckets in bytes from a to b and from b to a; 0 for none."""
    if link.burst_back is not None:
        return link.burst or 0, link.burst_back
    burst = fabric.link.burst if fabric.link and link.burst is None else link.burst
    return burst or 0, burst or 0


def cable_of(fabric: Fabric, link: NamedLink) -> tuple[int, int]:
    """Return the rate (b/s) from a to b and the delay (ps) of a cable; each defaults to that of [link]."""
    default = fabric.link or Link(rate=Rate(0))
    return default.rate if link.rate is None else link.rate, default.delay if link.delay is None else link.delay
