"""Which flows a probe sends: enough to fill each link, from and to different hosts, in batches that share nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.check.settings import Flow
from genie.probe.plan import are_disjoint, batches_of, planned
from genie.probe.rank import is_slow, is_unsteady, shows_queue
from genie.probe.settings import PathRate

Links = tuple[str, ...]


def leaf_spine(leaves: int, spines: int, hosts_per_leaf: int, ports: int) -> tuple[dict[Flow, Links], set[str]]:
    """Paths of all flows between leaves, port p over spine (source + target + p) % spines."""
    paths, between = {}, set()
    hosts = leaves * hosts_per_leaf
    for source in range(hosts):
        for target in range(hosts):
            one, other = source // hosts_per_leaf, target // hosts_per_leaf
            if one == other:
                continue
            for port in range(ports):
                spine = (source + target + port) % spines
                middle = (f"leaf{one}->spine{spine}", f"spine{spine}->leaf{other}")
                paths[Flow(source, target, port)] = (f"host{source}->leaf{one}", *middle, f"leaf{other}->host{target}")
                between.update(middle)
    return paths, between


def test_a_queue_that_stands_at_times_is_longer_than_the_usual_one() -> None:
    usual_ns, long_ns, full_ns = [8_000_000] * 12, [26_000_000] * 3, 12_000_000
    assert not shows_queue([], full_ns)
    assert not shows_queue(usual_ns, full_ns)
    assert not shows_queue([*usual_ns, *long_ns[:2]], full_ns), "two trains may be chance"
    assert shows_queue([*usual_ns, *long_ns], full_ns)
    assert not shows_queue([long_ns[0], *usual_ns, long_ns[1], *usual_ns, long_ns[2]], full_ns), "not in a row"
    assert not shows_queue([50_000] * 12 + [11_000_000] * 3, full_ns), "a path at its rate has such a queue"


def path_rate(links: str, slow: int, rounds: int = 20) -> PathRate:
    return PathRate(links.split(), [], 1e8, [0.5e8] * slow + [1e8] * (rounds - slow))


@pytest.mark.parametrize(
    ("there", "back", "other", "expected"),
    [(2, 1, 0, True), (3, 0, 0, True), (2, 0, 0, False), (1, 4, 0, False), (4, 4, 6, False), (4, 5, 6, True)],
)
def test_both_directions_of_a_cable_tell_that_it_is_slow_at_times(
    there: int, back: int, other: int, expected: bool
) -> None:
    tests = [path_rate("a->b b->c", there), path_rate("c->b b->a", back), path_rate("a->d d->c", other)]
    tests.append(path_rate("a->e e->c", 0))  # the best path of each round
    assert is_unsteady(tests[0], tests) == expected


def test_tests_of_different_cables_use_different_hosts_and_run_at_once() -> None:
    paths, between = leaf_spine(2, 2, 4, 4)
    batches = batches_of(planned(paths, between, dict.fromkeys(between, 2), between))
    assert [len(batch) for batch in batches] == [2, 2]


@pytest.mark.parametrize(("slow", "expected"), [(0, False), (5, False), (7, False), (8, True), (10, True)])
def test_a_path_that_is_slow_in_half_of_the_rounds_is_not_slow_all_the_time(slow: int, expected: bool) -> None:
    rates_bps = [0.6e8] * slow + [1e8] * (10 - slow)
    tests = [PathRate(["a->b"], [], 1e8, rates_bps), PathRate(["a->c"], [], 1e8, [1e8] * 10)]
    assert is_slow(tests[0], tests) == expected
    assert not is_slow(tests[1], tests)
    assert not is_slow(PathRate(["a->d"], [], 1e8, []), tests), "it was not measured"


def test_a_fabric_of_two_leaves_and_two_spines() -> None:
    paths, between = leaf_spine(2, 2, 4, 4)
    found = planned(paths, between, dict.fromkeys(between, 2), between)
    assert {link for test in found for link in test.links} == between
    assert len(found) == 4, "the two links of a path are filled by the same flows"
    assert all(len(test.flows) == 2 for test in found)


def test_too_few_hosts_to_fill_a_link_are_no_test() -> None:
    paths, between = leaf_spine(2, 2, 2, 4)
    assert not planned(paths, between, dict.fromkeys(between, 3), between)
    assert not planned({}, ["leaf0->spine0"], {}, [])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.randoms())
def test_plans_of_any_fabric(leaves: int, spines: int, hosts: int, ports: int, needed: int, draw: object) -> None:
    paths, between = leaf_spine(leaves, spines, hosts, ports)
    counts: Mapping[str, int] = dict.fromkeys(between, needed)
    found = planned(paths, between, counts, between)
    for test in found:
        assert len(test.flows) == needed
        assert are_disjoint(test.flows)
        assert all(set(test.links) <= set(paths[flow]) for flow in test.flows)
        assert test.links
    for batch in batches_of(found):
        hosts = [{host for flow in test.flows for host in (flow.source, flow.target)} for test in batch]
        cables = [{frozenset(link.split("->")) for link in test.crossed} for test in batch]
        for own in (hosts, cables):
            assert len(set[object]().union(*own)) == sum(map(len, own)), "tests of a batch share a host or a cable"
    assert sorted(str(test) for batch in batches_of(found) for test in batch) == sorted(map(str, found))
    served = {link for test in found for link in test.links}
    crossing = {link: {(flow.source, flow.target) for flow in paths if link in paths[flow]} for link in between}
    for link in between - served:
        ends = crossing[link]
        assert min(len({source for source, _ in ends}), len({target for _, target in ends})) < needed or needed > 1
