"""Meaning of nodes, and nodes that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chakra_protobuf.et_def_pb2 import Node, NodeType
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import COLL, COMP, MEM, META, RECV, SEND, error_of, load_one, node, trace

from chakra_schemas.attributes import make_attributes
from genie.workload.decode import USED_ATTRIBUTES
from genie.workload.graph import Kind, Op, WorkloadError
from genie.workload.load import load


def test_dependencies_are_merged_rows_without_duplicates(tmp_path: Path) -> None:
    nodes = [node(30, deps=(10, 20, 10), ctrl=(10, 99)), node(10), node(20, ctrl=(10,)), node(40, ctrl=(77, 30))]
    workload = load_one(tmp_path, *nodes)
    graph = workload.ranks[0]
    assert graph.node_id.tolist() == [10, 20, 30, 40]
    assert graph.name == ["n10", "n20", "n30", "n40"]
    assert graph.dep_start.tolist() == [0, 0, 1, 3, 4]
    assert graph.deps.tolist() == [0, 0, 1, 2]
    assert workload.dangling == 2
    assert workload.notes == ["2 dependencies on nodes that are not in the files, dropped"]


def test_ids_over_the_whole_range(tmp_path: Path) -> None:
    graph = load_one(tmp_path, node(2**64 - 1, deps=(0, 2**63)), node(2**63), node(0)).ranks[0]
    assert graph.node_id.tolist() == [0, 2**63, 2**64 - 1]
    assert graph.node_id.dtype == np.uint64
    assert graph.deps.tolist() == [0, 1]


def test_kinds(tmp_path: Path) -> None:
    nodes = [
        node(1, META),
        node(2, MEM, tensor_size=5),
        node(3, NodeType.MEM_STORE_NODE),
        node(4),
        node(5, SEND, comm_dst=1),
    ]
    nodes += [node(6, RECV, comm_src=1), node(7, COLL, comm_type=9)]
    graph = load_one(tmp_path, *nodes).ranks[0]
    assert [Kind(kind) for kind in graph.kind] == [
        Kind.META, Kind.MEM, Kind.MEM, Kind.COMP, Kind.SEND, Kind.RECV, Kind.COLL,
    ]  # fmt: skip
    assert graph.duration_ns.tolist() == [0, -1, -1, -1, 0, 0, 0]
    assert graph.tensor_bytes.tolist() == [-1, 5, -1, -1, -1, -1, -1]
    assert graph.peer.tolist() == [-1, -1, -1, -1, 1, 1, -1]


def test_unknown_types_are_tolerated_and_noted(tmp_path: Path) -> None:
    workload = load_one(tmp_path, node(1, 8), node(2, 8), node(3, 10), node(4, 0))
    assert workload.ranks[0].kind.tolist() == [Kind.META] * 4
    assert workload.notes == [
        "1 nodes of type 0, unknown to the schema: they take no time",
        "1 nodes of type 10, unknown to the schema: they take no time",
        "2 nodes of type 8, unknown to the schema: they take no time",
    ]


def test_collectives_without_type_and_size_are_wrappers(tmp_path: Path) -> None:
    workload = load_one(tmp_path, node(1, COLL, pg_name="not defined"), node(2, COLL, comm_type=0))
    assert workload.ranks[0].kind.tolist() == [Kind.META, Kind.COLL]
    assert workload.ranks[0].size_bytes.tolist() == [-1, -1]
    assert workload.notes == ["1 collective nodes with neither comm_type nor comm_size: wrappers without traffic"]


@pytest.mark.parametrize(
    ("fields", "duration_ns"),
    [
        ({"duration_micros": 7}, 7000),
        ({"duration_micros": 7, "duration_ns": 7499}, 7499),
        ({"duration_ns": 0}, 0),
        ({"start_time_micros": 5}, 0),  # recorded, and shorter than a microsecond
        ({}, -1),
        ({"num_ops": 5}, -1),
    ],
)
def test_durations(fields: dict[str, Any], duration_ns: int, tmp_path: Path) -> None:
    assert load_one(tmp_path, node(1, **fields)).ranks[0].duration_ns.tolist() == [duration_ns]


def test_whichever_member_is_set(tmp_path: Path) -> None:
    first, second = node(1, COLL), node(2, COLL)
    for one, members in ((first, ("int64", "uint64")), (second, ("uint32", "fixed32"))):
        size, kind = one.attr.add(name="comm_size"), one.attr.add(name="comm_type")
        setattr(size, f"{members[1]}_val", 4096)
        setattr(kind, f"{members[0]}_val", 2)
        one.attr.add(name="is_cpu_op").int32_val = 1
        one.attr.add(name="stream").sint32_val = 20
    third = node(3, num_ops=12.0, tensor_size="34")
    graph = load_one(tmp_path, first, second, third).ranks[0]
    assert graph.size_bytes.tolist() == [4096, 4096, -1]
    assert graph.op.tolist() == [Op.ALL_GATHER, Op.ALL_GATHER, Op.NONE]
    assert graph.on_cpu.tolist() == [True, True, False]
    assert graph.stream.tolist() == [20, 20, -1]
    assert (graph.num_ops[2], graph.tensor_bytes[2]) == (12, 34)


@pytest.mark.parametrize(("value", "op"), [*((op.value, op) for op in Op if op >= 0), (8, Op.REDUCE_SCATTER)])
def test_operations(value: int, op: Op, tmp_path: Path) -> None:
    graph = load_one(tmp_path, node(1, COLL, comm_type=value, comm_size=64)).ranks[0]
    assert graph.op.tolist() == [op]
    assert graph.size_bytes.tolist() == [0 if op is Op.BARRIER else 64]


def test_root_is_a_rank_and_becomes_a_position(tmp_path: Path) -> None:
    nodes = [node(1, COLL, comm_type=5, comm_size=1, pg_name="g", root=3)]
    nodes += [node(2, COLL, comm_type=1, comm_size=1, pg_name="g", comm_root=2)]
    nodes += [node(3, COLL, comm_type=0, comm_size=1, pg_name="g", root=3)]  # has none: ignored
    workload = load(trace(tmp_path, [], [], nodes, [], groups={"g": [2, 3]}))
    assert workload.ranks[2].root.tolist() == [1, 0, 0]


def test_splits(tmp_path: Path) -> None:
    uneven = node(5, COLL, comm_type=6, in_split_bytes=[1, 2], out_split_bytes=[3, 0])
    sized = node(4, COLL, comm_type=6, comm_size=9, in_split_bytes=[4, 4], out_split_bytes=[4, 4])
    graph = load_one(tmp_path, uneven, sized).ranks[0]
    assert graph.size_bytes.tolist() == [9, 3]
    assert sorted(graph.splits) == [0, 1]
    assert [part.tolist() for part in graph.splits[1]] == [[1, 2], [3, 0]]


def test_a_cycle_is_named(tmp_path: Path) -> None:
    nodes = [node(1), node(2, deps=(1, 4)), node(3, deps=(2,)), node(4, ctrl=(3,)), node(5, deps=(4,))]
    message = error_of(tmp_path, *nodes)
    assert "t.0.et: a cycle of 3 nodes: " in message
    assert "node 2 (n2) waits for 4 (n4) waits for 3 (n3) waits for 2" in message
    assert len(load(tmp_path, allow_cycles=True).ranks[0]) == 5


def test_a_node_that_waits_for_itself(tmp_path: Path) -> None:
    assert "a cycle of 1 nodes: node 7 (n7) waits for 7" in error_of(tmp_path, node(7, deps=(7,)))


def test_a_long_cycle_is_cut(tmp_path: Path) -> None:
    nodes = [node(number, deps=((number + 1) % 1000,)) for number in range(1000)]
    message = error_of(tmp_path, *nodes)
    assert "a cycle of 1000 nodes" in message
    assert "992 more" in message


def test_an_id_that_occurs_twice(tmp_path: Path) -> None:
    assert "t.0.et: node id 5 occurs twice" in error_of(tmp_path, node(5), node(6), node(5))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": COLL, "comm_size": 8}, "without comm_type"),
        ({"kind": COLL, "comm_size": 8, "comm_type": 12}, "comm_type 12 is not a collective"),
        ({"kind": COLL, "comm_size": -8, "comm_type": 0}, "comm_size is -8"),
        ({"kind": COLL, "comm_size": 2**63, "comm_type": 0}, "comm_size is 9223372036854775808"),
        ({"kind": COLL, "comm_size": "many", "comm_type": 0}, "comm_size is 'many', expected an integer"),
        ({"kind": COLL, "comm_size": [8], "comm_type": 0}, "comm_size is [8], expected an integer"),
        ({"kind": COLL, "comm_size": float("inf"), "comm_type": 0}, "comm_size is inf, expected an integer"),
        ({"kind": COLL, "comm_size": 8, "comm_type": 0, "pg_name": "tp"}, "group 'tp' is not defined"),
        ({"kind": COLL, "comm_size": 8, "comm_type": 5, "root": 9}, "root is rank 9, which is not a member"),
        ({"kind": COLL, "comm_type": 6, "in_split_bytes": [1, 2]}, "out_split_bytes is None, expected a list of 2"),
        ({"kind": COLL, "comm_type": 6, "in_split_bytes": [1], "out_split_bytes": [1]}, "expected a list of 2"),
        ({"kind": COLL, "comm_type": 6, "in_split_bytes": [1, -1], "out_split_bytes": [1, 1]}, "in_split_bytes is -1"),
        ({"kind": COLL, "comm_type": 6, "in_split_bytes": [2**62] * 2, "out_split_bytes": [1, 1]}, "adds up to"),
        ({"kind": SEND, "comm_size": 8}, "has no comm_dst"),
        ({"kind": RECV, "comm_size": 8}, "has no comm_src"),
        ({"kind": SEND, "comm_size": 8, "comm_dst": 2}, "comm_dst is 2, but the job has ranks 0 to 1"),
        ({"kind": RECV, "comm_size": 8, "comm_src": -1}, "comm_src is -1"),
        ({"kind": COMP, "duration_ns": -3}, "duration_ns is -3"),
        ({"kind": COMP, "duration_micros": 2**63}, "too long"),
        ({"kind": COMP, "stream": 2**40}, "stream is 1099511627776"),
    ],
)
def test_bad_nodes_are_named(fields: dict[str, Any], expected: str, tmp_path: Path) -> None:
    message = error_of(tmp_path, node(7, **fields))
    assert f"{tmp_path}/t.0.et: node 7 (n7): " in message
    assert expected in message


def test_a_rank_in_a_group_of_others(tmp_path: Path) -> None:
    nodes = [node(7, COLL, comm_type=0, comm_size=8, pg_name="g")]
    with pytest.raises(WorkloadError, match="takes part in group 'g', of which rank 0 is not a member"):
        load(trace(tmp_path, nodes, [], groups={"g": [1]}))


def test_excluded_dimensions_are_noted(tmp_path: Path) -> None:
    nodes = [node(1, COLL, comm_type=0, comm_size=8, involved_dim=[True, True])]
    nodes += [node(2, COLL, comm_type=0, comm_size=8, involved_dim=[True, False])]
    [note] = load_one(tmp_path, *nodes).notes
    assert note.startswith("1 collectives whose involved_dim leaves out a dimension")


ANY_VALUE = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-2, 12),
    st.floats(),
    st.text("0123abc", max_size=40),
    st.binary(max_size=4),
    st.lists(st.integers(-2, 2**63 - 1), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    drawn=st.lists(
        st.tuples(
            st.integers(0, 11),
            st.dictionaries(st.sampled_from(sorted(USED_ATTRIBUTES)), ANY_VALUE, max_size=5),
            st.lists(st.integers(0, 6), max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_the_attributes_it_is_a_graph_or_one_line(
    drawn: list[tuple[int, dict[str, Any], list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "drawn"
    folder.mkdir(exist_ok=True)
    nodes = []
    for number, (kind, attributes, deps) in enumerate(drawn):
        attr = make_attributes(attributes)
        nodes.append(Node(id=number, name="n", type=kind, data_deps=deps, attr=attr))  # type: ignore[arg-type]
    trace(folder, nodes, [])
    try:
        graph = load(folder).ranks[0]
    except WorkloadError as error:
        assert "t.0.et: " in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert len(graph) == len(drawn)
        collectives = graph.kind == Kind.COLL
        assert ((graph.op >= 0) == collectives).all()
        assert ((graph.group >= 0) == collectives).all()
