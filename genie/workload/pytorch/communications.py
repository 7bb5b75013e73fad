"""Communications of a PyTorch host trace: operation, group, bytes and peers.

They are the calls named `record_param_comms`, and calls of `c10d::` operators of backends that record none. From schema
1.1.0 on, a record has sizes and group as attributes. Before, its arguments have them by position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from genie.inputs.printable import shown_value
from genie.workload.graph import SIZE_MAX_BYTES, Op, WorkloadError
from genie.workload.pytorch.trace import WRONG_CONTENT, HostNode, HostTrace, argument, tensors_of

RECORD_NAME = "record_param_comms"
OPERATOR_PREFIX = "c10d::"
# Calls of the c10d namespace or of the recorder that move no data themselves.
SILENT = ("coalesc", "init", "complete", "group")
ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "short": 2, "half": 2, "bfloat16": 2, "int": 4, "float": 4, "long": 8, "double": 8,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
# The first prefix that matches the recorded name decides; case and underscores are ignored.
OPS = {
    "allreduce": Op.ALL_REDUCE,
    "allgather": Op.ALL_GATHER,
    "reducescatter": Op.REDUCE_SCATTER,
    "alltoall": Op.ALL_TO_ALL,
    "broadcast": Op.BROADCAST,
    "reduce": Op.REDUCE,
    "gather": Op.GATHER,
    "scatter": Op.SCATTER,
    "barrier": Op.BARRIER,
    "monitoredbarrier": Op.BARRIER,
}


class Role(Enum):
    """Kind of a recorded call."""

    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    WAIT = "wait"  # for an earlier communication, identified by its sequence number
    NOTHING = "nothing"


@dataclass(slots=True)
class Communication:
    """One recorded call. Sizes in bytes by the convention of `genie.workload.graph`."""

    node: HostNode
    recorded_name: str  # "all_to_allv", "_allgather_base", ...
    role: Role
    op: Op = Op.NONE
    group: str = ""  # name in the trace
    group_size: int = 0  # 0: not in the record
    group_range: tuple[int, int] | None = None  # (first rank, stride), where recorded
    sequence: int = -1  # the process group's own count, which a wait repeats
    size_bytes: int = 0
    to_each: list[int] = field(default_factory=list)  # all-to-all with split sizes: bytes to each member
    from_each: list[int] = field(default_factory=list)  # bytes from each member
    root: int = 0  # position in the group
    peer: int = -1  # position in the group of a send's or receive's peer
    tag: int = 0

    @property
    def moves_data(self) -> bool:
        """Whether the call becomes a node: a collective, a send or a receive."""
        return self.role in (Role.COLLECTIVE, Role.SEND, Role.RECV)

    @property
    def on_device(self) -> bool:
        """Whether its tensors are on a device, so that a kernel does the work."""
        return any(tensor.device != "cpu" for tensor in tensors_of([self.node.inputs, self.node.outputs]))


def is_communication(name: str) -> bool:
    """Whether a call of this name is a communication in either kind of trace (a c10d call may contain the record)."""
    return name == RECORD_NAME or name.startswith(OPERATOR_PREFIX)


def find_communications(trace: HostTrace) -> list[Communication]:
    """All communications and waits of a rank, in the order of their calls."""
    holders = {
        ancestor.id
        for node in trace.nodes
        if node.name == RECORD_NAME
        for ancestor in trace.ancestors(node)
        if ancestor.name.startswith(OPERATOR_PREFIX)
    }
    backends = _backend_ids(trace)
    found: dict[int, Communication] = {}
    for node in trace.nodes:
        if node.name == RECORD_NAME:
            read = _from_record
        elif node.name.startswith(OPERATOR_PREFIX) and node.id not in holders:
            read = _from_operator
        else:
            continue
        try:
            communication = read(trace, node, backends)
        except WRONG_CONTENT as error:
            raise call_error(trace.path, node, f"its arguments cannot be read: {error}") from error
        sizes = (communication.size_bytes, sum(communication.to_each), sum(communication.from_each))
        for size_bytes in sizes:
            if not 0 <= size_bytes <= SIZE_MAX_BYTES:
                raise call_error(trace.path, node, f"{size_bytes} bytes are not from 0 to {SIZE_MAX_BYTES}")
        # A barrier is recorded together with the all-reduce that carries it out; the outer call counts.
        if any(outer.id in found and found[outer.id].moves_data for outer in trace.ancestors(node)):
            communication.role = Role.NOTHING
        found[node.id] = communication
    return list(found.values())


def role_of(name: str) -> tuple[Role, Op]:
    """(role, operation) of a recorded name; NOTHING for names that move no data."""
    plain = name.removeprefix(OPERATOR_PREFIX).replace("_", "").lower()
    if plain.startswith("wait"):
        return Role.WAIT, Op.NONE
    if plain.startswith("send"):
        return Role.SEND, Op.NONE
    if plain.startswith("recv"):
        return Role.RECV, Op.NONE
    op = next((op for prefix, op in OPS.items() if plain.startswith(prefix)), Op.NONE)
    if op is not Op.NONE:
        return Role.COLLECTIVE, op
    if any(word in plain for word in SILENT):
        return Role.NOTHING, Op.NONE
    raise ValueError(f"unknown collective {name!r}")


def _from_record(trace: HostTrace, node: HostNode, backends: dict[int, str]) -> Communication:
    """A record's arguments: [tensors] sequence group rank name in_splits out_splits [start stride size ...]."""
    at = max((index for index, value in enumerate(node.inputs) if isinstance(value, str)), default=-1)
    if at < 3:
        raise call_error(trace.path, node, "its arguments do not name a collective")
    name = str(node.inputs[at])
    try:
        role, op = role_of(name)
    except ValueError as error:
        raise call_error(trace.path, node, str(error)) from error
    sequence, group, rank = node.inputs[at - 3 : at]
    found = Communication(node, name, role, op, group=_group_name(node, group, backends))
    found.sequence = int(sequence[0] if isinstance(sequence, list) else sequence)
    _read_group_range(found, node.inputs[at + 3 :])
    if role in (Role.SEND, Role.RECV):
        found.peer = int(rank)
    if role in (Role.WAIT, Role.NOTHING):
        return found
    element = max((tensor.element_bytes for tensor in tensors_of([node.inputs, node.outputs])), default=0)
    element = element or ELEMENT_BYTES.get(str(node.attributes.get("dtype", "")).lower(), 0)
    in_bytes = sum(tensor.size_bytes for tensor in tensors_of(node.inputs[: at - 3]))
    out_bytes = sum(tensor.size_bytes for tensor in tensors_of(node.outputs))
    if not in_bytes:
        in_bytes = int(node.attributes.get("in_msg_nelems", 0)) * element
    if not out_bytes:
        out_bytes = int(node.attributes.get("out_msg_nelems", 0)) * element
    _read_operator(trace, found)
    splits = [value if isinstance(value, list) else [] for value in node.inputs[at + 1 : at + 3]]
    set_sizes(trace.path, found, in_bytes, out_bytes, splits)
    return found


def _from_operator(trace: HostTrace, node: HostNode, backends: dict[int, str]) -> Communication:
    """A `c10d::` operator, whose signature names its arguments."""
    try:
        role, op = role_of(node.name)
    except ValueError:
        role, op = Role.NOTHING, Op.NONE
    found = Communication(node, node.name.removeprefix(OPERATOR_PREFIX).strip("_"), role, op)
    if role in (Role.WAIT, Role.NOTHING):
        return found
    inputs = _first_argument(node, ("input_tensors", "input_tensor", "inputs", "input", "tensors"))
    outputs = _first_argument(node, ("output_tensors", "output_tensor", "outputs", "output", "tensors"))
    _apply_arguments(found, node)
    splits = [argument(node, name) or [] for name in ("input_split_sizes", "output_split_sizes")]
    in_bytes, out_bytes = (sum(tensor.size_bytes for tensor in tensors_of(value)) for value in (inputs, outputs))
    set_sizes(trace.path, found, in_bytes, out_bytes, splits)
    return found


def _first_argument(node: HostNode, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := argument(node, name))), [])


def _read_operator(trace: HostTrace, found: Communication) -> None:
    """Read root, peer and tag, which are arguments of the operator around the record, not of the record."""
    for ancestor in trace.ancestors(found.node):
        if ancestor.name.startswith(OPERATOR_PREFIX):
            _apply_arguments(found, ancestor)
            return


def _apply_arguments(found: Communication, operator: HostNode) -> None:
    root, tag = argument(operator, "root_rank"), argument(operator, "tag")
    peer = argument(operator, "dst" if found.role is Role.SEND else "src")
    if isinstance(root, int):
        found.root = root
    if isinstance(tag, int):
        found.tag = tag
    if isinstance(peer, int) and found.role is not Role.COLLECTIVE:
        found.peer = peer


def set_sizes(path: Path, found: Communication, in_bytes: int, out_bytes: int, splits: list[list[int]]) -> None:
    """Set the size by the graph's convention, from the bytes that went in and came out, and the splits in bytes.

    splits: rows to and from each member; an empty list stands for equal parts. Raises WorkloadError with `path`.
    """
    members = found.group_size
    if found.op is Op.BARRIER:
        return
    if found.op is Op.SCATTER:
        found.size_bytes = in_bytes if in_bytes > out_bytes else out_bytes * max(members, 1)
    elif in_bytes:
        found.size_bytes = in_bytes
    elif found.op is Op.REDUCE_SCATTER:
        found.size_bytes = out_bytes * max(members, 1)
    elif found.op in (Op.ALL_GATHER, Op.GATHER) and members:
        found.size_bytes = out_bytes // members
    elif found.op is not Op.ALL_TO_ALL:  # no input of an all-to-all means that this rank sends nothing
        found.size_bytes = out_bytes
    if found.op is Op.ALL_TO_ALL and (splits[0] or splits[1]):
        members = len(splits[0]) or len(splits[1])
        found.to_each = _split_bytes(path, found, splits[0], in_bytes, members)
        found.from_each = _split_bytes(path, found, splits[1], out_bytes, members)


def _split_bytes(path: Path, found: Communication, split: list[int], size_bytes: int, members: int) -> list[int]:
    """Split sizes in bytes; splits count rows of the tensor's first dimension, and an empty list means equal parts."""
    if min(split, default=0) < 0:
        raise call_error(path, found.node, f"a split of {min(split)} rows is below 0")
    rows = sum(split) if split else members
    if rows == 0 and size_bytes == 0:
        return [0] * members
    if rows == 0 or size_bytes % rows:
        raise call_error(path, found.node, f"splits of {rows} rows do not divide {size_bytes} bytes")
    row_bytes = size_bytes // rows
    return [rows * row_bytes for rows in split] if split else [row_bytes] * members


def _group_name(node: HostNode, group: Any, backends: dict[int, str]) -> str:
    """Name of the group: as given, or found by the backend's number, or that number itself."""
    if "pg_name" in node.attributes:
        return str(node.attributes["pg_name"])
    if isinstance(group, list):
        return str(group[0]) if group else ""
    if isinstance(group, int):
        return backends.get(group, f"backend {group}")
    return str(group)


def _read_group_range(found: Communication, rest: list[Any]) -> None:
    """Read the arguments after the splits: [size], or first rank, stride and size; -1 stands for unknown."""
    numbers = [value for value in rest if type(value) is int]
    if len(numbers) >= 3:
        start, stride, found.group_size = numbers[:3]
        if start >= 0 and (stride > 0 or found.group_size == 1):
            found.group_range = (start, stride)
    elif numbers:
        found.group_size = numbers[0]


def process_groups(trace: HostTrace) -> list[dict[str, Any]]:
    """The entries of the trace's `## process_group:init ##` calls: pg_name, ranks (empty: all), group_size, ..."""
    entries: list[dict[str, Any]] = []
    for node in trace.nodes:
        if "process_group:init" not in node.name:
            continue
        for text in node.inputs:
            try:
                value = json.loads(text)
            except (TypeError, ValueError, RecursionError) as error:
                raise call_error(trace.path, node, f"its groups are not JSON: {error}") from error
            if not isinstance(value, list):
                raise call_error(trace.path, node, f"its groups are {shown_value(value)} and not a list")
            entries.extend(entry for entry in value if isinstance(entry, dict))
    return entries


def _backend_ids(trace: HostTrace) -> dict[int, str]:
    """Names of the groups that schema 1.0.2 identifies by the number of their backend."""
    entries = [entry for entry in process_groups(trace) if "backend_id" in entry and "pg_name" in entry]
    try:
        return {int(entry["backend_id"]): str(entry["pg_name"]) for entry in entries}
    except WRONG_CONTENT as error:
        raise WorkloadError(f"{trace.path}: a backend_id of its groups is not a number: {error}") from error


def call_error(path: Path, node: HostNode, what: str) -> WorkloadError:
    """Return the error of a call: its file, number and name, and the problem."""
    return WorkloadError(f"{path}: call {node.id} ({node.name}): {what}")
