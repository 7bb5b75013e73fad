"""Routes: for each node and destination host, the output links that lie on a shortest path (equal-cost multipath)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simtwin.topology import Network

UNREACHABLE = -1


class RoutingError(Exception):
    """A pair of hosts that no path joins; the message names it."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Next hops in CSR form.

    At node n, a packet for host d may leave by any of `links[start[n * hosts + d] : start[n * hosts + d + 1]]`,
    sorted by link number. The row of the destination itself is empty. 1,024 hosts on a three-tier fat tree
    (1,344 nodes) need about 26 MB.
    """

    hosts: int
    start: NDArray[np.int64]  # (nodes * hosts + 1,)
    links: NDArray[np.int32]

    def choices(self, node: int, destination: int) -> NDArray[np.int32]:
        """Output links of `node` towards host `destination`."""
        row = node * self.hosts + destination
        return self.links[self.start[row] : self.start[row + 1]]


def hops_to(network: Network, destination: int) -> NDArray[np.int32]:
    """Links on a shortest path from each node to host `destination`, -1 where there is none.

    Breadth-first from the destination against the direction of the links; other hosts do not forward.
    """
    hops = np.full(network.nodes, UNREACHABLE, dtype=np.int32)
    hops[destination] = 0
    forwards = network.dst_node >= network.hosts
    usable = forwards | (network.dst_node == destination)
    src, dst = network.src_node[usable], network.dst_node[usable]
    distance = 0
    while True:
        reached = src[(hops[dst] == distance) & (hops[src] == UNREACHABLE)]
        if not len(reached):
            return hops
        distance += 1
        hops[reached] = distance


def shortest_path_routes(network: Network) -> Routes:
    """All shortest paths by hop count between all pairs of hosts. Raises RoutingError when a pair has none."""
    rows: list[NDArray[np.int64]] = []
    links: list[NDArray[np.int32]] = []
    for destination in range(network.hosts):
        hops = hops_to(network, destination)
        cut_off = np.flatnonzero(hops[: network.hosts] == UNREACHABLE)
        if len(cut_off):
            a, b = network.node_names[int(cut_off[0])], network.node_names[destination]
            raise RoutingError(f"no path from {a} to {b} (hosts do not forward); add a link between their switches")
        ahead = hops[network.dst_node]
        forwards = (network.dst_node >= network.hosts) | (network.dst_node == destination)
        on_path = np.flatnonzero(forwards & (ahead >= 0) & (ahead + 1 == hops[network.src_node]))
        links.append(on_path.astype(np.int32))
        rows.append(network.src_node[on_path].astype(np.int64) * network.hosts + destination)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    start = np.zeros(network.nodes * network.hosts + 1, dtype=np.int64)
    start[1:] = np.cumsum(np.bincount(row, minlength=network.nodes * network.hosts))
    return Routes(network.hosts, start, np.concatenate(links)[order])
