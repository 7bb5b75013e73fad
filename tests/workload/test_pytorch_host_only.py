"""Operators of a host trace without a profile: which become nodes, in what order, of what size."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytorch_samples import BACKWARD, Sample, tensor

from genie.workload.pytorch.communications import find_communications
from genie.workload.pytorch.host_only import host_only_nodes
from genie.workload.pytorch.nodes import DraftNode
from genie.workload.pytorch.trace import read_host_trace

ADD = "aten::add(Tensor self, Tensor other) -> Tensor"


def nodes_of(sample: Sample, folder: Path) -> list[DraftNode]:
    trace, _ = sample.read(folder)
    return host_only_nodes(trace, find_communications(trace))


def test_views_and_wrappers_are_no_work(tmp_path: Path) -> None:
    sample = Sample()
    outer = sample.node("aten::linear", [tensor(8)], [tensor(8)], "aten::linear(Tensor a) -> Tensor")
    view = "aten::t(Tensor(a) self) -> Tensor(a)"
    sample.node("aten::t", [tensor(8)], [tensor(8)], view, parent=outer)
    sample.node("aten::empty", [[8]], [tensor(8)], "aten::empty(int[] size) -> Tensor", parent=outer)
    sample.node("aten::add", [tensor(8), tensor(8)], [tensor(8)], ADD, parent=outer)
    in_place = "aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"
    sample.node("aten::add_", [tensor(8), tensor(8)], [tensor(8)], in_place)
    sample.node("Optimizer.step", [], [])
    nodes = nodes_of(sample, tmp_path)
    assert [node.name for node in nodes] == ["aten::add", "aten::add_"]
    assert [node.deps for node in nodes] == [[], [0]]
    assert [node.tensor_bytes for node in nodes] == [96, 96]
    assert [node.duration_ns for node in nodes] == [-1, -1]
    assert not nodes[0].on_cpu


@pytest.mark.parametrize(
    ("name", "shapes", "outputs", "num_ops"),
    [
        ("aten::mm", [[3, 5], [5, 7]], 21, 2 * 3 * 5 * 7),
        ("aten::addmm", [[7], [3, 5], [5, 7], [], []], 21, 2 * 3 * 5 * 7),
        ("aten::bmm", [[4, 3, 5], [4, 5, 7]], 84, 2 * 4 * 3 * 5 * 7),
        ("aten::cudnn_convolution", [[2, 3, 8, 8], [6, 3, 3, 3]], 2 * 6 * 8 * 8, 2 * 2 * 6 * 64 * 27),
        ("aten::convolution_backward", [[2, 6, 8, 8], [2, 3, 8, 8], [6, 3, 3, 3]], 1, 4 * 2 * 6 * 64 * 27),
        ("aten::add", [[3], [3]], 3, -1),
    ],
)
def test_operations_are_counted_from_shapes(
    tmp_path: Path, name: str, shapes: list[list[int]], outputs: int, num_ops: int
) -> None:
    sample = Sample()
    inputs = [tensor(1) for _ in shapes]
    sample.node(name, inputs, [tensor(outputs)], f"{name}(Tensor a) -> Tensor", shapes=shapes)
    assert [node.num_ops for node in nodes_of(sample, tmp_path)] == [num_ops]


def test_a_communication_runs_beside_operators_until_its_wait(tmp_path: Path) -> None:
    sample = Sample()
    sample.node("aten::add", [tensor(8)], [tensor(8)], ADD)
    sample.communication("allreduce", 0, 1, [tensor(8)], [tensor(8)], sequence=4)
    sample.node("aten::mul", [tensor(8)], [tensor(8)], ADD)
    sample.communication("wait", 2, 1, [], [], sequence=4)
    sample.node("aten::div", [tensor(8)], [tensor(8)], ADD)
    nodes = nodes_of(sample, tmp_path)
    assert [(node.name, node.deps) for node in nodes] == [
        ("aten::add", []),
        ("allreduce", [0]),
        ("aten::mul", [0]),
        ("aten::div", [2, 1]),
    ]


def test_what_the_backward_thread_has_called_ends_before_the_main_thread_goes_on(tmp_path: Path) -> None:
    sample = Sample()
    sample.node("aten::sum", [tensor(8)], [tensor(8)], ADD)
    sample.node("aten::mul", [tensor(8)], [tensor(8)], ADD, tid=BACKWARD)
    sample.communication("allreduce", 0, 1, [tensor(8)], [tensor(8)], sequence=4, tid=BACKWARD)
    sample.node("aten::add_", [tensor(8)], [tensor(8)], ADD)
    nodes = nodes_of(sample, tmp_path)
    assert [node.deps for node in nodes] == [[], [0], [1], [1, 2]]


def test_flat_and_nested_schemas_are_the_same_trace(tmp_path: Path) -> None:
    flat, nested = tmp_path / "flat.json", tmp_path / "nested.json"
    flat.write_text(
        '{"schema": "1.0.1", "nodes": [{"name": "aten::mm", "id": 4, "rf_id": 2, "parent": 3, "tid": 1, "op_schema": '
        '"s", "inputs": [1], "input_shapes": [[]], "outputs": [2], "output_shapes": [[]]}]}'
    )
    nested.write_text(
        '{"schema": "1.1.1", "nodes": [{"name": "aten::mm", "id": 4, "ctrl_deps": 3, "inputs": {"values": [1], '
        '"shapes": [[]]}, "outputs": {"values": [2]}, "attrs": [{"name": "rf_id", "value": 2}, '
        '{"name": "tid", "value": 1}, {"name": "op_schema", "value": "s"}]}]}'
    )
    assert read_host_trace(flat).nodes == read_host_trace(nested).nodes
