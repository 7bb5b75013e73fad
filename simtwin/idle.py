"""How long a message takes on the idle network, at line rate: what flow completion times are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simtwin.fabric_schema import Fabric
    from simtwin.network import Network
    from simtwin.routing import Routes

PACKET_BYTES = 20 + 8 + 12 + 4  # IPv4, UDP, BTH, ICRC
RETH_BYTES, IMMEDIATE_BYTES = 16, 4
CUT_THROUGH_BYTES = 64  # after which a switch that cuts through sends on
PS_PER_S = 10**12


def idle_ns(
    fabric: Fabric,
    network: Network,
    routes: Routes,
    sources: Sequence[int],
    targets: Sequence[int],
    sizes_bytes: Sequence[int],
) -> NDArray[np.int64]:
    """(n,) ns from posting a message at a host until the last of its packets is dealt with at another.

    Packets back to back at line rate on the first of the shortest paths, store and forward (or cut through, where the
    fabric's switches do): no window, no congestion control, no token bucket, no other traffic.
    """

    @cache
    def hops_to(source: int, target: int) -> _Hops:
        return _Hops(fabric, network, _links(network, routes, source, target))

    return np.array(
        [
            hops_to(source, target).message_ps(size_bytes) // 1000
            for source, target, size_bytes in zip(sources, targets, sizes_bytes, strict=True)
        ],
        np.int64,
    )


def _links(network: Network, routes: Routes, source: int, target: int) -> list[int]:
    links: list[int] = []
    node = source
    while node != target:
        links.append(int(routes.choices(node, target)[0]))
        node = int(network.dst_node[links[-1]])
    return links


class _Hops:
    """The links of a path, and what packets take by them."""

    def __init__(self, fabric: Fabric, network: Network, links: list[int]) -> None:
        self._fabric = fabric
        self._rates_bps = [int(network.rate_bps[link]) for link in links]
        self._cuts = [fabric.switch.cut_through and _cuts_through(network, link) for link in links]
        self._fixed_ps = sum(int(network.delay_ps[link]) for link in links) + int(fabric.host.doorbell_latency)
        if links:
            self._fixed_ps += int(network.packet_latency_ps[network.dst_node[links[-1]]])

    def message_ps(self, size_bytes: int) -> int:
        """The last packet's end.

        Each packet starts on a link when it is there and the one before has left. So the end is that of the longest
        chain through (packet, link): the first packet to link b, the middle ones there, the last but one on to link c,
        the last one the rest of the way. Middle packets are alike; it never pays to divide them over several links.
        """
        first, middle, last, count = self._packets(size_bytes)
        hops = range(len(self._rates_bps))
        if count == 1:
            return self._fixed_ps + self._along(first, 0, hops[-1]) if hops else self._fixed_ps
        if count == 2:
            return self._fixed_ps + max(self._along(first, 0, c) + self._along(last, c, hops[-1]) for c in hops)
        longest = max(
            self._along(first, 0, b)
            + (count - 3) * self._takes(b, middle)
            + self._along(middle, b, c)
            + self._along(last, c, hops[-1])
            for b in hops
            for c in hops[b:]
        )
        return self._fixed_ps + longest

    def _packets(self, size_bytes: int) -> tuple[int, int, int, int]:
        """Bytes on the wire of the first, a middle and the last packet of a WRITE with immediate, and how many."""
        frame = self._fabric.frame
        payload = int(frame.payload or self._fabric.transport.mtu)
        count = max(-(-size_bytes // payload), 1)
        rest = -(-(size_bytes - (count - 1) * payload) // 4) * 4
        full = -(-payload // 4) * 4
        if frame.data_header is not None:
            header = int(frame.data_header)
            return (rest if count == 1 else full) + header, full + header, rest + header, count
        header = PACKET_BYTES + frame.overhead_bytes
        only = rest + header + RETH_BYTES + IMMEDIATE_BYTES
        return only if count == 1 else full + header + RETH_BYTES, full + header, rest + header + IMMEDIATE_BYTES, count

    def _takes(self, hop: int, size_bytes: int) -> int:
        rate_bps = self._rates_bps[hop]
        if rate_bps == 0:
            return 0
        unit = int(self._fabric.frame.time_unit)
        exact = (size_bytes * 8 * PS_PER_S + rate_bps // 2) // rate_bps
        return exact if unit == 1 else (exact + unit // 2) // unit * unit

    def _along(self, size_bytes: int, first: int, last: int) -> int:
        """One packet by the links from `first` to `last`, without waiting."""
        before = sum(
            self._takes(hop, min(size_bytes, CUT_THROUGH_BYTES) if self._cuts[hop] else size_bytes)
            for hop in range(first, last)
        )
        return before + self._takes(last, size_bytes)


def _cuts_through(network: Network, link: int) -> bool:
    """Whether the switch at its end sends on packets of which it has the header: no port of it may run dry."""
    node, rate = network.dst_node[link], network.rate_bps[link]
    ports = np.flatnonzero(network.src_node == node)
    slow_enough = (network.rate_bps[ports] > 0) & (network.rate_bps[ports] <= rate)
    return bool(node >= network.hosts and (slow_enough & (network.burst_bytes[ports] == 0)).all())
