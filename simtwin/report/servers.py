"""Links inside servers, links between a host and its own port, and the servers of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simtwin.fabric.network import Network


def _joins_own_nodes(network: Network) -> NDArray[np.bool_]:
    """Return for each link whether hosts or bridges are at both ends, (links,)."""
    own = network.is_bridge.copy()
    own[: network.hosts] = True
    joins: NDArray[np.bool_] = own[network.src_node] & own[network.dst_node]
    return joins


def port_links(network: Network) -> NDArray[np.bool_]:
    """Return for each link whether it joins a host and the host's own port, (links,).

    A port is a bridge of one host that has a cable to the network, as with `pxn`. Its link to the host and the cable
    are one NIC.
    """
    source, target = network.src_node, network.dst_node
    of_host = (source < network.hosts) & network.is_bridge[target]
    of_cable = network.is_bridge[source] & ~_joins_own_nodes(network)
    is_port = np.bincount(target[of_host], minlength=network.nodes) == 1
    is_port &= np.bincount(source[of_cable], minlength=network.nodes) > 0
    back = (target < network.hosts) & is_port[source]
    joins: NDArray[np.bool_] = (of_host & is_port[target]) | back
    return joins


def inside_servers(network: Network) -> NDArray[np.bool_]:
    """Return for each link whether it joins hosts and switches of one server, (links,); links of ports do not."""
    return _joins_own_nodes(network) & ~port_links(network)


def servers_of_hosts(network: Network) -> NDArray[np.int64]:
    """Return a number for each host, (hosts,), which hosts of a server share."""
    inside = inside_servers(network)
    source, target = network.src_node[inside], network.dst_node[inside]
    number = np.arange(network.nodes)
    while (number[source] != number[target]).any():  # each takes the lowest of its neighbours
        np.minimum.at(number, target, number[source])
        np.minimum.at(number, source, number[target])
    return number[: network.hosts]
