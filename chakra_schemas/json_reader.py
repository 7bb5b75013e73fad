"""The JSON variants of a trace: concatenated MessageToJson objects, and {"workload_graph": [...]}."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from chakra_protobuf.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from google.protobuf.json_format import ParseDict, ParseError

from chakra_schemas.attributes import make_attribute
from chakra_schemas.errors import TraceError

METADATA_KEYS = frozenset({"version", "attr"})
# Keys of a workload_graph node (lower case, without underscores) that are fields; all others are attributes.
GRAPH_FIELDS = {
    "id": "id",
    "name": "name",
    "nodetype": "type",
    "ctrldeps": "ctrl_deps",
    "datadeps": "data_deps",
    "runtime": "duration_micros",
    "durationmicros": "duration_micros",
    "starttimemicros": "start_time_micros",
}
# Errors from parsing JSON of the wrong shape; json_format lets some Python errors through.
WRONG_SHAPE = (ParseError, TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError, SystemError)


def read_json(path: str | os.PathLike[str], data: bytes) -> tuple[GlobalMetadata, Iterator[Node]]:
    """Metadata and nodes of JSON content. Raises TraceError here or from the iterator."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(path, error.start, "JSON that is not UTF-8") from error
    objects = _objects(path, text)
    offset, first = next(objects)
    if "workload_graph" in first:
        return GlobalMetadata(), _graph_nodes(path, offset, first["workload_graph"])
    if {"schema", "nodes"} <= first.keys():
        raise TraceError(path, offset, "a PyTorch host trace, not a Chakra trace: use `genie convert pytorch`")
    if "traceEvents" in first:
        raise TraceError(path, offset, "a Kineto trace, not a Chakra trace: use `genie convert pytorch`")
    metadata = GlobalMetadata()
    if first.keys() <= METADATA_KEYS:
        _parse(path, offset, first, metadata)
        return metadata, _message_nodes(path, objects)
    return metadata, _message_nodes(path, objects, (offset, first))


def _objects(path: str | os.PathLike[str], text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The concatenated objects of a text, each with its offset."""
    decoder = json.JSONDecoder()
    offset = 0
    while True:
        while offset < len(text) and text[offset].isspace():
            offset += 1
        if offset == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, offset)
        except json.JSONDecodeError as error:
            raise TraceError(path, error.pos, f"cut or damaged JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:  # integers beyond Python's limit, nesting beyond its stack
            raise TraceError(path, offset, f"unreadable JSON: {error}") from error
        if not isinstance(value, dict):
            raise TraceError(path, offset, "not a Chakra trace: JSON other than objects")
        yield offset, value
        offset = end


def _parse(path: str | os.PathLike[str], offset: int, value: dict[str, Any], message: GlobalMetadata | Node) -> None:
    try:
        ParseDict(value, message)
    except WRONG_SHAPE as error:
        raise TraceError(path, offset, f"not a {message.DESCRIPTOR.name} of a Chakra trace: {error}") from error


def _message_nodes(
    path: str | os.PathLike[str],
    objects: Iterator[tuple[int, dict[str, Any]]],
    first: tuple[int, dict[str, Any]] | None = None,
) -> Iterator[Node]:
    if first is not None:
        yield _message_node(path, *first)
    for offset, value in objects:
        yield _message_node(path, offset, value)


def _message_node(path: str | os.PathLike[str], offset: int, value: dict[str, Any]) -> Node:
    if not value:
        raise TraceError(path, offset, "an empty node: damaged, or not a Chakra trace")
    node = Node()
    unknown = _unknown_type(value.get("type"))
    if unknown is not None:
        value = {key: item for key, item in value.items() if key != "type"}
    _parse(path, offset, value, node)
    if unknown is not None:
        try:
            node.attr.append(make_attribute("node_type", unknown))
        except WRONG_SHAPE as error:  # lone surrogates
            raise TraceError(path, offset, f"not a Node of a Chakra trace: type: {error}") from error
    return node


def _unknown_type(node_type: object) -> str | None:
    """Name of a node type that the schema does not have; the reader keeps it as attribute `node_type`."""
    return node_type if isinstance(node_type, str) and node_type not in NodeType.keys() else None  # noqa: SIM118


def _graph_nodes(path: str | os.PathLike[str], offset: int, graph: object) -> Iterator[Node]:
    if not isinstance(graph, list):
        raise TraceError(path, offset, "workload_graph is not a list of nodes")
    for index, entry in enumerate(graph):
        if not isinstance(entry, dict):
            raise TraceError(path, offset, f"workload_graph[{index}] is not an object")
        try:
            yield _graph_node(entry)
        except WRONG_SHAPE as error:
            raise TraceError(path, offset, f"workload_graph[{index}]: {error}") from error


def _graph_node(entry: dict[str, Any]) -> Node:
    node = Node()
    for key, value in entry.items():
        field = GRAPH_FIELDS.get(key.lower().replace("_", ""))
        if value is None:
            continue
        if field is None:
            node.attr.append(_graph_attribute(key, value))
        elif field == "type":
            _set_type(node, value)
        elif field == "name":
            node.name = str(value)
        elif field.endswith("_deps"):
            getattr(node, field).extend(int(item) for item in value)
        else:
            setattr(node, field, int(value))
    if not node.ListFields():
        raise ValueError("an empty node")
    return node


def _graph_attribute(name: str, value: Any) -> AttributeProto:
    """An attribute; values that no oneof member can hold (objects, mixed lists) become JSON text."""
    try:
        return make_attribute(name, value)
    except TypeError:
        return make_attribute(name, json.dumps(value))


def _set_type(node: Node, value: object) -> None:
    """Set a type by number or name; an unknown name becomes attribute `node_type`."""
    if isinstance(value, str) and not value.isdigit():
        if _unknown_type(value) is not None:
            node.attr.append(make_attribute("node_type", value))
        else:
            node.type = NodeType.Value(value)  # type: ignore[assignment]
    else:
        node.type = int(value)  # type: ignore[call-overload]
