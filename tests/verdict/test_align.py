from __future__ import annotations

import pytest
from tables import run_of

from genie.verdict import VerdictError
from genie.verdict.align import align


def members(iteration: int, starts: tuple[int, int], ends: tuple[int, int], **more: object) -> list[dict[str, object]]:
    return [
        {"rank": rank, "iteration": iteration, "start_ns": start, "end_ns": end, **more}
        for rank, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def test_warm_up_is_not_judged_and_followed_iterations_meet_by_number() -> None:
    nodes = [node for i in range(4) for node in members(i, (i, 2 * i), (50, 60 + i))]
    moved = [{"iteration": i, "busy_ns": 10 + i} for i in range(4)]
    aligned = align(run_of("live", nodes, moved, warmup=2), run_of("twin", nodes, moved, follow=True))
    assert aligned.iterations == [2, 3]
    assert aligned.collectives["twin_start"].to_list() == [[2, 4], [3, 6]]
    assert aligned.transfers["twin_busy"].to_list() == [12, 13]
    assert aligned.coverage["collectives_unmatched"] == aligned.coverage["transfers_unmatched"] == 0


def test_a_free_twin_s_first_iteration_stands_for_all() -> None:
    live = [node for i in range(3) for node in members(i, (0, 0), (70, 70))]
    twin = [node for i in range(2) for node in members(i, (5, 5), (60 + i, 60 + i))]
    moved = [{"iteration": i, "busy_ns": 40 + i} for i in range(2)]
    aligned = align(run_of("live", live, [{"iteration": i} for i in range(3)]), run_of("twin", twin, moved))
    assert aligned.collectives["twin_end"].to_list() == [[60, 60]] * 3
    assert aligned.transfers["twin_busy"].to_list() == [40] * 3


def test_single_messages_meet_by_the_sender_s_node() -> None:
    nodes = members(0, (0, 0), (9, 9))
    live = [{"group": None, "seq": None, "node_id": n, "busy_ns": 100 + n} for n in (7, 4)]
    twin = [{"group": None, "seq": None, "node_id": n, "busy_ns": 50 + n} for n in (4, 7, 9)]
    moved = align(run_of("live", nodes, live), run_of("twin", nodes, twin)).transfers
    assert moved.select("order", "live_busy", "twin_busy").rows() == [(4, 104, 54), (7, 107, 57)]


def test_a_group_without_a_name_is_not_taken_for_single_messages() -> None:
    nodes = members(0, (0, 0), (9, 9))
    live = [{"group": "", "seq": 4, "busy_ns": 100}, {"group": None, "seq": None, "node_id": 4, "busy_ns": 200}]
    twin = [{"group": None, "seq": None, "node_id": 4, "busy_ns": 20}, {"group": "", "seq": 4, "busy_ns": 10}]
    moved = align(run_of("live", nodes, live), run_of("twin", nodes, twin)).transfers
    assert sorted(moved.select("group", "live_busy", "twin_busy").rows(), key=str) == [("", 100, 10), (None, 200, 20)]


def test_an_iteration_that_did_not_end_is_not_judged() -> None:
    nodes = members(0, (0, 0), (9, 9)) + members(1, (0, 0), (9, -1))
    aligned = align(run_of("live", nodes), run_of("twin", nodes, follow=True))
    assert aligned.iterations == [0]
    assert aligned.coverage["iterations_not_ended"] == 1


def test_what_has_no_partner_is_counted() -> None:
    live = members(0, (0, 0), (9, 9)) + members(0, (10, 10), (19, 19), seq=1)
    aligned = align(
        run_of("live", live, [{}, {"seq": 1}, {"src": 1, "dst": 1}]), run_of("twin", members(0, (0, 0), (9, 9)), [{}])
    )
    assert aligned.coverage["collectives_unmatched"] == 1
    assert aligned.coverage["transfers_unmatched"] == 1  # the third goes nowhere: no transfer at all


@pytest.mark.parametrize(
    ("live", "twin", "said"),
    [
        (run_of("live", members(0, (0, 0), (9, 9)), warmup=1), run_of("twin", members(0, (0, 0), (9, 9))), "warm-up"),
        (
            run_of("live", members(3, (0, 0), (9, 9))),
            run_of("twin", members(0, (0, 0), (9, 9)), follow=True),
            "--follow LIVE",
        ),
        (
            run_of("live", members(0, (0, 0), (9, 9))),
            run_of("twin", members(0, (0, 0), (9, 9), group="h")),
            "same workload",
        ),
        (run_of("live", members(0, (0, 0), (9, 9))), run_of("twin", []), "empty"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(live, twin, said) -> None:
    with pytest.raises(VerdictError, match=said):
        align(live, twin)
