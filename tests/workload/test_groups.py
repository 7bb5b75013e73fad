"""Groups from groups files and from the traces themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chakra_protobuf.et_def_pb2 import IOInfo, Node
from trace_files import COLL, META, error_of, node, trace

from genie.workload.graph import Group, WorkloadError
from genie.workload.load import load

PG_OF_ALL: list[dict[str, Any]] = [{}, {"pg_name": ""}, {"pg_name": "0"}]


def test_no_groups_is_one_group_of_all(tmp_path: Path) -> None:
    nodes = [node(number, COLL, comm_type=0, comm_size=8, **pg) for number, pg in enumerate(PG_OF_ALL)]
    workload = load(trace(tmp_path, nodes, nodes))
    assert workload.groups == [Group("0", (0, 1))]
    assert workload.ranks[1].group.tolist() == [0, 0, 0]


def test_group_names_need_not_be_numbers(tmp_path: Path) -> None:
    mine = node(1, COLL, comm_type=0, comm_size=8, pg_name="tp")
    other = node(2, COLL, comm_type=0, comm_size=8)
    workload = load(trace(tmp_path, [mine, other], [other], [mine], groups={"tp": [2, 0], "all": []}))
    assert workload.groups == [Group("0", (0, 1, 2)), Group("tp", (0, 2)), Group("all", (0, 1, 2))]
    assert workload.ranks[0].group.tolist() == [1, 0]


def test_group_zero_can_be_defined(tmp_path: Path) -> None:
    first = node(1, COLL, comm_type=0, comm_size=8, pg_name="0")
    second = node(2, COLL, comm_type=0, comm_size=8, pg_name="")
    workload = load(trace(tmp_path, [first, second], [], groups={"0": [0]}))
    assert workload.groups == [Group("", (0, 1)), Group("0", (0,))]
    assert workload.ranks[0].group.tolist() == [1, 0]


@pytest.mark.parametrize("name", ["t.json", "workload.json", "comm_groups.json", "t_groups_v2.json", "groups.json"])
def test_names_of_groups_files(name: str, tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    (tmp_path / name).write_text('{"7": [0]}')
    assert load(tmp_path).groups == [Group("0", (0,)), Group("7", (0,))]


def test_a_neighbours_groups_file_is_left_alone(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    trace(tmp_path, [node(1)], prefix="workload", groups={"7": [0]})
    assert load(tmp_path / "t").groups == [Group("0", (0,))]
    assert load(tmp_path / "workload").groups == [Group("0", (0,)), Group("7", (0,))]


def test_two_groups_files(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    for name in ("a_groups.json", "b_groups.json"):
        (tmp_path / name).write_text('{"7": [0]}')
    with pytest.raises(WorkloadError, match=r"more than one groups file: a_groups\.json, b_groups\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not JSON"),
        ("[]", "not a groups file"),
        ('{"1": 5}', "group '1': expected a list of ranks"),
        ('{"1": ["0"]}', "group '1': expected a list of ranks"),
        ('{"1": [true]}', "group '1': expected a list of ranks"),
        ('{"1": [0, -1]}', "group '1': expected a list of ranks"),
        ('{"1": [0, 99999999]}', "group '1': expected a list of ranks"),
        ('{"1": [0, 0]}', "group '1': a rank occurs twice"),
    ],
)
def test_bad_groups_files(text: str, expected: str, tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(WorkloadError, match=expected) as caught:
        load(tmp_path)
    assert "t.json" in str(caught.value)


def init_node(*groups: dict[str, Any], python: bool = True) -> Node:
    text = json.dumps(list(groups))
    values = str([text]) if python else json.dumps([text])
    return node(3, META, name="## process_group:init ##", inputs=IOInfo(values=values))


@pytest.mark.parametrize("python", [True, False])
def test_groups_of_process_group_init(python: bool, tmp_path: Path) -> None:
    world = {"pg_name": "0", "backend_config": "cuda:nccl", "ranks": [], "group_size": 3}
    pair = {"pg_name": "default_pg", "ranks": [2, 0]}
    mine = node(9, COLL, comm_type=0, comm_size=8, pg_name="default_pg")
    trace(tmp_path, [init_node(world, python=python)], [], [init_node(world, pair, python=python), mine])
    workload = load(tmp_path)
    assert workload.groups == [Group("0", (0, 1, 2)), Group("default_pg", (0, 2))]
    assert workload.ranks[2].group.tolist() == [-1, 1]
    assert load(tmp_path, ranks=[1]).groups == workload.groups


def test_groups_file_wins_over_process_group_init(tmp_path: Path) -> None:
    trace(tmp_path, [init_node({"pg_name": "5", "ranks": [0]})], groups={"6": [0]})
    assert [group.name for group in load(tmp_path).groups] == ["0", "6"]


def test_ranks_that_disagree_on_a_group(tmp_path: Path) -> None:
    pair, single = {"pg_name": "5", "ranks": [0, 1]}, {"pg_name": "5", "ranks": [1]}
    trace(tmp_path, [init_node(pair)], [init_node(single)])
    with pytest.raises(WorkloadError, match=r"group '5' has members \[1\], elsewhere \[0, 1\]"):
        load(tmp_path)


@pytest.mark.parametrize("values", ["", "5", "[1, 2]", "['not a list of groups']", "[" * 5000])
def test_unreadable_process_group_init(values: str, tmp_path: Path) -> None:
    broken = node(3, META, name="## process_group:init ##", inputs=IOInfo(values=values))
    assert "process_group:init" in error_of(tmp_path, broken)
