"""Classes of plans: what is found in plain graphs is what classes say, and both play alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import genie_core
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.plan.build import build_plan
from genie.plan.classes import plan_classes
from genie.workload.build import RankBuilder
from genie.workload.classes import Classes
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

OPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.BARRIER)
# Of a template of 8 ranks: (kind, op, domain or column, size).
NODES = st.lists(
    st.tuples(st.sampled_from(("comp", "coll", "ring")), st.sampled_from(OPS), st.integers(0, 2), st.integers(1, 9999)),
    min_size=1,
    max_size=12,
)


def _grid() -> tuple[list[Group], np.ndarray]:
    """Groups of 8 ranks in domains: pairs, all that share a place in their pair, and the pairs again."""
    groups = [Group(f"pair{at}", (2 * at, 2 * at + 1)) for at in range(4)]
    groups += [Group(f"even{at}", tuple(range(at, 8, 2))) for at in range(2)]
    return groups, np.array([[rank // 2, 4 + rank % 2, rank // 2] for rank in range(8)], np.int32)


def _template(nodes: list[tuple[str, Op, int, int]]) -> RankGraph:
    builder = RankBuilder(0)
    last: tuple[int, ...] = ()
    for number, (kind, op, domain, size) in enumerate(nodes):
        if kind == "comp":
            last = (builder.add(4 * number, "work", Kind.COMP, last, duration_ns=size),)
        elif kind == "coll":
            last = (builder.add(4 * number, "all", Kind.COLL, last, size_bytes=8 * size, op=op, group=domain),)
        else:
            builder.add(4 * number, "get", Kind.RECV, last, size_bytes=size, peer=1, tag=number)
            last = (builder.add(4 * number + 1, "give", Kind.SEND, last, size_bytes=size, peer=0, tag=number),)
    graph, _ = builder.finish()
    return graph


def _of_classes(nodes: list[tuple[str, Op, int, int]]) -> Workload:
    groups, group_of = _grid()
    peer_of = np.array([[(rank + 1) % 8, (rank - 1) % 8] for rank in range(8)], np.int32)
    classes = Classes((_template(nodes),), np.zeros(8, np.int32), group_of, peer_of)
    return Workload("classes", 8, groups, classes.view())


def _plain(workload: Workload) -> Workload:
    return replace(workload, ranks=dict(workload.ranks))


@settings(max_examples=60, deadline=None)
@given(NODES)
def test_plain_graphs_and_classes_give_one_class_and_the_same_plan(nodes: list[tuple[str, Op, int, int]]) -> None:
    views = _of_classes(nodes)
    plain = _plain(views)
    assert len(plan_classes(views)) == len(plan_classes(plain)) == 1
    first, second = build_plan(views), build_plan(plain)
    assert first.algorithms == second.algorithms
    assert first.message_max_bytes == second.message_max_bytes
    played = [genie_core.walk_alone(each.native) for each in (first, second)]
    assert played[0] == played[1]
    assert played[0]["problems"] == []
    for rank in range(8):
        assert _begins(first, rank) == _begins(second, rank)


def _begins(plan: Any, rank: int) -> list[Any]:
    return list(genie_core.Walker(plan.native, rank).begin(0))


def test_columns_with_one_group_share_its_sequence_numbers() -> None:
    """The first and the third domain are the same pairs: their collectives are numbered together."""
    nodes = [("coll", Op.ALL_REDUCE, 0, 1), ("coll", Op.ALL_REDUCE, 2, 1), ("coll", Op.ALL_REDUCE, 1, 1)]
    (own,) = plan_classes(_of_classes(nodes))
    assert own.template.group.tolist() == [0, 0, 1]
    assert [binding.nodes for binding in own.bindings] == [2, 1]


def test_ranks_whose_columns_hold_one_group_are_a_class_of_their_own() -> None:
    groups, group_of = _grid()
    group_of[6:, 1] = 3  # the last pair's second domain is the pair itself
    template = _template([("coll", Op.ALL_REDUCE, 0, 1), ("coll", Op.ALL_REDUCE, 1, 1)])
    classes = Classes((template,), np.zeros(8, np.int32), group_of, np.zeros((8, 0), np.int32))
    found = plan_classes(Workload("two", 8, groups, classes.view()))
    assert [each.ranks.tolist() for each in found] == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert [each.template.group.tolist() for each in found] == [[0, 1], [0, 0]]


@pytest.mark.parametrize("column", ["duration_ns", "size_bytes", "tag", "stream", "root"])
def test_graphs_that_differ_in_a_column_are_apart(column: str) -> None:
    plain = _plain(_of_classes([("comp", OPS[0], 0, 5), ("coll", Op.BROADCAST, 0, 5)]))
    changed = getattr(plain.ranks[3], column).copy()
    changed[-1] += 1
    plain.ranks[3] = replace(plain.ranks[3], **{column: changed})  # type: ignore[index]
    assert [each.ranks.tolist() for each in plan_classes(plain)] == [[0, 1, 2, 4, 5, 6, 7], [3]]


def test_graphs_with_different_splits_are_apart() -> None:
    plain = _plain(_of_classes([("coll", Op.ALL_TO_ALL, 0, 5)]))
    for rank in range(8):
        sent = np.array([rank % 4, 40 - rank % 4])
        plain.ranks[rank] = replace(plain.ranks[rank], splits={0: (sent, sent)})  # type: ignore[index]
    assert [each.ranks.tolist() for each in plan_classes(plain)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
