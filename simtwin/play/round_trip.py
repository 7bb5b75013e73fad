"""The base round trip of a fabric: the longest time of a full packet and its ACK on an idle network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genie.config.congestion import Dcqcn, DcqcnTimer, NoControl, Timely
from simtwin.fabric.frames import frames_of
from simtwin.fabric.routing import Routes
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import Network

PS_PER_S = 10**12
NEED_NONE = (NoControl, Dcqcn, DcqcnTimer, Timely)


def needs_all_routes(fabric: Fabric) -> bool:
    """Whether the base round trip has to be found from the routes between all hosts."""
    return fabric.control.base_round_trip is None and not isinstance(fabric.control, NEED_NONE)


def base_round_trip_ps(fabric: Fabric, network: Network, routes: Routes) -> int:
    """Return the base round trip in ps; 0 where no congestion control needs it.

    Large fabrics take a while.
    """
    if not needs_all_routes(fabric):
        return int(fabric.control.base_round_trip or 0)
    frames = frames_of(fabric)
    there = _longest_ps(network, routes, frames.full_bytes)
    return there + _longest_ps(network, routes, frames.acknowledgement_bytes)


def _longest_ps(network: Network, routes: Routes, size_bytes: int) -> int:
    """Return the longest time of a packet from any host to any other, in ps.

    It is by the slowest of their paths, with store and forward at each switch.
    """
    rate = network.rate_bps.astype(np.float64)
    takes: NDArray[np.float64] = network.delay_ps.astype(np.float64)
    takes += np.where(rate > 0, size_bytes * 8.0 * PS_PER_S / np.maximum(rate, 1.0), 0.0)
    last = np.zeros(network.hosts)
    np.maximum.at(last, network.dst_node[routes.last_hops], takes[routes.last_hops])
    last += network.packet_latency_ps
    longest = 0.0
    for number in range(routes.groups):
        time = _times_ps(network, routes, number, routes.hops.to(number), takes)
        reached = time[: network.hosts]
        members = routes.group_of_host == number
        longest = max(longest, float(reached[np.isfinite(reached)].max(initial=0.0) + last[members].max(initial=0.0)))
    return round(longest)


def _times_ps(
    network: Network, routes: Routes, group: int, links: NDArray[np.int32], takes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the time from each node to the switches of a group of hosts, (nodes,), in ps.

    It is by the slowest path, and -inf where there is none.
    """
    time = np.full(network.nodes, -np.inf)
    for host in np.flatnonzero(routes.group_of_host == group)[:1]:
        time[routes.last_hop_source[routes.last_hop_start[host] : routes.last_hop_start[host + 1]]] = 0.0
    source, target = network.src_node[links], network.dst_node[links]
    while True:  # one hop further each time: paths are short
        longer = time.copy()
        np.maximum.at(longer, source, time[target] + takes[links])
        if np.array_equal(longer, time):
            return time
        time = longer
