"""From a walker's records to the tables of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from genie.plan.sequence import sequence_numbers
from genie.plan.tables import join_transfers, receives_of, sends_of, timeline_of
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

INT = np.int64


def _workload() -> Workload:
    """Two ranks: compute, two all-reduces of one group around a barrier of another, two equal messages 0 -> 1."""
    workload = Workload("test", 2, [Group("world", (0, 1)), Group("pair", (0, 1))], {})
    for rank in range(2):
        builder = RankBuilder(rank)
        builder.add(100, "kernel", Kind.COMP, duration_ns=5)
        builder.add(101, "first", Kind.COLL, op=Op.ALL_REDUCE, group=0, size_bytes=64)
        builder.add(102, "barrier", Kind.COLL, op=Op.BARRIER, group=1)
        builder.add(103, "second", Kind.COLL, op=Op.ALL_REDUCE, group=0, size_bytes=32)
        for node_id in (104, 105):
            kind, peer = (Kind.SEND, 1) if rank == 0 else (Kind.RECV, 0)
            builder.add(node_id, f"message {node_id}", kind, peer=peer, tag=9, size_bytes=8)
        workload.ranks[rank], _ = builder.finish()
    return workload


def _records(nodes: dict[str, Any], sends: Sequence[list[int]] = (), receives: Sequence[list[int]] = ()) -> Any:
    """Rows of sends: node, peer, messages, size, retransmits, post, acked, busy; of receives: …, first, last."""
    send_names = ("node", "peer", "messages", "size_bytes", "retransmits", "post_ps", "acked_ps", "busy_ps")
    receive_names = ("node", "peer", "messages", "size_bytes", "first_ps", "last_ps")
    return {
        "nodes": {name: np.array(values, INT) for name, values in nodes.items()},
        "sends": dict(zip(send_names, np.array([*sends], INT).reshape(-1, 8).T, strict=True)),
        "receives": dict(zip(receive_names, np.array([*receives], INT).reshape(-1, 6).T, strict=True)),
    }


def _nodes(start: list[int], end: list[int]) -> dict[str, Any]:
    return {"ready_ps": start, "start_ps": start, "end_ps": end, "overshoot_ps": [2_500, 0, 0, 0, 0, 0][: len(start)]}


def _transfers(sends: Sequence[list[int]], receives: Sequence[list[int]], factor: int = 1) -> pl.DataFrame:
    workload = _workload()
    nodes = _nodes([0] * 6, [0] * 6)
    first = sends_of(workload.ranks[0], _records(nodes, sends), 3, {1: "49152"}, factor)
    second = receives_of(workload.ranks[1], _records(nodes, [], receives), 3, factor)
    return join_transfers(workload, first, second)


def test_sequence_numbers_count_the_collectives_of_each_group() -> None:
    assert sequence_numbers(_workload().ranks[0]).tolist() == [-1, 0, 0, 1, -1, -1]


def test_the_timeline_has_one_row_for_every_node_that_started() -> None:
    workload = _workload()
    records = _records(_nodes([0, 5_999, 7_000, -1, 8_000, -1], [5_000, 9_000, -1, -1, 8_000, -1]))
    timeline = timeline_of(workload, workload.ranks[1], records, 4)
    assert dict(timeline.schema) == TIMELINE_SCHEMA
    assert timeline["node_id"].to_list() == [100, 101, 102, 104]
    assert timeline.row(1, named=True) == {
        "rank": 1, "node_id": 101, "name": "first", "kind": "coll", "op": "all_reduce", "group": "world", "seq": 0,
        "size_bytes": 64, "ready_ns": 5, "start_ns": 5, "end_ns": 9, "overshoot_ns": 0, "iteration": 4,
    }  # fmt: skip
    assert timeline.row(0, named=True) == {
        "rank": 1, "node_id": 100, "name": "kernel", "kind": "comp", "op": None, "group": None, "seq": None,
        "size_bytes": 0, "ready_ns": 0, "start_ns": 0, "end_ns": 5, "overshoot_ns": 2, "iteration": 4,
    }  # fmt: skip
    assert timeline["end_ns"].to_list() == [5, 9, -1, 8], "-1: started and not ended"
    assert timeline["op"].to_list() == [None, "all_reduce", "barrier", None]
    assert timeline["size_bytes"].to_list() == [0, 64, 0, 8]


def test_times_are_divided_by_the_dilation() -> None:
    workload = _workload()
    records = _records(_nodes([0, 40_000, -1, -1, -1, -1], [20_000, 60_000, -1, -1, -1, -1]))
    timeline = timeline_of(workload, workload.ranks[0], records, 0, time_factor=4)
    assert timeline["start_ns"].to_list() == [0, 10]
    assert timeline["end_ns"].to_list() == [5, 15]
    row = _transfers([[1, 1, 2, 64, 0, 8_000, 40_000, 16_000]], [[1, 0, 2, 64, 20_000, 36_000]], 4).row(0, named=True)
    assert (row["post_ns"], row["acked_ns"], row["busy_ns"], row["first_ns"], row["last_ns"]) == (2, 10, 4, 5, 9)


def test_a_transfer_joins_both_ends_of_a_collective() -> None:
    sends = [[3, 1, 2, 32, 1, 700_000, 950_000, 200_000], [1, 1, 2, 64, 0, 100_000, 400_000, 300_000]]
    receives = [[1, 0, 2, 64, 150_000, 390_000], [3, 0, 2, 32, 750_000, 940_000]]
    transfers = _transfers(sends, receives)
    assert dict(transfers.schema) == TRANSFERS_SCHEMA
    assert transfers.rows(named=True) == [
        {
            "iteration": 3, "src": 0, "dst": 1, "node_id": 101, "group": "world", "seq": 0, "size_bytes": 64,
            "messages": 2, "post_ns": 100, "first_ns": 150, "last_ns": 390, "acked_ns": 400, "busy_ns": 300,
            "retransmits": 0, "path": "49152",
        },
        {
            "iteration": 3, "src": 0, "dst": 1, "node_id": 103, "group": "world", "seq": 1, "size_bytes": 32,
            "messages": 2, "post_ns": 700, "first_ns": 750, "last_ns": 940, "acked_ns": 950, "busy_ns": 200,
            "retransmits": 1, "path": "49152",
        },
    ]  # fmt: skip


def test_messages_of_one_tag_join_in_the_order_in_which_they_started() -> None:
    """Node 105 was sent before node 104, and node 104 received before node 105."""
    sends = [[5, 1, 1, 8, 0, 10_000, 30_000, 20_000], [4, 1, 1, 8, 0, 40_000, 60_000, 20_000]]
    receives = [[4, 0, 1, 8, 20_000, 21_000], [5, 0, 1, 8, 50_000, 51_000]]
    rows = {row["node_id"]: row for row in _transfers(sends, receives).rows(named=True)}
    assert (rows[105]["post_ns"], rows[105]["first_ns"]) == (10, 20)
    assert (rows[104]["post_ns"], rows[104]["first_ns"]) == (40, 50)
    assert rows[104]["seq"] is None
    assert rows[104]["group"] is None


def test_the_receivers_half_may_be_missing() -> None:
    row = _transfers([[1, 1, 2, 64, 0, 100_000, 400_000, 300_000]], []).row(0, named=True)
    assert (row["first_ns"], row["last_ns"]) == (-1, -1)
    assert row["acked_ns"] == 400


def test_what_was_not_acknowledged_has_no_time() -> None:
    row = _transfers([[1, 1, 1, 32, 0, 100_000, -1, 0]], []).row(0, named=True)
    assert row["acked_ns"] == -1


def test_peers_that_were_sent_nothing_have_no_row() -> None:
    assert _transfers([[2, 1, 0, 0, 0, -1, -1, 0]], []).is_empty()


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_a_rank_that_did_nothing(rows: int) -> None:
    workload = _workload()
    if not rows:
        workload.ranks[0], _ = RankBuilder(0).finish()
    graph: RankGraph = workload.ranks[0]
    records = _records(_nodes([-1] * len(graph), [-1] * len(graph)))
    assert timeline_of(workload, graph, records, 0).is_empty()
    assert sends_of(graph, records, 0, {}).is_empty()
    assert receives_of(graph, records, 0).is_empty()


def test_a_message_before_the_origin_keeps_its_time() -> None:
    """A send time before the origin, from a clock that is ahead, does not read as "not yet"."""
    sends = [[4, 1, 1, 8, 0, 5_000, 9_000, 4_000], [5, 1, 1, 8, 0, 6_000, 9_000, 4_000]]
    receives = [[4, 0, 1, 8, -7_000, -500], [5, 0, 1, 8, -1, -1]]
    moved = _transfers(sends, receives)
    assert moved.sort("node_id").select("first_ns", "last_ns").rows() == [(-7, -2), (-1, -1)]
