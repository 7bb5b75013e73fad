"""Reading a file's bytes, plain or gzip, up to a limit that an option or an environment variable raises."""

from __future__ import annotations

import os
import re
import zlib
from gzip import BadGzipFile, GzipFile
from io import BytesIO
from typing import BinaryIO

LIMIT_VARIABLE = "GENIE_READ_LIMIT"
CONTENT_MAX_BYTES = 1 << 30  # of a trace, after decompression
JSON_MAX_BYTES = 1 << 28  # of a trace in JSON, whose objects take many times as much memory
TEXT_MAX_BYTES = 64 << 20  # of any other file; half a million cables take half of it
GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_LIMIT = re.compile(r"([0-9]{1,18})\s*(KiB|MiB|GiB|TiB|)")


class ContentError(ValueError):
    """Content that cannot be read: one line without the file's name; `offset`: bytes of content before the error."""

    def __init__(self, problem: str, offset: int = 0) -> None:
        super().__init__(problem)
        self.offset = offset


def content_limit_bytes(default_bytes: int = CONTENT_MAX_BYTES) -> int:
    """The limit of a trace's content in bytes: GENIE_READ_LIMIT, or the default. Raises ContentError."""
    given = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not given:
        return default_bytes
    match = _LIMIT.fullmatch(given)
    if match is None or not int(match[1]):
        raise ContentError(f"{LIMIT_VARIABLE}={given!r}: give bytes, or a size such as 8GiB")
    return int(match[1]) * _UNITS[match[2]]


def read_content(path: str | os.PathLike[str], default_bytes: int = CONTENT_MAX_BYTES) -> bytes:
    """A trace's bytes, decompressed when it starts with gzip's magic. Raises ContentError, OSError."""
    limit_bytes = content_limit_bytes(default_bytes)
    with _opened(path) as file:
        data = _read_up_to(file, limit_bytes)  # a single read would allocate memory for the whole limit
    if len(data) > limit_bytes:
        raise _too_long("the file", limit_bytes)
    return _gunzip(data, limit_bytes) if data.startswith(GZIP_MAGIC) else data


def read_bytes(path: str | os.PathLike[str], limit_bytes: int = TEXT_MAX_BYTES) -> bytes:
    """The bytes of a file that is not a trace. Raises ContentError when it has more than the limit, OSError."""
    with _opened(path) as file:
        data = _read_up_to(file, limit_bytes)
    if len(data) > limit_bytes:
        raise ContentError(f"the file has more than {limit_bytes} bytes, the limit of its kind: give a shorter one")
    return data


def read_text(path: str | os.PathLike[str], limit_bytes: int = TEXT_MAX_BYTES, *, encoding: str = "utf-8") -> str:
    """The text of a file that is not a trace, with line ends converted to newlines.

    Raises ContentError when the file is longer than the limit, OSError, UnicodeDecodeError.
    """
    return read_bytes(path, limit_bytes).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb")
    except ValueError as error:  # a null character in a path given by a file
        raise ContentError(f"the path cannot be used: {error}") from error


def _read_up_to(file: BinaryIO, limit_bytes: int) -> bytes:
    """At most the limit plus one byte, also from special files, whose reads return less than asked for."""
    parts, left = [], limit_bytes + 1
    while left and (part := file.read(min(left, CHUNK_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    content = BytesIO()
    try:
        with GzipFile(fileobj=BytesIO(data)) as file:
            while chunk := file.read1(CHUNK_BYTES):
                content.write(chunk)
                if content.tell() > limit_bytes:
                    raise _too_long(f"the content of {len(data)} compressed bytes", limit_bytes)
    except EOFError as error:
        raise ContentError("the compressed file is cut", content.tell()) from error
    except (BadGzipFile, zlib.error) as error:
        raise ContentError(f"the compressed file is damaged: {error}", content.tell()) from error
    return content.getvalue()


def _too_long(what: str, limit_bytes: int) -> ContentError:
    return ContentError(
        f"{what} is longer than {limit_bytes} bytes: give genie --read-limit 8GiB COMMAND, or set {LIMIT_VARIABLE}, "
        "to read it",
        limit_bytes,
    )
