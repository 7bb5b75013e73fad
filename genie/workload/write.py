"""Writing a workload: one `.et` file per rank and its groups file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from chakra_schemas.attributes import AttributeValue, make_attribute, make_attributes
from chakra_schemas.et_def_pb2 import GlobalMetadata, Node, NodeType
from chakra_schemas.writer import write_trace
from genie.workload.decode import ROOTED
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

SCHEMA_VERSION = "0.0.4"
TYPE_OF_KIND = {
    Kind.META: NodeType.METADATA_NODE,
    Kind.COMP: NodeType.COMP_NODE,
    Kind.MEM: NodeType.MEM_LOAD_NODE,
    Kind.SEND: NodeType.COMM_SEND_NODE,
    Kind.RECV: NodeType.COMM_RECV_NODE,
    Kind.COLL: NodeType.COMM_COLL_NODE,
}


def save(workload: Workload, folder: str | Path, prefix: str = "workload", compress: bool = False) -> None:
    """Write `{prefix}.{rank}.et[.gz]` for every rank and `{prefix}.json` (the groups); makes the folder.

    `load` gives the same graphs back, but for notes, and for names of nodes' original types.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    metadata = GlobalMetadata(version=SCHEMA_VERSION, attr=[make_attribute("generator", "genie")])
    for rank, graph in workload.ranks.items():
        path = folder / f"{prefix}.{rank}.et{'.gz' if compress else ''}"
        write_trace(path, metadata, graph_nodes(graph, workload.groups), compress)
    groups = {group.name: list(group.ranks) for group in workload.groups}
    (folder / f"{prefix}.json").write_text(json.dumps(groups) + "\n", encoding="utf-8")


def graph_nodes(graph: RankGraph, groups: list[Group]) -> Iterator[Node]:
    """The graph's rows as protobuf nodes, in ascending id; every dependency becomes a data dependency."""
    starts = graph.dep_start.tolist()
    for row in range(len(graph)):
        kind = Kind(int(graph.kind[row]))
        node = Node(
            id=int(graph.node_id[row]),
            name=graph.name[row],
            type=TYPE_OF_KIND[kind],
            data_deps=graph.node_id[graph.deps[starts[row] : starts[row + 1]]].tolist(),
        )
        duration_ns = int(graph.duration_ns[row])
        attributes = _attributes(graph, row, kind, groups)
        if kind in (Kind.COMP, Kind.MEM) and duration_ns >= 0:
            node.duration_micros = duration_ns // 1000
            attributes["duration_ns"] = duration_ns
        node.attr.extend(make_attributes(attributes))
        yield node


def _attributes(graph: RankGraph, row: int, kind: Kind, groups: list[Group]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"is_cpu_op": bool(graph.on_cpu[row])}
    size_bytes = int(graph.size_bytes[row])
    if graph.stream[row] >= 0:
        attributes["stream"] = int(graph.stream[row])
    if graph.num_ops[row] >= 0:
        attributes["num_ops"] = int(graph.num_ops[row])
    if graph.tensor_bytes[row] >= 0:
        attributes["tensor_size"] = int(graph.tensor_bytes[row])
    if size_bytes >= 0:
        attributes["comm_size"] = size_bytes
    if kind in (Kind.SEND, Kind.RECV):
        attributes["comm_dst" if kind is Kind.SEND else "comm_src"] = int(graph.peer[row])
        attributes["comm_src" if kind is Kind.SEND else "comm_dst"] = graph.rank
        attributes["comm_tag"] = int(graph.tag[row])
    if kind is Kind.COLL:
        group = groups[int(graph.group[row])]
        attributes["comm_type"] = int(graph.op[row])
        attributes["pg_name"] = group.name
        if Op(int(graph.op[row])) in ROOTED:
            attributes["root"] = group.ranks[int(graph.root[row])]
        if row in graph.splits:
            to_each, from_each = graph.splits[row]
            attributes["in_split_bytes"] = [int(value) for value in to_each]
            attributes["out_split_bytes"] = [int(value) for value in from_each]
    return attributes
