"""Which files make up a workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_files import node, trace

from genie.workload.graph import Group, WorkloadError
from genie.workload.load import load


def test_folder_and_prefix(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], [node(1), node(2)])
    for location in (tmp_path, tmp_path / "t", tmp_path / "t.", str(tmp_path / "t")):
        workload = load(location)
        assert workload.world_size == 2
        assert [len(graph) for graph in workload.ranks.values()] == [1, 2]
    assert load(tmp_path / "t").name == "t"
    assert load(tmp_path).name == tmp_path.name


def test_two_workloads_in_a_folder_need_a_prefix(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], prefix="a")
    trace(tmp_path, [node(1), node(2)], prefix="b.x")
    with pytest.raises(WorkloadError, match=r"more than one workload.*/a, .*/b\.x"):
        load(tmp_path)
    assert len(load(tmp_path / "b.x").ranks[0]) == 2


def test_a_trace_file_is_no_workload(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    with pytest.raises(WorkloadError, match=f"for all ranks give {tmp_path}/t$"):
        load(tmp_path / "t.0.et")


@pytest.mark.parametrize("location", ["absent", "absent/deeper", "."])
def test_nothing_there(location: str, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(WorkloadError, match="no "):
        load(tmp_path / location)


def test_neither_a_folder_nor_a_prefix(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    with pytest.raises(WorkloadError, match=r"/nosuch: there is no folder of this name, and no PREFIX\.RANK\.et"):
        load(tmp_path / "nosuch")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkloadError, match=r"/empty: no PREFIX\.RANK\.et, \.et\.gz or \.json files here"):
        load(tmp_path / "empty")


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], [node(1)], [node(1)])
    (tmp_path / "t.1.et").unlink()
    with pytest.raises(WorkloadError, match=r"1 of 3 ranks have no trace \(1\)"):
        load(tmp_path)
    assert list(load(tmp_path, ranks=[2, 0]).ranks) == [0, 2]
    with pytest.raises(WorkloadError, match=r"\(1\)"):
        load(tmp_path, ranks=[1])
    with pytest.raises(WorkloadError, match=r"\(7\)"):
        load(tmp_path, ranks=[7])


def test_groups_tell_the_size_of_a_world_whose_traces_lie_elsewhere(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], groups={"0": [3, 1, 0, 2]})
    workload = load(tmp_path, ranks=[0])
    assert workload.world_size == 4
    assert workload.groups == [Group("0", (0, 1, 2, 3))]


def test_only_the_asked_for_rank_is_read(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], [node(1)], groups={"g": [0, 1]})
    (tmp_path / "t.1.et").write_bytes(b"garbage")
    assert list(load(tmp_path, ranks=[0]).ranks) == [0]
    with pytest.raises(WorkloadError, match=r"t\.1\.et: at byte"):
        load(tmp_path)


def test_et_wins_over_json(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)])
    (tmp_path / "t.0.json").write_text('{"workload_graph": []}')
    assert len(load(tmp_path).ranks[0]) == 1


def test_other_json_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    trace(tmp_path, [node(1)], prefix="mine")
    (tmp_path / "profile.0.json").write_text('{"traceEvents": []}')
    assert len(load(tmp_path).ranks[0]) == 1
    with pytest.raises(WorkloadError, match="genie convert pytorch"):
        load(tmp_path / "profile")


def test_json_workload(tmp_path: Path) -> None:
    graph = [
        {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 3},
        {"Id": 2, "Name": "b", "NodeType": 4, "ctrlDeps": [1]},
    ]
    (tmp_path / "t.0.json").write_text(json.dumps({"workload_graph": graph}))
    loaded = load(tmp_path).ranks[0]
    assert loaded.duration_ns.tolist() == [3000, -1]
    assert loaded.deps.tolist() == [0]
