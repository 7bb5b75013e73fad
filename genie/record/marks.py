"""Marks in the files that Genie writes. Genie replaces a file only when it finds its own mark of the same kind.

A mark is `genie.KIND.VERSION`. Its place depends on the format:
  - JSON and JSON lines: the `schema` of the object or of the first line
  - HTML: the generator
  - JUnit XML: a property
  - Parquet: the table's metadata
  - Perfetto trace: the session's name
  - other text: the first line

Text that people edit has a digest beside its mark. An edited file no longer matches and is not replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
HEAD_BYTES = 4096  # a mark lies in these first bytes; in a Parquet footer, anywhere
TEXT_BYTES_MAX = 64 << 20  # largest text whose digest is compared

_MARK = rb"genie\.([a-z-]+)\.[0-9]+"
_JSON = re.compile(rb'\s*\{\s*"schema":\s*"' + _MARK + rb'"')
_HTML = re.compile(rb'<meta name="generator" content="' + _MARK + rb'">')
_XML = re.compile(rb'<property name="schema" value="' + _MARK + rb'"')
_LINE = re.compile(rb"# " + _MARK + rb"(?: sha256:([0-9a-f]{64}))?\n")
_ANYWHERE = re.compile(_MARK)


def mark(kind: str) -> str:
    """The mark of a kind of file, such as `genie.verdict.1`."""
    return f"genie.{kind}.{SCHEMA_VERSION}"


def marked_json(kind: str, fields: Mapping[str, Any]) -> str:
    """A JSON object as a file's text, its mark first. Rows of a list without structure stand on a line each."""
    whole = {"schema": mark(kind)} | {**fields, "schema": mark(kind)}
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {_value(value)}" for name, value in whole.items()) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(row, dict) and _is_flat(row) for row in value):
        return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
    return json.dumps(value, indent=1).replace("\n", "\n ")  # a string has no line break of its own


def _is_flat(row: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, (dict, list)) for value in row.values())


def marked_text(kind: str, text: str) -> str:
    """Text that people may edit, with a first comment line that has the mark and a digest."""
    return f"# {mark(kind)} sha256:{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def kind_of(path: Path) -> str | None:
    """The kind of a file that Genie wrote; None for other files, edited text, links and folders."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        return _READERS.get(path.suffix, _first_line)(path)
    except OSError:
        return None


def has_mark(path: Path, kind: str) -> bool:
    """Whether the beginning of a file, complete or not, has the mark of this kind."""
    return mark(kind).encode() in _head(path)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _decoded(found: re.Match[bytes] | None) -> str | None:
    return None if found is None else found[1].decode()


def _json(path: Path) -> str | None:
    return _decoded(_JSON.match(_head(path)))


def _html(path: Path) -> str | None:
    return _decoded(_HTML.search(_head(path)))


def _xml(path: Path) -> str | None:
    return _decoded(_XML.search(_head(path)))


def _trace(path: Path) -> str | None:
    return _decoded(_ANYWHERE.search(_head(path)))


def _parquet(path: Path) -> str | None:
    """Kind of a Parquet table, whose file ends with the footer, its length (4 bytes, little-endian) and `PAR1`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < 12:
            return None
        file.seek(size - 8)
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or length > size - 8:
            return None
        file.seek(size - 8 - length)
        return _decoded(_ANYWHERE.search(file.read(length)))


def _first_line(path: Path) -> str | None:
    found = _LINE.match(_head(path))
    if found is None or found[2] is None:
        return _decoded(found)
    if path.stat().st_size > TEXT_BYTES_MAX:
        return None
    text = path.read_bytes()[found.end() :]
    return _decoded(found) if hashlib.sha256(text).hexdigest() == found[2].decode() else None


_READERS: dict[str, Callable[[Path], str | None]] = {
    ".json": _json, ".jsonl": _json, ".html": _html, ".parquet": _parquet, ".pftrace": _trace,
    ".xml": _xml,
}  # fmt: skip
