"""The walker by example: dependencies, slots, release times, matching, credits, lateness."""

from __future__ import annotations

import genie_core
import numpy as np
import pytest
from walker_driver import (
    CREDIT,
    PS,
    Driver,
    Node,
    coll,
    comp,
    mem,
    meta,
    recv,
    send,
    tag_of,
    workload_of,
)

from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Kind, Op

KIB = 1024


# Dependencies and slots


def test_a_node_starts_when_all_its_dependencies_are_done() -> None:
    driver = Driver([comp(10, stream=0), comp(30, stream=1), meta(0, 1), comp(5, 2, stream=0)], slots="streams")
    assert driver.timers == {0: 10, 1: 30}
    driver.wake(0)
    assert driver.timers == {1: 30}
    driver.wake(1)
    assert driver.timers == {3: 35}
    driver.wake(3)
    assert driver.times("ready") == [0, 0, 30, 30]
    assert driver.times("start") == [0, 0, 30, 30]
    assert driver.times("end") == [10, 30, 30, 35]
    assert driver.walker.done


def test_astra_slots_run_one_cpu_one_compute_and_one_communication_node() -> None:
    nodes = [comp(10), comp(10, on_cpu=True), mem(10), comp(7), comp(7, on_cpu=True), send(1, 100)]
    driver = Driver(nodes, slots="astra")
    assert driver.timers == {0: 10, 1: 10, 2: 10}, "streams do not matter, kinds do"
    driver.wake(0)
    driver.wake(1)
    assert driver.timers == {2: 10, 3: 17, 4: 17}
    assert driver.new() == [], "the memory copy holds the communication slot"
    driver.wake(2)
    assert driver.new() == [(1, 0, 100)]
    assert driver.times("ready") == [0] * 6
    assert driver.times("start") == [0, 0, 0, 10, 10, 10]


def test_every_stream_is_a_slot() -> None:
    nodes = [comp(10, stream=7), comp(10, stream=20), comp(10, stream=7), send(1, 8, stream=20), comp(4), comp(4)]
    driver = Driver(nodes, slots="streams")
    assert driver.timers == {0: 10, 1: 10, 4: 4}, "a node without a stream takes a slot of its kind"
    driver.wake(4)
    assert driver.timers == {0: 10, 1: 10, 5: 8}
    driver.wake(5)
    driver.wake(0)
    assert driver.timers == {1: 10, 2: 20}
    assert driver.new() == []
    driver.wake(1)
    assert driver.new() == [(1, 0, 8)]


def test_a_free_slot_takes_the_lowest_row_whatever_became_ready_first() -> None:
    nodes = [comp(10), comp(5, on_cpu=True), comp(1, 1), comp(1, 0), comp(1)]
    driver = Driver(nodes)
    driver.wake(1)  # node 2 is ready, 4 has been for longer
    driver.wake(0)
    assert driver.timers == {2: 11}
    driver.wake(2)
    assert driver.timers == {3: 12}
    driver.wake(3)
    assert driver.timers == {4: 13}


def test_rows_start_in_ascending_order_over_all_slots() -> None:
    streams = [5, 3, 4, 3, 5]
    nodes = [comp(10, stream=9)] + [send(1, 100 + row, 0, tag=row, stream=streams[row]) for row in range(5)]
    driver = Driver(nodes, slots="streams")
    driver.wake(0)
    assert driver.new() == [(1, 0, 100), (1, 1, 101), (1, 2, 102)]


def test_receives_take_no_slot() -> None:
    driver = Driver([send(1, 10), recv(2, 20), recv(3, 30), send(1, 11)])
    assert driver.times("start") == [0, 0, 0, -1]
    driver.arrive(3, 0, 30, 5)
    driver.arrive(2, 0, 20, 6)
    assert driver.times("end") == [-1, 6, 5, -1]
    driver.sent(0, 9)
    assert driver.times("start") == [0, 0, 0, 9]


def test_a_chain_of_nodes_without_duration_ends_at_once() -> None:
    driver = Driver([meta(), comp(0, 0), mem(0, 1), meta(2), coll(Op.BARRIER, -1, 3)], ranks=1)
    assert driver.walker.done
    assert driver.times("end") == [0] * 5


# Release times


def _released(release_ns: list[int], deps: list[int], durations: list[int]) -> genie_core.Walker:
    """A chain of sleeps in which node k + 1 depends on node k where deps[k + 1] says so, with release times."""
    rows = len(durations)
    plan = genie_core.Plan()
    plan.set_pools(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32))
    starts = np.concatenate(([0], np.cumsum(deps))).astype(np.int32)
    table = plan.add_table(
        kind=np.full(rows, Kind.COMP, np.uint8),
        slot=np.full(rows, -1, np.int32),
        duration_ps=np.array(durations) * PS,
        release_ps=np.array(release_ns) * PS,
        size_bytes=np.zeros(rows, np.int64),
        tag=np.zeros(rows, np.uint32),
        binding=np.full(rows, -1, np.int32),
        dep_start=starts,
        deps=np.flatnonzero(deps).astype(np.int32) - 1,
    )
    none = np.zeros(0, np.int32)
    plan.add_rank(0, table, none, np.zeros(0, np.int64), none, none, none, np.zeros(0, np.uint32))
    return genie_core.Walker(plan, 0)


def test_a_node_waits_for_its_release_time_and_its_dependencies() -> None:
    walker = _released([50, 20, 0], [0, 1, 1], [10, 10, 10])
    assert walker.begin(0) == [("timer", 0xFFFFFFFF, 50 * PS)]
    assert walker.advance(50 * PS, [("timer", 0xFFFFFFFF, 50 * PS)]) == [("timer", 0xFFFFFFFF, 60 * PS)]
    assert walker.advance(60 * PS, [("timer", 0xFFFFFFFF, 60 * PS)]) == [("timer", 1 << 32 | 0xFFFFFFFF, 70 * PS)]
    assert walker.records()["nodes"]["ready_ps"].tolist() == [50 * PS, 60 * PS, -1]


def test_a_release_time_that_a_late_wake_up_has_passed_still_counts() -> None:
    walker = _released([0, 120], [0, 1], [100, 10])
    walker.begin(0)
    # Due at 100, handled at 130: the successor is released at 120 and sleeps from then on.
    assert walker.advance(130 * PS, [("timer", 0xFFFFFFFF, 100 * PS)]) == [("timer", 1 << 32 | 0xFFFFFFFF, 130 * PS)]
    assert walker.records()["nodes"]["start_ps"].tolist() == [0, 120 * PS]


# Lateness


def test_sleeps_follow_from_when_they_were_due() -> None:
    driver = Driver([comp(100), comp(50, 0), meta(1), comp(10, 2)])
    driver.wake(0, 130)
    assert driver.timers == {1: 150}
    driver.wake(1, 155)
    assert driver.timers == {3: 160}
    driver.wake(3, 190)
    assert driver.times("start") == [0, 100, 150, 150]
    assert driver.times("end") == [100, 150, 150, 160]
    assert driver.times("overshoot") == [30, 5, 0, 30]


def test_a_slot_is_free_again_when_its_sleep_was_due() -> None:
    driver = Driver([comp(100), comp(50)])
    driver.wake(0, 400)
    assert driver.timers == {1: 150}


def test_messages_start_now_and_what_follows_them_does_too() -> None:
    nodes = [comp(100), send(1, 8, 0), comp(10, 1), coll(Op.ALL_REDUCE, 64, 0, group=0), comp(10, 0)]
    driver = Driver(nodes, ranks=2, slots="astra")
    driver.wake(0, 130)
    assert driver.times("ready")[1] == 100
    assert driver.times("start")[1] == 130, "a message cannot be sent in the past"
    assert driver.timers == {4: 110}, "a sleep can"
    driver.sent(0, 140)
    assert driver.times("end")[1] == 140
    driver.wake(4, 141)
    assert driver.timers == {2: 150}
    assert driver.times("start")[2:4] == [140, 140]


# Matching


def test_messages_may_come_before_the_receive() -> None:
    driver = Driver([comp(100), recv(2, 8, 0, tag=5), recv(2, 9, 1, tag=5), recv(3, 7, 2, tag=5)])
    driver.arrive(2, 5, 8, 10, first_ns=4)
    driver.arrive(2, 5, 9, 20)
    driver.arrive(3, 5, 7, 30)
    driver.wake(0)
    assert driver.walker.done
    assert driver.times("end") == [100] * 4, "received when the rank asks for it"
    receives = driver.walker.records()["receives"]
    assert (receives["first_ps"] // PS).tolist() == [4, 20, 30]
    assert (receives["last_ps"] // PS).tolist() == [10, 20, 30]


def test_equal_tags_match_first_in_first_out() -> None:
    sizes = [100, 200, 300, 400]
    driver = Driver([recv(1, size) for size in sizes])
    for at, size in enumerate(sizes):
        driver.arrive(1, 0, size, 10 + at)
    assert driver.walker.error == ""
    assert driver.times("end") == [10, 11, 12, 13]


def test_peer_and_tag_tell_messages_apart() -> None:
    driver = Driver([recv(1, 10, tag=1), recv(2, 20, tag=1), recv(1, 30, tag=2)])
    driver.arrive(1, 2, 30, 3)
    driver.arrive(2, 1, 20, 4)
    driver.arrive(1, 1, 10, 5)
    assert driver.walker.error == ""
    assert driver.times("end") == [5, 4, 3]


def test_a_message_of_no_bytes_is_a_message() -> None:
    driver = Driver([send(1, 0), recv(1, 0)])
    assert driver.new() == [(1, 0, 0)]
    driver.arrive(1, 0, 0, 3)
    driver.sent(0, 4)
    assert driver.walker.done


def test_a_size_that_the_receiver_does_not_expect_is_an_error() -> None:
    driver = Driver([recv(2, 20)])
    driver.arrive(2, 0, 21, 3)
    assert driver.walker.error == (
        "rank 0, node row 0: expected 20 bytes from rank 2 and got 21: the two ranks' graphs disagree"
    )


# Collectives


def _ring(credit: bool = False, size_bytes: int = 3 * KIB, channels: int = 1) -> Driver:
    lowering = Lowering(channels, credit, {"all_reduce": "ring"})
    return Driver([coll(Op.ALL_REDUCE, size_bytes)], ranks=3, lowering=lowering)


def test_a_ring_sends_to_the_next_what_came_from_the_previous() -> None:
    driver = _ring()
    tag = tag_of()
    assert driver.new() == [(1, tag, KIB)]
    for round_number in range(1, 4):
        driver.arrive(2, tag, KIB, round_number)
        assert driver.new() == [(1, tag, KIB)]
    driver.arrive(2, tag, KIB, 9)
    assert driver.new() == []
    assert not driver.walker.done
    for which in range(4):
        driver.sent(which, 10 + which, retransmits=which)
    assert driver.walker.done
    assert driver.times("end") == [13]
    sends, receives = driver.walker.records()["sends"], driver.walker.records()["receives"]
    assert [sends[key].tolist() for key in ("peer", "messages", "size_bytes", "retransmits")] == [
        [1],
        [4],
        [4 * KIB],
        [6],
    ]
    assert (sends["post_ps"] // PS).tolist() == [0]
    assert (sends["acked_ps"] // PS).tolist() == [13]
    assert [receives[key].tolist() for key in ("peer", "messages", "size_bytes")] == [[2], [4], [4 * KIB]]
    assert (receives["first_ps"] // PS).tolist() == [1]
    assert (receives["last_ps"] // PS).tolist() == [9]


def test_busy_time_counts_a_span_with_several_messages_once() -> None:
    driver = Driver([coll(Op.ALL_GATHER, KIB)], ranks=3, lowering=Lowering(algorithms={"all_gather": "ring"}))
    driver.arrive(2, tag_of(), KIB, 5)  # the second message is posted while the first is in flight
    driver.sent(0, 8)
    driver.sent(1, 20)
    driver.arrive(2, tag_of(), KIB, 30)
    assert driver.walker.done
    assert (driver.walker.records()["sends"]["busy_ps"] // PS).tolist() == [20]


def test_channels_have_tags_of_their_own() -> None:
    driver = _ring(channels=2, size_bytes=6 * KIB)
    assert driver.new() == [(1, tag_of(channel=0), KIB), (1, tag_of(channel=1), KIB)]
    driver.arrive(2, tag_of(channel=1), KIB, 1)
    assert driver.new() == [(1, tag_of(channel=1), KIB)]


def test_collectives_of_one_group_are_told_apart_by_their_number() -> None:
    nodes = [coll(Op.ALL_REDUCE, 2 * KIB, stream=1), coll(Op.ALL_REDUCE, 4 * KIB, stream=2)]
    driver = Driver(nodes, ranks=2, slots="streams", lowering=Lowering(algorithms={"all_reduce": "ring"}))
    assert driver.new() == [(1, tag_of(0), KIB), (1, tag_of(1), 2 * KIB)]
    driver.arrive(1, tag_of(1), 2 * KIB, 1)
    driver.arrive(1, tag_of(0), KIB, 2)
    assert driver.walker.error == ""


def test_blocks_of_no_bytes_are_not_sent_nor_waited_for() -> None:
    """Four bytes over three members: block 0 has all of them, ends at member 0 and sets out from there."""
    driver = _ring(size_bytes=4)
    assert driver.new() == [], "its first block is empty"
    driver.arrive(2, tag_of(), 4, 5)
    assert driver.new() == [(1, tag_of(), 4)]
    driver.sent(0, 7)
    assert driver.walker.done


def test_a_barrier_sends_messages_of_no_bytes() -> None:
    driver = Driver([coll(Op.BARRIER, -1)], ranks=2)
    assert driver.new() == [(1, tag_of(), 0)]
    driver.sent(0, 5)
    assert not driver.walker.done
    driver.arrive(1, tag_of(), 0, 6)
    assert driver.walker.done


def test_a_credited_send_waits_for_its_receivers_clear_to_send() -> None:
    driver = _ring(credit=True)
    tag = tag_of()
    clears = driver.new()
    assert clears
    assert all(message == (2, tag | CREDIT, 64) for message in clears), "first the receives are cleared"
    driver.arrive(1, tag | CREDIT, 0, 3)
    assert driver.new() == [(1, tag, KIB)]
    driver.arrive(2, tag, KIB, 4)
    assert driver.new() == [], "the next block is here, but not cleared"
    driver.arrive(1, tag | CREDIT, 0, 6)
    assert driver.new() == [(1, tag, KIB)]


def test_a_clear_to_send_may_come_first() -> None:
    lowering = Lowering(1, True, {"all_reduce": "ring"})
    driver = Driver([comp(100), coll(Op.ALL_REDUCE, 3 * KIB, 0)], ranks=3, lowering=lowering)
    tag = tag_of()
    for now in (1, 2):
        driver.arrive(1, tag | CREDIT, 0, now)
    driver.wake(0)
    assert [message for message in driver.new() if not message[1] & CREDIT] == [(1, tag, KIB)]
    driver.arrive(2, tag, KIB, 101)
    assert [message for message in driver.new() if not message[1] & CREDIT] == [(1, tag, KIB)]


def test_the_acknowledgement_of_a_clear_to_send_changes_nothing() -> None:
    driver = _ring(credit=True)
    before = driver.walker.unfinished
    driver.sent(0, 3)
    assert (driver.walker.unfinished, driver.walker.error) == (before, "")
    assert driver.walker.records()["sends"]["messages"].tolist() == [0]


# Texts of waiting()


def _lines(nodes: list[Node], ranks: int = 3) -> list[str]:
    return Driver(nodes, ranks=ranks).walker.waiting()


def test_waiting_names_what_is_missing() -> None:
    assert _lines([recv(2, 20, tag=6)]) == ["rank 0, node row 0: receive of 20 bytes from rank 2, tag 6"]
    assert _lines([send(1, 9, tag=3)]) == ["rank 0, node row 0: send of 9 bytes to rank 1, tag 3"]
    assert _lines([comp(9)]) == ["rank 0, node row 0: sleep"]
    assert _lines([recv(2, 1), recv(1, 1)]) == [
        "rank 0, node row 0: receive of 1 bytes from rank 2, tag 0",
        "rank 0, node row 1: receive of 1 bytes from rank 1, tag 0",
    ]


def test_waiting_names_the_peer_of_a_collective() -> None:
    driver = _ring()
    driver.arrive(2, tag_of(), KIB, 5)
    assert driver.walker.waiting() == [
        "rank 0, node row 0: collective with 7 steps left, 1 of 4 messages received from rank 2"
    ]
    for _ in range(3):
        driver.arrive(2, tag_of(), KIB, 5)
    driver.sent(0, 6)
    assert driver.walker.waiting() == [
        "rank 0, node row 0: collective with 3 steps left, 1 of 4 messages acknowledged by rank 1"
    ]


def test_waiting_names_a_node_that_never_became_ready() -> None:
    workload = workload_of([[meta(), meta()]])
    graph = workload.ranks[0]
    graph.dep_start, graph.deps = np.array([0, 1, 2]), np.array([1, 0], np.int32)  # a cycle
    walker = genie_core.Walker(build_plan(workload).native, 0)
    assert walker.begin(0) == []
    assert walker.waiting() == ["rank 0, node row 0: not started: what it depends on or its release time has not come"]


def test_waiting_is_limited() -> None:
    driver = Driver([recv(1, 1) for _ in range(9)])
    assert len(driver.walker.waiting(4)) == 4
    assert driver.walker.waiting(0) == []


def test_only_what_has_started_is_recorded() -> None:
    driver = Driver([comp(5), comp(5)])
    assert driver.times("start") == [0, -1]
    assert driver.times("end") == [-1, -1]
    assert driver.walker.unfinished == 2


@pytest.mark.parametrize("slots", ["astra", "streams"])
def test_many_nodes_that_are_ready_at_once(slots: str) -> None:
    count = 20_000
    driver = Driver([comp(1, stream=row % 7) for row in range(count)], slots=slots)  # type: ignore[arg-type]
    for _ in range(count):
        driver.wake(min(driver.timers, key=lambda node: (driver.timers[node], node)))
    assert driver.walker.done
    assert max(driver.times("end")) == (count if slots == "astra" else -(-count // 7))
