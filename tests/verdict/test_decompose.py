from __future__ import annotations

import pytest
from tables import run_of

from genie.record.bus_bandwidth import bus_bytes
from genie.verdict.align import align
from genie.verdict.decompose import decompose, totals


def coll(rank: int, start: int, end: int, **more: object) -> dict[str, object]:
    return {"rank": rank, "start_ns": start, "end_ns": end, **more}


def test_wait_wire_and_excess_of_a_collective() -> None:
    live = run_of("live", [coll(0, 100, 400), coll(1, 250, 390), coll(2, 180, 410)], clock_bound_ns=[0, 20, 5])
    twin = run_of("twin", [coll(0, 100, 350), coll(1, 250, 340), coll(2, 180, 345)])
    (item,) = decompose(align(live, twin), live)
    assert item.wait_ns == [150, 0, 70]
    assert item.wait_bound_ns == [20, 40, 25]  # own clock and the last one's
    assert (item.measured_ns, item.wire_ns, item.excess_ns) == (160, 100, 60)
    assert item.last_rank == 1
    assert item.to_dict()["wait_ns"] == {"0": 150, "1": 0, "2": 70}


def test_a_sleep_s_overshoot_is_taken_off_what_a_rank_computed() -> None:
    sleeps = [
        {"rank": 1, "kind": "comp", "op": None, "group": None, "start_ns": 0, "end_ns": 150, "overshoot_ns": 90},
        {"rank": 0, "kind": "comp", "op": None, "group": None, "start_ns": 0, "end_ns": 100, "overshoot_ns": 5},
    ]
    nodes = [coll(0, 100, 200), coll(1, 150, 200), coll(0, 300, 400, seq=1), coll(1, 310, 400, seq=1)]
    live, twin = run_of("live", nodes + sleeps), run_of("twin", nodes)
    first, second = decompose(align(live, twin), live)
    assert first.overshoot_ns == [5, 90]
    assert first.late_ns == 0  # rank 1 was asked for 60 ns, rank 0 for 95
    assert second.overshoot_ns == [0, 0]  # spent before the first one
    assert second.late_ns == 5  # 110 against a middle of 105


def test_only_the_latest_sleep_s_overshoot_delays_what_comes_next() -> None:
    sleep = {"rank": 0, "kind": "comp", "op": None, "group": None, "start_ns": 200, "end_ns": 260, "overshoot_ns": 60}
    nodes = [coll(0, 0, 200), coll(1, 0, 200), coll(0, 270, 300, seq=1), coll(1, 270, 300, seq=1)]
    live = run_of("live", [*nodes, sleep, sleep])
    assert decompose(align(live, run_of("twin", nodes)), live)[1].overshoot_ns == [60, 0]


@pytest.mark.parametrize(
    ("op", "size_bytes", "expected"),
    [
        ("all_reduce", 800, 2 * 800 * 7 / 8),
        ("all_gather", 100, 700),  # one rank's input; nccl-tests' S is 800
        ("reduce_scatter", 800, 700),
        ("all_to_all", 800, 700),
        ("scatter", 800, 700),
        ("gather", 100, 700),
        ("broadcast", 800, 800),
        ("reduce", 800, 800),
    ],
)
def test_bus_bytes_follow_nccl_tests(op: str, size_bytes: int, expected: float) -> None:
    assert bus_bytes(op, size_bytes, 8) == pytest.approx(expected)


def test_totals_of_an_iteration() -> None:
    # Two collectives of two groups, half on top of each other: the wire is busy for 150 ns in the live world.
    live = [coll(r, 0, 100) for r in (0, 1)] + [coll(r, 50, 150, group="h") for r in (2, 3)]
    twin = [coll(r, 0, 50) for r in (0, 1)] + [coll(r, 50, 100, group="h") for r in (2, 3)]
    run = run_of("live", live)
    aligned = align(run, run_of("twin", twin))
    (item,) = totals(aligned, decompose(aligned, run), run)
    assert (item.measured_ns, item.simulated_ns, item.span_ns) == (150, 100, 150)
    assert item.ratio == pytest.approx(0.5)
    assert item.measured_bytes_per_s == pytest.approx(2000 / 200e-9)


def test_totals_of_single_messages_come_from_transfers() -> None:
    nodes = [{"rank": r, "kind": "send", "op": None, "group": None, "seq": None, "end_ns": 90} for r in (0, 1)]
    live = run_of("live", nodes, [{"group": None, "seq": None, "busy_ns": 80}])
    aligned = align(live, run_of("twin", nodes, [{"group": None, "seq": None, "busy_ns": 60}]))
    (item,) = totals(aligned, decompose(aligned, live), live)
    assert item.ratio == pytest.approx(60 / 80)
