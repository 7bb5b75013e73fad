"""Headlines, read by a person who reads nothing else: none claims more than was judged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import link_runs
import polars as pl
import pytest
import synthetic_runs
from link_runs import Shape
from synthetic_runs import Fault, Noise

from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK
from genie.record import Run
from genie.verdict import Options, judge
from genie.verdict.coverage import Nics, Require
from genie.verdict.model import EXIT_CODES
from genie.verdict.outcome import conclude

Runs = tuple[Run, Run]
NO_SLOWER = "is slower than its peers by 10 % or more"
SEEN = "a NIC that sends 13 % slower, or more, in all iterations would have been seen"
NOT_CROSSED = (
    "not judged: leaf0->spine0, spine0->leaf0, leaf1->spine0, spine0->leaf1 (no traffic between ranks crosses them)"
)
CROSSING = [f"{a}->{b}" for a in range(8) for b in range(8) if a // 4 != b // 4]


@cache
def one_switch() -> Runs:
    return synthetic_runs.run_pair(1000)


@cache
def two_leaves() -> Runs:
    return link_runs.run_pair(100)


def kept(runs: Runs, keep: pl.Expr) -> Runs:
    live, twin = (replace(run, transfers=run.transfers.filter(keep)) for run in runs)
    return live, twin


def rings(runs: Runs) -> Runs:
    """Without the all-to-alls: one rank of each leaf sends to the other leaf."""
    return kept(runs, pl.col("messages") > 1)


def spread(runs: Runs) -> Runs:
    """As a fabric that sprays records it."""
    live, twin = runs
    counters = {**twin.counters, "crossed": {"links 1-2": CROSSING}}
    info = {**twin.info, "load_balancing": "spray"}
    return replace(live, paths=None), replace(twin, paths=None, info=info, counters=counters)


def of(runs: Runs, require: Require | None = None) -> str:
    verdict = judge(*runs, Options(require_coverage=require))
    assert (
        verdict.exit_code == {"pass": EXIT_OK, "fail": EXIT_FAILED, "inconclusive": EXIT_INCONCLUSIVE}[verdict.result]
    )
    return verdict.line()


def test_exit_codes_are_the_command_line_s() -> None:
    assert EXIT_CODES == {"pass": EXIT_OK, "fail": EXIT_FAILED, "inconclusive": EXIT_INCONCLUSIVE}
    assert EXIT_INCONCLUSIVE == 4


def test_pass_on_one_switch_counts_nics() -> None:
    assert of(one_switch()) == f"PASS 8 of 8 NICs judged: none {NO_SLOWER}"
    assert of(one_switch(), "links") == of(one_switch(), "nics") == of(one_switch())


def test_pass_counts_links_between_switches() -> None:
    assert of(two_leaves()) == f"PASS 8 of 8 NICs and 8 of 8 links between switches judged: none {NO_SLOWER}"


def test_links_that_no_traffic_crosses_are_no_pass() -> None:
    count = "8 of 8 NICs and 4 of 8 links between switches judged"
    assert of(rings(two_leaves())) == f"INCONCLUSIVE {count}; {NOT_CROSSED}; {SEEN}"
    for require in ("nics", "none"):
        assert of(rings(two_leaves()), require) == (
            f"PASS {count}: no judged one {NO_SLOWER}, the others may be (--require-coverage {require}); {NOT_CROSSED}"
        )


def test_links_of_few_pairs_are_no_pass_although_one_is_slow() -> None:
    """Two pairs of ranks a link, one link at 40 %: no NIC is slow, and no link can be told."""
    few = pl.col("src").is_in([0, 1, 4, 5]) & pl.col("dst").is_in([0, 1, 4, 5])
    for slow in ({}, {"leaf0->spine1": 0.4}):
        near = pl.col("src") // 4 == pl.col("dst") // 4
        line = of(kept(link_runs.run_pair(100, slow), few | near))
        assert "and 0 of 8 links between switches judged" in line
        assert not line.startswith("PASS")


def test_a_switch_without_ranks_is_counted() -> None:
    runs = link_runs.run_pair(5, shape=Shape(leaves=3))
    near = (pl.col("src") < 8) & (pl.col("dst") < 8)
    live, twin = (
        replace(
            run, info={**run.info, "ranks": 8}, timeline=run.timeline.filter(pl.col("rank") < 8),
            transfers=run.transfers.filter(near), paths=None if run.paths is None else run.paths.filter(near),
        )
        for run in runs
    )  # fmt: skip
    line = of((live, twin))
    assert line.startswith(
        "INCONCLUSIVE 8 of 8 NICs and 8 of 12 links between switches judged; not judged: leaf2->spine0, spine0->leaf2, "
        "leaf2->spine1, spine1->leaf2 (no traffic between ranks crosses them); "
    )


def test_a_nic_without_payload_is_not_judged() -> None:
    runs = kept(one_switch(), (pl.col("src") != 7) & (pl.col("dst") != 7))
    idle = "not judged: rank 7 (no payload sent or received)"
    seen = "one of 6 NICs that sends 13 % slower, or more, in all iterations would have been seen"
    assert of(runs) == f"INCONCLUSIVE 7 of 8 NICs judged; {idle}; {seen}"
    assert of(runs, "none") == (
        f"PASS 7 of 8 NICs judged: no judged one {NO_SLOWER}, the others may be (--require-coverage none); {idle}"
    )


def test_fail_counts_too_and_does_not_speak_for_the_others() -> None:
    slow = synthetic_runs.run_pair(1, Noise(), Fault(5, 0.5, since=7))
    accused = (
        "FAIL rank 5: its NIC (host5/nic0) or link (host5-switch0) sends 2.0x slower than the twin since iteration 7"
    )
    assert of(slow) == f"{accused}; cost not judged; 7 of 8 NICs judged"
    assert judge(*slow, expected=synthetic_runs.expected_run(1)).line() == (
        f"{accused}; iterations take 86 % longer (+171 ms); +169 ms of it in 2 × all_reduce of group world (2.37 MiB), "
        "+2.68 ms elsewhere; 7 of 8 NICs judged"
    )
    line = of(link_runs.run_pair(8, {"leaf0->spine0": 0.4}))
    assert line.startswith("FAIL link leaf0->spine0 (between 8 pairs of ranks) carries its paths 2.2x slower")
    assert line.endswith("; 6 of 8 NICs and 8 of 8 links between switches judged")


def test_an_accused_nic_is_judged_and_none_is_ruled_out_where_none_is() -> None:
    used = {direction: frozenset(range(4)) for direction in ("egress", "ingress")}
    nics = Nics(frozenset({("egress", 2), ("egress", 3), ("ingress", 3)}), used, accused=frozenset({2}))
    assert [nics.is_judged(rank) for rank in range(4)] == [False, False, True, True]
    few = kept(one_switch(), pl.col("iteration") < 4)
    line = of(few)
    assert line.startswith("INCONCLUSIVE 0 of 8 NICs judged; "), line
    assert line.endswith("no slow-down of a sending NIC can be ruled out")


def test_fail_goes_before_inconclusive() -> None:
    """The slow NIC is said although a rank was not judged and links were not."""
    runs = kept(synthetic_runs.run_pair(1, Noise(), Fault(5, 0.5)), (pl.col("src") != 7) & (pl.col("dst") != 7))
    assert of(runs).startswith("FAIL rank 5: ")


@pytest.mark.parametrize("require", [None, "links", "nics", "none"])
def test_spread_packets_count_by_tier(require: Require | None) -> None:
    assert of(spread(two_leaves()), require) == (
        f"PASS 8 of 8 NICs and 1 of 1 tier of links between switches judged: none {NO_SLOWER}; single links are not "
        f"judged: the fabric spreads the packets of a flow over paths"
    )


def test_a_slow_pair_leaves_its_tier_unjudged() -> None:
    runs = spread(link_runs.run_pair(8, {"leaf0->spine0": 0.4}))
    line = of(runs)
    assert line.startswith("INCONCLUSIVE 6 of 8 NICs and 0 of 1 tier of links between switches judged; ")
    assert "not judged: links 1-2 (rank 0 to rank 4 may be up to 270 % slower than its peers); " in line


def test_a_tier_whose_traffic_is_slow_beside_the_rest_is_not_judged() -> None:
    """More than half of the pairs cross it, so that a pair's peers are as slow as it is."""
    live, twin = two_leaves()
    crosses = pl.col("src") // 4 != pl.col("dst") // 4
    busy = pl.when(crosses).then(pl.col("busy_ns") * 1.4).otherwise(pl.col("busy_ns")).cast(pl.Int64)
    slow = replace(live, transfers=live.transfers.filter(pl.col("messages") == 1).with_columns(busy_ns=busy))
    small = replace(twin, transfers=twin.transfers.filter(pl.col("messages") == 1))
    assert "links 1-2 (its traffic may be slower than traffic that does not cross it)" in of(spread((slow, small)))


def test_unknown_paths_count_by_tier_where_hashing_reached_all_links() -> None:
    live, twin = two_leaves()
    unknown = (replace(live, paths=None), twin)
    assert of(unknown).startswith("PASS 8 of 8 NICs and 1 of 1 tier of links between switches judged: none is slower")
    line = of(rings(unknown))
    assert line.startswith("INCONCLUSIVE 8 of 8 NICs and 0 of 1 tier of links between switches judged; ")
    assert "(2 pairs of ranks are too few to surely cross all 8 of its links: 1 can take leaf0->spine0)" in line
    changed = (replace(live, info={**live.info, "paths": {"changed": True}}), twin)
    assert "single links are not judged: paths changed during the run" in of(changed)


def older(runs: Runs, **info: object) -> Runs:
    """As a version recorded it that named no tiers."""
    live, twin = runs
    counters = {"links": [{"link": entry["link"]} for entry in twin.counters["links"]]}
    return live, replace(twin, counters=counters, info={**twin.info, **info})


def without_paths(runs: Runs) -> Runs:
    live, twin = (replace(run, paths=None) for run in runs)
    return live, twin


def test_a_twin_s_record_without_tiers_has_those_of_its_links_names() -> None:
    assert of(older(two_leaves())) == of(two_leaves())
    live, _ = unknown = without_paths(two_leaves())
    assert of(older(unknown)).startswith("INCONCLUSIVE 8 of 8 NICs and 0 of 1 tier of links between switches judged; ")
    assert of(older((live, two_leaves()[1]))).startswith("PASS 8 of 8 NICs and 1 of 1 tier of links between switches")


def test_a_twin_s_record_that_does_not_say_which_links_are_between_switches_is_no_pass() -> None:
    why = (
        "not judged: links between switches (the twin's record does not say which links are between switches: "
        "simulate again)"
    )
    more_hosts = older(without_paths(two_leaves()), packet_latency_ns=[0] * 9)  # one of them has two cables or more
    no_hosts = older(without_paths(two_leaves()), hosts=[])
    live, twin = without_paths(two_leaves())
    for runs in (more_hosts, no_hosts, (live, replace(twin, counters={}))):
        line = of(runs)
        count = "8 of 8 NICs and 0 of an unknown number of links between switches judged"
        assert line.startswith(f"INCONCLUSIVE {count}; {why}; ")
        assert judge(*runs).action.startswith("Simulate again with this version, or say that NICs are enough: ")
        assert of(runs, "nics").startswith(f"PASS {count}: ")


def test_pairs_of_one_direction_do_not_judge_the_links_of_the_other() -> None:
    """16 pairs cross the tier from leaf 1, and one from leaf 0, which takes one of leaf 0's two uplinks."""
    one = (pl.col("src") // 4 >= pl.col("dst") // 4) | ((pl.col("src") == 0) & (pl.col("dst") == 4))
    live, twin = kept(two_leaves(), one & (pl.col("messages") == 1))
    line = of((replace(live, paths=None), twin))
    why = "17 pairs of ranks are too few to surely cross all 8 of its links: 1 can take leaf0->spine0"
    assert "0 of 1 tier of links between switches judged; " in line
    assert f"not judged: links 1-2 ({why}); " in line


def test_no_payload_is_no_result() -> None:
    live, twin = (replace(run, transfers=run.transfers.clear()) for run in one_switch())
    for require in (None, "none"):
        assert of((live, twin), require) == (
            "INCONCLUSIVE no payload went between ranks: no NIC or link judged; an iteration takes 201 ms, 199 ms in "
            "the twin"
        )


def test_what_to_do_names_the_option_that_makes_it_enough() -> None:
    assert judge(*rings(two_leaves())).action == (
        "Place ranks so that their traffic crosses all links, or say that NICs are enough: --require-coverage nics."
    )


def test_a_slow_fleet_denies_no_open_suspect_and_no_known_fault() -> None:
    alone = judge(*synthetic_runs.run_pair(1, Noise(), Fault(fleet=0.5)))
    found = judge(*link_runs.run_pair(8, {"leaf0->spine0": 0.4})).suspects[0]
    fleet = "more than half of the ranks take 2.00x the twin's time, or more"
    assert alone.line() == f"FAIL {fleet}; no component stands out; 8 of 8 NICs judged"
    first = found.evidence.split(";")[0]
    open_ = conclude(replace(alone, suspects=[replace(found, doubt="traffic of others crosses it")]))
    assert open_.line() == f"FAIL {fleet}; open: {first}: traffic of others crosses it; 8 of 8 NICs judged"
    known = conclude(replace(alone, known=[found]))
    assert known.line() == f"FAIL {fleet}; no other component stands out; known: {first}; 8 of 8 NICs judged"
    assert "no component stands out" not in conclude(replace(alone, suspects=[found])).fleet.words


def test_what_looks_the_same_as_a_suspect_is_in_the_first_line() -> None:
    verdict = judge(*link_runs.run_pair(8, {"leaf0->spine0": 0.4}))
    (link,) = verdict.suspects
    line = conclude(replace(verdict, suspects=[replace(link, also=["spine0->leaf1"])])).line()
    assert line.startswith(f"FAIL {link.evidence.split(';')[0]} (spine0->leaf1 would look the same); ")
    verdict = judge(*synthetic_runs.run_pair(1, Noise(), Fault(5, 0.5)))
    (nic,) = verdict.suspects
    assert len(nic.also) == 2, "its cable and its port, which the words on the NIC have already"
    assert "would look the same" not in verdict.line()
    rival = "the receiving side of rank 3 (host3/nic0)"
    line = conclude(replace(verdict, suspects=[replace(nic, also=[*nic.also, rival])])).line()
    assert f" ({rival} would look the same); " in line


def test_further_suspects_have_their_kinds_of_fault() -> None:
    verdict = judge(*synthetic_runs.run_pair(1, Noise(), Fault(5, 0.5)))
    (nic,) = verdict.suspects
    line = conclude(replace(verdict, suspects=[nic, replace(nic, name="host3/nic0", fault="loss", doubt="x")])).line()
    assert " (and NIC host3/nic0 (loss, open)); " in line
