"""Nodes between PyTorch's traces and a `.et` file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chakra_protobuf.et_def_pb2 import Node, NodeType

from chakra_schemas.attributes import AttributeValue, make_attributes
from genie.workload.graph import Op
from genie.workload.pytorch.communications import Communication, Role

ROOTED = frozenset({Op.REDUCE, Op.GATHER, Op.SCATTER, Op.BROADCAST})


@dataclass(slots=True)
class DraftNode:
    """A node of the output; dependencies are positions in the rank's list."""

    name: str
    type: NodeType
    duration_ns: int  # -1: unknown
    start_ns: int  # in the recording, from the rank's first event
    end_ns: int
    deps: list[int]
    on_cpu: bool = False
    stream: int = -1
    tensor_bytes: int = -1  # bytes that a copy or set moves, or that an operator of unknown duration reads and writes
    num_ops: int = -1  # floating-point operations of an operator of unknown duration
    launched_by: str = ""  # the host operator that launched it
    communication: Communication | None = None


@dataclass
class DraftRank:
    """All nodes of a rank."""

    rank: int
    nodes: list[DraftNode]
    span_ns: int = 0  # from the first to the last event of the recording; 0: it has no times
    notes: list[str] = field(default_factory=list)  # omissions, one for each
    assumptions: list[str] = field(default_factory=list)


def communication_type(communication: Communication) -> NodeType:
    """The type of a communication's node."""
    if communication.role is Role.SEND:
        return NodeType.COMM_SEND_NODE
    return NodeType.COMM_RECV_NODE if communication.role is Role.RECV else NodeType.COMM_COLL_NODE


def protobuf_nodes(draft: DraftRank, groups: dict[str, tuple[int, ...]]) -> Iterator[Node]:
    """The nodes as written: ids from 1 in the order of the recording, every dependency as a data dependency."""
    for position, node in enumerate(draft.nodes):
        written = Node(
            id=position + 1,
            name=node.name,
            type=node.type,
            data_deps=sorted(dependency + 1 for dependency in node.deps),
        )
        attributes: dict[str, AttributeValue] = {"is_cpu_op": node.on_cpu}
        if node.duration_ns >= 0:
            written.start_time_micros = node.start_ns // 1000
            written.duration_micros = node.duration_ns // 1000
            if node.communication is None:
                attributes["duration_ns"] = node.duration_ns
        for name, value in (("stream", node.stream), ("tensor_size", node.tensor_bytes), ("num_ops", node.num_ops)):
            if value >= 0:
                attributes[name] = value
        if node.launched_by:
            attributes["launched_by"] = node.launched_by
        if node.communication is not None:
            attributes |= _communication_attributes(draft.rank, node.communication, groups)
        written.attr.extend(make_attributes(attributes))
        yield written


def _communication_attributes(
    rank: int, communication: Communication, groups: dict[str, tuple[int, ...]]
) -> dict[str, AttributeValue]:
    members = groups[communication.group]
    attributes: dict[str, AttributeValue] = {"comm_size": communication.size_bytes, "pg_name": communication.group}
    if communication.role is Role.COLLECTIVE:
        attributes["comm_type"] = communication.op.value
        if communication.op in ROOTED:
            attributes["root"] = members[communication.root]
        if communication.to_each:
            attributes["in_split_bytes"] = communication.to_each
            attributes["out_split_bytes"] = communication.from_each
        return attributes
    ends = (rank, members[communication.peer])
    source, destination = ends if communication.role is Role.SEND else ends[::-1]
    return attributes | {"comm_src": source, "comm_dst": destination, "comm_tag": communication.tag}
