"""Routes: for each node and destination host, the output links on a shortest path (equal-cost multipath)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.errors import InputError
from simtwin.fabric.topology import Network

UNREACHABLE = -1


class RoutingError(InputError):
    """A pair of hosts without a path; the message names it."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Next hops, kept for each group of hosts that are attached to the same switches instead of for each host.

    At node n, a packet for host d leaves by any link from n to d, its last-hop links. Where there is none it
    leaves by any of `hops.of(n, g)` with g = `group_of_host[d]`. All are sorted by link number. The table grows with
    the runs of groups that nodes treat alike, not with nodes times groups.
    """

    group_of_host: NDArray[np.int32]  # (hosts,)
    hops: genie_core.NextHops
    last_hop_start: NDArray[np.int64]  # (hosts + 1,) last_hops[last_hop_start[d] : last_hop_start[d + 1]] end at host d
    last_hops: NDArray[np.int32]
    last_hop_source: NDArray[np.int32]  # (last_hops,) the source node of each

    @property
    def groups(self) -> int:
        return int(self.group_of_host.max(initial=-1)) + 1

    def native(self) -> genie_core.Routes:
        """Return the routes as the kernel takes them."""
        return genie_core.Routes(self.group_of_host, self.hops, self.last_hop_start, self.last_hops)

    def choices(self, node: int, destination: int) -> NDArray[np.int32]:
        """Return the output links of `node` towards host `destination`; none at the destination itself."""
        if node == destination:
            return self.last_hops[:0]
        own = slice(self.last_hop_start[destination], self.last_hop_start[destination + 1])
        last_hops = self.last_hops[own][self.last_hop_source[own] == node]
        return last_hops if len(last_hops) else self.hops.of(node, int(self.group_of_host[destination]))


def shortest_path_routes(
    network: Network, down: NDArray[np.bool_] | None = None, to: NDArray[np.int32] | None = None
) -> Routes:
    """Return all shortest paths, by links' lengths, between all pairs of hosts.

    `down`: (links,) mask of links to leave out. `to`: destinations, without which nothing leads to a host but its last
    link; None: all. Raises RoutingError when a host has no path to a destination and `down` is not given.
    """
    hosts = network.hosts
    is_up = np.ones(network.links, np.bool_) if down is None else ~down
    last_hops = np.flatnonzero((network.dst_node < hosts) & is_up)
    last_hops = last_hops[np.argsort(network.dst_node[last_hops], kind="stable")]
    last_hop_start = np.zeros(hosts + 1, np.int64)
    last_hop_start[1:] = np.cumsum(np.bincount(network.dst_node[last_hops], minlength=hosts))
    last_hop_source = network.src_node[last_hops]
    group_of_host, groups = _groups(hosts, last_hop_start, last_hop_source)
    if to is not None:
        group_of_host, groups = _only(groups, group_of_host, to)

    inner = np.flatnonzero((network.dst_node >= hosts) & is_up)  # hosts never forward
    source, target, length = network.src_node[inner], network.dst_node[inner], network.length[inner]
    paths = genie_core.ShortestPaths(network.nodes, source, target, length)
    for group, switches in enumerate(groups):
        distance = paths.add(np.array(switches, np.int32))
        if down is None:
            _check_reached(network, distance, group, group_of_host, last_hop_start, last_hop_source)
    if len(groups) <= group_of_host.max(initial=-1):
        paths.add(np.zeros(0, np.int32))  # the hosts that are no destinations
    hops = paths.take().renamed(inner.astype(np.int32))
    return Routes(group_of_host, hops, last_hop_start, last_hops.astype(np.int32), last_hop_source)


def check_joined(network: Network) -> None:
    """Raise RoutingError where `shortest_path_routes` would; this check is much faster."""
    hosts, source, target = network.hosts, network.src_node, network.dst_node
    between = (source >= hosts) & (target >= hosts)
    component = genie_core.components_of(network.nodes, source[between], target[between])
    up = (source < hosts) & (target >= hosts)
    pairs = np.unique(np.stack([component[target[up]], source[up]]), axis=1)
    if not (np.bincount(pairs[0]) == hosts).any():  # no component has all hosts: find a pair without a path
        shortest_path_routes(network)


def _groups(
    hosts: int, last_hop_start: NDArray[np.int64], last_hop_source: NDArray[np.int32]
) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """Return each host's group, and the switches to which each group is attached.

    Groups that share a switch follow one another: most nodes then treat long runs of groups alike. Those of the
    switches with most groups come first, then in the order of hosts.
    """
    switches_of = []
    for host in range(hosts):
        beside = last_hop_source[last_hop_start[host] : last_hop_start[host + 1]]
        switches_of.append(tuple(np.unique(beside[beside >= hosts]).tolist()))
    used = Counter(switch for switches in set(switches_of) for switch in switches)
    place = {switch: at for at, switch in enumerate(dict.fromkeys(chain.from_iterable(switches_of)))}
    order = {group: sorted((-used[switch], place[switch]) for switch in group) for group in set(switches_of)}
    groups = sorted(order, key=lambda group: (not group, order[group]))
    number = {switches: at for at, switches in enumerate(groups)}
    return np.array([number[switches] for switches in switches_of], np.int32), groups


def _only(
    groups: list[tuple[int, ...]], group_of_host: NDArray[np.int32], to: NDArray[np.int32]
) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """Return the groups of these hosts, and the number of each host's group; that of all others is the next one."""
    kept = np.unique(group_of_host[to])
    number = np.full(len(groups), len(kept), np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    return number[group_of_host], [groups[group] for group in kept.tolist()]


def _check_reached(
    network: Network,
    distance: NDArray[np.int32],
    group: int,
    group_of_host: NDArray[np.int32],
    last_hop_start: NDArray[np.int64],
    last_hop_source: NDArray[np.int32],
) -> None:
    cut_off = set(np.flatnonzero(distance[: network.hosts] == UNREACHABLE).tolist())
    for host in np.flatnonzero(group_of_host == group).tolist() if cut_off else ():
        cabled = set(last_hop_source[last_hop_start[host] : last_hop_start[host + 1]].tolist())
        for other in sorted(cut_off - cabled - {host}):
            a, b = network.node_names[other], network.node_names[host]
            raise RoutingError(f"no path from {a} to {b} (hosts do not forward); add a link between their switches")
