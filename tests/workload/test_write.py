"""`load` returns the workload that `save` has written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from genie.workload.build import RankBuilder
from genie.workload.decode import ROOTED
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.load import load
from genie.workload.synthetic import chain, collective, point_to_point
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


@st.composite
def drawn_workloads(draw: st.DrawFn) -> Workload:
    """Two ranks with nodes of every kind, ids apart and in any order."""
    groups = [Group("0", (0, 1)), Group("pair", (0, 1))]
    workload = Workload("drawn", 2, groups, {})
    sizes = st.integers(0, 2**50)
    for rank in range(2):
        builder = RankBuilder(rank)
        ids = draw(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=8))
        for place, node_id in enumerate(ids):
            kind = draw(st.sampled_from(Kind))
            timed = kind in (Kind.COMP, Kind.MEM)
            columns: dict[str, object] = {"stream": draw(st.integers(-1, 9)), "on_cpu": draw(st.booleans())}
            if timed:
                columns["duration_ns"] = draw(st.integers(-1, 2**63 - 1))
                columns |= {"num_ops": draw(st.integers(-1, 9)), "tensor_bytes": draw(st.integers(-1, 9))}
                columns["origin"] = draw(st.sampled_from(["", "roofline", "scaled from h100"]))
            if kind in (Kind.SEND, Kind.RECV):
                columns |= {"peer": 1 - rank, "tag": draw(st.integers(-9, 9)), "size_bytes": draw(sizes)}
            if kind is Kind.COLL:
                op = draw(st.sampled_from([op for op in Op if op is not Op.NONE]))
                size_bytes = 0 if op is Op.BARRIER else draw(sizes)
                columns |= {"op": op, "group": draw(st.integers(0, 1)), "size_bytes": size_bytes}
                if op in ROOTED:
                    columns["root"] = draw(st.integers(0, 1))
                if op is Op.ALL_TO_ALL and draw(st.booleans()):
                    part = st.integers(0, 2**49)
                    columns["splits"] = ([draw(part), 1], [0, draw(part)])
            deps = draw(st.lists(st.sampled_from(ids[:place]), max_size=3)) if place else []
            builder.add(node_id, draw(st.text("aé:/ ", max_size=5)), kind, deps, **columns)  # type: ignore[arg-type]
        workload.ranks[rank], _ = builder.finish()
    return workload


@settings(derandomize=True, deadline=None, max_examples=150)
@given(workload=drawn_workloads(), compress=st.booleans())
def test_drawn_round_trip(workload: Workload, compress: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    assume(any(len(graph) for graph in workload.ranks.values()))  # a job without nodes is refused
    folder = tmp_path_factory.getbasetemp() / f"drawn-{compress}"
    save(workload, folder, compress=compress)
    assert_same_workload(load(folder), workload)
