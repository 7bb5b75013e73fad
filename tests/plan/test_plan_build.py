"""Binding graphs to templates, sizes, tags and slots."""

from __future__ import annotations

from typing import Any

import genie_core
import numpy as np
import pytest

from genie.plan.build import MESSAGE_MAX_BYTES, build_plan
from genie.plan.lowering import Lowering
from genie.plan.tags import CHANNELS_MAX, POINT_TO_POINT_TAG_MAX
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload, WorkloadError
from genie.workload.synthetic import chain, collective, point_to_point

WHOLE = 0xFFFFFFFF


def _one_rank(*nodes: dict[str, Any], ranks: int = 2, groups: tuple[tuple[int, ...], ...] = ((0, 1),)) -> Workload:
    """Rank 0 has `nodes`, ids 10, 11, ..., each with arguments of RankBuilder.add; the others have none."""
    workload = Workload("test", ranks, [Group(f"g{n}", members) for n, members in enumerate(groups)], {})
    for rank in range(ranks):
        builder = RankBuilder(rank)
        for number, node in enumerate(nodes if rank == 0 else ()):
            builder.add(10 + number, f"node{number}", **node)
        workload.ranks[rank], _ = builder.finish()
    return workload


def _error(workload: Workload, **arguments: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        build_plan(workload, **arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def _first_sends(plan: Any, which: int = 0) -> list[tuple[int, int]]:
    """(peer, size_bytes) of what a rank sends at once."""
    return [(operation[2], operation[4]) for operation in genie_core.Walker(plan.native, which).begin(0)]


# Parts of the workload and of the plan


def test_every_rank_has_a_plan_in_ascending_order() -> None:
    plan = build_plan(collective(Op.ALL_REDUCE, 4, 1 << 20))
    assert plan.ranks == [0, 1, 2, 3]
    assert plan.native.ranks == 4
    assert plan.slots == "astra"
    assert plan.message_max_bytes == 1 << 18


def test_algorithms_are_chosen_by_size_and_on_request() -> None:
    assert build_plan(collective(Op.ALL_REDUCE, 4, 1 << 20, count=3)).algorithms == {"all_reduce ring": 12}
    assert build_plan(collective(Op.ALL_REDUCE, 4, 64, count=2)).algorithms == {"all_reduce recursive_doubling": 8}
    asked = Lowering(algorithms={"all_reduce": "ring", "all_gather": "direct"})
    assert build_plan(collective(Op.ALL_REDUCE, 4, 64), lowering=asked).algorithms == {"all_reduce ring": 4}
    assert build_plan(collective(Op.ALL_GATHER, 4, 1 << 20), lowering=asked).algorithms == {"all_gather direct": 4}


def test_equal_collectives_share_one_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes the memory of its nodes, not of its messages."""
    added = []

    class CountingPlan(genie_core.Plan):
        def add_template(self, *arguments: Any) -> int:
            added.append(arguments)
            return super().add_template(*arguments)

        def set_pools(self, block_sizes: Any, *groups: Any) -> None:
            added.append(len(block_sizes))
            super().set_pools(block_sizes, *groups)

    monkeypatch.setattr(genie_core, "Plan", CountingPlan)
    plan = build_plan(collective(Op.ALL_REDUCE, 8, 1 << 20, count=1000))
    assert len(added) == 2
    assert added[1] == 8, "one table of block sizes"
    result = genie_core.walk_alone(plan.native)
    assert result["problems"] == []
    assert result["steps"] == 8 * 1000 * 28


def test_a_group_of_some_ranks_sends_to_its_own_members() -> None:
    workload = collective(Op.ALL_GATHER, [2, 5, 7], 1 << 20)
    plan = build_plan(workload)
    assert [_first_sends(plan, rank) for rank in range(8)] == [
        [], [], [(5, 1 << 20)], [], [], [(7, 1 << 20)], [], [(2, 1 << 20)]
    ]  # fmt: skip


def test_the_root_of_a_broadcast_is_a_position_of_its_group() -> None:
    node = {"kind": Kind.COLL, "op": Op.BROADCAST, "group": 0, "size_bytes": 8}
    workload = _one_rank({**node, "root": 1}, ranks=6, groups=((0, 3, 5),))
    assert _first_sends(build_plan(workload)) == [], "rank 3 is the root"
    workload = _one_rank({**node, "root": 0}, ranks=6, groups=((0, 3, 5),))
    assert sorted(_first_sends(build_plan(workload))) == [(3, 8), (5, 8)]


def test_split_sizes_decide_what_goes_to_each_peer() -> None:
    splits = ([100, 0, 300], [100, 7, 0])
    node = {"kind": Kind.COLL, "op": Op.ALL_TO_ALL, "group": 0, "size_bytes": 400, "splits": splits}
    workload = _one_rank(node, ranks=3, groups=((0, 1, 2),))
    lowering = Lowering(algorithms={"all_to_all": "direct"})
    assert _first_sends(build_plan(workload, lowering=lowering)) == [(2, 300)]


def test_a_collective_of_one_member_ends_at_once() -> None:
    plan = build_plan(_one_rank({"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": 0, "size_bytes": 8}, groups=((0,),)))
    walker = genie_core.Walker(plan.native, 0)
    assert walker.begin(0) == []
    assert walker.done


def test_slots_are_streams_where_the_trace_has_them() -> None:
    assert build_plan(chain(20, ranks=2)).slots == "streams"
    assert build_plan(chain(20, ranks=2), slots="astra").slots == "astra"
    assert build_plan(point_to_point(0, 1, 8)).slots == "astra"


def test_dilation_stretches_compute() -> None:
    workload = _one_rank({"kind": Kind.COMP, "duration_ns": 70})
    for factor in (1, 10):
        walker = genie_core.Walker(build_plan(workload, time_factor=factor).native, 0)
        assert walker.begin(0) == [("timer", WHOLE, 70_000 * factor)]


def test_sizes_of_kernels_are_not_message_sizes() -> None:
    """Only messages count for the largest message; a kernel may carry a size of any meaning."""
    workload = _one_rank({"kind": Kind.COMP, "size_bytes": 1 << 40}, {"kind": Kind.SEND, "peer": 1, "size_bytes": 9})
    assert build_plan(workload).message_max_bytes == 9


# Release times (--follow)


def test_release_times_replace_dependencies_and_slots() -> None:
    nodes: list[dict[str, Any]] = [
        {"kind": Kind.COMP, "duration_ns": 1000},
        {"kind": Kind.SEND, "peer": 1, "size_bytes": 8, "deps": (10,)},
        {"kind": Kind.SEND, "peer": 1, "size_bytes": 9, "deps": (11,)},
        {"kind": Kind.SEND, "peer": 1, "size_bytes": 7, "deps": (12,)},
    ]
    workload = _one_rank(*nodes)
    release = {0: np.array([-1, 300, 200, -1]), 1: np.zeros(0, np.int64)}
    walker = genie_core.Walker(build_plan(workload, release_ns=release).native, 0)
    assert sorted(walker.begin(0)) == [("timer", 1 << 32 | WHOLE, 300_000), ("timer", 2 << 32 | WHOLE, 200_000)]
    sends = walker.advance(200_000, [("timer", 2 << 32 | WHOLE, 200_000)])
    assert [operation[4] for operation in sends] == [9]
    sends += walker.advance(300_000, [("timer", 1 << 32 | WHOLE, 300_000)])
    assert [operation[4] for operation in sends] == [9, 8], "although the first one holds no slot"
    for operation in sends:
        walker.advance(400_000, [("sent", operation[1], 400_000, 0)])
    assert walker.done, "nodes that were left out are over from the start"
    assert (walker.records()["nodes"]["start_ps"] // 1000).tolist() == [0, 300, 200, 0]


# Errors


def test_a_collective_of_a_group_that_its_rank_is_not_in() -> None:
    node = {"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": 0, "size_bytes": 8}
    assert _error(_one_rank(node, groups=((1,),))) == (
        "rank 0: node 10 (node0) is a collective of group 'g0', which rank 0 is not a member of"
    )


def test_a_collective_without_a_size() -> None:
    node = {"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": 0}
    assert _error(_one_rank(node)) == "rank 0: node 10 (node0) is an all_reduce without a size"
    build_plan(_one_rank({**node, "op": Op.BARRIER}))


def test_compute_without_a_duration_is_counted_and_named() -> None:
    node = {"kind": Kind.COMP, "duration_ns": -1}
    text = _error(_one_rank({"kind": Kind.META, "duration_ns": -1}, node, node))
    assert text == ("rank 0: 2 compute nodes have no duration (first: node 11); give --compute roofline:TFLOPS,GBPS")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tag": -1}, "tag -1 is not in"),
        ({"tag": POINT_TO_POINT_TAG_MAX + 1}, f"is not in 0..{POINT_TO_POINT_TAG_MAX}"),
        ({"peer": 2}, "peer 2 is not a rank of 0..1"),
        ({"peer": -1}, "peer -1 is not a rank of 0..1"),
        ({"size_bytes": -1}, "a message of -1 bytes"),
        ({"size_bytes": MESSAGE_MAX_BYTES + 1}, f"allowed: 0..{MESSAGE_MAX_BYTES}"),
    ],
)
@pytest.mark.parametrize("kind", [Kind.SEND, Kind.RECV])
def test_a_message_that_cannot_be(kind: Kind, change: dict[str, Any], words: str) -> None:
    text = _error(_one_rank({"kind": kind, "peer": 1, "size_bytes": 8, **change}))
    assert text.startswith("rank 0: node 10 (node0): ")
    assert words in text


def test_a_block_larger_than_a_message() -> None:
    workload = collective(Op.ALL_GATHER, 2, MESSAGE_MAX_BYTES + 1)
    assert _error(workload).endswith(f"has {MESSAGE_MAX_BYTES}: give more channels")
    build_plan(workload, lowering=Lowering(channels=2))


@pytest.mark.parametrize("channels", [0, -1, CHANNELS_MAX + 1])
def test_channels_out_of_range(channels: int) -> None:
    text = _error(collective(Op.ALL_REDUCE, 2, 8), lowering=Lowering(channels=channels))
    assert text == f"channels must be 1..{CHANNELS_MAX}, not {channels}"


def test_an_unknown_algorithm_names_the_node_and_the_known_ones() -> None:
    text = _error(collective(Op.ALL_REDUCE, 2, 8), lowering=Lowering(algorithms={"all_reduce": "tree"}))
    assert text.startswith("rank 0: node 0 (all_reduce 0): all_reduce has no algorithm 'tree'; known: ")


def test_too_many_groups_of_one_rank() -> None:
    workload = _one_rank(groups=tuple((0, 1) for _ in range(1025)))
    assert _error(workload) == "a rank is in more than 1024 groups: more than a message's tag can tell apart"
    build_plan(_one_rank(groups=tuple((0, 1) for _ in range(1024))))


def test_split_sizes_that_do_not_fit_the_group() -> None:
    node = {"kind": Kind.COLL, "op": Op.ALL_TO_ALL, "group": 0, "size_bytes": 400, "splits": ([1], [2])}
    assert "give one per member" in _error(_one_rank(node))
