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
    nodes = members(0, (0, 0), (9, 9)) + members(0, (10, 10), (19, 19), seq=1)
    aligned = align(run_of("live", nodes, [{}, {"seq": 1}, {"src": 1, "dst": 1}]), run_of("twin", nodes, [{}]))
    assert aligned.coverage["transfers_unmatched"] == 1  # the third goes nowhere: no transfer at all


def test_an_iteration_that_lacks_a_rank_s_records_did_not_end() -> None:
    nodes = [node for i in range(3) for node in members(i, (i, i), (9, 9))]
    lost = [node for node in nodes if (node["iteration"], node["rank"]) != (1, 1)]
    aligned = align(run_of("live", lost, [{}], ranks=2), run_of("twin", nodes, [{}], follow=True, ranks=2))
    assert aligned.iterations == [0, 2]
    assert aligned.coverage["iterations_not_ended"] == 1


def test_a_rank_that_never_recorded_leaves_nothing_to_judge() -> None:
    nodes = members(0, (0, 0), (9, 9))
    with pytest.raises(VerdictError, match="no iteration ended"):
        align(run_of("live", nodes[:1], [{}], ranks=2), run_of("twin", nodes, [{}], ranks=2))


LOWERING = {"channels": 1, "credit": False, "algorithms": {}}


@pytest.mark.parametrize(
    ("live", "twin", "said"),
    [
        ({"ranks": 2}, {"ranks": 4}, "simulates 4 ranks and live ran 2"),
        (
            {"lowering": LOWERING},
            {"lowering": {**LOWERING, "channels": 4}},
            "channels 4 .*ran with 1; .*same --channels",
        ),
        ({"lowering": {**LOWERING, "credit": True}}, {"lowering": LOWERING}, "credit off .*ran with on"),
        (
            {"lowering": {**LOWERING, "algorithms": {"all_reduce": "ring"}}},
            {"lowering": LOWERING},
            "by size .*ran with all_reduce=ring; simulate again with the same --algorithm",
        ),
        ({"algorithms": {"all_reduce ring": 1}}, {"algorithms": {"all_reduce direct": 1}}, "all_reduce direct=1"),
        (
            {},
            {"complete": False, "problem": "interrupted"},
            r"twin: the simulation did not end \(interrupted\); simulate to the end for a verdict",
        ),
    ],
)
def test_a_twin_with_other_settings_is_no_twin(live: dict[str, object], twin: dict[str, object], said: str) -> None:
    nodes = members(0, (0, 0), (9, 9))
    with pytest.raises(VerdictError, match=said):
        align(run_of("live", nodes, [{}], **live), run_of("twin", nodes, [{}], **twin))


def test_a_moved_workload_and_what_one_run_does_not_record_are_no_difference() -> None:
    nodes = members(0, (0, 0), (9, 9))
    live = run_of("live", nodes, [{}], workload="/a/trace", lowering=LOWERING, algorithms={"all_reduce ring": 1})
    assert align(live, run_of("twin", nodes, [{}], workload="/b/copy", lowering=None)).iterations == [0]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (members(0, (0, 0), (9, 9), size_bytes=2000), "rank 0, collective 0 of group 'g' is all_reduce of 2000 bytes"),
        (members(0, (0, 0), (9, 9), op="all_gather"), "is all_gather of 1000 bytes and was all_reduce"),
        (members(0, (0, 0), (9, 9)) + members(0, (9, 9), (12, 12), seq=1), "collective 1 .* was missing"),
        (
            members(0, (0, 0), (9, 9)) + members(0, (9, 9), (12, 12), kind="send", op=None, group=None, seq=None),
            "node 1 is send of 1000 bytes and was missing",
        ),
    ],
)
def test_a_twin_of_another_workload_is_no_twin(nodes: list[dict[str, object]], said: str) -> None:
    with pytest.raises(VerdictError, match=said):
        align(run_of("live", members(0, (0, 0), (9, 9)), [{}]), run_of("twin", nodes, [{}]))


def test_a_twin_that_followed_another_run_is_no_twin() -> None:
    live = [node for i in range(3) for node in members(i, (11 + i, 12 + i), (50, 50))]
    other = [node for i in range(3) for node in members(i, (14 + i, 17 + i), (50, 50))]
    with pytest.raises(VerdictError, match="followed another run than live; simulate with --follow live"):
        align(run_of("live", live, [{}]), run_of("twin", other, [{}], follow=True))


def test_later_starts_may_be_held_up_in_the_twin() -> None:
    live = members(0, (11, 12), (50, 50)) + members(0, (51, 52), (60, 60), seq=1)
    twin = members(0, (11, 12), (80, 80)) + members(0, (80, 80), (90, 90), seq=1)
    assert align(run_of("live", live, [{}]), run_of("twin", twin, [{}], follow=True)).follow


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
            "another workload",
        ),
        (run_of("live", members(0, (0, 0), (9, 9))), run_of("twin", []), "empty"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(live, twin, said) -> None:
    with pytest.raises(VerdictError, match=said):
        align(live, twin)


def test_runs_in_the_wrong_order_are_refused() -> None:
    nodes = members(0, (0, 0), (9, 9))
    for first, second in (("twin", "live"), ("live", "live"), ("twin", "twin")):
        with pytest.raises(VerdictError, match="genie diff takes the folder of genie run first"):
            align(run_of(first, nodes), run_of(second, nodes))
