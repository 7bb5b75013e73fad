"""Plans of flows that measure rates, and the evaluation of rates. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import median

from genie.check.settings import ROCE, SMALL, Flow, LinkTest, Observed, Sound, pair_of
from genie.check.stations import local_pairs
from genie.live.paths.mtu import MTUS

LINK_FLOWS = 2
AGAIN_MAX = 24  # measurements to repeat, at most
LINK_BATCHES_MAX = 64
NEAR_SHARE = 0.8  # of the line rate


def sound_pairs(seen: Observed) -> dict[tuple[int, int], int]:
    """Return pairs with the largest path MTU that all their paths carry; 0 where even small packets get lost."""
    sound = {
        (one, other): min(seen.mtu_bytes[one], seen.mtu_bytes[other])
        for at, one in enumerate(seen.stations)
        for other in seen.stations[at + 1 :]
    }
    too_large: dict[tuple[int, int], set[int]] = defaultdict(set)
    for lost in seen.probed.lost:
        pair = pair_of(lost.source, lost.target)
        if lost.what == ROCE:
            sound[pair] = 0
        elif lost.what not in SMALL:
            too_large[pair].add(lost.what)
    for pair in local_pairs(seen.stations, seen.facts):
        sound[pair_of(*pair)] = 0
    for pair, sizes in too_large.items():
        passing = (mtu for mtu in MTUS if mtu < max(sizes) and mtu not in sizes)
        sound[pair] = min(sound[pair], next(passing, 0))
    return sound


def host_rates(best: Mapping[Flow, float]) -> dict[tuple[str, int], float]:
    """Return the best rate by direction and host, such as `("from", 3)`."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for flow, rate_bps in best.items():
        for direction, rank in (("from", flow.source), ("to", flow.target)):
            found[direction, rank] = max(found[direction, rank], rate_bps)
    return dict(found)


def usual_rate(best: Mapping[Flow, float]) -> float:
    """Return the median rate of a host's direction."""
    return median(host_rates(best).values()) if best else 0.0


def nears(best: Mapping[Flow, float], line_rate_bps: int) -> bool:
    """Return whether hosts come near the line rate, which is 0 where it is unknown."""
    return usual_rate(best) >= NEAR_SHARE * line_rate_bps > 0


def slow_share_of(best: Mapping[Flow, float], line_rate_bps: int) -> float:
    """Return the share of what others reach, below which a rate is slow. Below the line rate CPUs set the pace."""
    return 0.85 if nears(best, line_rate_bps) else 0.6


def slow_hosts(best: Mapping[Flow, float], slow_share: float) -> set[tuple[str, int]]:
    """Return directions of hosts below the share `slow_share` of the median rate."""
    usual = usual_rate(best)
    return {which for which, rate_bps in host_rates(best).items() if rate_bps < slow_share * usual}


def doubtful_flows(best: Mapping[Flow, float], slow_share: float) -> list[Flow]:
    """Return, for each direction of a host that looks slow, two flows to or from the fastest other hosts."""
    hosts, slow = host_rates(best), slow_hosts(best, slow_share)
    chosen: list[Flow] = []
    for direction, rank in sorted(slow, key=lambda which: hosts[which]):
        other = "to" if direction == "from" else "from"
        flows = [flow for flow in best if rank == (flow.source if direction == "from" else flow.target)]
        flows.sort(key=lambda flow: -hosts[other, flow.target if direction == "from" else flow.source])
        chosen += flows[:2]
    return chosen[:AGAIN_MAX]


def link_tests(seen: Observed, sound: Sound, slow: Collection[tuple[str, int]], paths: int) -> list[list[LinkTest]]:
    """Return flows for each link between switches that traces have shown, in batches that share no link and no host.

    Links that no path distinguishes are one test. Hosts that are slow themselves are left out where there are others.
    `paths`: the number of usable paths of each pair.
    """
    crossing: dict[str, list[Flow]] = defaultdict(list)
    links_of: dict[Flow, tuple[str, ...]] = {}
    for trace in seen.probed.traces:
        flow = Flow(trace.source, trace.target, trace.path)
        if flow.path < paths and sound.get(pair_of(flow.source, flow.target)):
            links_of[flow] = tuple(hop for hop in trace.hops[1:] if hop)
            for link in set(links_of[flow]):
                crossing[link].append(flow)
    alike: dict[tuple[Flow, ...], list[str]] = defaultdict(list)
    for link, flows in sorted(crossing.items()):
        alike[tuple(flows)].append(link)
    batches: list[list[LinkTest]] = []
    for alike_flows, links in alike.items():
        chosen = _disjoint(alike_flows, slow)
        test, crossed = LinkTest(links, chosen), {link for flow in chosen for link in links_of[flow]}
        for batch in batches:
            others = [flow for each in batch for flow in each.flows]
            if not crossed & {link for flow in others for link in links_of[flow]} and _are_disjoint(chosen + others):
                batch.append(test)
                break
        else:
            batches.append([test])
    return batches[:LINK_BATCHES_MAX]


def _disjoint(flows: Sequence[Flow], slow: Collection[tuple[str, int]]) -> list[Flow]:
    """Return a few flows without a common sender or receiver, those of hosts that are not slow first."""
    chosen: list[Flow] = []
    for flow in sorted(flows, key=lambda flow: ("from", flow.source) in slow or ("to", flow.target) in slow):
        if len(chosen) < LINK_FLOWS and _are_disjoint([*chosen, flow]):
            chosen.append(flow)
    return chosen


def _are_disjoint(flows: Sequence[Flow]) -> bool:
    return len({flow.source for flow in flows}) == len({flow.target for flow in flows}) == len(flows)


def slow_links(tests: Sequence[LinkTest], slow_share: float) -> dict[int, float]:
    """Return index -> usual rate, of tests below the rate of others with as many flows."""
    found = {}
    for number, test in enumerate(tests):
        usual = median(each.rate_bps for each in tests if len(each.flows) == len(test.flows))
        if test.rate_bps < slow_share * usual:
            found[number] = usual
    return found


def doubtful_links(tests: Sequence[LinkTest], slow_share: float) -> list[int]:
    """Return the indices of the tests to repeat."""
    return sorted(slow_links(tests, slow_share), key=lambda number: tests[number].rate_bps)[:AGAIN_MAX]
