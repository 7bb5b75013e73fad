"""Decoding of trace nodes: protobuf nodes become rows of a RankGraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from chakra_protobuf.et_def_pb2 import CollectiveCommType, Node, NodeType

from genie.inputs.printable import printable, shown_value
from genie.workload.build import RankBuilder
from genie.workload.graph import SIZE_MAX_BYTES, Kind, Op, RankGraph, WorkloadError
from genie.workload.groups import GroupTable

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

KIND_OF_TYPE: dict[int, Kind] = {
    NodeType.METADATA_NODE: Kind.META,
    NodeType.MEM_LOAD_NODE: Kind.MEM,
    NodeType.MEM_STORE_NODE: Kind.MEM,
    NodeType.COMP_NODE: Kind.COMP,
    NodeType.COMM_SEND_NODE: Kind.SEND,
    NodeType.COMM_RECV_NODE: Kind.RECV,
    NodeType.COMM_COLL_NODE: Kind.COLL,
}
OP_OF_COMM_TYPE: dict[int, Op] = {op.value: op for op in Op if op is not Op.NONE}
OP_OF_COMM_TYPE[CollectiveCommType.REDUCE_SCATTER_BLOCK] = Op.REDUCE_SCATTER
ROOTED = frozenset({Op.REDUCE, Op.GATHER, Op.SCATTER, Op.BROADCAST})
# Producers disagree on the name of the root attribute; its value is a rank of the job.
ROOT_NAMES = ("root", "comm_root", "root_rank")
PEER_COLUMN = "genie_peer_column"  # of a send or receive in a workload of classes: see class_files.py
DURATION_ORIGIN = "genie_duration_origin"  # where the duration of a compute node comes from
ORIGIN_MAX = 80  # characters of it
USED_ATTRIBUTES = frozenset(
    {
        "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name", "involved_dim",
        "in_split_bytes", "out_split_bytes", "stream", "is_cpu_op", "num_ops", "tensor_size",
        "duration_ns", "node_type", PEER_COLUMN, DURATION_ORIGIN, *ROOT_NAMES,
    }
)  # fmt: skip

Attributes = dict[str, Any]


class NodeDecoder:
    """Decodes one rank's nodes into a RankBuilder; `notes` counts the assumptions that it made."""

    def __init__(self, path: Path, rank: int, world_size: int, groups: GroupTable) -> None:
        self.path = path
        self.rank = rank
        self.world_size = world_size
        self.groups = groups
        self.notes: Counter[str] = Counter()
        self.dangling = 0
        self.peer_columns: dict[int, int] = {}  # row -> column of peers; rows are nodes in ascending id
        self._columns_of: dict[int, int] = {}  # node id -> column
        self._builder = RankBuilder(rank)

    def add(self, node: Node) -> None:
        """Append one node. Raises WorkloadError naming it."""
        try:
            self._add(node, _used_attributes(node))
        except ValueError as error:
            raise WorkloadError(f"{self.path}: node {node.id} ({node.name}): {error}") from error

    def finish(self) -> RankGraph:
        """The graph. Raises WorkloadError for an id that occurs twice."""
        try:
            graph, self.dangling = self._builder.finish()
        except WorkloadError as error:
            raise WorkloadError(f"{self.path}: {error}") from error
        if self._columns_of:
            rows = np.searchsorted(graph.node_id, np.array(list(self._columns_of), np.uint64)).tolist()
            self.peer_columns = dict(zip(rows, self._columns_of.values(), strict=True))
        return graph

    def _add(self, node: Node, attributes: Attributes) -> None:
        kind = self._kind(node, attributes)
        add: Callable[..., object] = self._builder.add_compute
        if kind is Kind.COLL:
            columns = self._collective(attributes)
            add = self._builder.add
        elif kind is Kind.SEND or kind is Kind.RECV:
            columns = self._point_to_point("comm_dst" if kind is Kind.SEND else "comm_src", attributes)
            if PEER_COLUMN in attributes:
                self._columns_of[node.id] = _integer(attributes, PEER_COLUMN, 0, high=INT32_MAX)
            add = self._builder.add
        elif kind is Kind.META:
            columns = {}
        else:
            columns = {
                "duration_ns": _duration_ns(node, attributes),
                "num_ops": _integer(attributes, "num_ops", -1),
                "tensor_bytes": _integer(attributes, "tensor_size", -1),
            }
            if DURATION_ORIGIN in attributes:
                columns["origin"] = printable(str(attributes[DURATION_ORIGIN]))[:ORIGIN_MAX]
        if "stream" in attributes:
            columns["stream"] = _integer(attributes, "stream", -1, low=-1, high=INT32_MAX)
        if "is_cpu_op" in attributes:
            columns["on_cpu"] = _truth(attributes["is_cpu_op"])
        deps: Iterable[int] = chain(node.data_deps, node.ctrl_deps) if node.ctrl_deps else node.data_deps
        add(node.id, node.name, kind, deps, **columns)

    def _kind(self, node: Node, attributes: Attributes) -> Kind:
        kind = KIND_OF_TYPE.get(node.type)
        if kind is None:
            unknown = attributes.get("node_type", int(node.type))
            self.notes[f"nodes of type {unknown}, unknown to the schema: they take no time"] += 1
            return Kind.META
        if kind is Kind.COLL and "comm_type" not in attributes and "comm_size" not in attributes:
            self.notes["collective nodes with neither comm_type nor comm_size: wrappers without traffic"] += 1
            return Kind.META
        return kind

    def _point_to_point(self, peer_name: str, attributes: Attributes) -> dict[str, Any]:
        if peer_name not in attributes:
            raise ValueError(f"has no {peer_name}: the other end is unknown")
        peer = _integer(attributes, peer_name, -1)
        if peer >= self.world_size:
            raise ValueError(f"{peer_name} is {peer}, but the job has ranks 0 to {self.world_size - 1}")
        return {
            "peer": peer,
            "tag": _integer(attributes, "comm_tag", 0, low=INT64_MIN),
            "size_bytes": _integer(attributes, "comm_size", -1, high=SIZE_MAX_BYTES),
        }

    def _collective(self, attributes: Attributes) -> dict[str, Any]:
        op = _operation(attributes)
        index, members = self._group(attributes)
        dimensions = attributes.get("involved_dim", True)
        if not (all(dimensions) if isinstance(dimensions, list) else dimensions):
            self.notes["collectives whose involved_dim leaves out a dimension: played over their whole group"] += 1
        columns: dict[str, Any] = {
            "op": op,
            "group": index,
            "size_bytes": 0 if op is Op.BARRIER else _integer(attributes, "comm_size", -1, high=SIZE_MAX_BYTES),
        }
        if op in ROOTED:
            columns["root"] = _root_position(attributes, members)
        if "in_split_bytes" in attributes or "out_split_bytes" in attributes:
            to_each = _split(attributes, "in_split_bytes", members)
            columns["splits"] = (to_each, _split(attributes, "out_split_bytes", members))
            if columns["size_bytes"] < 0:
                columns["size_bytes"] = sum(to_each)
        return columns

    def _group(self, attributes: Attributes) -> tuple[int, tuple[int, ...]]:
        name = str(attributes.get("pg_name", ""))
        index = self.groups.index.get(name)
        if index is None:
            raise ValueError(f'group {name!r} is not defined; put {{"{name}": [ranks]}} into a groups file')
        members = self.groups.groups[index].ranks
        if self.rank not in members:
            raise ValueError(f"takes part in group {name!r}, of which rank {self.rank} is not a member")
        return index, members


def _used_attributes(node: Node) -> Attributes:
    """Attributes that a replay needs, whichever protobuf field holds the value; lists as lists."""
    values: Attributes = {}
    for attribute in node.attr:
        name = attribute.name
        if name in USED_ATTRIBUTES:
            member = attribute.WhichOneof("value")
            if member is not None:
                value = getattr(attribute, member)
                values[name] = list(value.values) if member.endswith("_list") else value
    return values


def _integer(attributes: Attributes, name: str, default: int, low: int = 0, high: int = INT64_MAX) -> int:
    value = attributes.get(name, default)
    if type(value) is not int:
        value = _to_integer(name, value)
    if name in attributes and not low <= value <= high:
        raise ValueError(f"{name} is {value}, expected {low} to {high}")
    return value


def _to_integer(name: str, value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and len(value) < 32:
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError(f"{name} is {shown_value(value)}, expected an integer")


def _truth(value: object) -> bool:
    return value.lower() in ("true", "1") if isinstance(value, str) else bool(value)


def _duration_ns(node: Node, attributes: Attributes) -> int:
    """Duration in ns; 0 if the trace recorded less than a microsecond, -1 if it has none."""
    if "duration_ns" in attributes:
        return _integer(attributes, "duration_ns", -1)
    if node.duration_micros > INT64_MAX // 1000:
        raise ValueError(f"duration_micros is {node.duration_micros}, which is too long")
    if node.duration_micros or node.start_time_micros:
        return node.duration_micros * 1000
    return -1


def _operation(attributes: Attributes) -> Op:
    if "comm_type" not in attributes:
        raise ValueError("a collective with comm_size but without comm_type")
    value = attributes["comm_type"]
    if isinstance(value, str) and value.upper() in CollectiveCommType.keys():  # noqa: SIM118
        value = int(CollectiveCommType.Value(value.upper()))
    op = OP_OF_COMM_TYPE.get(_integer({"comm_type": value}, "comm_type", -1))
    if op is None:
        raise ValueError(f"comm_type {value} is not a collective of the schema")
    return op


def _root_position(attributes: Attributes, members: tuple[int, ...]) -> int:
    for name in ROOT_NAMES:
        if name in attributes:
            root = _integer(attributes, name, 0)
            if root not in members:
                raise ValueError(f"{name} is rank {root}, which is not a member of its group")
            return members.index(root)
    return 0


def _split(attributes: Attributes, name: str, members: tuple[int, ...]) -> list[int]:
    values = attributes.get(name)
    if not isinstance(values, list) or len(values) != len(members):
        raise ValueError(
            f"{name} is {shown_value(values)}, expected a list of {len(members)} sizes, one per member of the group"
        )
    sizes = [_integer({name: value}, name, 0) for value in values]
    if sum(sizes) > SIZE_MAX_BYTES:
        raise ValueError(f"{name} adds up to {sum(sizes)}, expected at most {SIZE_MAX_BYTES}")
    return sizes
