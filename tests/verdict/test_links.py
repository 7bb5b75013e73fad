"""Links between switches: found beside NICs, told from them, named as far as the data can tell them apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from link_runs import LOUD, Shape, probed, run_pair
from tables import run_of

from genie.collectives.nccl.shape import NcclShape
from genie.plan.lowering import Lowering
from genie.record.schemas import PATHS_SCHEMA
from genie.report.page import write_report
from genie.verdict import judge
from genie.verdict.align import align
from genie.verdict.links import known_paths_of, likeliest, one_way

UP = [f"leaf{leaf}->spine{spine}" for leaf in range(2) for spine in range(2)]
DOWN = [f"spine{spine}->leaf{leaf}" for leaf in range(2) for spine in range(2)]


@pytest.mark.parametrize("link", [*UP, *DOWN])
def test_a_slow_link_is_named_and_no_host(link: str) -> None:
    live, twin = run_pair(hash_of(link), {link: 0.4})
    (suspect,) = judge(live, twin).suspects
    assert (suspect.kind, suspect.direction, suspect.ranks) == ("link", "one way", [])
    assert link in (suspect.name, *suspect.also)
    assert len(suspect.also) == 1, "of two leaves all that goes up to a spine goes down to the other leaf"
    (probed_suspect,) = judge(probed(live, {link: 0.4}), twin).suspects
    assert (probed_suspect.name, probed_suspect.also, probed_suspect.links) == (link, [], [link])


def hash_of(text: str) -> int:
    """A seed for each name, the same in every run."""
    return sum(ord(letter) * 31**at for at, letter in enumerate(text)) % 1000


def test_a_slow_cable_is_named_once() -> None:
    slow = {"leaf1->spine0": 0.4, "spine0->leaf1": 0.4}
    live, twin = run_pair(1, slow)
    (suspect,) = judge(live, twin).suspects
    assert (suspect.kind, suspect.direction) == ("link", "both")
    assert {suspect.name, *suspect.also} == {"leaf0-spine0", "leaf1-spine0", "spine0"}
    (suspect,) = judge(probed(live, slow), twin).suspects
    assert (suspect.name, suspect.also, sorted(suspect.links)) == ("leaf1-spine0", [], sorted(slow))


def test_what_a_slow_link_s_acknowledgements_delay_is_not_its_other_direction_s() -> None:
    """Most transfers that go the other way are answered through the slow link, and NCCL's have to wait for that."""
    shape = Shape(lowering=Lowering(nccl=NcclShape()), window_packets=16, chosen_by=6, rounds=1)
    live, twin = run_pair(6, {"leaf1->spine1": 0.4}, shape=shape, iterations=16)
    (suspect,) = judge(probed(live, {"leaf1->spine1": 0.4}), twin).suspects
    assert (suspect.name, suspect.also, suspect.direction) == ("leaf1->spine1", [], "one way")


def test_probes_add_the_other_direction_of_a_cable_only_where_it_is_slow_too() -> None:
    """Contention may hide a column among others that are as slow: then probes tell which it is."""
    slow = {"leaf0->spine1": 0.4, "spine1->leaf0": 0.4}
    live, twin = run_pair(4, {"leaf0->spine1": 0.4})
    assert live.paths is not None
    (suspect,) = judge(probed(live, slow), twin).suspects
    assert (suspect.name, suspect.direction) == ("leaf0->spine1", "one way")
    back = (pl.col("src") >= 4) & (pl.col("dst") < 4) & (pl.col("messages") == 1)
    more = pl.when(back).then(pl.col("last_ns") - pl.col("post_ns")).otherwise(0) // 5
    later = live.transfers.with_columns(more=more).with_columns(
        pl.col("busy_ns", "last_ns", "acked_ns") + pl.col("more")
    )
    victims = replace(probed(live, slow), transfers=later.drop("more"))
    (suspect,) = judge(victims, twin).suspects
    assert (suspect.name, suspect.direction, sorted(suspect.links)) == ("leaf0-spine1", "both", sorted(slow))


def test_a_slow_switch_is_named_where_probes_find_all_its_links_slow() -> None:
    slow = {link: 0.4 for link in (*UP, *DOWN) if "spine1" in link}
    live, twin = run_pair(2, slow)
    (suspect,) = judge(probed(live, slow), twin).suspects
    assert (suspect.kind, suspect.name, suspect.also) == ("switch", "spine1", [])


def test_a_name_says_nothing_about_what_it_names() -> None:
    slow = {link: 0.4 for link in (*UP, *DOWN) if "spine1" in link}
    live, twin = run_pair(2, slow)
    runs = [probed(live, slow), twin]
    assert all(run.paths is not None for run in runs)
    live, twin = (replace(run, paths=run.paths.with_columns(pl.col("link").str.replace("spine", "spine-")))
                  for run in runs if run.paths is not None)  # fmt: skip
    (suspect,) = judge(live, twin).suspects
    assert (suspect.kind, suspect.name, suspect.also) == ("switch", "spine-1", [])


@pytest.mark.parametrize(
    "slow", [{"host6->leaf1": 0.5}, {"leaf1->host6": 0.5}, {"host6->leaf1": 0.5, "leaf1->host6": 0.5}]
)
def test_a_slow_host_link_is_its_host_s(slow: dict[str, float]) -> None:
    live, twin = run_pair(3, slow)
    (suspect,) = judge(live, twin).suspects
    assert (suspect.kind, suspect.name, suspect.ranks) == ("nic", "host6/nic0", [6])
    assert set(slow) <= set(suspect.links)


@pytest.mark.extended
def test_noise_and_hashed_paths() -> None:
    for seed in range(4):
        shape = Shape(pinned=False)
        assert judge(*run_pair(seed, None, LOUD, shape)).result != "fail", seed
        link = (*UP, *DOWN)[seed]
        suspects = judge(*run_pair(seed, {link: 0.4}, LOUD, shape)).suspects
        assert [link in (s.name, *s.also) for s in suspects] == [True], seed


def test_clean_runs_accuse_nobody_and_say_what_they_judged() -> None:
    for seed in range(8):
        verdict = judge(*run_pair(100 + seed))
        assert (verdict.result, verdict.suspects) == ("pass", []), seed
        assert verdict.summary.startswith("8 of 8 NICs and 8 of 8 links between switches judged: none is slower than")
        assert {f"link {link}" for link in (*UP, *DOWN)} <= set(verdict.upper_bound)
        assert verdict.coverage["links"]["same_paths"] == [
            ["leaf0->spine0", "spine0->leaf1"],
            ["leaf0->spine1", "spine1->leaf1"],
            ["leaf1->spine0", "spine0->leaf0"],
            ["leaf1->spine1", "spine1->leaf0"],
        ]


def test_more_leaves_tell_both_ends_apart() -> None:
    """With a third leaf what goes up to a spine comes down to two others: each link has a column of its own."""
    shape = Shape(leaves=3, hosts_per_leaf=3)
    live, twin = run_pair(5, {"spine1->leaf2": 0.4}, shape=shape)
    (suspect,) = judge(live, twin).suspects
    assert (suspect.name, suspect.also) == ("spine1->leaf2", [])


def test_links_are_accused_only_on_paths_that_both_worlds_played() -> None:
    live, twin = run_pair(6, {"leaf0->spine1": 0.4})
    assert live.paths is not None
    changed = replace(live, info={**live.info, "paths": {"changed": True}})
    crossed = pl.col("link").str.replace_many({"spine0": "spine1", "spine1": "spine0"})
    other = replace(twin, paths=live.paths.with_columns(crossed))
    unknown = replace(twin, paths=None)
    for pair, problem in (
        ((changed, twin), "paths changed during the run"),
        ((live, other), "the twin played other paths than the run in 32 of 56 pairs of ranks"),
        ((live, unknown), "the twin does not say which paths it played"),
    ):
        verdict = judge(*pair)
        assert not any(suspect.links and suspect.kind == "link" for suspect in verdict.suspects)
        assert f"links are not accused, only ends: {problem}" in verdict.notes
        assert verdict.coverage["links"]["judged"] == 0
    verdict = judge(replace(live, paths=None), twin)
    assert not any("links" in note for note in verdict.notes)


def paths_of(ways: dict[tuple[int, int], list[str]]) -> pl.DataFrame:
    rows = [(src, dst, 50000, hop, link, None) for (src, dst), links in ways.items() for hop, link in enumerate(links)]
    return pl.DataFrame(rows, schema=PATHS_SCHEMA, orient="row")


def test_columns_of_paths() -> None:
    """Ranks 0 to 3 on leaf a, 4 and 5 on leaf b; rank 0 has a port of its own between host and leaf."""
    ways: dict[tuple[int, int], list[str]] = {}
    for src in range(4):
        first = ["h0->p", "p->a"] if src == 0 else [f"h{src}->a"]
        for dst in (4, 5):
            spine = "s" if (src, dst) != (3, 5) else "t"
            ways[src, dst] = [*first, f"a->{spine}", f"{spine}->b", f"b->h{dst}"]
    nodes = [{"rank": rank} for rank in range(6)]
    moved = [{"src": src, "dst": dst} for src, dst in ways]
    live, twin = (run_of(world, nodes, moved) for world in ("live", "twin"))
    live.paths = twin.paths = paths_of(ways)
    found = known_paths_of(live, twin, align(live, twin))
    assert [(column.links, len(column.pairs)) for column in found.columns] == [(("a->s", "s->b"), 7)]
    assert [column.links for column in found.few] == [("a->t", "t->b")]
    assert found.of_nic["egress", 0] == ("h0->p", "p->a")
    assert found.of_nic["ingress", 5] == ("b->h5",)
    assert found.edges == {"p", "a", "b"}


def test_probes_point_only_where_they_differ() -> None:
    live, twin = run_pair(7, {}, iterations=2)
    plain = known_paths_of(live, twin, align(live, twin))
    (number,) = (column.number for column in plain.columns if "leaf0->spine1" in column.links)
    links = ["spine1->leaf1", "leaf0->spine1"]
    for slow, found in (
        ({"spine1->leaf1": 0.4}, ("spine1->leaf1", True)),
        ({"leaf0->spine1": 0.4}, ("leaf0->spine1", True)),
        # No slower than what a train comes from.
        ({"spine1->leaf1": 0.6}, ("spine1->leaf1", False)),
    ):
        with_probes = probed(live, slow)
        ways = known_paths_of(with_probes, twin, align(with_probes, twin))
        assert likeliest(links, [number], ways) == found
    assert likeliest(links, [number], plain) == ("spine1->leaf1", False)
    assert likeliest(links[1:], [number], plain) == ("leaf0->spine1", True)


def test_acknowledgements_are_left_out_where_clocks_allow() -> None:
    nodes = [{"rank": rank, "end_ns": 9} for rank in range(2)]
    row = {"last_ns": 800, "acked_ns": 1000, "busy_ns": 1000}
    live = run_of("live", nodes, [{**row, "last_ns": 500}, {**row, "messages": 3, "seq": 1}])
    twin = run_of("twin", nodes, [row, {**row, "messages": 3, "seq": 1}])
    transfers = align(live, twin).transfers
    kept = one_way(transfers, 0).select("live_busy", "twin_busy").rows()
    assert one_way(one_way(transfers, 0), 0).select("live_busy", "twin_busy").rows() == kept, "once and for all"
    assert kept == [(500, 800), (1000, 1000)]
    assert one_way(transfers, 100).select("live_busy", "twin_busy").rows() == [(1000, 1000)] * 2


def test_verdict_json_and_page_name_the_link(tmp_path: Path) -> None:
    live, twin = run_pair(8, {"leaf0->spine0": 0.4}, iterations=5)
    verdict = judge(live, twin)
    data = json.loads(json.dumps(verdict.to_dict()))
    assert data["suspects"][0]["name"] == "leaf0->spine0"
    assert "link leaf0->spine0 (between 8 pairs of ranks) carries its paths" in data["summary"]
    assert data["action"].startswith("Check leaf0->spine0 (spine0->leaf1 would look the same)")
    write_report(tmp_path / "report.html", verdict, live, twin)
    assert "leaf0-&gt;spine0" in (tmp_path / "report.html").read_text()
