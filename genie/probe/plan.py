"""The plan of a link probe: flows that fill each link, in batches that share nothing. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from genie.check.settings import Flow

Links = tuple[str, ...]
PARTNERS = 2  # tests of a host's link: one slow partner is told from a slow host


@dataclass(frozen=True)
class PathTest:
    """Flows at once over shared links, from and to different hosts."""

    links: Links  # that the flows fill
    flows: tuple[Flow, ...]
    crossed: frozenset[str]  # all links of the flows


def planned(
    paths: Mapping[Flow, Links], targets: Collection[str], needed: Mapping[str, int], between: Collection[str]
) -> list[PathTest]:
    """Return for each target link one test, or none if too few flows cross it.

    `paths`: the links of each flow, in order. `needed`: flows that fill a link. `between`: links between switches. A
    test that crosses several targets serves them all.
    """
    crossing: dict[str, list[Flow]] = defaultdict(list)
    for flow in sorted(paths, key=lambda each: (each.source, each.target, each.path)):
        for link in paths[flow]:
            crossing[link].append(flow)
    tests: list[PathTest] = []
    served: set[str] = set()
    used: Counter[int] = Counter()
    for target in sorted(targets):
        count = needed.get(target, 1)
        if target in served:
            continue
        # Hosts that no test has used yet come first: tests without a common host can run at once.
        flows = _disjoint(sorted(crossing[target], key=lambda flow: used[flow.source] + used[flow.target]), count)
        if len(flows) < count:
            continue
        shared = set.intersection(*(set(paths[flow]) for flow in flows)) & set(between)
        filled = tuple(link for link in paths[flows[0]] if link in shared and needed.get(link, 1) <= count)
        served.update(filled)
        used.update(host for flow in flows for host in (flow.source, flow.target))
        crossed = frozenset(link for flow in flows for link in paths[flow])
        tests.append(PathTest(filled, tuple(flows), crossed))
    return tests


def of_nics(paths: Mapping[Flow, Links], targets: Collection[str]) -> list[PathTest]:
    """Return tests of one flow each, so that each target has PARTNERS tests with different hosts at their other end.

    `targets`: links of hosts that one flow fills. Flows that cross no spine come first: fewer links may slow them.
    """
    crossing: dict[str, dict[tuple[int, int], Flow]] = defaultdict(dict)
    for flow in sorted(paths, key=lambda each: (each.source, each.target, each.path)):
        for link in (paths[flow][0], paths[flow][-1]):
            crossing[link].setdefault((flow.source, flow.target), flow)
    chosen: dict[Flow, None] = {}
    tested: Counter[str] = Counter()

    def cost(flow: Flow) -> tuple[int, ...]:
        other_end = sum(tested[link] for link in (paths[flow][0], paths[flow][-1]))
        return len(paths[flow]), other_end, flow.source, flow.target

    for _ in range(PARTNERS):
        for target in sorted(targets):
            free = [flow for flow in crossing[target].values() if flow not in chosen]
            if tested[target] >= PARTNERS or not free:
                continue
            flow = min(free, key=cost)
            chosen[flow] = None
            tested.update({paths[flow][0], paths[flow][-1]})
    return [PathTest((paths[flow][0], paths[flow][-1]), (flow,), frozenset(paths[flow])) for flow in chosen]


def batches_of(tests: Sequence[PathTest]) -> list[list[PathTest]]:
    """Return the tests in batches whose tests share no cable and no host.

    The acknowledgements of a flow cross the other direction of its cables, and would wait there behind another test.
    """
    batches: list[list[PathTest]] = []
    taken: list[set[object]] = []  # cables and hosts of each batch
    for test in tests:
        own: set[object] = {frozenset(link.split("->")) for link in test.crossed}
        own |= {host for flow in test.flows for host in (flow.source, flow.target)}
        number = next((at for at, used in enumerate(taken) if not own & used), len(batches))
        if number == len(batches):
            batches.append([])
            taken.append(set())
        batches[number].append(test)
        taken[number] |= own
    return batches


def _disjoint(flows: Sequence[Flow], count: int) -> list[Flow]:
    """Return up to `count` flows without a common sender or receiver."""
    chosen: list[Flow] = []
    for flow in flows:
        if len(chosen) < count and are_disjoint([*chosen, flow]):
            chosen.append(flow)
    return chosen


def are_disjoint(flows: Sequence[Flow]) -> bool:
    """Whether no two flows share a sender or a receiver."""
    return len({flow.source for flow in flows}) == len({flow.target for flow in flows}) == len(flows)
