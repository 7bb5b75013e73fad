"""The one error of reading a trace."""

from __future__ import annotations

import os


class TraceError(Exception):
    """A file that is cut, garbage or not a trace; one line: file, offset in bytes of its content, what is wrong.

    The offset counts decompressed bytes when the file is compressed, and characters in JSON.
    """

    def __init__(self, path: str | os.PathLike[str], offset: int, what: str) -> None:
        self.path = os.fspath(path)
        self.offset = offset
        self.what = " ".join(what.split())
        super().__init__(f"{self.path}: at byte {offset}: {self.what}")
