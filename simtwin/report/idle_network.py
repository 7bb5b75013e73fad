"""How long messages take on an idle network: what flows are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simtwin.played_paths import ways_of
from simtwin.routing import shortest_path_routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from simtwin.fabric_schema import Fabric
    from simtwin.network import Network

IP_UDP_BTH_BYTES = 20 + 8 + 12 + 4  # with the ICRC
FIRST_BYTES, LAST_BYTES, ACKNOWLEDGED_BYTES = 16, 4, 4  # RETH of the first packet, immediate of the last one, AETH
CUT_THROUGH_BYTES = 64
NS_PER_PS = 1e-3


@dataclass(frozen=True)
class Way:
    """From a host to another: of each hop the rate (b/s, 0: unlimited) and the delay (ps), and of the way back.

    Where a pair's packets have several links for a hop, that is their rates together and the least delay.
    """

    there: tuple[tuple[int, int], ...]
    back: tuple[tuple[int, int], ...]
    latencies_ps: tuple[int, int]  # of a packet at the sending and at the receiving host


class IdleNetwork:
    """Ways between ranks. `paths`: the table of the run, as far as it knows them; others have all shortest paths."""

    def __init__(
        self, fabric: Fabric, network: Network, host_of_rank: Sequence[int], paths: pl.DataFrame | None
    ) -> None:
        self._fabric, self._network, self._host_of_rank = fabric, network, host_of_rank
        self._number = {name: link for link, name in reversed(list(enumerate(network.link_names)))}
        self._known = ways_of(paths) if paths is not None else {}
        self._routes: Any = None
        self._kinds: list[int] = []  # by host
        self._direct: set[tuple[int, int]] = set()
        self._ways: dict[tuple[Any, ...], Way] = {}

    def way(self, source: int, target: int) -> Way | None:
        """From one rank to another; None inside a host."""
        a, b = self._host_of_rank[source], self._host_of_rank[target]
        if a == b:
            return None
        known = self._known.get((source, target))
        if known and all(name in self._number for _, names in known for name in names):
            columns = [[self._number[name] for name in names] for _, names in known]
            most = max(map(len, columns))
            return self._way([{it[hop] for it in columns if hop < len(it)} for hop in range(most)], a, b)
        return self._shortest(a, b)

    def _shortest(self, a: int, b: int) -> Way:
        """All equally short paths together; hosts that hang alike on the same switches have the same ways."""
        if not self._kinds:
            self._routes = shortest_path_routes(self._network)
            self._kinds, self._direct = _kinds_of_hosts(self._network)
        key = (self._kinds[a], self._kinds[b], (a, b) in self._direct)
        if key not in self._ways:
            hops: list[set[int]] = []
            nodes = {a}
            while nodes - {b}:
                hops.append({int(link) for node in nodes for link in self._routes.choices(node, b)})
                nodes = {int(self._network.dst_node[link]) for link in hops[-1]}
            self._ways[key] = self._way(hops, a, b)
        return self._ways[key]

    def _way(self, hops: Sequence[set[int]], a: int, b: int) -> Way:
        network = self._network

        def joined(links: set[int]) -> tuple[int, int]:
            rates = [int(network.rate_bps[link]) for link in links]
            return sum(rates) if all(rates) else 0, min(int(network.delay_ps[link]) for link in links)

        return Way(
            tuple(joined(links) for links in hops),
            tuple(joined({link ^ 1 for link in links}) for links in reversed(hops)),  # 2i + 1 is the way back of 2i
            (int(network.packet_latency_ps[a]), int(network.packet_latency_ps[b])),
        )

    def completion_ns(self, way: Way, size_bytes: NDArray[Any], messages: NDArray[Any]) -> NDArray[np.float64]:
        """From a transfer's post until all of it is acknowledged, if nothing else were sent.

        Messages of one size, all posted at once: base round trip and wire bytes x 8 / rate of the slowest hop. Exact
        for one message in a window; a lower bound of what several take that are posted one after the other.
        """
        frame = self._fabric.frame
        of_ack = IP_UDP_BTH_BYTES + ACKNOWLEDGED_BYTES + frame.overhead_bytes
        if frame.control is not None:
            of_ack = int(frame.control)
        back_ps = sum(delay + (of_ack * 8e12 / rate if rate else 0.0) for rate, delay in way.back)
        completed: NDArray[np.float64] = self.arrival_ns(way, size_bytes, messages)
        return completed + (back_ps + way.latencies_ps[0]) * NS_PER_PS

    def arrival_ns(self, way: Way, size_bytes: NDArray[Any], messages: NDArray[Any]) -> NDArray[np.float64]:
        """From a transfer's post until the receiver has all of it; otherwise as `completion_ns`."""
        fabric, frame = self._fabric, self._fabric.frame
        payload = int(frame.payload or fabric.transport.mtu)
        overhead = frame.overhead_bytes
        header = IP_UDP_BTH_BYTES + overhead if frame.data_header is None else int(frame.data_header)
        first, last = (FIRST_BYTES, LAST_BYTES) if frame.data_header is None else (0, 0)
        size = np.asarray(size_bytes, np.float64) / messages
        packets = np.maximum(np.ceil(size / payload), 1)
        rest = size - (packets - 1) * payload
        final = header + np.ceil(rest / 4) * 4 + last + np.where(packets == 1, first, 0)
        full = np.where(packets * messages == 1, 0.0, np.where(packets > 1, header + payload, final))
        total = messages * ((packets - 1) * (header + payload) + np.where(packets > 1, first, 0) + final)
        ps_per_byte = [8e12 / rate if rate else 0.0 for rate, _ in way.there]
        if fabric.switch.cut_through:
            slowest, head = max(ps_per_byte), np.minimum(final, CUT_THROUGH_BYTES)
            sent = total * slowest + head * (sum(ps_per_byte) - slowest)
        else:
            sent = np.max(
                [
                    full * sum(ps_per_byte[: hop + 1])
                    + (total - full - final) * max(ps_per_byte[: hop + 1])
                    + final * sum(ps_per_byte[hop:])
                    for hop in range(len(ps_per_byte))
                ],
                axis=0,
            )
        delays = sum(delay for _, delay in way.there) + way.latencies_ps[1] + int(fabric.host.doorbell_latency)
        arrived: NDArray[np.float64] = (sent + delays) * NS_PER_PS
        return arrived


def _kinds_of_hosts(network: Network) -> tuple[list[int], set[tuple[int, int]]]:
    """A number for each host, the same for hosts with the same links to the same switches; pairs joined by a link."""
    hosts = network.hosts
    ports: list[list[tuple[Any, ...]]] = [[] for _ in range(hosts)]
    direct: set[tuple[int, int]] = set()
    for link in np.flatnonzero((network.src_node < hosts) | (network.dst_node < hosts)).tolist():
        source, target = int(network.src_node[link]), int(network.dst_node[link])
        said = (int(network.rate_bps[link]), int(network.delay_ps[link]))
        if source < hosts:
            ports[source].append((True, max(target, hosts - 1), *said))
        if target < hosts:
            ports[target].append((False, max(source, hosts - 1), *said))
        if source < hosts and target < hosts:
            direct.add((source, target))
    number: dict[tuple[Any, ...], int] = {}
    latency = network.packet_latency_ps.tolist()
    return [number.setdefault((latency[host], *sorted(ports[host])), len(number)) for host in range(hosts)], direct
