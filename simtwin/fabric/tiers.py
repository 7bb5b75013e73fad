"""Tiers of links between switches, for the record: a verdict counts the tiers that the traffic judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simtwin.fabric.played_paths import PAIRS_MAX, hashed_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

    from simtwin.fabric.network import Network
    from simtwin.fabric.routing import Routes


def distances(network: Network) -> NDArray[np.int32]:
    """Return the number of cables to the nearest host, (nodes,); a switch inside a server is at 0, as its hosts are.

    Switches without a path to any host are one farther than all others.
    """
    distance = np.full(network.nodes, -1, np.int32)
    distance[: network.hosts] = 0
    distance[network.is_bridge] = 0
    front = 0
    while True:
        reached = network.dst_node[(distance[network.src_node] == front) & (distance[network.dst_node] < 0)]
        if not len(reached):
            break
        front += 1
        distance[reached] = front
    distance[distance < 0] = front + 1
    return distance


def tiers_of(network: Network) -> list[str | None]:
    """Return the tier of each link, (links,).

    It is "links 1-2" after the levels of its switches (1: next to a host), and None at hosts and inside servers.
    """
    level = distances(network)
    ends = zip(level[network.src_node].tolist(), level[network.dst_node].tolist(), strict=True)
    return [f"links {min(pair)}-{max(pair)}" if min(pair) > 0 else None for pair in ends]


def crossings(
    network: Network, routes: Routes, host_of_rank: Sequence[int], transfers: pl.DataFrame
) -> dict[str, list[str]]:
    """Return tier -> "src->dst", the pairs of ranks whose packets cross it.

    It is for fabrics that spread a pair's packets over several paths.
    """
    pairs = transfers.select("src", "dst").unique().sort("src", "dst").rows()
    if len(pairs) > PAIRS_MAX:
        return {}
    tiers, found = tiers_of(network), dict[str, list[str]]()
    for source, target in pairs:
        links = hashed_path(routes, network, int(host_of_rank[source]), int(host_of_rank[target]), 0)
        for tier in sorted({tier for link in links if (tier := tiers[link])}):
            found.setdefault(tier, []).append(f"{source}->{target}")
    return found
