"""Mutations of what is not text: Chakra traces and the tables of run folders."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from random import Random
from typing import Any

from chakra_protobuf.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from input_mutations import STRINGS, mutate_bytes, weird

from chakra_schemas.attributes import make_attribute
from chakra_schemas.reader import read_trace


def mutate_trace(rng: Random, data: bytes, path: Path) -> bytes:
    """A binary trace with nodes that say something else."""
    path.write_bytes(data)
    trace = read_trace(path)
    nodes = list(trace.nodes)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(nodes))
        node = nodes[at]
        match rng.randrange(8):
            case 0:
                node.id = rng.choice((0, 1, 2, (1 << 64) - 1, 1 << 63, 1 << 40))
            case 1:
                deps = node.data_deps if rng.random() < 0.5 else node.ctrl_deps
                deps.append(rng.choice((0, node.id, 1, 2, 3, (1 << 64) - 1, 1 << 63)))
            case 2:
                node.type = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 99, -1))  # type: ignore[assignment]
            case 3 | 4 | 5 if node.attr:
                _change(rng, rng.choice(list(node.attr)))
            case 6:
                nodes.insert(at, Node.FromString(node.SerializeToString()))
            case _:
                node.name = rng.choice([text for text in STRINGS if "\ud800" not in text])
                node.duration_micros = rng.choice((0, 1, (1 << 64) - 1, 1 << 53))
    return b"".join(_framed(message) for message in (trace.metadata, *nodes))


def _change(rng: Random, attribute: AttributeProto) -> None:
    """Another value, often of another member."""
    old = getattr(attribute, attribute.WhichOneof("value") or "int64_val")
    for _ in range(5):
        value = weird(rng, old if isinstance(old, int | float | str) else 1)
        try:
            changed = make_attribute(attribute.name, value)
        except (TypeError, ValueError, UnicodeEncodeError):
            continue
        attribute.CopyFrom(changed)
        return


def _framed(message: GlobalMetadata | Node) -> bytes:
    data = message.SerializeToString()
    length, prefix = len(data), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(prefix) + bytes([length]) + data


def mutate_gzip(rng: Random, data: bytes, path: Path) -> bytes:
    """Of the content, of the compressed bytes, or a little that becomes much."""
    if rng.random() < 0.004:
        return gzip.compress(bytes(1 << 26), 1) * 20
    if rng.random() < 0.4:
        return mutate_bytes(rng, data)
    return gzip.compress(mutate_trace(rng, gzip.decompress(data), path), 1)


def mutate_table(rng: Random, data: bytes) -> bytes:
    """A table with other cells, columns or rows."""
    import polars as pl

    table = pl.read_parquet(io.BytesIO(data))
    for _ in range(rng.choice((1, 1, 2))):
        column = rng.choice(table.columns)
        values: list[Any] = table[column].to_list()
        match rng.randrange(8):
            case 0:
                table = table.drop(column)
            case 1:
                table = table.with_columns(pl.Series(column, [str(value) for value in values]))
            case 2:
                keep = [rng.random() < 0.5 for _ in range(table.height)]
                table = table.filter(pl.Series(keep, dtype=pl.Boolean)) if rng.random() < 0.8 else table.clear()
            case 3:
                table = pl.concat([table, table]) if rng.random() < 0.5 else table.reverse()
            case _ if values:
                for _ in range(rng.choice((1, 3, len(values)))):
                    values[rng.randrange(len(values))] = _cell(rng, table.schema[column])
                try:
                    table = table.with_columns(pl.Series(column, values, dtype=table.schema[column], strict=False))
                except (OverflowError, TypeError, pl.exceptions.PolarsError):
                    continue
            case _:
                continue
        if not table.columns:
            break
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _cell(rng: Random, kind: Any) -> Any:
    if rng.random() < 0.3:
        return None
    if kind.is_integer():
        top = {1: 7, 2: 15, 4: 31, 8: 63}[kind.to_python() is int and (4 if "32" in str(kind) else 8)]
        low = 0 if "U" in str(kind) else -1
        return rng.choice((0, low, 1, 5, 1000, (1 << top) - 1, 10**9, low * (1 << top)))
    if kind.is_float():
        return rng.choice((float("nan"), float("inf"), -1.0, 1e300))
    return rng.choice([text for text in STRINGS if "\ud800" not in text])
