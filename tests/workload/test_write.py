"""What `save` writes, `load` gives back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from genie.workload.generate import chain, collective, point_to_point
from genie.workload.graph import Op, RankGraph, Workload
from genie.workload.load import load
from genie.workload.write import save

SHARED = [
    *(
        f"astra-sim/microbenchmarks/{op}/{ranks}npus_1MB"
        for op in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
        for ranks in (4, 8, 16)
    ),
    "astra-sim/custom_ring_allreduce_8npus_1MB",
    "stage-generated/dense8",
    "stage-generated/fsdp8",
    "stage-generated/moe8",
]


def assert_same_graph(left: RankGraph, right: RankGraph) -> None:
    for column in dataclasses.fields(RankGraph):
        one, other = getattr(left, column.name), getattr(right, column.name)
        if column.name == "splits":
            assert one.keys() == other.keys()
            for row in one:
                np.testing.assert_array_equal(one[row], other[row])
        elif isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, column.name
            np.testing.assert_array_equal(one, other, err_msg=column.name)
        else:
            assert one == other, column.name


def assert_same_workload(left: Workload, right: Workload) -> None:
    assert left.world_size == right.world_size
    assert left.groups == right.groups
    assert left.ranks.keys() == right.ranks.keys()
    for rank in left.ranks:
        assert_same_graph(left.ranks[rank], right.ranks[rank])


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "workload",
    [
        collective(Op.ALL_REDUCE, 4, 1 << 20, count=3, compute_ns=1_234_567),
        collective(Op.BROADCAST, [1, 3], 100, count=2),
        collective(Op.BARRIER, 3, 0),
        point_to_point(2, 0, 4096, count=3),
        chain(200, ranks=2),
    ],
    ids=lambda workload: workload.name,
)
def test_generated_round_trip(workload: Workload, compress: bool, tmp_path: Path) -> None:
    save(workload, tmp_path, "trace", compress)
    assert_same_workload(load(tmp_path), workload)
    assert_same_workload(load(tmp_path / "trace"), workload)


@pytest.mark.parametrize("folder", SHARED)
def test_shared_round_trip(folder: str, shared_data: Path, tmp_path: Path) -> None:
    workload = load(shared_data / folder)
    save(workload, tmp_path)
    assert_same_workload(load(tmp_path), workload)


def test_one_rank_knows_the_world(tmp_path: Path) -> None:
    workload = collective(Op.ALL_TO_ALL, [1, 3], 100)
    save(workload, tmp_path)
    one = load(tmp_path, ranks=[1])
    assert list(one.ranks) == [1]
    assert one.world_size == 4
    assert one.groups == workload.groups
    assert_same_graph(one.ranks[1], workload.ranks[1])


def test_equal_workloads_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(collective(Op.ALL_REDUCE, 2, 64, count=4), tmp_path / name, compress=True)
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
