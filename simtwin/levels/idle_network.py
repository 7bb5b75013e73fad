"""Times of messages on an idle network, with which flows are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simtwin.fabric.frames import frames_of
from simtwin.fabric.played_paths import port_paths_of
from simtwin.fabric.routing import shortest_path_routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from simtwin.fabric.network import Network
    from simtwin.fabric.schema import Fabric

CUT_THROUGH_BYTES = 64
NS_PER_PS = 1e-3


class Hop(NamedTuple):
    """One hop of a pair's packets over one or more links: their rates together and the smallest delay."""

    rate_bps: int  # 0: unlimited
    delay_ps: int
    cuts_through: bool  # the switch at its end forwards a packet once it has the header


@dataclass(frozen=True)
class Route:
    """A route from a host to another, and back."""

    there: tuple[Hop, ...]
    back: tuple[Hop, ...]
    latencies_ps: tuple[int, int]  # of a packet at the sending host and at the receiving host


class IdleNetwork:
    """Routes between ranks.

    `paths`: the table of the run, as far as paths are known; other pairs take all shortest paths.
    """

    def __init__(
        self, fabric: Fabric, network: Network, host_of_rank: Sequence[int], paths: pl.DataFrame | None
    ) -> None:
        self._fabric, self._network, self._host_of_rank = fabric, network, host_of_rank
        self._number = {name: link for link, name in reversed(list(enumerate(network.link_names)))}
        self._known = port_paths_of(paths) if paths is not None else {}
        self._routes: Any = None
        self._kinds: list[int] = []  # by host
        self._direct: set[tuple[int, int]] = set()
        self._known_routes: dict[tuple[Any, ...], Route] = {}

    def route(self, source: int, target: int) -> Route | None:
        """Return the route from one rank to another; None inside a host."""
        a, b = self._host_of_rank[source], self._host_of_rank[target]
        if a == b:
            return None
        known = self._known.get((source, target))
        if known and all(name in self._number for _, names in known for name in names):
            columns = [[self._number[name] for name in names] for _, names in known]
            if not self._fabric.transport.split:  # a message stays on one of them
                columns = [max(columns, key=self._swiftness)]
            most = max(map(len, columns))
            return self._route([{it[hop] for it in columns if hop < len(it)} for hop in range(most)], a, b)
        return self._shortest(a, b)

    def _swiftness(self, links: Sequence[int]) -> tuple[float, int]:
        """Return the order of paths for a single message: rate of the slowest link, then the smaller delay."""
        rates = [int(self._network.rate_bps[link]) for link in links]
        slowest = min((rate for rate in rates if rate > 0), default=float("inf"))
        return slowest, -sum(int(self._network.delay_ps[link]) for link in links)

    def _shortest(self, a: int, b: int) -> Route:
        """Return all equally short paths together; hosts with the same links to the same switches share routes."""
        if not self._kinds:
            self._routes = shortest_path_routes(self._network)
            self._kinds, self._direct = _kinds_of_hosts(self._network)
        key = (self._kinds[a], self._kinds[b], (a, b) in self._direct)
        if key not in self._known_routes:
            hops: list[set[int]] = []
            nodes = {a}
            while nodes - {b}:
                hops.append({int(link) for node in nodes for link in self._routes.choices(node, b)})
                nodes = {int(self._network.dst_node[link]) for link in hops[-1]}
            self._known_routes[key] = self._route(hops, a, b)
        return self._known_routes[key]

    def _route(self, hops: Sequence[set[int]], a: int, b: int) -> Route:
        network = self._network

        def joined(links: set[int]) -> Hop:
            rates = [int(network.rate_bps[link]) for link in links]
            delay_ps = min(int(network.delay_ps[link]) for link in links)
            cuts = self._fabric.switch.cut_through and all(_cuts_through(network, link) for link in links)
            return Hop(sum(rates) if all(rates) else 0, delay_ps, cuts)

        return Route(
            tuple(joined(links) for links in hops),
            tuple(joined({link ^ 1 for link in links}) for links in reversed(hops)),  # 2i + 1 is the reverse of 2i
            (int(network.packet_latency_ps[a]), int(network.packet_latency_ps[b])),
        )

    def completion_ns(self, route: Route, size_bytes: NDArray[Any], messages: NDArray[Any]) -> NDArray[np.float64]:
        """Return the time from a transfer's post until all of it is acknowledged, on an idle network, in ns.

        The messages have one size and are all posted at once. The time is base round trip and wire bytes x 8 / rate of
        the slowest hop. It is exact for one message in a window, without congestion control or token buckets. It is a
        lower bound for messages that are posted one after the other.
        """
        of_ack = frames_of(self._fabric).acknowledgement_bytes
        back_ps = sum(hop.delay_ps for hop in route.back) + self._along_ps(route.back, np.array([of_ack]))[0]
        completed: NDArray[np.float64] = self.arrival_ns(route, size_bytes, messages)
        completed = completed + (back_ps + route.latencies_ps[0]) * NS_PER_PS
        return completed

    def arrival_ns(self, route: Route, size_bytes: NDArray[Any], messages: NDArray[Any]) -> NDArray[np.float64]:
        """Return the time from a transfer's post until its last byte has arrived, in ns; else as `completion_ns`."""
        frames = frames_of(self._fabric)
        payload, header = frames.payload_bytes, frames.header_bytes
        opening, closing = frames.opening_bytes, frames.closing_bytes
        size = np.asarray(size_bytes, np.float64) / messages
        packets = np.maximum(np.ceil(size / payload), 1)
        rest = size - (packets - 1) * payload
        full = header + -(-payload // 4) * 4.0
        last = header + np.ceil(rest / 4) * 4 + closing + np.where(packets == 1, opening, 0)
        first = np.where(packets > 1, full + opening, last)
        total = messages * ((packets - 1) * full + np.where(packets > 1, opening, 0) + last)
        between = np.where(packets * messages > 1, total - first - last, 0.0)
        one_between = np.minimum(between, full)
        hops = route.there
        # A packet starts on a link when it has arrived and the one before has left. The end is that of the longest
        # chain. In a chain the first packet travels to hop b and the packets between follow there. The last but one
        # goes on to hop c, and the last one takes the rest of the route.
        sent = self._along_ps(hops, last)
        for b in range(len(hops)):
            begun = self._along_ps(hops[: b + 1], first) + (between - one_between) / full * self._takes_ps(
                hops[b], full
            )
            for c in range(b, len(hops)):
                chain = begun + self._along_ps(hops[b : c + 1], one_between) + self._along_ps(hops[c:], last)
                sent = np.where(packets * messages > 1, np.maximum(sent, chain), sent)
        delays = sum(hop.delay_ps for hop in hops) + route.latencies_ps[1] + int(self._fabric.host.doorbell_latency)
        arrived: NDArray[np.float64] = (sent + delays) * NS_PER_PS
        return arrived

    def _takes_ps(self, hop: Hop, size_bytes: Any) -> Any:
        unit = int(self._fabric.frame.time_unit)
        exact = np.asarray(size_bytes) * (8e12 / hop.rate_bps if hop.rate_bps else 0.0)
        return exact if unit == 1 else np.floor(exact / unit + 0.5) * unit

    def _along_ps(self, hops: Sequence[Hop], size_bytes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the time of one packet, without waiting, until its last bit has left for the end of the last hop."""
        taken: NDArray[np.float64] = self._takes_ps(hops[-1], size_bytes)
        for hop in hops[:-1]:
            read = np.minimum(size_bytes, CUT_THROUGH_BYTES) if hop.cuts_through else size_bytes
            taken = taken + self._takes_ps(hop, read)
        return taken


def _cuts_through(network: Network, link: int) -> bool:
    """As native/twin/network/cut_through.cpp: no port of the switch at the link's end may run dry."""
    node, rate = network.dst_node[link], network.rate_bps[link]
    ports = np.flatnonzero(network.src_node == node)
    slow_enough = (network.rate_bps[ports] > 0) & (network.rate_bps[ports] <= rate)
    return bool(node >= network.hosts and (slow_enough & (network.burst_bytes[ports] == 0)).all())


def _kinds_of_hosts(network: Network) -> tuple[list[int], set[tuple[int, int]]]:
    """Return a number for each host, and the pairs of hosts joined by a link.

    Hosts with the same links to the same switches have the same number.
    """
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
