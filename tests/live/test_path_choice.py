"""Pinned ports: among those that were tried, the same each time, spread evenly, and enough on every link."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.live.paths.choice import PATHS_MIN, Links, Pair, alike, choose_ports, columns_of, ports_needed, trains

pytestmark = pytest.mark.live

Candidates = dict[Pair, list[tuple[int, Links]]]


def leaf_spine(leaves: int, spines: int, hosts_per_leaf: int, ports: int, seed: int) -> Candidates:
    """Return the candidates of a network that hashes ports: the spine of each port is drawn."""
    draw, ranks = random.Random(seed), leaves * hosts_per_leaf
    found: Candidates = {}
    for src in range(ranks):
        for dst in (other for other in range(ranks) if other != src):
            a, b = src // hosts_per_leaf, dst // hosts_per_leaf
            for port in range(50000, 50000 + ports):
                spine = draw.randrange(spines)
                inner = (f"l{a}->s{spine}", f"s{spine}->l{b}") if a != b else ()
                found.setdefault((src, dst), []).append((port, (f"h{src}->l{a}", *inner, f"l{b}->h{dst}")))
    return found


def chosen_ways(candidates: Candidates, ports: dict[Pair, list[int]]) -> dict[Pair, list[tuple[int, Links]]]:
    return {pair: [(port, dict(candidates[pair])[port]) for port in of_pair] for pair, of_pair in ports.items()}


fabrics = st.builds(
    leaf_spine,
    leaves=st.integers(2, 4),
    spines=st.integers(1, 4),
    hosts_per_leaf=st.integers(1, 4),
    ports=st.integers(1, 30),
    seed=st.integers(0, 10**6),
)


@settings(max_examples=25, deadline=None)
@given(fabrics, st.integers(1, 3), st.integers(0, 100))
def test_ports_are_among_those_tried_and_the_same_each_time(
    candidates: Candidates, queue_pairs: int, seed: int
) -> None:
    ranks = 1 + max(src for src, _ in candidates)
    chosen = choose_ports(candidates, ranks, queue_pairs, seed)
    assert chosen == choose_ports(dict(reversed(candidates.items())), ranks, queue_pairs, seed)
    assert set(chosen) == set(candidates)
    for pair, ports in chosen.items():
        assert len(ports) == queue_pairs
        assert {port for port, _ in candidates[pair]} >= set(ports)
        assert len(set(ports)) == min(queue_pairs, len(candidates[pair]))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 4), st.sampled_from([1, 2, 4]), st.integers(1, 2), st.integers(0, 10**6))
def test_each_phase_is_spread_evenly(leaves: int, spines: int, per_spine: int, seed: int) -> None:
    """With ports enough to reach every spine no link is passed twice more than another of its leaf in a phase."""
    hosts = spines * per_spine
    candidates = leaf_spine(leaves, spines, hosts, 60, seed)
    ranks = leaves * hosts
    ways = chosen_ways(candidates, choose_ports(candidates, ranks, 1, seed))
    by_phase: Counter[tuple[int, str]] = Counter()
    total: Counter[str] = Counter()
    for (src, dst), paths in ways.items():
        for _, links in paths:
            by_phase.update(((dst - src) % ranks, link) for link in links[1:-1])
            total.update(links[1:-1])
    for shift in range(1, ranks):
        for leaf in range(leaves):
            loads = [by_phase[shift, f"l{leaf}->s{spine}"] for spine in range(spines)]
            assert max(loads) - min(loads) <= 2
    assert max(total.values()) <= 1.5 * min(total.values()) + 2


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 10**6))
def test_every_link_has_paths_enough_where_there_are_pairs_enough(leaves: int, spines: int, seed: int) -> None:
    hosts = 1 + 2 * spines
    candidates = leaf_spine(leaves, spines, hosts, 40, seed)
    ways = chosen_ways(candidates, choose_ports(candidates, leaves * hosts, 1, seed))
    columns = columns_of({pair: [links for _, links in paths] for pair, paths in ways.items()})
    inner = {link: pairs for link, pairs in columns.items() if "h" not in link}
    assert len(inner) == 2 * leaves * spines
    assert all(len(pairs) >= PATHS_MIN for pairs in inner.values())
    if leaves > 2:
        assert len(set(inner.values())) == len(inner)


def test_two_leaves_cannot_tell_up_from_down() -> None:
    candidates = leaf_spine(2, 2, 4, 20, 1)
    ways = chosen_ways(candidates, choose_ports(candidates, 8, 1, 1))
    groups = alike({pair: [links for _, links in paths] for pair, paths in ways.items()})
    assert sorted(sorted(links) for links in groups) == [
        ["l0->s0", "s0->l1"],
        ["l0->s1", "s1->l1"],
        ["l1->s0", "s0->l0"],
        ["l1->s1", "s1->l0"],
    ]
    flows = trains(ways, 3, 100)
    assert len(flows) == 12
    for links in groups:
        on_it = [(src, dst) for src, dst, port in flows if set(links) <= set(dict(ways[src, dst])[port])]
        assert len(on_it) == len({src for src, _ in on_it}) == len({dst for _, dst in on_it}) == 3
    assert len(trains(ways, 3, 5)) == 5
    three = leaf_spine(3, 2, 3, 20, 1)
    assert trains(chosen_ways(three, choose_ports(three, 9, 1, 1)), 3, 100) == []


def test_paths_that_nobody_knows() -> None:
    candidates: Candidates = {(0, 1): [(50000, ()), (50001, ())], (1, 0): [(50000, ())]}
    chosen = choose_ports(candidates, 2, 2, 0)
    assert sorted(chosen[0, 1]) == [50000, 50001]
    assert chosen[1, 0] == [50000, 50000]


def test_ports_needed_are_the_reference_s() -> None:
    assert [ports_needed(paths) for paths in (1, 2, 3, 4, 5, 8, 9, 16, 40)] == [7, 9, 21, 21, 51, 51, 115, 115, 115]
