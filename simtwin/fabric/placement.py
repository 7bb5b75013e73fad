"""Placement of ranks on the hosts of a fabric, and servers of several ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simtwin.fabric.reading import FabricError
from simtwin.fabric.schema import Domain, Explicit, Fabric, LeafSpine, RailOptimized, hosts_of_server
from simtwin.fabric.topology import Network

NO_GPU = "none"  # in place of a GPU's name: the times of GPUs are left out


def host_of_rank(network: Network, ranks: int, ports: Sequence[str | None] = (), fabric: str = "") -> NDArray[np.int32]:
    """Return the host number of each rank, (ranks,): host r for rank r, or the host that `ports[r]` names.

    `ports` are the `port` values of a hosts file; several ranks may share a host and its link. Raises FabricError when
    the fabric (called `fabric` in messages) has too few hosts or no host of that name.
    """
    number = {name: h for h, name in enumerate(network.node_names[: network.hosts])}
    placed = np.empty(ranks, dtype=np.int32)
    for rank in range(ranks):
        port = ports[rank] if rank < len(ports) else None
        host = rank if port is None else number.get(port, -1)
        if port is not None and host < 0:
            raise FabricError(
                f'{fabric or "the fabric"}: has no host "{port}", the port of rank {rank}: '
                f"give one of {network.node_names[0]} to {network.node_names[network.hosts - 1]} in the hosts file"
            )
        if host >= network.hosts:
            raise FabricError(
                f"{fabric or 'the fabric'}: has {network.hosts} hosts for {ranks} ranks: "
                "give a fabric with a host for every rank, or a hosts file with ports"
            )
        placed[rank] = host
    return placed


def domain_of(fabric: Fabric) -> Domain | None:
    """Return the links inside servers, where the topology describes them in a table."""
    topology = fabric.topology
    return topology.domain if isinstance(topology, LeafSpine | RailOptimized) else None


def ranks_per_server(fabric: Fabric, gpu: str | None = None) -> int:
    """Return the number of ranks in each server. It is 1 where every message crosses the fabric.

    Rails without a domain have the insides of their GPU. They have none if `gpu` or the fabric says that GPUs take no
    time.
    """
    server, topology = fabric.server, fabric.topology
    if server is not None and server.gpus is not None:
        return server.gpus
    named = gpu or (None if server is None else server.gpu)
    if isinstance(topology, RailOptimized) and (named is None or named.lower() != NO_GPU):
        return topology.rails
    return hosts_of_server(topology) or 1


def scale_up_bps(fabric: Fabric, network: Network, ranks: int) -> int:
    """Return the rate from a rank to all others of its server, one direction; 0 where the fabric does not say it.

    `ranks`: of each server. Cables of a mesh add up. So do a rank's cables to bridges and to other ranks of an explicit
    topology, without those that lead to its NICs.
    """
    domain = domain_of(fabric)
    if domain is not None:
        return int(domain.rate) * (ranks - 1 if domain.kind == "mesh" else 1)
    if not isinstance(fabric.topology, Explicit) or ranks < 2:
        return 0
    beside = (network.dst_node < ranks) | network.is_bridge[network.dst_node]
    total_bps = 0
    for link in np.flatnonzero((network.src_node == 0) & beside):
        node = network.dst_node[link]
        leads_out = network.is_bridge[node] and (
            (network.src_node == node) & (network.dst_node >= network.hosts) & ~network.is_bridge[network.dst_node]
        )
        if not np.any(leads_out):
            total_bps += int(network.rate_bps[link])
    return total_bps
