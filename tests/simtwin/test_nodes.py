"""Several ranks a node, as NCCL has them, where one of them is late."""

from __future__ import annotations

import polars as pl
import pytest

from genie.collectives.nccl.shape import NcclShape
from genie.config.units import Rate
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from simtwin.fabric.schema import Fabric, Link, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin

MEMBERS = 8
LATE_NS = 50_000_000


def workload(size_bytes: int, late: int) -> Workload:
    """An all-reduce before which one rank computes."""
    made = Workload("nodes", MEMBERS, [Group("0", tuple(range(MEMBERS)))], {})
    for rank in range(MEMBERS):
        builder, last = RankBuilder(rank), ()
        if rank == late:
            last = (builder.add(0, "compute", Kind.COMP, last, duration_ns=LATE_NS),)
        builder.add(len(builder), "sum", Kind.COLL, last, size_bytes=size_bytes, op=Op.ALL_REDUCE, group=0)
        made.ranks[rank], _ = builder.finish()
    return made


@pytest.mark.parametrize(("size_bytes", "late"), [(4096, 5), (1_000_003, 4), (1_000_003, 5), (70_001, 3)])
def test_nobody_ends_before_a_late_rank_has_begun(size_bytes: int, late: int) -> None:
    """By tree, and by ring with blocks of different sizes, whose order a receiver would notice."""
    fabric = Fabric(topology=SingleSwitch(hosts=MEMBERS), link=Link(Rate(10**9)))
    twin = Twin(fabric, build_network(fabric), list(range(MEMBERS)), 1)
    lowering = Lowering(nccl=NcclShape(4, ranks_per_node=2))
    played = twin.play(workload(size_bytes, late), lowering=lowering)
    ends = played.timeline.filter(pl.col("kind") == "coll")["end_ns"]
    assert len(ends) == MEMBERS
    assert ends.to_numpy().min() >= LATE_NS
