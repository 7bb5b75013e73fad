"""Which part of a network loses packets, by how many of each path's are lost: counted by hand, or drawn."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from check_scenes import HOSTS, PATHS, Path, links_of, lose, seen, settings

from genie.check.findings import findings_of
from genie.check.losses import HOST_PACKETS, batches_of
from genie.check.settings import ROCE, LinkTest, Observed, Rated, Tally, Trace

pytestmark = pytest.mark.live

SENT = batches_of(HOSTS, PATHS)


def count(scene: Observed, lost: Callable[[Path], int]) -> None:
    """Of each path, so many of the packets are lost."""
    scene.tallies = [
        Tally(*pair, SENT, [lost((*pair, path)) for path in range(PATHS)])
        for pair in itertools.permutations(range(HOSTS), 2)
    ]


def drawn(share: float, is_lossy: Callable[[Path], bool], seed: int) -> Callable[[Path], int]:
    chance = random.Random(seed)
    return lambda path: sum(chance.random() < share for _ in range(SENT)) if is_lossy(path) else 0


def said(scene: Observed) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in findings_of(settings(), scene)]


def over_a_link(path: Path) -> bool:
    return "leaf0-spine1" in links_of(path)


def and_back(path: Path) -> bool:
    return over_a_link(path) or "spine1-leaf0" in links_of(path)


@pytest.mark.parametrize(("hosts", "paths"), [(2, 1), (2, 8), (8, 8), (33, 4), (1024, 8)])
def test_enough_packets_leave_each_host(hosts: int, paths: int) -> None:
    assert batches_of(hosts, paths) * paths * (hosts - 1) >= HOST_PACKETS


def test_stray_losses_are_no_finding() -> None:
    scene = seen()
    count(scene, lambda path: int(path in ((0, 4, 1), (1, 3, 0), (2, 6, 2), (3, 7, 3), (5, 2, 0), (6, 1, 1))))
    assert said(scene) == []


WHERE: list[tuple[Callable[[Path], bool], str]] = [
    (lambda path: path[0] == 3, "from rank 3 (host3, 10.0.3.1) to all others: lost "),
    (lambda path: path[1] == 3, "from all others to rank 3 (host3, 10.0.3.1): lost "),
    (lambda path: 3 in path[:2], "between rank 3 (host3, 10.0.3.1) and all others: lost "),
    (over_a_link, "over the link into leaf0-spine1 or the link into spine1-leaf1, for example from rank "),
    (and_back, ", and the other way over the link into "),
    (lambda path: True, "between all hosts: lost "),
]


@pytest.mark.parametrize(("is_lossy", "words"), WHERE)
@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_one_finding_names_what_loses_packets(
    is_lossy: Callable[[Path], bool], words: str, share: float, seed: int
) -> None:
    scene = seen()
    lost = drawn(share, is_lossy, seed)
    count(scene, lambda path: lost(path) + (path == (6, 1, 2)))  # and a stray one
    ((kind, text),) = said(scene)
    assert (kind, words in text) == ("loss", True), text


def test_the_counts_are_told() -> None:
    scene = seen()
    count(scene, lambda path: int(path[0] == 3))
    share = 100 * 7 * PATHS / (7 * PATHS * SENT)
    assert f"lost {7 * PATHS} of {7 * PATHS * SENT:,} packets ({share:.2g} %): see the errors" in said(scene)[0][1]


def test_without_traces_pairs_are_told() -> None:
    scene = seen(traced=False)
    count(scene, lambda path: 2 * (path[:2] == (2, 6)))
    ((_, text),) = said(scene)
    assert text.startswith("from rank 2 (host2, 10.0.2.1) to rank 6 (host6, 10.0.6.1): lost 8 of ")


def test_two_hosts_cannot_be_told_apart() -> None:
    scene = seen(traced=False)
    scene.stations, scene.tallies = [0, 1], [Tally(0, 1, 500, [5] * PATHS), Tally(1, 0, 500, [5] * PATHS)]
    scene.rates = scene.incasts = None
    ((_, text),) = said(scene)
    assert text.startswith("between all hosts: lost 40 of 4,000 packets (1 %)")


def test_answers_to_traces_that_got_lost_too_leave_both_links_named() -> None:
    scene = seen()
    chance = random.Random(1)
    scene.probed.traces = [
        Trace(each.source, each.target, each.path, each.hops[: chance.choice((2, 3, 3))] if len(each.hops) > 2 else [])
        if over_a_link((each.source, each.target, each.path))
        else each
        for each in scene.probed.traces
    ]
    count(scene, drawn(0.2, over_a_link, 1))
    ((_, text),) = said(scene)
    assert "over the link into leaf0-spine1 or the link into spine1-leaf1" in text


def test_rates_that_losses_lower_are_not_told_and_others_are() -> None:
    scene = seen()
    count(scene, lambda path: int(3 in path[:2]))
    assert scene.rates is not None
    scene.rates.pairs = [Rated(each.flow, 0.5e8) if {3, 6} & {each.flow.source} else each for each in scene.rates.pairs]
    assert [kind for kind, text in said(scene)] == ["loss", "rate"]
    assert "from rank 6" in said(scene)[1][1]


def test_a_link_whose_acknowledgements_get_lost_is_not_slow() -> None:
    scene = seen()
    assert scene.rates is not None
    scene.rates.links = [
        LinkTest(each.links, [type(flow)(flow.source, flow.target, 0) for flow in each.flows], each.rate_bps)
        for each in scene.rates.links
    ]
    first = scene.rates.links[0]
    scene.rates.links[0] = LinkTest(first.links, first.flows, 97e6)
    assert [kind for kind, _ in said(scene)] == ["rate"]
    back = {(flow.target, flow.source, 0) for flow in first.flows}
    links = {link for path in back for link in links_of(path)[1:]}
    count(scene, lambda path: int(bool(links & set(links_of(path)))))
    assert {kind for kind, _ in said(scene)} == {"loss"}


def test_what_does_not_arrive_at_all_is_not_counted() -> None:
    scene = seen()
    lose(scene, ROCE, lambda path: path[1] == 3)
    count(scene, lambda path: 0)
    scene.tallies = [each for each in scene.tallies if 3 not in (each.source, each.target)]
    assert [kind for kind, _ in said(scene)] == ["dropped"]
