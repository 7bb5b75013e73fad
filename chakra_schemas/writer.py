"""Writing `.et` files."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from typing import BinaryIO

from chakra_protobuf.et_def_pb2 import GlobalMetadata, Node

# Size up to which data is collected in memory between two writes.
BUFFER_BYTES = 1 << 20


def write_trace(
    path: str | os.PathLike[str], metadata: GlobalMetadata, nodes: Iterable[Node], compress: bool = False
) -> None:
    """Write a binary trace; equal content gives equal bytes, also when compressed (gzip).

    Raises OSError, and ValueError for a node without any content, which a reader could not tell from damage.
    """
    with open(path, "wb") as file:
        if compress:
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
                _write(compressed, metadata, nodes)  # type: ignore[arg-type]
        else:
            _write(file, metadata, nodes)


def _write(file: BinaryIO, metadata: GlobalMetadata, nodes: Iterable[Node]) -> None:
    buffer = bytearray()
    _append(buffer, metadata.SerializeToString(deterministic=True))
    for node in nodes:
        data = node.SerializeToString(deterministic=True)
        if not data:
            raise ValueError("a node without id, name and type cannot be written")
        _append(buffer, data)
        if len(buffer) >= BUFFER_BYTES:
            file.write(buffer)
            buffer.clear()
    file.write(buffer)


def _append(buffer: bytearray, message: bytes) -> None:
    length = len(message)
    while length >= 0x80:
        buffer.append(length & 0x7F | 0x80)
        length >>= 7
    buffer.append(length)
    buffer += message
