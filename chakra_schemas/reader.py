"""Reading a trace file of any variant: binary or JSON, plain or gzip, recognised by content, not by suffix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from chakra_protobuf.et_def_pb2 import GlobalMetadata, Node
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from chakra_schemas.errors import TraceError
from chakra_schemas.json_reader import read_json
from genie.inputs import content

JSON_PROBE_BYTES = 4096
VARINT32_BYTES_MAX = 5
# Bytes near the start of every binary trace (the tags of id, name and attributes are 0x08 and 0x12), but not of JSON.
CONTROL_BYTES = bytes(value for value in range(0x20) if value not in b"\t\n\r")


@dataclass
class Trace:
    """One rank's trace: its metadata, and its nodes in file order, decoded on iteration (once)."""

    metadata: GlobalMetadata
    nodes: Iterator[Node]


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace of any variant.

    Raises TraceError for a file that is unreadable, truncated, garbage or not a trace: here for the metadata, and from
    the iterator for the nodes. A file that ends between two nodes looks like a shorter trace.
    """
    data = read_content(path)
    if not data:
        raise TraceError(path, 0, "the file is empty")
    if is_json(data):
        metadata, nodes = read_json(path, data)
        return Trace(metadata, nodes)
    start, end = _frame(path, data, 0)
    metadata = _metadata(path, data, start, end)
    return Trace(metadata, _nodes(path, data, end))


def read_content(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes, decompressed when it starts with gzip's magic. Raises TraceError."""
    try:
        return content.read_content(path)
    except content.ContentError as error:
        raise TraceError(path, error.offset, str(error)) from error
    except OSError as error:
        raise TraceError(path, 0, f"cannot be read: {error.strerror or error}") from error


def is_json(data: bytes) -> bool:
    """Whether content is JSON text rather than length-prefixed messages, whose length byte may also be a brace."""
    probe = data[:JSON_PROBE_BYTES]
    return probe.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and probe.translate(None, CONTROL_BYTES) == probe


def _frame(path: str | os.PathLike[str], data: bytes, offset: int) -> tuple[int, int]:
    """(start, end) of the message whose length is at `offset`."""
    length = 0
    position = offset
    for shift in range(0, 7 * VARINT32_BYTES_MAX, 7):
        if position >= len(data):
            raise TraceError(path, offset, "the file is cut inside a message's length")
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise TraceError(path, offset, "not a Chakra trace: no message length here")
    left = len(data) - position
    if length > left:
        raise TraceError(path, offset, f"cut, or not a Chakra trace: a message of {length} bytes but {left} are left")
    return position, position + length


def _metadata(path: str | os.PathLike[str], data: bytes, start: int, end: int) -> GlobalMetadata:
    try:
        metadata = GlobalMetadata.FromString(data[start:end])
    except DecodeError as error:
        raise TraceError(path, start, "not a Chakra trace: its first message is not a GlobalMetadata") from error
    if len(UnknownFieldSet(metadata)):
        raise TraceError(path, start, "not a Chakra trace: its first message has fields that GlobalMetadata lacks")
    return metadata


def _nodes(path: str | os.PathLike[str], data: bytes, offset: int) -> Iterator[Node]:
    size = len(data)
    decode = Node.FromString
    while offset < size:
        length = data[offset]
        if length < 0x80 and offset + length < size:  # the common case of _frame, inlined
            start, end = offset + 1, offset + 1 + length
        else:
            start, end = _frame(path, data, offset)
        if start == end:
            raise TraceError(path, offset, "an empty node: damaged, or not a Chakra trace")
        try:
            node = decode(data[start:end])
        except DecodeError as error:
            raise TraceError(path, start, f"damaged: {end - start} bytes that are not a Node") from error
        yield node
        offset = end
