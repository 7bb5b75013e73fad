"""ECMP imbalance: links that carry more than their share, because flows collide. That is no fault of a link."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from genie.page.words import amount

if TYPE_CHECKING:
    from genie.record import Run

SHARE_MAX = 2.0  # times the mean of the links that leave the same switch towards the same tier
NAMED_MAX = 3


def imbalances(live: Run, twin: Run) -> list[str]:
    """Return a sentence for each link that carries at least twice its share, the most loaded first.

    Only links that lead away from hosts have alternatives. The twin plays the paths that the run learned.
    """
    if live.paths is None:
        return []
    loads = {str(entry["link"]): int(entry.get("size_bytes", 0)) for entry in twin.counters.get("links") or []}
    hosts = {str(entry.get("host") or "") for entry in twin.info.get("hosts") or []}
    level = _levels(list(loads), hosts)
    beside: dict[str, list[str]] = defaultdict(list)
    for link in loads:
        source, _, target = link.partition("->")
        if 0 < level.get(source, 0) < level.get(target, 0):
            beside[source].append(link)
    found = []
    for source, links in beside.items():
        mean = sum(loads[link] for link in links) / len(links)
        for link in links:
            if len(links) > 1 and mean > 0 and loads[link] >= SHARE_MAX * mean:
                share = loads[link] / mean
                text = (
                    f"link {link} carries {share:.1f} times its share of the traffic that leaves {source} "
                    f"({amount(loads[link])} of {amount(round(mean * len(links)))} over {len(links)} links): flows "
                    "collide there (ECMP imbalance), which is no fault of the link"
                )
                found.append((share, text))
    return [text for _, text in sorted(found, reverse=True)[:NAMED_MAX]]


def _levels(links: list[str], hosts: set[str]) -> dict[str, int]:
    """Node -> number of links to the nearest host of a rank."""
    leaving: dict[str, list[str]] = defaultdict(list)
    for link in links:
        source, _, target = link.partition("->")
        leaving[source].append(target)
    # A node with one cable is the host of another job, and no way to anywhere.
    level = dict.fromkeys(hosts & leaving.keys() | {node for node, ends in leaving.items() if len(ends) == 1}, 0)
    front = list(level)
    while front:
        reached = sorted({target for node in front for target in leaving[node]} - level.keys())
        level |= dict.fromkeys(reached, level[front[0]] + 1)
        front = reached
    return level
