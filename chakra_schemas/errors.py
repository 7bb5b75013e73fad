"""The error of trace readers."""

from __future__ import annotations

import os

from genie.errors import InputError


class TraceError(InputError):
    """A file that is truncated, garbage or not a trace; one line with the file, the byte offset and the problem.

    The offset counts decompressed bytes when the file is compressed, and characters in JSON.
    """

    def __init__(self, path: str | os.PathLike[str], offset: int, what: str) -> None:
        self.path = os.fspath(path)
        self.offset = offset
        self.what = " ".join(what.split())
        super().__init__(f"{self.path}: at byte {offset}: {self.what}")
