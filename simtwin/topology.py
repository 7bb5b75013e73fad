"""Fabrics as arrays: nodes, directed links, host latencies. What the packet kernel and the routing read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from genie.config.units import Rate
from simtwin.fabric_schema import (
    ETHERNET_OVERHEAD_BYTES,
    Explicit,
    Fabric,
    FatTree,
    LeafSpine,
    Link,
    NamedLink,
    SingleSwitch,
)

UNLIMITED_BUFFER = -1  # an output queue that never drops


@dataclass(frozen=True, eq=False)
class Network:
    """Hosts, switches and the directed links between them.

    Node h < `hosts` is host h; the rest are switches. Links come in pairs: link 2i goes from a to b and link
    2i + 1 from b to a. A link is the output port of its source: its queue holds at most `buffer_bytes`, it
    serialises at `rate_bps` and it delivers `delay_ps` after the last bit left. Hosts never forward.
    """

    hosts: int
    frame_overhead_bytes: int  # that the link layer adds to each IP packet
    node_names: tuple[str, ...]  # (nodes,)
    link_names: tuple[str, ...]  # (links,) "host0->switch"
    src_node: NDArray[np.int32]  # (links,)
    dst_node: NDArray[np.int32]  # (links,)
    rate_bps: NDArray[np.int64]  # (links,) 0 = unlimited
    delay_ps: NDArray[np.int64]  # (links,)
    buffer_bytes: NDArray[np.int64]  # (links,) -1 = unlimited; always unlimited at a host's own port
    packet_latency_ps: NDArray[np.int64]  # (hosts,)
    message_latency_ps: NDArray[np.int64]  # (hosts,)

    @property
    def nodes(self) -> int:
        return len(self.node_names)

    @property
    def links(self) -> int:
        return len(self.link_names)


@dataclass
class NetworkBuilder:
    """Collects nodes and cables; every host must be added before the first switch."""

    frame_overhead_bytes: int = ETHERNET_OVERHEAD_BYTES
    names: list[str] = field(default_factory=list)
    hosts: int = 0
    packet_latency_ps: list[int] = field(default_factory=list)
    message_latency_ps: list[int] = field(default_factory=list)
    switch_buffer_bytes: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)  # directed (source, destination)
    rate_bps: list[int] = field(default_factory=list)
    delay_ps: list[int] = field(default_factory=list)

    def host(self, name: str, packet_latency_ps: int, message_latency_ps: int) -> int:
        """Add a host and return its node number."""
        assert len(self.names) == self.hosts, "hosts come before switches"
        self.packet_latency_ps.append(packet_latency_ps)
        self.message_latency_ps.append(message_latency_ps)
        self.hosts += 1
        return self._node(name)

    def switch(self, name: str, buffer_bytes: int) -> int:
        """Add a switch whose every output port queues at most `buffer_bytes` (-1 = unlimited)."""
        self.switch_buffer_bytes.append(buffer_bytes)
        return self._node(name)

    def cable(self, a: int, b: int, rate_bps: int, delay_ps: int, rate_back_bps: int) -> None:
        """Join nodes a and b: `rate_bps` from a to b, `rate_back_bps` from b to a."""
        self.ends += [(a, b), (b, a)]
        self.rate_bps += [rate_bps, rate_back_bps]
        self.delay_ps += [delay_ps, delay_ps]

    def _node(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def build(self) -> Network:
        ends = np.array(self.ends, dtype=np.int32).reshape(-1, 2)
        node_buffer_bytes = np.array([UNLIMITED_BUFFER] * self.hosts + self.switch_buffer_bytes, dtype=np.int64)
        return Network(
            hosts=self.hosts,
            frame_overhead_bytes=self.frame_overhead_bytes,
            node_names=tuple(self.names),
            link_names=tuple(f"{self.names[a]}->{self.names[b]}" for a, b in self.ends),
            src_node=ends[:, 0].copy(),
            dst_node=ends[:, 1].copy(),
            rate_bps=np.array(self.rate_bps, dtype=np.int64),
            delay_ps=np.array(self.delay_ps, dtype=np.int64),
            buffer_bytes=node_buffer_bytes[ends[:, 0]],
            packet_latency_ps=np.array(self.packet_latency_ps, dtype=np.int64),
            message_latency_ps=np.array(self.message_latency_ps, dtype=np.int64),
        )


def build_network(fabric: Fabric) -> Network:
    """The network of a fabric that `simtwin.fabric` has checked."""
    topology = fabric.topology
    if isinstance(topology, Explicit):
        return _explicit(fabric, topology)
    if isinstance(topology, FatTree):
        return _fat_tree(fabric, topology)
    return _single_switch(fabric, topology) if isinstance(topology, SingleSwitch) else _leaf_spine(fabric, topology)


def _with_hosts(fabric: Fabric) -> NetworkBuilder:
    builder = NetworkBuilder(frame_overhead_bytes=fabric.frame.overhead_bytes)
    for h in range(fabric.hosts):
        builder.host(f"host{h}", fabric.host.packet_latency, fabric.host.message_latency)
    return builder


def _host_cable(fabric: Fabric, builder: NetworkBuilder, host: int, switch: int) -> None:
    assert fabric.link is not None
    rate_back_bps = fabric.link.rate if fabric.downlink is None else fabric.downlink.rate
    builder.cable(host, switch, fabric.link.rate, fabric.link.delay, rate_back_bps)


def _single_switch(fabric: Fabric, topology: SingleSwitch) -> Network:
    """Link 2h is host h's uplink, link 2h + 1 its downlink."""
    builder = _with_hosts(fabric)
    switch = builder.switch("switch", fabric.switch.buffer)
    for h in range(topology.hosts):
        _host_cable(fabric, builder, h, switch)
    return builder.build()


def _leaf_spine(fabric: Fabric, topology: LeafSpine) -> Network:
    """Hosts in order on their leaves, cables of the hosts first, then leaf by leaf to each spine."""
    builder = _with_hosts(fabric)
    leaves = [builder.switch(f"leaf{i}", fabric.switch.buffer) for i in range(topology.leaves)]
    spines = [builder.switch(f"spine{i}", fabric.switch.buffer) for i in range(topology.spines)]
    for h in range(fabric.hosts):
        _host_cable(fabric, builder, h, leaves[h // topology.hosts_per_leaf])
    link = topology.spine_link or fabric.link
    assert link is not None
    for leaf in leaves:
        for spine in spines:
            builder.cable(leaf, spine, link.rate, link.delay, link.rate)
    return builder.build()


def _fat_tree(fabric: Fabric, topology: FatTree) -> Network:
    """Cables of the hosts first, then pod by pod: edges to aggregations, aggregations to their cores."""
    builder, link, half = _with_hosts(fabric), fabric.link, topology.k // 2
    assert link is not None
    tiers = (("edge", topology.k * half), ("aggregation", topology.k * half), ("core", half * half))
    edge, aggregation, core = (
        [builder.switch(f"{name}{i}", fabric.switch.buffer) for i in range(count)] for name, count in tiers
    )
    for h in range(fabric.hosts):
        _host_cable(fabric, builder, h, edge[h // half])
    for pod in range(topology.k):
        own = slice(pod * half, (pod + 1) * half)
        for lower in edge[own]:
            for upper in aggregation[own]:
                builder.cable(lower, upper, link.rate, link.delay, link.rate)
        for at, lower in enumerate(aggregation[own]):
            for upper in core[at * half : (at + 1) * half]:
                builder.cable(lower, upper, link.rate, link.delay, link.rate)
    return builder.build()


def _explicit(fabric: Fabric, topology: Explicit) -> Network:
    builder = NetworkBuilder(frame_overhead_bytes=fabric.frame.overhead_bytes)
    node: dict[str, int] = {}
    for host in topology.host:
        packet = fabric.host.packet_latency if host.packet_latency is None else host.packet_latency
        message = fabric.host.message_latency if host.message_latency is None else host.message_latency
        node[host.name] = builder.host(host.name, packet, message)
    for switch in topology.switch:
        buffer_bytes = fabric.switch.buffer if switch.buffer is None else switch.buffer
        node[switch.name] = builder.switch(switch.name, buffer_bytes)
    for link in topology.link:
        rate, delay = cable_of(fabric, link)
        rate_back = rate if link.rate_back is None else link.rate_back
        builder.cable(node[link.a], node[link.b], rate, delay, rate_back)
    return builder.build()


def cable_of(fabric: Fabric, link: NamedLink) -> tuple[int, int]:
    """Rate (b/s) from a to b and delay (ps) of a cable, [link]'s where it says none itself."""
    default = fabric.link or Link(rate=Rate(0))
    return default.rate if link.rate is None else link.rate, default.delay if link.delay is None else link.delay
