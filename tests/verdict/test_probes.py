"""Links that probes settle: which pass, which are slow, and where the queue stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genie.record import RecordError, marked_json
from genie.verdict.probed.probes import (
    Probes,
    probes_of,
    queue_at,
    read_probes,
    relative_to,
    slow_links,
    suspects_from,
    with_probed_suspects,
)

PATHS = (
    ("leaf0->spine0", "spine0->leaf1"), ("leaf1->spine0", "spine0->leaf0"), ("leaf0->spine1", "spine1->leaf1"),
    ("leaf1->spine1", "spine1->leaf0"),
)  # fmt: skip


def probed(shares: dict[int, list[float]], hops: dict[int, list[int]] | None = None, rounds: int = 5) -> Probes:
    """Four paths; `shares`: path -> share of the expected rate in each round, 0.98 for the others."""
    tests: list[dict[str, Any]] = []
    for at, links in enumerate(PATHS):
        own = shares.get(at, [0.98] * rounds)
        test: dict[str, Any] = {
            "links": list(links), "flows": [0, 1], "expected_bps": 2e8, "rates_bps": [2e8 * share for share in own],
        }  # fmt: skip
        if hops and at in hops:
            ends = links[0].split("->")[0], links[1].split("->")[1]
            test |= {"beside": [f"host2->{ends[0]}", *links, f"{ends[1]}->host6"], "hops_ns": hops[at]}
        tests.append(test)
    return probes_of({"tests": tests})


def test_a_path_whose_queue_was_not_found_is_explained_by_a_cable_whose_queue_was() -> None:
    """Both directions of one cable are slow. Busy hosts hide the place of the queue on one of the two paths."""
    found_at, hidden = [10_000, 20_000, 9_000_000], [10_000, 4_000_000, 9_000_000]
    for places in ({0: [10_000, 9_000_000, 9_010_000], 1: hidden}, {0: hidden, 1: found_at}):
        (slow,) = slow_links(probed({0: [0.4] * 5, 1: [0.4] * 5}, places), 0.1)
        assert (slow.name, set(slow.links)) == ("leaf0-spine0", {"leaf0->spine0", "spine0->leaf0"})
        assert set(slow.also) < {"leaf1->spine0", "spine0->leaf1"}, "the other link of that path is not cleared"


def test_all_paths_at_their_rate_pass() -> None:
    found = probed({})
    assert set(found.passed(0.1)) == {link for links in PATHS for link in links}
    assert not slow_links(found, 0.1)


def test_hosts_that_are_busy_together_slow_no_link() -> None:
    found = probed({at: [0.98, 0.87, 0.9, 0.95, 0.86] for at in range(4)})
    assert len(found.passed(0.1)) == 8
    assert not slow_links(found, 0.1)


def test_hosts_too_busy_to_show_anything_settle_nothing() -> None:
    found = probed({at: [0.5] * 5 for at in range(4)})
    assert (found.passed(0.1), slow_links(found, 0.1)) == ({}, [])


def test_one_direction_with_its_queue() -> None:
    found = probed({2: [0.7] * 5}, {2: [80_000, 13_000_000, 13_010_000]})
    (slow,) = slow_links(found, 0.1)
    assert (slow.name, slow.links, slow.also) == ("leaf0->spine1", ("leaf0->spine1",), ())
    assert slow.slow_down == pytest.approx(0.98 / 0.7 - 1)
    assert len(found.passed(0.1)) == 6, "the other link of the path has not reached its rate"


def test_both_directions_are_one_cable() -> None:
    found = probed(
        {2: [0.4] * 5, 3: [0.41] * 5}, {2: [80_000, 13_000_000, 13_010_000], 3: [40_000, 80_000, 11_700_000]}
    )
    (suspect,) = suspects_from(found, 0.1)
    assert (suspect.name, suspect.direction, suspect.also) == ("leaf0-spine1", "both", [])
    assert sorted(suspect.links) == ["leaf0->spine1", "spine1->leaf0"]


@pytest.mark.parametrize("hops", [[], [80_000, -1, 13_000_000], [80_000, 200_000, 300_000], [0, 9_000_000, 18_000_000]])
def test_without_a_clear_queue_both_links_are_named(hops: list[int]) -> None:
    (slow,) = slow_links(probed({2: [0.7] * 5}, {2: hops}), 0.1)
    assert {slow.name, *slow.also} == set(PATHS[2])


def test_a_path_that_is_slow_now_and_then_stays_open() -> None:
    found = probed({2: [0.7, 0.88, 0.7, 0.97, 0.97]})
    assert not slow_links(found, 0.1)
    assert not set(PATHS[2]) & set(found.passed(0.1))


def test_too_few_rounds_settle_nothing() -> None:
    assert (
        probes_of({"tests": [{"links": ["a->b"], "flows": [0], "expected_bps": 1e8, "rates_bps": [1e8, 1e8]}]})
        == Probes()
    )
    assert probes_of({}) == Probes()


def test_the_place_of_a_queue() -> None:
    links = ["h->a", "a->b", "b->c", "c->d"]
    assert queue_at(links, [10, 20, 9_000_000]) == "b->c"
    assert queue_at(links, [10, 8_000_000, 8_000_100]) == "a->b"
    assert queue_at(links, [10, 5_000_000, 2_000_000]) == "a->b", "a router answers late"
    assert queue_at([], []) == ""


def test_victims_of_a_slow_link_are_left_out() -> None:
    slow = suspects_from(probed({2: [0.5] * 5}), 0.1)
    weak, strong = (
        [type(slow[0])(**{**slow[0].__dict__, "name": name, "links": [], "slow_down": size})]
        for name, size in (("weak", 0.2), ("strong", 0.9))
    )
    assert [each.name for each in with_probed_suspects([*weak, *strong], slow)] == [slow[0].name, "strong"]
    assert with_probed_suspects(weak, []) == weak


@pytest.mark.parametrize(
    "tests", [[{"links": "x"}], [{}], "x", [{"links": [], "flows": [], "expected_bps": -1, "rates_bps": []}]], ids=str
)
def test_a_damaged_file_is_refused(tests: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(marked_json("probe", {"tests": tests}))
    with pytest.raises(RecordError, match="is damaged"):
        read_probes(path)
    path.write_text(json.dumps({"schema": "genie.probe.1", "tests": []}))
    assert read_probes(path) == Probes()


def test_a_link_that_was_slow_before_did_not_become_slower() -> None:
    clean, slow = probed({}), probed({2: [0.5] * 5})
    assert [each.name for each in slow_links(relative_to(clean, slow), 0.1)] == ["leaf0->spine1"]
    assert not slow_links(relative_to(slow, slow), 0.1)
    assert len(relative_to(slow, slow).passed(0.1)) == 8
    assert relative_to(Probes(), slow) == Probes()
