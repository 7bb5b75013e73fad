"""Nodes from a host trace without a profile: order, tensors and communications are known, times are not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from chakra_protobuf.et_def_pb2 import NodeType

from genie.workload.pytorch.communications import Communication, Role
from genie.workload.pytorch.nodes import DraftNode, communication_type
from genie.workload.pytorch.trace import HostNode, HostTrace, tensors_of

# Operators that create tensors without touching their content, or only look at them; and communications.
FREE = re.compile(
    r"c10d::|aten::(empty|new_empty|resize_|set_|_?reshape|unflatten|detach|lift|is_|size|stride|record_stream)"
)
# A signature whose result is an alias that is not written, "-> Tensor(a)", makes a view; "Tensor(a!)" is written.
VIEW_RESULT = re.compile(r"->[^>]*\([a-z](?: -> \*)?\)")
# Positions of the two factors among the arguments.
MATRIX_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
CONVOLUTION = re.compile(r"aten::(cudnn_|mkldnn_|miopen_|_)?convolution|aten::slow_conv|aten::conv_depthwise")


def host_only_nodes(trace: HostTrace, communications: list[Communication]) -> list[DraftNode]:
    """Innermost operators that touch data, in program order, and the communications.

    An operator is innermost if none inside it touches data, or if its operations can be counted, which includes those
    inside. Operators follow one another in the order of their calls, over all threads. (The backward pass runs on
    its own thread while the first thread waits.) A communication runs in parallel from its call to its wait. Without a
    wait that names it (DistributedDataParallel's), it is waited for where its thread hands back.
    """
    working = _with_work_inside(trace)
    by_call = {communication.node.id: communication for communication in communications}
    builder = _Builder()
    inside: set[int] = set()  # calls inside a communication or an operator that is a node
    for node in trace.nodes:
        communication = by_call.get(node.id)
        if communication is not None:
            inside.add(node.id)
            builder.communicate(communication)
        elif node.parent in inside:
            inside.add(node.id)
        elif _works(node) and (node.id not in working or operation_count(node) >= 0):
            inside.add(node.id)
            builder.compute(node)
    return builder.nodes


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[DraftNode] = []
        self._front: list[int] = []
        self._pending: list[int] = []  # communications without a wait so far
        self._thread = -1

    def compute(self, node: HostNode) -> None:
        self._enter(node.thread)
        tensors = tensors_of([node.inputs, node.outputs])
        draft = DraftNode(node.name, NodeType.COMP_NODE, -1, 0, 0, self._front)
        draft.on_cpu = all(tensor.device == "cpu" for tensor in tensors)
        draft.tensor_bytes = sum(tensor.size_bytes for tensor in tensors)
        draft.num_ops = operation_count(node)
        self.nodes.append(draft)
        self._front = [len(self.nodes) - 1]

    def communicate(self, communication: Communication) -> None:
        self._enter(communication.node.thread)
        if communication.role is Role.WAIT:
            self._join(node for node in self._pending if self._call(node).sequence == communication.sequence)
        elif communication.moves_data:
            draft = DraftNode(
                communication.recorded_name, communication_type(communication), 0, 0, 0, list(self._front),
                on_cpu=not communication.on_device, communication=communication,
            )  # fmt: skip
            self.nodes.append(draft)
            self._pending.append(len(self.nodes) - 1)

    def _enter(self, thread: int) -> None:
        if thread != self._thread:
            self._join(node for node in self._pending if self._call(node).node.thread == self._thread)
            self._thread = thread

    def _call(self, node: int) -> Communication:
        communication = self.nodes[node].communication
        assert communication is not None
        return communication

    def _join(self, nodes: Iterable[int]) -> None:
        joined = list(nodes)
        self._front = self._front + joined
        self._pending = [node for node in self._pending if node not in joined]


def _with_work_inside(trace: HostTrace) -> set[int]:
    """Ids of calls inside which an operator touches data."""
    found: set[int] = set()
    for node in reversed(trace.nodes):  # an inner call has the higher id
        if node.id in found or _works(node):
            found.add(node.parent)
    return found


def _works(node: HostNode) -> bool:
    """Whether it is an operator that reads or writes the content of tensors."""
    free = FREE.match(node.name) or VIEW_RESULT.search(node.schema)
    return bool(node.schema) and not free and bool(tensors_of(node.outputs))


def operation_count(node: HostNode) -> int:
    """Floating-point operations: 2·m·n·k for a matrix product, likewise for a convolution; -1 where unknown."""
    at = MATRIX_PRODUCTS.get(node.name)
    if at is not None and len(node.shapes) >= at + 2 and all(node.shapes[at : at + 2]):
        left, right = node.shapes[at], node.shapes[at + 1]
        return int(2 * math.prod(left) * right[-1])
    if CONVOLUTION.match(node.name):
        shapes = [shape for shape in node.shapes if len(shape) >= 3 and all(type(size) is int for size in shape)]
        outputs = tensors_of(node.outputs)
        if len(shapes) < 2 or not outputs:
            return -1
        if "backward" in node.name:  # arguments: gradient of the output, input, weight; two products of the same size
            gradient, weight = shapes[0], shapes[-1]
            return int(4 * math.prod(gradient) * math.prod(weight[1:]))
        return int(2 * outputs[0].num_elements * math.prod(shapes[1][1:]))
    return -1
