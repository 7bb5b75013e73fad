"""Plans of probes and what follows from their rates, together: one slow NIC or link of a fabric is named, and no other.

The model: a flow gets the lowest rate on its way, and flows of one test share a link evenly.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from genie.check.settings import Flow
from genie.probe.faults import host_links_of
from genie.probe.plan import PARTNERS, PathTest, of_nics, planned
from genie.verdict.bounds import Bounds, NotJudged
from genie.verdict.probed.probes import Probes, probes_of, suspects_from, with_probed_nics

LINE_BPS, PRACTICAL = 1e8, 0.1
Links = tuple[str, ...]


def fabric(leaves: int, spines: int, hosts_per_leaf: int, ports: int = 4) -> dict[Flow, Links]:
    """Paths of all flows; port p of a pair of leaves goes over spine (source + target + p) % spines."""
    paths = {}
    hosts = range(leaves * hosts_per_leaf)
    for source, target in ((a, b) for a in hosts for b in hosts if a != b):
        one, other = source // hosts_per_leaf, target // hosts_per_leaf
        for port in range(ports):
            spine = (source + target + port) % spines
            middle = () if one == other else (f"leaf{one}->spine{spine}", f"spine{spine}->leaf{other}")
            paths[Flow(source, target, port)] = (f"host{source}->leaf{one}", *middle, f"leaf{other}->host{target}")
    return paths


def plan_of(paths: dict[Flow, Links], needed: int) -> list[PathTest]:
    between = {link for links in paths.values() for link in links[1:-1]}
    return [*planned(paths, between, dict.fromkeys(between, needed), between), *of_nics(paths, host_links_of(paths))]


def measured(paths: dict[Flow, Links], needed: int, slow: dict[str, float]) -> Probes:
    """Probes of a fabric whose links between switches have `needed` times a host's rate, some of them less."""
    own = host_links_of(paths)
    tests: list[dict[str, Any]] = []
    for test in plan_of(paths, needed):
        crossing = Counter(link for flow in test.flows for link in paths[flow])

        def rate_bps(link: str, flows: int) -> float:
            return slow.get(link, 1.0) * LINE_BPS * (1 if link in own else needed) / flows

        total = sum(
            min(LINE_BPS, *(rate_bps(link, crossing[link]) for link in paths[flow])) for flow in test.flows
        )  # fmt: skip
        tests.append(
            {
                "links": list(test.links),
                "flows": list(test.flows),
                "expected_bps": len(test.flows) * LINE_BPS,
                "rates_bps": [total] * 5,
                "others": sorted(test.crossed - set(test.links)),
            }
        )
    return probes_of({"tests": tests, "host_links": own, "crossed": sorted(set().union(*paths.values()))})


def test_each_host_s_link_has_tests_with_different_partners() -> None:
    paths = fabric(2, 2, 4)
    tests = of_nics(paths, host_links_of(paths))
    tested = Counter(link for test in tests for link in test.links)
    assert tested.keys() == host_links_of(paths).keys()
    assert min(tested.values()) == PARTNERS
    assert all(len(test.crossed) == 2 for test in tests), "a leaf's own hosts are partners enough"
    assert len(tests) <= 2 * PARTNERS * 8


@pytest.mark.parametrize("factor", [0.4, 0.7])
@pytest.mark.parametrize("needed", [1, 2])
@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 2, 3), (2, 1, 4)])
def test_the_one_slow_nic_or_link_is_named(shape: tuple[int, int, int], needed: int, factor: float) -> None:
    paths = fabric(*shape)
    own = host_links_of(paths)
    for link in sorted(set().union(*paths.values())):
        found = suspects_from(measured(paths, needed, {link: factor}), PRACTICAL)
        named = {each.name for each in found} | {name for each in found for name in each.also}
        assert link in named, f"{link} at {factor} of its rate: {found}"
        if link in own:
            assert [(each.kind, each.ranks, each.name) for each in found] == [("nic", [own[link][1]], link)]
        else:
            assert {each.kind for each in found} == {"link"}, f"{link} at {factor} of its rate: {found}"


def test_a_slow_nic_beside_a_slow_link() -> None:
    paths = fabric(2, 2, 4)
    found = suspects_from(measured(paths, 2, {"host3->leaf0": 0.5, "spine1->leaf0": 0.5}), PRACTICAL)
    assert ("nic", "host3->leaf0") in {(each.kind, each.name) for each in found}
    assert {each.kind for each in found if "host" not in each.name} <= {"link"}


def test_nothing_is_slow() -> None:
    probes = measured(fabric(2, 2, 4), 2, {})
    assert not suspects_from(probes, PRACTICAL)
    noisy = Bounds({"rank 3 egress": 0.13, "rank 4 egress": 0.02, "rank 5 egress": None}, ("rank 5 egress",),
                   (NotJudged(6, "ingress", "no peers", otherwise=True),))  # fmt: skip
    bounds = with_probed_nics(noisy, probes, PRACTICAL)
    assert bounds == Bounds(dict.fromkeys([*noisy.upper, "rank 6 ingress"], 0.0), (), ())
    slow = with_probed_nics(noisy, measured(fabric(2, 2, 4), 2, {"host3->leaf0": 0.5}), PRACTICAL)
    assert slow.upper["rank 3 egress"] == 0.13
