"""Placement of ranks on the hosts of a fabric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simtwin.fabric.reading import FabricError
from simtwin.fabric.topology import Network


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
