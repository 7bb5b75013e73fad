"""Reading PyTorch's host execution traces (ExecutionTraceObserver), schemas 1.0.1 to 1.1.1.

They have the operators of the host, with their order and tensors, but no times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from genie.inputs.content import JSON_MAX_BYTES, ContentError, read_content
from genie.workload.graph import WorkloadError

# Errors from reading a trace with missing values or values of a wrong kind.
WRONG_CONTENT = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, IndexError)


@dataclass(slots=True)
class HostNode:
    """One operator call (or annotation) of the host."""

    id: int  # ascending in the order of the calls
    parent: int  # id of the enclosing call
    name: str
    thread: int  # the observer's own number of the thread: 1, 2, ...
    rf_id: int  # record function id, the profiler's "Record function id"; -1: not given
    schema: str  # the operator's signature, "" for annotations
    inputs: list[Any]
    outputs: list[Any]
    shapes: list[Any]  # of the inputs: a list of sizes for a tensor, empty for a scalar
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Tensor:
    """A tensor as traces write it: [tensor, storage, offset, elements, element bytes, device]."""

    tensor_id: int
    storage_id: int
    num_elements: int
    element_bytes: int
    device: str

    @property
    def size_bytes(self) -> int:
        return self.num_elements * self.element_bytes


@dataclass
class HostTrace:
    """One rank's host trace: its calls in ascending id."""

    path: Path
    schema: str
    nodes: list[HostNode]

    def __post_init__(self) -> None:
        self.by_id = {node.id: node for node in self.nodes}

    def ancestors(self, node: HostNode) -> Iterator[HostNode]:
        """The enclosing calls of a node, innermost first."""
        seen = {node.id}
        parent = self.by_id.get(node.parent)
        while parent is not None and parent.id not in seen:
            seen.add(parent.id)
            yield parent
            parent = self.by_id.get(parent.parent)


def read_json(path: Path) -> Any:
    """The content of a JSON file, gzip or not. Raises WorkloadError."""
    try:
        return msgspec.json.decode(read_content(path, JSON_MAX_BYTES))
    except (OSError, ContentError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WorkloadError(f"{path}: cannot be read: {reason}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(f"{path}: not a JSON trace: {error}") from error


def wrong_words(error: Exception) -> str:
    """A reader's error as the rest of a sentence: a missing key, or a field with its value."""
    return f"lacks {error}" if isinstance(error, KeyError) else f"has {error}"


def read_host_trace(path: Path) -> HostTrace:
    """Read one rank's host trace. Raises WorkloadError when the file is not one."""
    content = read_json(path)
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, list) or "schema" not in content:
        what = "a profiler trace" if isinstance(content, dict) and "traceEvents" in content else "not one"
        raise WorkloadError(f"{path}: expected a PyTorch host execution trace (schema and nodes), this is {what}")
    schema = str(content["schema"])
    try:
        parsed = [_flat_node(node) if "ctrl_deps" not in node else _nested_node(node) for node in nodes]
    except WRONG_CONTENT as error:
        raise WorkloadError(f"{path}: a node of schema {schema} {wrong_words(error)}; is the file damaged?") from error
    parsed.sort(key=lambda node: node.id)
    return HostTrace(path, schema, parsed)


def _flat_node(node: dict[str, Any]) -> HostNode:
    """Schema 1.0.1: every property is a key of the node."""
    return HostNode(
        id=int(node["id"]),
        parent=int(node["parent"]),
        name=str(node["name"]),
        thread=int(node["tid"]),
        rf_id=int(node.get("rf_id", -1)),
        schema=str(node.get("op_schema", "")),
        inputs=list(node["inputs"]),
        outputs=list(node["outputs"]),
        shapes=list(node.get("input_shapes", ())),
    )


def _nested_node(node: dict[str, Any]) -> HostNode:
    """Schemas from 1.0.2 on: tensors under `inputs.values`, the rest as a list of named attributes."""
    attributes = {str(item["name"]): item["value"] for item in node.get("attrs", ())}
    return HostNode(
        id=int(node["id"]),
        parent=int(node["ctrl_deps"]),
        name=str(node["name"]),
        thread=int(attributes.pop("tid")),
        rf_id=int(attributes.pop("rf_id", -1)),
        schema=str(attributes.pop("op_schema", "")),
        inputs=list(node["inputs"]["values"]),
        outputs=list(node["outputs"]["values"]),
        shapes=list(node["inputs"].get("shapes", ())),
        attributes=attributes,
    )


def tensors_of(value: Any) -> list[Tensor]:
    """All tensors in an argument, in order: the argument itself, or the members of a list of any depth."""
    if not isinstance(value, list):
        return []
    if len(value) >= 6 and isinstance(value[5], str) and all(type(item) is int for item in value[:5]):
        return [Tensor(value[0], value[1], value[3], value[4], value[5])]
    return [tensor for item in value for tensor in tensors_of(item)]


def argument(node: HostNode, name: str) -> Any:
    """The argument that the operator's signature calls `name`; None if there is none."""
    names = _argument_names(node.schema)
    return node.inputs[names.index(name)] if name in names and names.index(name) < len(node.inputs) else None


def _argument_names(schema: str) -> list[str]:
    """Argument names of a signature `ns::op(Type name, Type[] name=default, *, ...) -> (...)`."""
    arguments, depth = [""], 0
    for char in schema.partition("(")[2]:
        if char == ")" and depth == 0:
            break
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += char
    names = [text.strip().rpartition(" ")[2].partition("=")[0] for text in arguments if text.strip() not in ("", "*")]
    return names
