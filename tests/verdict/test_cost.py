"""Cost of a fault: the time that an iteration takes longer, and the collectives that carry it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import Fault, Noise, expected_run, run_pair

from genie.record import Run
from genie.verdict import judge
from genie.verdict.cost import Parts, Wire, carriers_of, cost_of, parts_of
from genie.verdict.model import Carrier, Cost
from genie.verdict.words import cost_in_words

MIB = 1 << 20
MS = 1_000_000
A, B = (("0", seq, "all_reduce", MIB) for seq in range(2))
OTHER, GATHER = ("1", 0, "all_reduce", MIB), ("0", 2, "all_gather", MIB)


@given(st.lists(st.tuples(st.sampled_from([A, B, OTHER, None]), st.integers(0, 100), st.integers(0, 100)), max_size=12))
def test_parts_add_up_to_the_span(drawn: list[tuple[Any, int, int]]) -> None:
    wires: list[Wire] = [(key, min(one, other), max(one, other)) for key, one, other in drawn]
    parts = parts_of(wires, 100)
    assert parts.wire_ns + parts.idle_ns == pytest.approx(100)
    covered = {moment for _, start, end in wires for moment in range(start, end)}
    assert parts.wire_ns == pytest.approx(len(covered))
    assert all(value >= 0 for value in parts.by_key.values())


def test_traffic_that_is_on_the_wire_at_once_shares_the_time() -> None:
    parts = parts_of([(A, 0, 100), (B, 50, 150), (None, 140, 160)], 200)
    assert parts.by_key == {A: 75, B: 25 + 40 + 5, None: 5 + 10}
    assert parts.idle_ns == 40


def timeline(*iterations: list[tuple[int, int, int]], kind: str = "coll", ends_ns: int = 0) -> Run:
    """A run of two ranks: iterations with (seq, start, end) in ms; compute on rank 0 until `ends_ns`."""
    rows = [
        {
            "iteration": number, "rank": rank, "kind": kind, "group": "0", "seq": seq, "op": "all_reduce",
            "size_bytes": MIB, "start_ns": start * MS, "end_ns": end * MS,
        }
        for number, wires in enumerate(iterations)
        for seq, start, end in wires
        for rank in (0, 1)
    ]  # fmt: skip
    rows += [
        {**rows[0], "iteration": number, "kind": "comp", "group": None, "seq": None, "start_ns": 0, "end_ns": ends_ns}
        for number in range(len(iterations))
    ]
    live, _ = run_pair(1, Noise(), Fault())
    return replace(live, timeline=pl.DataFrame(rows))


def cost(live: Run, expected: Run, slow_down: float = 0.0) -> Cost:
    found = cost_of(live, expected, live.timeline["iteration"].unique().to_list(), slow_down)
    assert found is not None
    return found


def test_collectives_that_a_fault_pushes_apart_count_in_full() -> None:
    """Two collectives share a link for 100 ms. One that a fault delays starts when the other has ended."""
    expected = timeline([(0, 0, 100), (1, 0, 100)])
    found = cost(timeline(*[[(0, 0, 80), (1, 80, 161)]] * 3), expected)
    assert (found.iteration_ns, found.iteration_without_ns) == (61 * MS, 100 * MS)
    assert found.fraction == pytest.approx(0.61)
    (carrier,) = found.carriers
    assert (carrier.collectives, carrier.size_bytes, carrier.extra_ns) == (2, 2 * MIB, 61 * MS)


def test_traffic_that_stays_under_compute_costs_nothing() -> None:
    expected = timeline([(0, 10, 40)], ends_ns=100 * MS)
    found = cost(timeline([(0, 10, 90)], ends_ns=100 * MS), expected)
    assert (found.iteration_ns, found.carriers) == (0, [])
    # It ends 10 ms after the compute.
    found = cost(timeline([(0, 10, 110)], ends_ns=100 * MS), expected)
    assert (found.iteration_ns, found.iteration_without_ns) == (10 * MS, 100 * MS)
    assert [it.extra_ns for it in found.carriers] == [10 * MS]


def test_compute_that_takes_longer_is_no_cost_of_a_component() -> None:
    expected = timeline([(0, 50, 100)], ends_ns=50 * MS)
    found = cost(timeline([(0, 80, 140)], ends_ns=80 * MS), expected)
    assert (found.iteration_ns, found.iteration_without_ns) == (10 * MS, 130 * MS)


def test_time_that_the_whole_fleet_takes_longer_is_no_cost_of_a_component() -> None:
    expected = timeline([(0, 0, 100)])
    assert cost(timeline([(0, 0, 130)]), expected, 0.2).iteration_ns == 10 * MS
    assert cost(timeline([(0, 0, 130)]), expected, 0.3).iteration_ns == 0
    assert cost(timeline([(0, 0, 130)]), expected, -0.3).iteration_ns == 30 * MS


def test_single_messages_count_and_are_no_collective() -> None:
    expected = timeline([(0, 0, 100)], kind="send")
    found = cost(timeline([(0, 0, 130)], kind="send"), expected)
    assert (found.iteration_ns, found.carriers) == (30 * MS, [])


def test_the_cost_is_the_median_of_the_iterations_that_are_asked_for() -> None:
    expected = timeline([(0, 0, 100)])
    live = timeline([(0, 0, 100)], [(0, 0, 150)], [(0, 0, 130)], [(0, 0, 110)])
    found = cost_of(live, expected, [1, 2, 3], 0.0)
    assert found is not None
    assert found.iteration_ns == 30 * MS
    assert [it.extra_ns for it in found.carriers] == [30 * MS]
    assert cost_of(live, expected, [], 0.0) is None


def test_groups_that_grow_most_come_first_and_never_exceed_the_cost() -> None:
    without = Parts({A: 100, B: 100, OTHER: 100, GATHER: 100}, 0)
    played = [Parts({A: 100, B: 110, OTHER: 160, GATHER: 40}, 0)]
    found = carriers_of(played, without, 1.0, 35)
    assert [(it.group, it.collectives, it.extra_ns) for it in found] == [("1", 1, 30), ("0", 2, 5)]
    assert [it.share for it in found] == pytest.approx([6 / 7, 1 / 7])
    assert carriers_of(played, without, 1.0, 0) == []
    (only,) = carriers_of([Parts({A: 102, OTHER: 160}, 0)], Parts({A: 100, OTHER: 100}, 0), 1.0, 62)
    assert only.group == "1", "less than a twentieth of the cost is not reported"


def test_collectives_that_take_from_each_other_count_by_their_sum() -> None:
    (only,) = carriers_of([Parts({A: 160, B: 70}, 0)], Parts({A: 100, B: 100}, 0), 1.0, 30)
    assert (only.collectives, only.extra_ns) == (2, 30)


def test_a_twin_that_took_the_runs_starts_says_no_cost() -> None:
    """Its starts hold the delay that the fault makes."""
    live, twin = run_pair(9, Noise(), Fault(5, 0.5))
    found = judge(live, twin)
    assert found.suspects
    assert found.cost is None
    assert "cost not judged" in found.summary
    with_own_starts = judge(live, twin, expected=expected_run(9))
    assert with_own_starts.cost is not None
    assert with_own_starts.cost.fraction > 0.3
    assert "cost not judged" not in with_own_starts.summary


def test_in_words() -> None:
    carriers = [
        Carrier("reduce_scatter", "2", 1, 13, 545 << 10, 16_800_000, 0.16),
        Carrier("all_to_all", "expert", 1, 4, MIB, 5 * MS, 0.05),
        Carrier("all_reduce", "0", 1, 1, MIB, 4 * MS, 0.04),
    ]
    assert cost_in_words(Cost(4 * MS, 650 * MS, 0.006, carriers[2:])) == "iterations take less than 1 % longer"
    first = "iterations take 16 % longer (+104 ms); +16.8 ms of it in reduce_scatter #13 of group 2 (545 KiB)"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16)) == "iterations take 16 % longer (+104 ms)"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16, carriers[:1])) == f"{first}, +87.2 ms elsewhere"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16, carriers)) == f"{first}, +9 ms in 2 more, +78.2 ms elsewhere"
    many = [Carrier("all_gather", "1", 14, 0, 14 * MIB, 104 * MS, 1.0)]
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16, many)).endswith(
        "+104 ms of it in 14 × all_gather of group 1 (14 MiB)"
    )
    whole = cost_in_words(Cost(4 * MS, 65 * MS, 0.06, carriers[2:]))
    assert whole.endswith("of it in all_reduce #1 (1 MiB)"), "nothing is left"
