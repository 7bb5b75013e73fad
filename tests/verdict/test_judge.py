"""False alarms and recall over seeds, and what is said when it is not one NIC."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest
from synthetic_runs import Fault, Noise, expected_run, run_pair
from tables import run_of

from genie.record import Run
from genie.verdict import Options, Verdict, judge
from genie.verdict.components import Attachment, Component
from genie.verdict.decompose import IterationTotals
from genie.verdict.judge import with_iterations
from genie.verdict.links import KnownPaths
from genie.verdict.model import FleetGate
from genie.verdict.words import links_of

HEAVY = Noise(message_cv=0.06, tail_chance=0.03, rank_bias=0.008, iteration_cv=0.05, episode_chance=0.1)


def verdicts(seeds: int, noise: Noise, fault: Fault) -> list[Verdict]:
    return [judge(*run_pair(1000 + seed, noise, fault)) for seed in range(seeds)]


def first_right(found: list[Verdict], rank: int) -> int:
    return sum(bool(v.suspects) and v.suspects[0].ranks == [rank] and v.result == "fail" for v in found)


@pytest.mark.extended
@pytest.mark.parametrize(
    "noise", [Noise(), HEAVY, Noise(drift=0.2), Noise(tail_chance=0.05)], ids=["quiet", "heavy", "drift", "tails"]
)
def test_clean_runs_accuse_nobody(noise: Noise) -> None:
    results = Counter(v.result for v in verdicts(25, noise, Fault()))
    assert results["fail"] <= 1
    if noise == Noise():
        assert results["pass"] >= 24


@pytest.mark.parametrize(
    ("noise", "fault", "least"),
    [
        (Noise(), Fault(5, 0.5), 12),
        pytest.param(Noise(), Fault(2, 0.8), 12, marks=pytest.mark.extended),
        (Noise(), Fault(5, 0.5, since=7), 12),
        pytest.param(Noise(), Fault(0, 0.8, since=7), 12, marks=pytest.mark.extended),
        pytest.param(HEAVY, Fault(5, 0.5), 12, marks=pytest.mark.extended),
        (HEAVY, Fault(7, 0.8), 11),
    ],
)
def test_the_slow_nic_is_named_first(noise: Noise, fault: Fault, least: int) -> None:
    found = verdicts(12, noise, fault)
    assert first_right(found, fault.rank) >= least
    if noise == Noise():
        for verdict in found:
            assert abs(verdict.suspects[0].since_iteration - max(fault.since, 2)) == 0
            assert verdict.suspects[0].slow_down == pytest.approx(1 / fault.rate - 1, rel=0.15)
            assert verdict.suspects[0].direction == "egress"
            assert len(verdict.suspects) == 1  # waiting ranks are not accused


def test_a_slow_receiver_is_named_beside_the_sender_before_it() -> None:
    # On a ring they share their one path, and the all-to-alls are too small to tell them apart.
    for verdict in verdicts(8, Noise(), Fault(5, 0.5, ingress=True)):
        first = verdict.suspects[0]
        assert first.ranks == [5] or "the receiving side of rank 5 (host5/nic0)" in first.also


def test_a_slow_receiver_is_told_from_a_sender_where_all_its_paths_show_it() -> None:
    for seed in range(4):
        live, twin = run_pair(seed, Noise())
        busy = pl.when(pl.col("dst") == 5).then(pl.col("busy_ns") * 1.5).otherwise(pl.col("busy_ns"))
        live.transfers = live.transfers.with_columns(busy.cast(pl.Int64).alias("busy_ns"))
        (suspect,) = judge(live, twin).suspects
        assert (suspect.ranks, suspect.direction) == ([5], "ingress")


def test_slow_compute_is_late_and_not_the_network() -> None:
    for verdict in verdicts(8, Noise(), Fault(3, compute=4.0)):
        assert verdict.result == "pass"
        assert verdict.late[0]["rank"] == 3


def test_a_slow_fleet_blames_no_component() -> None:
    for verdict in verdicts(4, Noise(), Fault(fleet=0.6)):
        assert verdict.result == "fail"
        assert verdict.suspects == []
        assert verdict.fleet.result == "fail"


def test_a_slow_fleet_on_busy_hosts_is_not_charged_to_the_network() -> None:
    live, twin = run_pair(1, Noise(), Fault(fleet=0.6))
    late = pl.when(pl.col("kind") == "comp").then(3_000_000).otherwise(0).alias("overshoot_ns")
    live.timeline = live.timeline.with_columns(late)
    verdict = judge(live, twin)
    assert verdict.result == "inconclusive"
    assert "hosts are busy" in verdict.summary


def test_slow_iterations_that_no_component_explains_are_no_pass() -> None:
    """A few late transfers decide an iteration's time, and no median shows them."""
    gate = FleetGate("pass", 0.0, 0.25, "as fast as the twin")
    iterations = [IterationTotals(number, 1.0, 1.0, 1430, 1000, 1500) for number in range(2, 12)]
    assert with_iterations(gate, iterations, Options()).words == (
        "the traffic of an iteration takes 1.43x the twin's time, and no component explains it"
    )
    assert with_iterations(gate, iterations, Options()).result == "inconclusive"
    failed = with_iterations(replace(gate, result="fail"), iterations, Options())
    assert (failed.result, failed.words) == ("fail", gate.words)


@pytest.mark.parametrize("slow", [0, 4])
def test_a_few_slow_iterations_pass(slow: int) -> None:
    gate = FleetGate("pass", 0.0, 0.25, "as fast as the twin")
    iterations = [
        IterationTotals(number, 1.0, 1.0, 3000 if number < slow else 1010, 1000, 3000) for number in range(10)
    ]
    assert with_iterations(gate, iterations, Options()).result == "pass"


def slowed(live: Run, ranks: list[int], factor: float) -> Run:
    """All transfers from some ranks take longer."""
    busy = pl.when(pl.col("src").is_in(ranks)).then(pl.col("busy_ns") * factor).otherwise(pl.col("busy_ns"))
    return replace(live, transfers=live.transfers.with_columns(busy.cast(pl.Int64).alias("busy_ns")))


def test_two_slow_nics_are_two_suspects() -> None:
    live, twin = run_pair(3, Noise())
    verdict = judge(slowed(live, [1, 6], 1.5), twin)
    assert sorted(rank for suspect in verdict.suspects for rank in suspect.ranks) == [1, 6]


def test_a_slow_switch_is_one_suspect() -> None:
    live, twin = run_pair(4, Noise())
    for entry in twin.info["hosts"]:
        entry["switch"] = f"leaf{entry['rank'] // 4}"
    verdict = judge(slowed(live, [4, 5, 6, 7], 1.6), twin)
    assert [(s.kind, s.name, s.ranks) for s in verdict.suspects] == [("switch", "leaf1", [4, 5, 6, 7])]


def test_a_slow_machine_is_named_as_the_live_run_knows_it() -> None:
    live, twin = run_pair(4, Noise())
    live.info["hosts"] = [{"rank": rank, "host": f"node{rank // 2}"} for rank in range(8)]
    verdict = judge(slowed(live, [2, 3], 1.6), twin)
    assert [(s.kind, s.name, s.ranks) for s in verdict.suspects] == [("host", "node1", [2, 3])]
    (suspect,) = judge(slowed(live, [5], 1.6), twin).suspects
    assert (suspect.name, suspect.ranks) == ("host5/nic0", [5])


def test_packets_sent_again_are_said_although_the_run_passes() -> None:
    live, twin = run_pair(7, Noise(), Fault())
    assert judge(live, twin).sent_again == ""
    lossy = live.transfers.with_columns(
        retransmits=pl.when(pl.col("src") == 3).then(pl.col("size_bytes") // 4096 // 20).otherwise(0)
    )
    verdict = judge(replace(live, transfers=lossy), twin)
    assert verdict.result == "pass"
    assert "but rank 3 sent" in verdict.summary
    share = float(verdict.summary.split("the twin did not, ")[1].split(" %")[0])
    assert 4.5 < share <= 5  # one in twenty, less what is rounded down
    assert any("rank 3 sent" in note for note in verdict.notes)


@pytest.mark.parametrize(("ranks", "others"), [([3, 4], "another rank"), ([2, 3, 4], "2 other ranks")])
def test_packets_that_others_sent_again_are_counted_too(ranks: list[int], others: str) -> None:
    live, twin = run_pair(7, Noise(), Fault())
    packets = pl.col("size_bytes") // 4096 // 20
    lossy = live.transfers.with_columns(
        retransmits=pl.when(pl.col("src").is_in(ranks)).then(packets * (1 + (pl.col("src") == 3))).otherwise(0)
    )
    text = judge(replace(live, transfers=lossy), twin).sent_again
    found = re.match(rf"rank 3 sent (\d+) packets again .* of its data, {others} (\d+): the network loses", text)
    assert found is not None, text
    assert int(found[2]) * 2 == int(found[1]) * (len(ranks) - 1)


def test_a_slow_path_is_not_its_sender() -> None:
    live, twin = run_pair(10, Noise())
    small = pl.col("size_bytes") < 100_000  # the all-to-alls: a ring would have one path per sender
    live, twin = (replace(run, transfers=run.transfers.filter(small)) for run in (live, twin))
    path = (pl.col("src") == 5) & (pl.col("dst") == 2)
    busy = pl.when(path).then(pl.col("busy_ns") * 4).otherwise(pl.col("busy_ns"))
    live.transfers = live.transfers.with_columns(busy.alias("busy_ns"))
    (suspect,) = judge(live, twin).suspects
    assert (suspect.kind, suspect.name, suspect.ranks) == ("link", "the path from rank 5 to rank 2", [5])
    assert suspect.slow_down == pytest.approx(3, rel=0.1)


def test_two_slow_paths_of_a_sender_are_two_suspects() -> None:
    for seed in (10, 11, 12):
        live, twin = run_pair(seed, Noise())
        small = pl.col("size_bytes") < 100_000
        live, twin = (replace(run, transfers=run.transfers.filter(small)) for run in (live, twin))
        paths = (pl.col("src") == 5) & pl.col("dst").is_in([2, 3])
        busy = pl.when(paths).then(pl.col("busy_ns") * 4).otherwise(pl.col("busy_ns"))
        live.transfers = live.transfers.with_columns(busy.alias("busy_ns"))
        suspects = judge(live, twin).suspects
        assert sorted(s.name for s in suspects) == [f"the path from rank 5 to rank {to}" for to in (2, 3)]
        assert [(s.kind, s.direction, s.also) for s in suspects] == [("link", "egress", [])] * 2


def test_a_run_that_died_is_at_best_inconclusive() -> None:
    live, twin = run_pair(1000, Noise())
    assert judge(live, twin).result == "pass"
    live.info.update(complete=False, problem="rank 5 ended with\nsignal 9")
    verdict = judge(live, twin)
    assert (verdict.result, verdict.exit_code) == ("inconclusive", 4)
    assert verdict.line().startswith(
        "INCONCLUSIVE 8 of 8 NICs judged; the live run did not end properly (rank 5 ended with signal 9); a NIC that"
    )


def test_a_run_that_died_may_still_fail() -> None:
    live, twin = run_pair(1000, Noise(), Fault(5, 0.5))
    live.info.update(complete=False, problem=None)
    verdict = judge(live, twin)
    assert verdict.result == "fail"
    assert any("did not end properly" in note for note in verdict.notes)


def test_a_twin_that_did_not_follow_will_do() -> None:
    live, twin = run_pair(5, Noise(), Fault(5, 0.5))
    once = pl.col("iteration") == 2
    free = replace(twin, info={**twin.info, "follow": False}, timeline=twin.timeline.filter(once),
                   transfers=twin.transfers.filter(once))  # fmt: skip
    verdict = judge(live, free)
    assert verdict.suspects[0].ranks == [5]
    assert verdict.coverage["follow"] is False


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"level": "packet+skip", "error_bound": 0.0}, None),
        ({}, None),  # of before bounds were recorded
        (
            {"level": "packet+skip", "error_bound": 0.05, "skip": {"estimates": {"apart": 0.05}}},
            "moved are estimated to be within 5.00 % of those of packets; simulate",
        ),
        (
            {"level": "packet+skip", "error_bound": None, "skip": {"estimates": {"apart": None}}},
            "with --skip-error, and not all ends have a bound, as others began or ended later; simulate",
        ),
        ({"level": "flow", "error_bound": None}, "level flow simulates no packets, and its error has no bound"),
    ],
)
def test_a_verdict_says_that_simulated_times_are_estimates(facts: dict[str, object], said: str | None) -> None:
    live, twin = run_pair(5, Noise())
    warnings = judge(live, replace(twin, info={**twin.info, **facts})).warnings
    assert [said in text for text in warnings] == [True] if said else warnings == []


def test_without_names_a_rank_goes_by_its_number() -> None:
    live, twin = run_pair(6, Noise(), Fault(5, 0.5))
    del live.info["hosts"], twin.info["hosts"]
    verdict = judge(live, twin)
    assert verdict.suspects[0].name == "rank5"
    assert verdict.line().startswith("FAIL rank 5: its NIC or link sends")


def test_too_few_iterations_are_inconclusive() -> None:
    verdict = judge(*run_pair(7, Noise(), Fault(), iterations=4, warmup=2))
    assert verdict.result == "inconclusive"
    assert verdict.exit_code == 4
    assert "too few" in verdict.summary


def test_single_messages_alone_are_judged() -> None:
    live, twin = run_pair(8, Noise(), Fault(5, 0.5))
    for run in (live, twin):
        run.timeline = run.timeline.filter(pl.col("kind") != "coll")
        run.transfers = run.transfers.with_columns(
            (pl.col("node_id") + 1000 * pl.col("seq")).alias("node_id"),
            pl.lit(None, pl.String).alias("group"),
            pl.lit(None, pl.Int32).alias("seq"),
        )
    verdict = judge(live, twin)
    assert verdict.suspects[0].ranks == [5]
    assert verdict.collectives == []
    assert verdict.iterations[0].ratio < 1


def test_verdict_json_has_what_the_design_names() -> None:
    verdict = judge(*run_pair(9, Noise(), Fault(5, 0.5, since=7)), expected=expected_run(9))
    data = json.loads(json.dumps(verdict.to_dict()))
    assert data["result"] == "fail"
    assert set(data["collectives"][0]) >= {
        "iteration",
        "group",
        "seq",
        "op",
        "size_bytes",
        "wire_ns",
        "excess_ns",
        "wait_ns",
    }
    assert set(data["suspects"][0]) >= {"kind", "name", "ranks", "score", "evidence", "also"}
    assert data["suspects"][0]["name"] == "host5/nic0"
    assert data["suspects"][0]["also"] == ["link host5-switch0", "its port on switch0"]
    assert "since iteration 7; iterations take" in data["summary"]
    assert data["cost"]["fraction"] > 0.3
    assert data["smallest_detectable"]["whole"] <= 0.17
    assert {item["iteration"] for item in data["iterations"]} == set(range(2, 12))


def test_counters_that_grew_amiss_are_noted() -> None:
    live, twin = run_pair(1000, Noise(), Fault())
    assert not [note for note in judge(live, twin).notes if "grew" in note]
    live.counters["warnings"] = [
        {"severity": 2, "text": f"host{n} mlx5_0 port 1: out_of_buffer grew"} for n in range(7)
    ]
    notes = [note for note in judge(live, twin).notes if "grew" in note]
    assert notes[0] == "host0 mlx5_0 port 1: out_of_buffer grew"
    assert len(notes) == 6
    assert notes[-1] == "2 more counters grew that should not: see counters.json"


RING = ((0, 1), (1, 2), (2, 3), (3, 0))
ALL_PAIRS = tuple(itertools.permutations(range(4), 2))


def ring_of_four(
    world: str,
    slow: dict[tuple[int, int], float],
    answer_us: dict[tuple[int, int], float],
    pairs: tuple[tuple[int, int], ...] = RING,
) -> Run:
    """Reduce-scatters over a ring of four ranks, or other pairs of them, in messages that wait for acknowledgements.

    `slow`: times as long, by pair of ranks. `answer_us`: time of an acknowledgement of the pair's messages.
    """
    nodes: list[dict[str, object]] = []
    moved: list[dict[str, object]] = []
    for iteration, seq in ((i, c) for i in range(12) for c in range(8)):
        nodes += [{"rank": rank, "seq": seq, "iteration": iteration, "end_ns": 10**6 * (seq + 1)} for rank in range(4)]
        for pair in pairs:
            jitter = 1 + (0.01 * ((7 * iteration + 3 * seq + 5 * pair[0]) % 11) / 11 if world == "live" else 0)
            busy_ns = int(276_000 * jitter * slow.get(pair, 1))
            last_ns = busy_ns - int(1000 * answer_us.get(pair, 0.5))
            row = {"iteration": iteration, "seq": seq, "src": pair[0], "dst": pair[1], "size_bytes": 786_432}
            moved.append(row | {"messages": 12, "last_ns": last_ns, "acked_ns": busy_ns, "busy_ns": busy_ns})
    return run_of(world, nodes, moved, ranks=4)


def test_in_a_ring_of_four_a_slow_nic_is_told_from_the_rank_before_it() -> None:
    """The answers to rank 1 leave rank 2 through its slow side: two of four look slow, and neither stands out."""
    slow = {(1, 2): 1.85, (2, 3): 1.85}
    twin = ring_of_four("twin", {}, {})
    live = ring_of_four("live", slow, {(1, 2): 160.0})
    verdict = judge(live, twin)
    (suspect,) = verdict.suspects
    assert (verdict.result, suspect.ranks, suspect.direction) == ("fail", [2], "egress")
    assert suspect.also[-2:] == ["the receiving side of rank 3 (rank3)", "the path from rank 2 to rank 3"]
    assert "rank 1 to rank 2 is slow too, and acknowledgements took as long as its whole delay" in verdict.notes
    verdict = judge(ring_of_four("live", slow, {}), twin)
    assert [(each.ranks, each.direction) for each in verdict.suspects] == [([2], "both")]
    assert verdict.suspects[0].also[-2:] == ["the path from rank 2 to rank 3", "the path from rank 1 to rank 2"]


def test_two_of_four_slow_nics_are_neither_a_slow_fleet_nor_noise() -> None:
    live = ring_of_four("live", {(0, 1): 1.85, (2, 3): 1.85}, {})
    verdict = judge(live, ring_of_four("twin", {}, {}))
    names = "rank 0 egress, rank 2 egress, rank 1 ingress, rank 3 ingress"
    assert verdict.line() == (
        f"INCONCLUSIVE 0 of 4 NICs judged; {names} look slower than their peers by 10 % or more, but not surely; "
        "no slow-down of a sending NIC can be ruled out"
    )
    ranks = "rank 0, rank 2, rank 1, rank 3"
    assert verdict.action == f"Check the NICs and links of {ranks}, then run again with more --iterations."


def test_in_a_slow_fleet_no_nic_is_accused_for_both_directions() -> None:
    live = ring_of_four("live", {(0, 1): 1.85, (1, 2): 1.85, (2, 3): 1.85}, {})
    verdict = judge(live, ring_of_four("twin", {}, {}))
    assert verdict.suspects == []
    assert verdict.summary.startswith("more than half of the ranks take 1.86x the twin's time, or more")


def test_a_nic_with_one_slow_path_each_way_is_not_accused_as_a_whole() -> None:
    live = ring_of_four("live", {(1, 2): 1.85, (2, 3): 1.85}, {}, ALL_PAIRS)
    verdict = judge(live, ring_of_four("twin", {}, {}, ALL_PAIRS))
    assert [each.name for each in verdict.suspects if each.kind == "nic"] == []


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_not_called_a_slow_nic(seed: int) -> None:
    live, twin = run_pair(900 + seed, Noise(message_cv=0.4, tail_chance=0.05), ranks=4)
    assert judge(live, twin).slow == ()


def test_a_nic_that_receives_slowly_has_the_link_that_leads_to_it() -> None:
    own = Attachment(1, "host1", "host1/nic0", "host1->leaf0", "leaf0", "gpu01")
    nic = Component("nic", "ingress", (1,))
    unknown = KnownPaths()
    assert links_of(nic, "ingress", {1: own}, unknown) == ["leaf0->host1"]
    assert links_of(nic, "egress", {1: own}, unknown) == ["host1->leaf0"]
    assert links_of(nic, "both", {1: own}, unknown) == ["host1->leaf0", "leaf0->host1"]


def test_most_of_a_fleet_is_a_slow_fleet() -> None:
    live = ring_of_four("live", dict.fromkeys(RING, 1.85), {})
    verdict = judge(live, ring_of_four("twin", {}, {}))
    assert verdict.summary.startswith(
        "more than half of the ranks take 1.86x the twin's time, or more; no component stands out"
    )
