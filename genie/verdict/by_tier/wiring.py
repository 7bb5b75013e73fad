"""Wiring of the fabric from the link names of a twin's record: tiers where the record has none, and hashed paths."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from genie.record import Run

Pair = tuple[int, int]


class Wiring:
    """Nodes and directed links, numbered in the order of the record."""

    def __init__(self, twin: Run) -> None:
        self.links = [str(entry["link"]) for entry in twin.counters.get("links") or []]
        ends = [name.partition("->") for name in self.links]
        self._source = [source for source, _, _ in ends]
        self._target = [target for _, _, target in ends]
        self._host = {entry["rank"]: str(entry.get("host") or "") for entry in twin.info.get("hosts") or []}
        self._hosts_in_all = len(twin.info.get("packet_latency_ns") or ())  # with hosts without a rank; 0: unknown
        self._leaving: dict[str, list[int]] = defaultdict(list)
        self._entering: dict[str, list[int]] = defaultdict(list)
        for link, (source, target) in enumerate(zip(self._source, self._target, strict=True)):
            self._leaving[source].append(link)
            self._entering[target].append(link)
        self._distance: dict[str, dict[str, int]] = {}

    def tiers(self) -> list[str | None] | None:
        """Tier of each link, named as in `simtwin.fabric.tiers`; None where the names do not show which nodes are
        switches.
        """
        hosts = self._hosts()
        if hosts is None:
            return None
        level, front = dict.fromkeys(hosts, 0), list(hosts)
        while front:
            reached = {self._target[link] for node in front for link in self._leaving[node]} - level.keys()
            level |= dict.fromkeys(reached, level[front[0]] + 1)
            front = list(reached)
        far = max(level.values()) + 1
        pairs = (
            sorted((level.get(source, far), level.get(target, far)))
            for source, target in zip(self._source, self._target, strict=True)
        )
        return [f"links {low}-{high}" if low else None for low, high in pairs]

    def _hosts(self) -> set[str] | None:
        """Hosts of ranks, and nodes with one cable where the fabric has more hosts than these; None where unclear."""
        hosts = set(self._host.values())
        if not hosts or not hosts <= self._leaving.keys():
            return None
        if self._hosts_in_all != len(hosts):
            hosts |= {node for node, links in self._leaving.items() if len(links) == 1}
        if self._hosts_in_all not in (0, len(hosts)):
            return None
        for node in self._leaving.keys() - hosts:
            beside = [self._target[link] in hosts for link in self._leaving[node]]
            if sorted(beside) == [False, True]:  # a switch, or the port of a host whose two directions differ
                return None
        return hosts

    def rarest(self, links: Collection[str], pairs: Iterable[Pair], tiered: Collection[str]) -> tuple[float, str, int]:
        """(bound, link, pairs) for the link that hashing is likeliest to leave without a flow.

        `bound` is an upper bound of the probability that some link has no flow. `pairs` is the number of pairs that can
        take this link. `tiered`: all links between switches.
        """
        chosen = set(links)
        missed = {link: 0.0 for link, name in enumerate(self.links) if name in chosen}  # ln of the chance
        able = dict.fromkeys(missed, 0)
        closed = self._closed(set(tiered))
        flows = Counter((self._host.get(src, ""), self._host.get(dst, "")) for src, dst in pairs)
        for (source, target), count in flows.items():
            for link, share in self._shares(source, target, closed).items():
                if link in missed:
                    missed[link] += count * (math.log1p(-share) if share < 1 else -math.inf)
                    able[link] += count
        worst = max(missed, key=lambda link: missed[link])
        return sum(map(math.exp, missed.values())), self.links[worst], able[worst]

    def _closed(self, tiered: set[str]) -> set[str]:
        """Nodes that forward nothing: hosts, and nodes without a rank whose neighbours are all switches."""
        switches = {node for name in tiered for node in name.split("->")}
        idle = {
            node
            for node, links in self._leaving.items()
            if node not in switches and all(self._target[link] in switches for link in links)
        }
        return idle | set(self._host.values())

    def _shares(self, source: str, target: str, closed: set[str]) -> dict[int, float]:
        """Link -> probability that a flow takes it, where each switch picks one of its shortest paths."""
        distance = self._distances(target, closed)
        shares: dict[int, float] = defaultdict(float)
        at = {source: 1.0}
        while at:
            ahead: dict[str, float] = defaultdict(float)
            for node, part in at.items():
                nearer = distance.get(node, 0) - 1
                choices = [link for link in self._leaving[node] if distance.get(self._target[link]) == nearer]
                for link in choices:
                    shares[link] += part / len(choices)
                    ahead[self._target[link]] += part / len(choices)
            at = ahead
        return shares

    def _distances(self, target: str, closed: set[str]) -> dict[str, int]:
        """Number of links from each node to a host."""
        if target not in self._distance:
            distance, front = {target: 0}, [target]
            while front:
                open_front = [node for node in front if node == target or node not in closed]
                reached = {self._source[link] for node in open_front for link in self._entering[node]} - distance.keys()
                distance |= dict.fromkeys(reached, distance[front[0]] + 1)
                front = list(reached)
            self._distance[target] = distance
        return self._distance[target]
