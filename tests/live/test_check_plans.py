"""Traffic of a check: ports, partners, flows over links, incasts."""

from __future__ import annotations

import itertools

import pytest
from check_scenes import HOSTS, PATHS, facts, lose, seen, settings

from genie.bench.rounds import rounds_of
from genie.check.blame import Layout, blame
from genie.check.congestion import incasts_of
from genie.check.probes import partners_of
from genie.check.rate_plans import doubtful_flows, link_tests, sound_pairs
from genie.check.settings import ROCE, Flow
from genie.check.stations import local_pairs, rails_apart, rails_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("hosts", [2, 3, 4, 7, 8, 33])
def test_all_pairs_meet_once_in_n_minus_1_rounds(hosts: int) -> None:
    rounds = list(rounds_of(hosts))
    assert len(rounds) == (hosts if hosts % 2 else hosts - 1)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(itertools.combinations(range(hosts), 2))
    assert all(len({rank for pair in pairs for rank in pair}) == 2 * len(pairs) for pairs in rounds)


def test_partners_are_mutual() -> None:
    stations = [0, 2, 3, 5, 9]
    partners = {rank: partners_of(stations, rank) for rank in stations}
    for number in range(5):
        for rank in stations:
            partner = partners[rank][number]
            assert partner is None or partners[partner][number] == rank
    assert sorted(each for each in partners[9] if each is not None) == [0, 2, 3, 5]


def test_source_ports_are_apart_and_of_the_range() -> None:
    for seed in range(50):
        ports = settings(paths=16, seed=seed).probe_ports
        assert len(set(ports)) == 16
        assert all(0xC000 <= port <= 0xFFFF for port in ports)


def test_many_hosts_have_few_queue_pairs() -> None:
    assert settings(8, paths=8).stream_paths == 8
    assert settings(1024, paths=8, addresses=[], ports=[], host_names=[]).stream_paths == 1


def test_links_are_tried_by_two_flows_of_different_hosts_that_cross_them() -> None:
    scene = seen()
    batches = link_tests(scene, sound_pairs(scene), set(), PATHS)
    tests = [test for batch in batches for test in batch]
    assert sorted(link for test in tests for link in test.links) == sorted(
        [f"leaf{leaf}-spine{spine}" for leaf in range(2) for spine in range(2)]
        + [f"spine{spine}-leaf{leaf}" for leaf in range(2) for spine in range(2)]
    )
    hops = {(each.source, each.target, each.path): each.hops for each in scene.probed.traces}
    for test in tests:
        assert len({flow.source for flow in test.flows}) == len({flow.target for flow in test.flows}) == 2
        assert all(link in hops[flow.source, flow.target, flow.path] for flow in test.flows for link in test.links)
    for batch in batches:
        senders = [flow.source for test in batch for flow in test.flows]
        assert len(set(senders)) == len(senders)
    assert len(batches) < len(tests)


def test_slow_hosts_do_not_try_links_where_others_can() -> None:
    scene = seen()
    slow = {("from", 0), ("to", 1), ("from", 5)}
    for batch in link_tests(scene, sound_pairs(scene), slow, PATHS):
        for test in batch:
            assert not any(("from", flow.source) in slow or ("to", flow.target) in slow for flow in test.flows)


def test_what_is_lost_decides_what_is_sound() -> None:
    scene = seen()
    lose(scene, ROCE, lambda path: path == (0, 4, 1))
    lose(scene, (4096, 2048), lambda path: path == (5, 2, 0))
    sound = sound_pairs(scene)
    assert (sound[0, 4], sound[2, 5], sound[0, 1]) == (0, 1024, 4096)
    flows = [flow for batch in link_tests(scene, sound, set(), PATHS) for test in batch for flow in test.flows]
    assert not any({flow.source, flow.target} == {0, 4} for flow in flows)


def test_ranks_of_a_host_are_its_rails() -> None:
    own = [facts(rank // 2) for rank in range(6)]
    assert rails_of(range(6), own) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}
    assert local_pairs(range(6), own) == {(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)}
    assert local_pairs(range(2), own) == set()  # a job of one host
    assert rails_of(range(2), own) == {0: 0, 1: 0}
    across = {(a, b) for a, b in itertools.permutations(range(6), 2) if a // 2 != b // 2 and a % 2 != b % 2}
    assert rails_apart(range(6), own, across) == across
    assert rails_apart(range(6), own, across - {(0, 3)}) == set()


def test_what_is_apart_does_not_count_as_tried() -> None:
    apart = {(0, 1), (1, 0), (2, 3), (3, 2)}
    layout = Layout(range(4), 1, {}, apart)
    failing = {(*pair, 0) for pair in itertools.permutations(range(4), 2) if pair not in apart}
    assert [each.kind for each in blame(failing, layout)] == ["all"]
    found = blame({path for path in failing if path[1] == 3}, layout)
    assert [(each.kind, each.ranks) for each in found] == [("to", (3,))]


def test_a_doubtful_host_is_tried_with_hosts_that_are_not() -> None:
    best = {Flow(a, b): 97.0 for a, b in itertools.permutations(range(HOSTS), 2)}
    best |= {flow: 48.0 for flow in best if flow.source == 2 or flow.target == 6}
    again = doubtful_flows(best, 0.85)
    assert len(again) == 4
    assert sum(flow.source == 2 for flow in again) == 2
    assert sum(flow.target == 6 for flow in again) == 2
    assert Flow(2, 6) not in again


@pytest.mark.parametrize(
    ("hosts", "sizes"), [(3, [3]), (4, [4]), (5, [5]), (6, [6]), (7, [4, 3]), (8, [4, 4]), (9, [4, 5])]
)
def test_each_host_receives_one_incast(hosts: int, sizes: list[int]) -> None:
    sound = dict.fromkeys(itertools.combinations(range(hosts), 2), 4096)
    turns = list(incasts_of(range(hosts), sound))
    assert sorted(each.receiver for turn in turns for each in turn) == list(range(hosts))
    assert sorted({len(each.senders) + 1 for turn in turns for each in turn}) == sorted(set(sizes))
    for turn in turns:
        members = [rank for each in turn for rank in (each.receiver, *each.senders)]
        assert len(set(members)) == len(members)


def test_two_hosts_cannot_be_told_apart() -> None:
    layout = Layout([0, 1], 2, {})
    found = blame({(0, 1, 0), (0, 1, 1)}, layout)
    assert [(each.kind, each.ranks) for each in found] == [("pair", (0, 1))]


def test_what_explains_most_comes_first_and_the_rest_is_told_by_pairs() -> None:
    layout = Layout(range(4), 2, {})
    failing = {(source, 3, path) for source in range(3) for path in range(2)} | {(0, 1, 1)}
    found = blame(failing, layout)
    assert [(each.kind, each.ranks, len(each.paths)) for each in found] == [("to", (3,), 6), ("path", (0, 1), 1)]
