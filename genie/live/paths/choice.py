"""Choice of source ports, and of paths for trains of probes: deterministic, the same on every rank."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Pair = tuple[int, int]
Links = tuple[str, ...]
PATHS_MIN = 3  # on a link, for a verdict to distinguish it from the ends of its paths
MOVES_MAX = 200  # moves of pairs away from their first choice
# (n, ports): so many ports show all of n equally likely paths with a probability of 0.99 (coupon collector).
PORTS_NEEDED = ((1, 7), (2, 9), (4, 21), (8, 51), (16, 115))


def ports_needed(paths: int) -> int:
    """Return how many ports of a pair to try, when those tried so far have shown `paths` paths."""
    return next((ports for most, ports in PORTS_NEEDED if paths <= most), PORTS_NEEDED[-1][1])


def choose_ports(
    candidates: Mapping[Pair, Sequence[tuple[int, Links]]], ranks: int, queue_pairs: int, seed: int
) -> dict[Pair, list[int]]:
    """Return a port for each queue pair of each pair of ranks, from the (port, links) that were tried.

    Load is spread over the links of each phase: pairs of equal rank distance are taken to send at the same time (as in
    a ring or a pairwise all-to-all). Then each link gets PATHS_MIN pairs, and no two links have the same pairs, where
    the candidates allow it. Unknown paths (no links) are ignored.
    """
    draw = random.Random(seed)
    place = {pair: draw.random() for pair in sorted(candidates)}
    order = sorted(place, key=lambda pair: ((pair[1] - pair[0]) % ranks, place[pair]))
    load = _Load(ranks)
    chosen: dict[Pair, list[tuple[int, Links]]] = {}
    for pair in order:
        chosen[pair] = []
        for _ in range(queue_pairs):
            free = [way for way in candidates[pair] if way not in chosen[pair]] or list(candidates[pair])
            best = min(free, key=lambda way: (*load.with_path(pair, way[1]), draw.random()))
            chosen[pair].append(best)
            load.add(pair, best[1])
    _cover(candidates, chosen, order, PATHS_MIN)
    _part(candidates, chosen, order)
    return {pair: [port for port, _ in paths] for pair, paths in chosen.items()}


class _Load:
    """Number of paths on each link, by phase and in total."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._by_phase: Counter[tuple[int, str]] = Counter()
        self._total: Counter[str] = Counter()

    def with_path(self, pair: Pair, links: Links) -> tuple[int, int, int, int]:
        """Return maximum and sum of the loads on these links, of the pair's phase and then of all phases."""
        phase = (pair[1] - pair[0]) % self._ranks
        now = [self._by_phase[phase, link] for link in links]
        whole = [self._total[link] for link in links]
        return max(now, default=0), sum(now), max(whole, default=0), sum(whole)

    def add(self, pair: Pair, links: Links) -> None:
        phase = (pair[1] - pair[0]) % self._ranks
        self._by_phase.update((phase, link) for link in links)
        self._total.update(links)


def columns_of(paths_by_pair: Mapping[Pair, Sequence[Links]]) -> dict[str, frozenset[Pair]]:
    """Return link -> the pairs that cross it."""
    found: dict[str, set[Pair]] = defaultdict(set)
    for pair, paths in paths_by_pair.items():
        for links in paths:
            for link in links:
                found[link].add(pair)
    return {link: frozenset(pairs) for link, pairs in sorted(found.items())}


def _columns(chosen: Mapping[Pair, Sequence[tuple[int, Links]]]) -> dict[str, frozenset[Pair]]:
    return columns_of({pair: [links for _, links in paths] for pair, paths in chosen.items()})


def _cover(
    candidates: Mapping[Pair, Sequence[tuple[int, Links]]],
    chosen: dict[Pair, list[tuple[int, Links]]],
    order: Sequence[Pair],
    least: int,
) -> None:
    """Move pairs onto links that fewer than `least` pairs cross, off links that more than `least` cross."""
    every = sorted({link for paths in candidates.values() for _, links in paths for link in links})
    for _ in range(MOVES_MAX):
        columns = _columns(chosen)
        poor = [link for link in every if len(columns.get(link, ())) < least]
        move = next(
            (
                (pair, at, way)
                for link in poor
                for pair in order
                for way in candidates[pair]
                if link in way[1] and pair not in columns.get(link, ()) and way not in chosen[pair]
                for at, (_, old) in enumerate(chosen[pair])
                if all(len(columns[it]) > least for it in old if it not in way[1])
            ),
            None,
        )
        if move is None:
            return
        pair, at, way = move
        chosen[pair][at] = way


def _part(
    candidates: Mapping[Pair, Sequence[tuple[int, Links]]],
    chosen: dict[Pair, list[tuple[int, Links]]],
    order: Sequence[Pair],
) -> None:
    """Move pairs so that links crossed by the same pairs differ, where some path crosses only some of them."""
    for _ in range(MOVES_MAX):
        columns = _columns(chosen)
        groups: dict[frozenset[Pair], set[str]] = defaultdict(set)
        for link, pairs in columns.items():
            groups[pairs].add(link)
        same = [links for links in groups.values() if len(links) > 1]
        move = next(
            (
                (pair, at, way)
                for links in same
                for pair in order
                for way in candidates[pair]
                if 0 < len(links & set(way[1])) < len(links) and way not in chosen[pair]
                for at, (_, old) in enumerate(chosen[pair])
                if way[1] != old and all(len(columns[it]) > PATHS_MIN for it in old if it not in way[1])
            ),
            None,
        )
        if move is None:
            return
        pair, at, way = move
        before = chosen[pair][at]
        chosen[pair][at] = way
        if len(set(_columns(chosen).values())) <= len(set(columns.values())):
            chosen[pair][at] = before
            return


def alike(paths_by_pair: Mapping[Pair, Sequence[Links]]) -> list[list[str]]:
    """Return groups of links inside the network that the same pairs cross: end-to-end data cannot distinguish them."""
    ends = {link for paths in paths_by_pair.values() for links in paths for link in (links[:1] + links[-1:])}
    groups: dict[frozenset[Pair], list[str]] = defaultdict(list)
    for link, pairs in columns_of(paths_by_pair).items():
        if link not in ends:
            groups[pairs].append(link)
    return [links for links in groups.values() if len(links) > 1]


def trains(
    paths_by_pair: Mapping[Pair, Sequence[tuple[int, Links]]], each: int, most: int
) -> list[tuple[int, int, int]]:
    """Return (src, dst, port) of paths on which to send trains of probes, one after the other.

    `each` paths for every group of indistinguishable links, from different senders where possible; `most` in total.
    """
    result: list[tuple[int, int, int]] = []
    for links in alike({pair: [path for _, path in paths] for pair, paths in paths_by_pair.items()}):
        passing = [
            (src, dst, port)
            for (src, dst), paths in sorted(paths_by_pair.items())
            for port, path in paths
            if set(links) <= set(path)
        ]
        senders: Counter[int] = Counter()
        taken: list[tuple[int, int, int]] = []
        while passing and len(taken) < each:
            best = min(passing, key=lambda flow: (senders[flow[0]], senders[-1 - flow[1]], flow))
            passing.remove(best)
            taken.append(best)
            senders.update((best[0], -1 - best[1]))
        result += taken
    return result[:most]
