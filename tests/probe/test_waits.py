"""Which flows watch a link for traffic of others, and which ones beside it."""

from __future__ import annotations

from genie.check.settings import Flow
from genie.probe.waits import unwatched, watch_of
from genie.record.waits import WATCHED_MAX

PATHS = {
    Flow(0, 2, 0): ("host0->leaf0", "leaf0->spine0", "spine0->leaf1", "leaf1->host2"),
    Flow(0, 2, 1): ("host0->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->host2"),
    Flow(1, 3, 0): ("host1->leaf0", "leaf0->spine0", "spine0->leaf1", "leaf1->host3"),
    Flow(1, 3, 1): ("host1->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->host3"),
    Flow(0, 1, 0): ("host0->leaf0", "leaf0->host1"),
}


def test_a_flow_over_the_link_and_one_of_the_same_host_and_length_beside_it() -> None:
    (found,) = watch_of(PATHS, {"leaf0->spine1"})
    assert (found.flow, found.beside) == (Flow(0, 2, 1), Flow(0, 2, 0))


def test_a_flow_crosses_as_few_watched_links_as_possible() -> None:
    found = {each.link: each for each in watch_of(PATHS, {"leaf0->spine1", "host0->leaf0"})}
    assert found["leaf0->spine1"].flow == Flow(1, 3, 1)
    assert found["host0->leaf0"].flow in (Flow(0, 2, 0), Flow(0, 1, 0))
    assert {each.beside for each in found.values()} == {Flow(1, 3, 0)}


def test_links_without_a_flow_or_without_one_beside_it_are_left_out() -> None:
    assert watch_of(PATHS, {"leaf7->spine1"}) == []
    assert watch_of(PATHS, {"leaf0->spine0", "leaf0->spine1", "leaf0->host1"}) == []


def test_links_that_the_run_accuses_come_first() -> None:
    paths = {
        Flow(number, 100 + number, 0): (f"host{number}->leaf", f"leaf->host{100 + number}") for number in range(20)
    }
    wanted = [f"host{number}->leaf" for number in range(19)]
    found = watch_of(paths, wanted, first=["host18->leaf"])
    assert len(found) == WATCHED_MAX
    assert found[0].link == "host18->leaf"
    assert unwatched(wanted, found) == ["host7->leaf", "host8->leaf", "host9->leaf"]


def test_links_without_a_flow_beside_them_count_as_not_watched() -> None:
    links = {"leaf0->spine0", "leaf0->spine1", "leaf0->host1"}
    assert unwatched(links, watch_of(PATHS, links)) == sorted(links)
    assert unwatched(["leaf0->spine1"], watch_of(PATHS, ["leaf0->spine1"])) == []
