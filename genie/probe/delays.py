"""Links that delay packets, from the least latencies of paths. Pure.

A link is accused if every path over it is slower than paths of the same length are. No other link may explain these
paths. Clocks of two machines differ: their difference makes one direction longer and the other shorter. For a
host's own link, only the sum of both directions counts then, and the direction stays open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genie.check.blame import Layout, blame
from genie.check.settings import Flow, Latency

Links = tuple[str, ...]

LEAST_NS = 100_000  # shorter delays are the noise of hosts
NOISES = 3.0
# Most paths of one length avoid a slow link, if fewer than half of them are slow.
USUAL, LOW, HIGH = 0.2, 0.05, 0.4  # quantiles: the usual latency, and the spread of sound paths around it


@dataclass(frozen=True)
class Delay:
    """A part of the network that delays packets."""

    links: Links  # directed; several where no path distinguishes them
    ranks: tuple[int, ...]  # the host whose link it is; both hosts of a path
    kind: str  # as of a Blame
    delay_ns: int
    paths: int  # slow ones


@dataclass(frozen=True)
class Excess:
    """The latency of each path beyond that of paths of its length, in ns, and the least one that counts."""

    of: Mapping[Flow, float]
    least_ns: float


def clocks_ahead_ns(latencies: Sequence[Latency], clocks: Mapping[int, str]) -> dict[int, float]:
    """Return how far each rank's clock is ahead of their mean, if both directions of a path take as long.

    `clocks`: by rank, the name of its clock. Ranks of one clock are not compared with each other.
    """
    numbers = {name: number for number, name in enumerate(sorted(set(clocks.values())))}
    if len(numbers) < 2:
        return {}
    least: dict[tuple[int, int], int] = {}
    for each in latencies:
        pair = (each.source, each.target)
        least[pair] = min(each.ns, least.get(pair, each.ns))
    apart = [pair for pair in least if pair[0] < pair[1] and pair[::-1] in least and clocks[pair[0]] != clocks[pair[1]]]
    equations = np.zeros((len(apart), len(numbers)))
    measured = np.zeros(len(apart))
    for row, (source, target) in enumerate(apart):
        equations[row, numbers[clocks[target]]], equations[row, numbers[clocks[source]]] = 1, -1
        measured[row] = (least[source, target] - least[target, source]) / 2
    ahead = np.linalg.lstsq(equations, measured, rcond=None)[0] if apart else np.zeros(len(numbers))
    return {rank: float(ahead[numbers[name]]) for rank, name in clocks.items()}


def excess_of(latencies: Sequence[Latency], paths: Mapping[Flow, Links], clocks: Mapping[int, str]) -> Excess:
    """Compare each latency with those of paths over as many links. `clocks`: by rank, the name of its clock."""
    ahead = clocks_ahead_ns(latencies, clocks)
    by_length: dict[int, dict[Flow, float]] = defaultdict(dict)
    for each in latencies:
        flow = Flow(each.source, each.target, each.path)
        if links := paths.get(flow):
            by_length[len(links)][flow] = each.ns - ahead.get(each.target, 0.0) + ahead.get(each.source, 0.0)
    found: dict[Flow, float] = {}
    spread = 0.0
    for took in by_length.values():
        low, usual, high = np.quantile(list(took.values()), [LOW, USUAL, HIGH])
        spread = max(spread, float(high - low)) if len(took) > 1 else spread
        found |= {flow: ns - float(usual) for flow, ns in took.items()}
    return Excess(found, max(LEAST_NS, NOISES * spread))


def late_flows(latencies: Sequence[Latency], paths: Mapping[Flow, Links], clocks: Mapping[int, str]) -> list[Flow]:
    """Return the flows whose latency is long beside that of others over as many links."""
    excess = excess_of(latencies, paths, clocks)
    return [flow for flow, ns in excess.of.items() if ns > excess.least_ns]


def delays_of(
    latencies: Sequence[Latency],
    paths: Mapping[Flow, Links],
    layout: Layout,
    names: Mapping[str, str],
    clocks: Mapping[int, str],
) -> list[Delay]:
    """Return the parts of the network that delay packets, those of most paths first.

    `layout`: of the same paths. `names`: the link that ends at an address. `clocks`: by rank, the name of its clock.
    """
    excess = excess_of(latencies, paths, clocks)
    slow = {(flow.source, flow.target, flow.path) for flow in late_flows(latencies, paths, clocks)}
    found = []
    for cause in blame(slow, layout):
        flows = [Flow(*path) for path in cause.paths]
        delay_ns = int(np.median([excess.of[flow] for flow in flows]))
        links = tuple(names.get(address, address) for address in cause.links)
        if cause.kind in ("from", "to"):
            links = tuple({paths[flow][0 if cause.kind == "from" else -1] for flow in flows})
        found.append(Delay(links, cause.ranks, cause.kind, delay_ns, len(flows)))
    return found if len(set(clocks.values())) < 2 else _with_open_directions(found)


def _with_open_directions(delays: Sequence[Delay]) -> list[Delay]:
    """Return the delays; of a host's own link, both directions as one, because its clock has split their sum."""
    found = [each for each in delays if each.kind not in ("from", "to")]
    for rank in dict.fromkeys(each.ranks[0] for each in delays if each.kind in ("from", "to")):
        own = [each for each in delays if each.kind in ("from", "to") and each.ranks == (rank,)]
        links = tuple(link for each in own for link in each.links)
        whole_ns = sum(each.delay_ns for each in own) if len(own) > 1 else 2 * own[0].delay_ns
        found.append(Delay(links, (rank,), "from", whole_ns, sum(each.paths for each in own)))
    return found
