"""Loading real traces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from genie.workload.graph import Group, Kind, Op
from genie.workload.load import load


@pytest.mark.parametrize("ranks", [4, 8, 16])
@pytest.mark.parametrize("op", [Op.ALL_GATHER, Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.REDUCE_SCATTER])
def test_microbenchmarks(op: Op, ranks: int, shared_data: Path) -> None:
    workload = load(shared_data / f"astra-sim/microbenchmarks/{op.name.lower()}/{ranks}npus_1MB")
    assert workload.world_size == ranks
    assert workload.groups == [Group("0", tuple(range(ranks)))]
    assert list(workload.ranks) == list(range(ranks))
    for graph in workload.ranks.values():
        assert graph.kind.tolist() == [Kind.COLL]
        assert graph.op.tolist() == [op]
        assert graph.size_bytes.tolist() == [1 << 20]


def test_custom_ring(shared_data: Path) -> None:
    workload = load(shared_data / "astra-sim/custom_ring_allreduce_8npus_1MB")
    for rank, graph in workload.ranks.items():
        sends = graph.kind == Kind.SEND
        assert np.count_nonzero(sends) == np.count_nonzero(graph.kind == Kind.RECV) == 14
        assert graph.duration_ns[graph.kind == Kind.COMP].tolist() == [7000] * 7
        assert graph.size_bytes[sends].sum() == 1_835_008
        assert set(graph.peer[sends].tolist()) == {(rank + 1) % 8}
    assert workload.dangling == 0


@pytest.mark.parametrize(("name", "groups"), [("dense8", 16), ("fsdp8", 17), ("moe8", 22)])
def test_stage_generated(name: str, groups: int, shared_data: Path) -> None:
    folder = shared_data / "stage-generated" / name
    workload = load(folder)
    defined = json.loads((folder / "workload.json").read_text())
    assert workload.groups == [
        Group("0", tuple(range(8))), *(Group(key, tuple(sorted(ranks))) for key, ranks in defined.items()),
    ]  # fmt: skip
    assert len(workload.groups) == groups + 1
    for rank, graph in workload.ranks.items():
        collectives = np.flatnonzero(graph.kind == Kind.COLL)
        assert len(collectives) > 0
        assert all(rank in workload.groups[group].ranks for group in graph.group[collectives])
        assert (graph.size_bytes[collectives] > 0).all()
        assert (graph.duration_ns[graph.kind == Kind.COMP] == -1).all()
        assert (graph.num_ops[graph.kind == Kind.COMP] >= 0).all()
