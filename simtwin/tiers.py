"""Tiers of links between switches, for the record: a verdict counts which of them the traffic judged."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from simtwin.played_paths import PAIRS_MAX, hashed_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from simtwin.network import Network
    from simtwin.routing import Routes


def tiers_of(network: Network) -> list[str | None]:
    """By link: "links 1-2" after the levels of the two switches, 1 next to a host; None at hosts and in servers."""
    nodes, ends = range(network.nodes), list(zip(network.src_node.tolist(), network.dst_node.tolist(), strict=True))
    inside = network.is_bridge.tolist()
    neighbours: list[list[int]] = [[] for _ in nodes]
    for a, b in ends:
        if not inside[a] and not inside[b]:
            neighbours[a].append(b)
    level = [0 if node < network.hosts else -1 for node in nodes]
    waiting = deque(range(network.hosts))
    while waiting:
        node = waiting.popleft()
        for other in neighbours[node]:
            if level[other] < 0:
                level[other] = level[node] + 1
                waiting.append(other)
    result: list[str | None] = []
    for a, b in ends:
        low, high = sorted((level[a], level[b]))
        between = low > 0 and not inside[a] and not inside[b]
        result.append(f"links {low}-{high}" if between else None)
    return result


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
