"""Trace files made of a few nodes, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chakra_protobuf.et_def_pb2 import GlobalMetadata, Node, NodeType

from chakra_schemas.attributes import make_attributes
from chakra_schemas.writer import write_trace
from genie.workload.graph import Workload, WorkloadError
from genie.workload.load import load

COMP, COLL, SEND, RECV, META, MEM = (
    NodeType.COMP_NODE,
    NodeType.COMM_COLL_NODE,
    NodeType.COMM_SEND_NODE,
    NodeType.COMM_RECV_NODE,
    NodeType.METADATA_NODE,
    NodeType.MEM_LOAD_NODE,
)


def node(number: int, kind: int = COMP, deps: tuple[int, ...] = (), ctrl: tuple[int, ...] = (), **rest: Any) -> Node:
    """A node; keywords that are no fields become attributes."""
    fields = {key: rest.pop(key) for key in list(rest) if key in Node.DESCRIPTOR.fields_by_name}
    fields = {"name": f"n{number}", **fields}
    return Node(id=number, type=kind, data_deps=deps, ctrl_deps=ctrl, attr=make_attributes(rest), **fields)  # type: ignore[arg-type]


def trace(folder: Path, *ranks: list[Node], groups: dict[str, list[int]] | None = None, prefix: str = "t") -> Path:
    for rank, nodes in enumerate(ranks):
        write_trace(folder / f"{prefix}.{rank}.et", GlobalMetadata(), nodes)
    if groups is not None:
        (folder / f"{prefix}.json").write_text(json.dumps(groups))
    return folder


def load_one(folder: Path, *nodes: Node) -> Workload:
    return load(trace(folder, list(nodes), []))


def error_of(folder: Path, *nodes: Node) -> str:
    with pytest.raises(WorkloadError) as caught:
        load_one(folder, *nodes)
    message = str(caught.value)
    assert "\n" not in message
    return message
