"""A network as arrays: nodes, directed links and host latencies, for the packet kernel and the routing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simtwin.fabric.schema import ETHERNET_OVERHEAD_BYTES

UNLIMITED_BUFFER = -1  # an output queue that never drops
NO_RETRY = -1  # in place of a link's round trip


@dataclass(frozen=True, eq=False)
class Network:
    """Hosts, switches and the directed links between them.

    Node h < `hosts` is host h; the rest are switches. Cable i is two links: link 2i goes from a to b and link 2i + 1
    from b to a. A link is the output port of its source. Its queue holds at most `buffer_bytes`, it serialises at
    `rate_bps`, and it delivers `delay_ps` after the last bit left. Hosts never forward.
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
    burst_bytes: NDArray[np.int64]  # (links,) size of the token bucket; 0 = none
    loss: NDArray[np.float64]  # (links,) share of the frames that the link corrupts
    retry_ps: NDArray[np.int64]  # (links,) link-level retry: the cable's round trip, without a frame; NO_RETRY = none
    length: NDArray[np.int32]  # (links,) a path's length is the sum of its links' lengths
    is_bridge: NDArray[np.bool_]  # (nodes,) bridges: switches inside servers, which never drop, mark or pause
    packet_latency_ps: NDArray[np.int64]  # (hosts,)
    message_latency_ps: NDArray[np.int64]  # (hosts,)

    @property
    def nodes(self) -> int:
        return len(self.node_names)

    @property
    def links(self) -> int:
        return len(self.link_names)

    def uplink(self, host: int) -> int:
        """Return the host's first link into the network, not one inside its server."""
        own = np.flatnonzero(self.src_node == host).tolist()
        return next((link for link in own if not self.is_bridge[self.dst_node[link]]), own[0])


@dataclass
class NetworkBuilder:
    """Collects nodes and cables; every host must be added before the first switch."""

    frame_overhead_bytes: int = ETHERNET_OVERHEAD_BYTES
    switch_latency_ps: int = 0
    names: list[str] = field(default_factory=list)
    hosts: int = 0
    packet_latency_ps: list[int] = field(default_factory=list)
    message_latency_ps: list[int] = field(default_factory=list)
    switch_buffer_bytes: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)  # directed (source, destination)
    rate_bps: list[int] = field(default_factory=list)
    delay_ps: list[int] = field(default_factory=list)
    burst_bytes: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    retry_ps: list[int] = field(default_factory=list)
    bridges: set[int] = field(default_factory=set)

    def host(self, name: str, packet_latency_ps: int, message_latency_ps: int) -> int:
        """Add a host and return its node number."""
        assert len(self.names) == self.hosts, "hosts come before switches"
        self.packet_latency_ps.append(packet_latency_ps)
        self.message_latency_ps.append(message_latency_ps)
        self.hosts += 1
        return self._node(name)

    def switch(self, name: str, buffer_bytes: int) -> int:
        """Add a switch with at most `buffer_bytes` in each output queue (-1 = unlimited), and return its number."""
        self.switch_buffer_bytes.append(buffer_bytes)
        return self._node(name)

    def bridge(self, name: str) -> int:
        """Add a bridge, a switch inside a server that never drops, marks or pauses, and return its number."""
        self.bridges.add(self.switch(name, UNLIMITED_BUFFER))
        return len(self.names) - 1

    def cable(
        self,
        a: int,
        b: int,
        rate_bps: int,
        delay_ps: int,
        rate_back_bps: int,
        burst_bytes: tuple[int, int] = (0, 0),
        length: int = 1,
        loss: float = 0.0,
        retries: bool = False,
    ) -> None:
        """Join nodes a and b with a cable.

        `rate_bps` is the rate from a to b, `rate_back_bps` from b to a; token buckets are in that order. The cable
        counts as `length` links when shortest paths are computed. Both directions corrupt a share `loss` of their
        frames; `retries`: and replay them.
        """
        self.loss += [loss, loss]
        self.retry_ps += [2 * delay_ps if retries else NO_RETRY] * 2
        self.length += [length, length]
        self.ends += [(a, b), (b, a)]
        self.rate_bps += [rate_bps, rate_back_bps]
        self.delay_ps += [delay_ps + self._latency_ps(b), delay_ps + self._latency_ps(a)]
        self.burst_bytes += [max(burst, 0) for burst in burst_bytes]

    def _latency_ps(self, node: int) -> int:
        return self.switch_latency_ps if node >= self.hosts and node not in self.bridges else 0

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
            burst_bytes=np.array(self.burst_bytes, dtype=np.int64),
            length=np.array(self.length, dtype=np.int32),
            loss=np.array(self.loss, dtype=np.float64),
            retry_ps=np.array(self.retry_ps, dtype=np.int64),
            is_bridge=np.isin(np.arange(len(self.names)), list(self.bridges)),
            packet_latency_ps=np.array(self.packet_latency_ps, dtype=np.int64),
            message_latency_ps=np.array(self.message_latency_ps, dtype=np.int64),
        )
