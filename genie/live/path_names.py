"""Paths on the fabric from traceroute answers: the addresses of hops become node and link names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

SILENT = ""  # a hop that did not answer
STATES_MAX = 20_000  # of one search; a larger one is given up


class TracePlan(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The part of the fabric that the live run knows, for naming the paths of queue pairs."""

    hosts: list[str] = []  # by rank: the node of its host; empty: no fabric
    nodes: dict[str, str] = {}  # IP address -> node
    cables: list[tuple[str, str]] = []  # pairs of nodes


class Graph:
    """The fabric as a graph for path searches. A node without an address forwards without being a hop."""

    def __init__(self, plan: TracePlan) -> None:
        self._plan = plan
        self._beside: dict[str, list[str]] = defaultdict(list)
        for a, b in plan.cables:
            self._beside[a].append(b)
            self._beside[b].append(a)
        self._hosts = frozenset(plan.hosts)
        self._hops = frozenset(plan.nodes.values()) - self._hosts

    def names(self, answers: Sequence[str]) -> list[str]:
        """Return the node names of these addresses. An unknown address stays an address, and SILENT stays SILENT."""
        return [self._plan.nodes.get(address, address) for address in answers]

    def links(self, source: int, target: int, answers: Sequence[str]) -> list[str]:
        """Return the links of the only shortest path between two ranks' hosts that has these hops.

        A hop that is silent, or whose address is unknown, matches any node. Return [] when no path fits, or several do.
        """
        if not self._plan.hosts:
            return []
        begin, end = self._plan.hosts[source], self._plan.hosts[target]
        known = [name if name in self._hops else "" for name in self.names(answers)]
        front: dict[tuple[str, int], list[tuple[str, ...]]] = {(begin, 0): [(begin,)]}
        for _ in range(2 * len(known) + 2):
            found: list[tuple[str, ...]] = []
            following: dict[tuple[str, int], list[tuple[str, ...]]] = defaultdict(list)
            for (node, hop), paths in front.items():
                for other in self._beside[node]:
                    longer_paths = [(*path, other) for path in paths if other not in path]
                    if other == end and hop == len(known):
                        found += longer_paths
                    elif other not in self._hosts and (at := self._next_hop(other, hop, known)) is not None:
                        following[other, at] += longer_paths[
                            :2
                        ]  # two suffice to show that the path is not the only one
            if found:
                return [f"{a}->{b}" for a, b in zip(found[0], found[0][1:], strict=False)] if len(found) == 1 else []
            if len(following) > STATES_MAX:
                return []
            front = following
        return []

    def _next_hop(self, node: str, hop: int, known: list[str]) -> int | None:
        """Return the number of hops passed when a path goes on to `node`; None when it cannot go there."""
        if node not in self._hops:
            return hop
        return hop + 1 if hop < len(known) and known[hop] in ("", node) else None
