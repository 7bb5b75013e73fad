"""Suspects that may not be at fault, the windows of slow links, whole rails, and what a pass leaves open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from link_runs import run_pair
from test_probed_faults import suspect

from genie.record.waits import LinkWaits
from genie.verdict import judge
from genie.verdict.history.comparison import compare
from genie.verdict.probed.doubt import busy_links, with_doubt_of_acknowledgements, with_doubts
from genie.verdict.probed.faults import whole_rails
from genie.verdict.probed.probes import ProbedPath, Probes, probes_of, suspects_from

LINK = "leaf0->spine1"
QUIET = tuple(range(0, 40_000, 40))  # 1,000 waits of up to 40 us
SHORT = (150_000,) * 1000


def waits(share: float, beside: tuple[int, ...] = QUIET) -> LinkWaits:
    waiting = round(1000 * share)
    return LinkWaits(LINK, (2_300_000,) * waiting + (10_000,) * (1000 - waiting), beside)


def sound_path(*links: str, share: float = 0.99) -> ProbedPath:
    return ProbedPath(links, 1, 1e8, (share,) * 9, (share,) * 9)


@pytest.mark.parametrize(
    ("seen", "is_busy"),
    [(waits(0.3), True), (waits(0.05), True), (waits(0.01), False), (waits(0.0), False),
     (waits(0.3, beside=tuple(ns * 50 for ns in QUIET)), False), (LinkWaits(LINK, SHORT, SHORT), False),
     (LinkWaits(LINK, (), QUIET), False), (LinkWaits(LINK, SHORT, ()), False)],
)  # fmt: skip
def test_datagrams_that_wait_longer_than_those_beside_show_others_traffic(seen: LinkWaits, is_busy: bool) -> None:
    assert (LINK in busy_links([seen])) == is_busy


def test_slow_links_that_probes_did_not_watch_are_said() -> None:
    """In the verdict's notes, so that nobody takes such a link for one on which no other job sends."""
    live, twin = run_pair(3, {LINK: 0.4})
    words = (
        f"probes did not watch these links for traffic of others: {LINK}; they watch 16 links at most, and each beside "
        "a path that avoids all of them"
    )
    assert words in judge(live, twin, probes=probes_of({"unwatched": [LINK]})).notes
    assert not any("did not watch" in each for each in judge(live, twin, probes=probes_of({})).notes)


def test_a_slow_link_with_others_traffic_is_open_and_stands_behind_a_certain_one() -> None:
    open_, certain = suspect(LINK, links=[LINK]), suspect("leaf1->spine0", links=["leaf1->spine0"])
    first, second = with_doubts([open_, certain], [open_, certain], [waits(0.43)], {}, {})
    assert (first, second.name) == (certain, LINK)
    assert second.doubt == (
        "43 % of small probes wait 2.3 ms on the way over leaf0->spine1 while this job is silent, behind traffic of "
        "others or because the link pauses"
    )


def test_a_delay_that_stays_is_of_others_only_if_most_datagrams_wait() -> None:
    delayed = suspect(LINK, what="delay", links=[LINK])
    (certain,) = with_doubts([delayed], [delayed], [waits(0.06)], {}, {})
    (open_,) = with_doubts([delayed], [delayed], [waits(0.8)], {}, {})
    assert (certain.doubt, bool(open_.doubt)) == ("", True)


def test_header_bits_are_no_effect_of_others_traffic() -> None:
    (lossy,) = with_doubts([suspect(LINK, what="dscp", links=[LINK])], [], [waits(0.43)], {}, {})
    assert lossy.doubt == ""


def test_a_path_whose_rates_vary_is_open_and_a_steady_one_is_not() -> None:
    beside = sound_path("leaf1->spine0")
    shares = (0.33, 0.08, 0.04, 0.2, 0.33, 0.4)
    varying = Probes((replace(beside, links=(LINK,), shares=shares, beside=shares), beside))
    uneven = varying.uneven(0.1)
    assert uneven == {LINK: (pytest.approx(0.04e8), pytest.approx(0.4e8))}
    slow = suspect(LINK, links=[LINK])
    (found,) = with_doubts([slow], [slow], [], {}, uneven)
    assert found.doubt.startswith("its rate in probes varies from 4 Mb/s to 40 Mb/s: ")
    assert Probes((sound_path(LINK, share=0.4), beside)).uneven(0.1) == {}
    busy_hosts = replace(beside, shares=(0.4, 0.5, 0.7, 0.9, 0.99, 0.98))
    assert Probes((varying.paths[0], busy_hosts)).uneven(0.1) == {}, "sound paths vary too"


def test_a_link_that_was_slow_in_the_run_only_is_open() -> None:
    slow = suspect(LINK, links=[LINK])
    (found,) = with_doubts([slow], [], [], {LINK: 0.01}, {})
    assert found.fault == "intermittent"
    assert found.doubt.startswith("its rate was right in probes after the run")
    assert with_doubts([slow], [slow], [], {}, {}) == [slow], "probes found it slow too"
    assert with_doubts([slow], [], [], {"leaf1->spine0": 0.01}, {}) == [slow], "no probe measured it"


def test_a_verdict_whose_only_suspect_is_open_is_inconclusive() -> None:
    live, twin = run_pair(3, {LINK: 0.4})
    alone = judge(live, twin)
    assert alone.result == "fail"
    names = (alone.suspects[0].name, *alone.suspects[0].also)
    sound = Probes((sound_path(*names),), between=frozenset(names))
    verdict = judge(live, twin, probes=sound)
    assert (verdict.result, verdict.exit_code, verdict.suspects[0].fault) == ("inconclusive", 4, "intermittent")
    assert "; open: its rate was right in probes after the run" in verdict.summary
    assert verdict.action.startswith("Run again while no other job sends over ")


def test_a_comparison_says_that_a_suspect_is_open_and_iterations_are_slower_all_the_same() -> None:
    before, twin = run_pair(3)
    after, _ = run_pair(4, {LINK: 0.4})
    alone = compare(before, after, (twin, twin))
    assert alone.result == "slower"
    sound = Probes((sound_path(alone.suspects[0].name, *alone.suspects[0].also),))
    found = compare(before, after, (twin, twin), (sound, sound))
    assert (found.result, found.exit_code) == ("slower", 1)
    assert "; open: its rate was right in probes after the run" in found.line()


def test_a_probed_link_has_the_window_in_which_it_slowed_the_run() -> None:
    live, twin = run_pair(3, {LINK: 0.4}, iterations=16, since=8)
    slow = replace(sound_path(LINK, "spine1->leaf1", share=0.4), queue_at=LINK)
    beside = [sound_path(f"leaf{leaf}->spine{spine}") for leaf in (0, 1) for spine in (0, 1) if (leaf, spine) != (0, 1)]
    verdict = judge(live, twin, probes=Probes((slow, *beside)))
    (found,) = verdict.suspects
    first = found.since_iteration
    assert abs(first - 8) <= 1
    assert f", and slowed the run since iteration {first};" in found.evidence
    assert f", and slowed the run since iteration {first};" in verdict.summary
    assert found.until_iteration is None
    whole = judge(*run_pair(3, {LINK: 0.4}), probes=Probes((slow, *beside))).suspects[0]
    assert (whole.since_iteration, whole.until_iteration) == (0, None)
    assert "slowed the run" not in whole.evidence


def rails(*names: str) -> dict[int, str]:
    return dict(enumerate(names))


def test_all_nics_of_a_rail_are_the_rail() -> None:
    leaves = rails(*("rail0leaf0", "rail1leaf0") * 4)
    slow = [suspect(f"host{rank}", kind="nic", ranks=[rank]) for rank in (1, 3, 5, 7)]
    (found,) = whole_rails(slow, leaves)
    assert (found.kind, found.name, found.ranks) == ("rail", "rail1", [1, 3, 5, 7])
    assert found.evidence.startswith("rail1, all 4 NICs: ")
    assert whole_rails(slow[:3], leaves) == slow[:3], "one NIC of the rail is sound"
    assert whole_rails(slow, rails(*("leaf0", "leaf1") * 4)) == slow, "the fabric has no rails"
    uneven = [*slow[:3], replace(slow[3], slow_down=0.1)]
    assert whole_rails(uneven, leaves) == uneven, "a much smaller slow-down has another cause"


def test_the_leaf_switches_of_a_rail_are_the_rail() -> None:
    leaves = rails("rail0leaf0", "rail1leaf0", "rail0leaf1", "rail1leaf1")
    both = [suspect(f"rail0leaf{leaf}", kind="switch") for leaf in (0, 1)]
    (found,) = whole_rails(both, leaves)
    assert (found.kind, found.name, found.ranks) == ("rail", "rail0", [0, 2])
    assert whole_rails(both[:1], leaves) == both[:1]


def test_a_pass_says_how_often_links_were_measured() -> None:
    assert Probes((sound_path(LINK),)).unnoticed() == (
        "a link that is slow at times may pass: probes measured 1 links 9 times"
    )
    assert Probes().unnoticed() == ""


@pytest.mark.parametrize(("slow_rounds", "is_open"), [(40, True), (60, True), (100, False)])
def test_traffic_that_slows_some_rounds_need_be_seen_in_as_small_a_part_of_the_time(
    slow_rounds: int, is_open: bool
) -> None:
    at_times = suspect(LINK, what="intermittent", links=[LINK], hits=[slow_rounds, 100])
    (found,) = with_doubts([at_times], [at_times], [waits(0.03)], {}, {})
    assert bool(found.doubt) == is_open


def test_waits_that_are_as_frequent_beside_a_link_are_noise() -> None:
    at_times = suspect(LINK, what="intermittent", links=[LINK], hits=[10, 100])
    beside = (2_300_000,) * 30 + (10_000,) * 970
    (found,) = with_doubts([at_times], [at_times], [waits(0.04, beside)], {}, {})
    assert found.doubt == "", "10 more datagrams of 1,000 wait over the link"


def test_a_path_whose_acknowledgements_wait_behind_others_is_open() -> None:
    """The link that others fill is open too, and comes first."""
    shares = (0.8, 0.99) * 10
    filled = replace(
        sound_path(LINK, "spine1->leaf1"), shares=(0.4,) * 20, beside=(0.4,) * 20, back=(("leaf1->spine0",),)
    )
    victim = ProbedPath(("leaf1->spine1", "spine1->leaf0"), 2, 2e8, shares, shares, at_times=True)
    beside = replace(sound_path("leaf0->spine0"), shares=(0.99,) * 20, beside=(0.99,) * 20)
    unknown = Probes((filled, victim, beside), waits=(waits(0.3),))
    assert [each.doubt for each in suspects_from(unknown, 0.1) if each.fault == "intermittent"] == [""]
    known = replace(unknown, paths=(filled, replace(victim, back=((LINK, "spine1->leaf1"),)), beside))
    found = suspects_from(known, 0.1)
    assert [(each.links[0], each.doubt) for each in with_doubts(found, found, known.waits, {}, {})] == [
        (
            LINK,
            f"30 % of small probes wait 2.3 ms on the way over {LINK} while this job is silent, behind traffic of "
            "others or because the link pauses",
        ),
        (
            "leaf1->spine1",
            f"its acknowledgements cross {LINK}, where 30 % of small probes wait 2.3 ms while this job is silent, "
            "behind traffic of others or because the link pauses",
        ),
    ]
    quiet = replace(known, waits=(waits(0.0),))
    assert not any(each.doubt for each in suspects_from(quiet, 0.1)), "nothing waits on the way of the acknowledgements"


@pytest.mark.parametrize(("share", "is_open"), [(0.8, True), (0.4, False)])
def test_one_flow_of_four_that_waits_explains_a_quarter_of_the_rate(share: float, is_open: bool) -> None:
    others = [("spine0->leaf0",)] * 3
    path = (share, [(LINK,), *others])
    found = with_doubt_of_acknowledgements(suspect("leaf1->spine1", what="rate"), [path], [waits(0.3)])
    assert bool(found.doubt) == is_open
