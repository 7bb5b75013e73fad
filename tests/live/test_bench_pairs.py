"""All pairs in the fewest rounds, what each round plays, and the matrices, as text and as a page."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from genie.bench import pairs_page, pairs_table
from genie.bench.pairs import Matrix, PairsAsked, matrix_of, report, rounds, slow_in_words
from genie.bench.rounds import rounds_of
from genie.workload.graph import Kind, Op
from simtwin.fabric.reading import loopback_fabric
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import Twin

pytestmark = pytest.mark.live


@pytest.mark.parametrize("ranks", [*range(18), 63, 64])
def test_each_pair_meets_once_in_rounds_of_disjoint_pairs(ranks: int) -> None:
    played = list(rounds_of(ranks))
    assert len(played) == (0 if ranks < 2 else ranks - 1 if ranks % 2 == 0 else ranks)
    for pairs in played:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy)) == ranks // 2 * 2
    met = sorted(pair for pairs in played for pair in pairs)
    assert met == list(combinations(range(ranks), 2))


def test_a_thousand_ranks_take_no_time() -> None:
    began = time.process_time()
    assert sum(len(pairs) for pairs in rounds_of(1024)) == 1024 * 1023 // 2
    assert time.process_time() - began < 5  # a second is far more than it takes


ASKED = PairsAsked(ranks=4, size_bytes=1 << 16, messages=2, small_bytes=64, small_messages=3)


def test_a_round_is_small_messages_in_turn_then_large_ones_together() -> None:
    graph = rounds(ASKED).ranks[0]
    one_round = ["latency"] * 3 + ["meet"] + ["latency"] * 3 + ["meet"]
    one_round += ["bandwidth"] * 2 + ["meet"] + ["bandwidth"] * 2 + ["meet"]
    assert graph.name == one_round * 3
    edges = [graph.deps[low:high].tolist() for low, high in zip(graph.dep_start, graph.dep_start[1:], strict=False)]
    sends = [number for number, kind in enumerate(graph.kind[: len(one_round)]) if Kind(kind) is Kind.SEND]
    small, large = sends[:3], sends[3:]
    assert edges[small[1]] == [small[0]]
    assert edges[small[2]] == [small[1]]
    assert edges[large[0]] == edges[large[1]], "large ones wait for one another"
    assert graph.stream[large].tolist() == [0, 1]
    # All that a rank did is over before it meets the others.
    meets = [number for number, op in enumerate(graph.op[: len(one_round)]) if Op(op) is Op.BARRIER]
    assert edges[meets[0]] == list(range(meets[0]))
    assert edges[meets[1]] == list(range(meets[0] + 1, meets[1]))


def test_both_ways_at_once_and_no_latency() -> None:
    asked = PairsAsked(4, 1 << 16, 1, 64, 0, both_ways=True)
    graph = rounds(asked).ranks[3]
    assert graph.name == ["bandwidth", "bandwidth", "meet"] * 3
    assert {Kind(kind) for kind in graph.kind[:2]} == {Kind.SEND, Kind.RECV}


def test_pairs_that_are_alone_have_a_round_each() -> None:
    asked = replace(ASKED, alone=True, messages=1, small_messages=0)
    assert (asked.rounds, list(asked.schedule())) == (6, [[pair] for pair in combinations(range(4), 2)])
    played = rounds(asked)
    graph = played.ranks[0]
    # Rank 0 is in the first three rounds; in the others it only meets the rest.
    assert graph.name == (["bandwidth", "meet"] * 2) * 3 + ["meet"] * 6
    assert sum(map(len, played.ranks.values())) <= asked.nodes


def simulated(asked: PairsAsked, rates: dict[int, float], folder: Path) -> Matrix:
    """In the twin, at 1 Gb/s but for hosts with a share of it."""
    fabric = loopback_fabric(asked.ranks, 10**9)
    network = build_network(fabric)
    for link in range(network.links):
        if network.src_node[link] in rates:
            network.rate_bps[link] = int(network.rate_bps[link] * rates[int(network.src_node[link])])
    twin = Twin(fabric, network, range(asked.ranks))
    run = simulate_to_folder(twin, rounds(asked), folder / "run", workload_path="")
    return matrix_of(run, [f"host{rank}" for rank in range(asked.ranks)])


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_matrix_of_a_simulated_network(both_ways: bool, tmp_path: Path) -> None:
    asked = PairsAsked(5, 1 << 18, 2, 64, 3, both_ways)
    matrix = simulated(asked, {2: 0.5}, tmp_path)
    off_diagonal = ~np.eye(5, dtype=bool)
    assert np.isnan(matrix.bytes_per_s[~off_diagonal]).all()
    assert not np.isnan(matrix.bytes_per_s[off_diagonal]).any()
    slow = np.zeros((5, 5), bool)
    slow[2] = off_diagonal[2]
    assert (matrix.is_slow == slow).all()
    assert matrix.shares[2, [0, 1, 3, 4]] == pytest.approx(0.5, abs=0.02)
    assert 0.9 < matrix.best_bytes_per_s / 125e6 < 1
    assert (matrix.latency_us[off_diagonal] > 0).all()
    assert matrix.wrong_bytes is None, "nothing was checked"
    assert slow_in_words(matrix) == ["rank 2 (host2) sends to all others at 0.50 of the best"]


def a_matrix(ranks: int = 4) -> Matrix:
    """All alike but for one pair at a half."""
    cells = np.full((ranks, ranks), 125e6)
    np.fill_diagonal(cells, np.nan)
    cells[1, 2] = 62.5e6
    latency = np.where(np.isnan(cells), np.nan, 10.0)
    return Matrix([f"node{rank}" for rank in range(ranks)], cells, latency, latency, 0, 0)


def test_the_matrix_as_text() -> None:
    large = replace(ASKED, size_bytes=1 << 20)
    lines = pairs_table.body(large, a_matrix())
    assert lines[0].startswith("# Bandwidth, Gb/s: rows send, columns receive; * below 0.93 of the best, 1")
    assert lines[1].split() == ["#", "rank", "host", "0", "1", "2", "3"]
    assert lines[3].split() == ["1", "node1", "1", "-", "0.5*", "1"]
    assert len({len(line.rstrip("*")) for line in lines[2:6]}) <= 2, "columns stay in line"
    assert lines[-3:] == [
        "# 1 of 12 directed pairs are below 0.93 of the best",
        "# rank 1 (node1) to rank 2 (node2): 0.50 of the best",
        "# pairs of one round may share a link: --alone measures one pair at a time",
    ]
    assert pairs_table.body(replace(large, alone=True), a_matrix())[-1] == lines[-2]
    many = pairs_table.body(large, a_matrix(40))
    assert len(many) == 5
    assert "--json" in many[0]
    # 2 messages of 1250 bytes go in 20 us, of which the latency is 10.
    small = pairs_table.body(replace(ASKED, size_bytes=1250), a_matrix())
    assert (
        small[-2] == "# latency is up to 50% of the time of these messages, and far ranks seem slow: give a larger -s"
    )
    head = "\n".join(pairs_table.head(ASKED, ["a", "b", "c", "d"], ["a note"]))
    assert "4 ranks in 3 rounds" in head
    assert "# a note" in head
    assert pairs_table.rate_unit(12.5e6) == (125e3, "Mb/s")


def test_a_report_has_nothing_that_json_lacks() -> None:
    made = report(ASKED, a_matrix(), {"world": "live"})
    assert made["rounds"] == 3
    assert made["bytes_per_s"][0][:2] == [None, 125e6]
    assert made["slow"] == [{"src": 1, "dst": 2, "share": 0.5}]
    assert (made["best_bytes_per_s"], made["world"]) == (125e6, "live")


def test_the_page_shows_each_pair_and_names_the_slow_one() -> None:
    text = pairs_page.page(ASKED, a_matrix(), "Measured <here>")
    assert "Measured &lt;here&gt;" in text
    assert text.count("<rect ") == 2 * 16  # bandwidth and latency
    assert "<title>1 node1 to 2 node2: 0.5 Gb/s</title>" in text
    assert "<h1>1 of 12 directed pairs below 0.93 of the best</h1>" in text
    assert not re.search(r"(src|href)=|https?://|@import", text), "it needs something else"


def test_a_page_of_many_ranks_shows_the_worst_of_neighbours() -> None:
    text = pairs_page.page(PairsAsked(600, 1, 1, 1, 1), a_matrix(600), "")
    assert text.count("<rect ") == 2 * 200 * 200
    assert "<title>0 to 2 to 0 to 2: 0.5 Gb/s</title>" in text
    assert pairs_page.colour_of(0.0) == pairs_page.FINE[0]
    assert pairs_page.colour_of(1 - 0.93) == pairs_page.FINE[1]
    assert pairs_page.colour_of(0.9) == pairs_page.SLOW[1]
