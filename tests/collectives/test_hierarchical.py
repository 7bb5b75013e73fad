"""The hierarchical all-reduce: rings inside nodes and between them, with less traffic between nodes."""

from __future__ import annotations

import genie_core
import pytest

from genie.collectives import Action, LoweringError
from genie.collectives.check import check, lower_all
from genie.collectives.lower import HIERARCHICAL, block_sizes, lower
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.synthetic import collective

MIB = 1 << 20


@pytest.mark.parametrize(("members", "local"), [(8, 4), (12, 3), (32, 8), (6, 6), (6, 1)])
@pytest.mark.parametrize("credit", [False, True])
def test_each_member_sends_its_slice_between_nodes(members: int, local: int, credit: bool) -> None:
    """2 (N - 1) / N of a slice to the next node, in blocks; inside, slices to the next member."""
    nodes, size_bytes = members // local, members * 1024
    check("all_reduce", HIERARCHICAL, members, size_bytes, 1, 0, credit, None, local)
    templates, sizes = lower_all("all_reduce", HIERARCHICAL, members, size_bytes, credit=credit, local=local)
    for position, (template, table) in enumerate(zip(templates, sizes, strict=True)):
        inside, between = [], []
        for step in range(len(template)):
            if template.action[step] != Action.SEND:
                continue
            moved = int(table[template.block_base[step] + template.block[step]])
            (inside if int(template.peer[step]) // local == position // local else between).append(moved)
        assert between == [1024] * 2 * (nodes - 1)
        assert inside == [1024 * nodes] * 2 * (local - 1)


@pytest.mark.parametrize("members", [4, 6, 12])
def test_the_walker_plays_it_to_its_end(members: int) -> None:
    for lowering in (
        Lowering(algorithms={"all_reduce": HIERARCHICAL}, ranks_per_node=2),
        Lowering(3, True, {"all_reduce": HIERARCHICAL}, ranks_per_node=members // 2),
    ):
        for size_bytes in (1, 1000, MIB):
            plan = build_plan(collective(Op.ALL_REDUCE, members, size_bytes), lowering=lowering)
            assert genie_core.walk_alone(plan.native)["problems"] == []


def test_nodes_that_do_not_make_the_group_are_refused() -> None:
    with pytest.raises(LoweringError, match="nodes of 3 members do not make a group of 8"):
        lower("all_reduce", HIERARCHICAL, 8, 0, local=3)
    assert lower("all_reduce", "ring", 8, 0, local=3) is lower("all_reduce", "ring", 8, 5)
    assert block_sizes("all_reduce", HIERARCHICAL, 8, 0, 64, local=4).tolist()[:8] == [8] * 8
