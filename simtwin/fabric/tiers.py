"""Tiers of links between switches, for the record: a verdict counts which of them the traffic judged."""

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
    """(nodes,) cables to the nearest host; a switch inside a server is as near as its hosts.

    Switches without a way to any host are one farther than all others.
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
    """By link: "links 1-2" after the levels of the two switches, 1 next to a host; None at hosts and in servers."""
    level = distances(network)
    ends = zip(level[network.src_node].tolist(), level[network.dst_node].tolist(), strict=True)
    return [f"links {min(pair)}-{max(pair)}" if min(pair) > 0 else None for pair in ends]


def crossings(
    network: Network, routes: Routes, host_of_rank: Sequence[int], transfers: pl.DataFrame
) -> dict[str, list[str]]:
    """Tier -> "src->dst", the pairs of ranks whose packets cross it, where no pair keeps to one path."""
    pairs = transfers.select("src", "dst").unique().sort("src", "dst").rows()
    if len(pairs) > PAIRS_MAX:
        return {}
    tiers, found = tiers_of(network), dict[str, list[str]]()
    for source, target in pairs:
        links = hashed_path(routes, network, int(host_of_rank[source]), int(host_of_rank[target]), 0)
        for tier in sorted({tier for link in links if (tier := tiers[link])}):
            found.setdefault(tier, []).append(f"{source}->{target}")
    return found
