"""Text from files made safe for a terminal: no control character and no lone surrogate leaves a stream raw."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from reprlib import Repr
from typing import Any, TextIO

# C0 without tab and newline, delete, C1; marks that turn the direction of writing; ends of lines; lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
VALUE_MAX = 200
LINE_MAX, TAIL = 1000, 300  # letters of an error, and of its end, which says what to do
_BREAKS = re.compile("[\t\n]")
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 60
# A line that changes in place begins or ends like this; a name from a file never stands there.
ERASE_LINE = "\r\x1b[K"


def printable(text: object) -> str:
    """One line: control characters are escaped, newlines and tabs too."""
    return _BREAKS.sub(_escape, _lines(str(text)))


def one_line(text: str) -> str:
    """A line for a person that has no more letters than a person reads: of a long one, its two ends."""
    if len(text) > LINE_MAX:
        text = f"{text[: LINE_MAX - TAIL]} ... {text[-TAIL:]}"
    return printable(text)


def shown_value(value: object) -> str:
    """A file's value as an error shows it: short, whatever it is, and made without going through all of it."""
    shown = printable(_SHORT.repr(value))
    return shown if len(shown) <= VALUE_MAX else f"{shown[:VALUE_MAX]}..."


def _lines(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


class SafeStream:
    """A text stream that escapes what it is given; `ERASE_LINE` at the start and a lone return pass."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        start = text if text == "\r" else ERASE_LINE if text.startswith(ERASE_LINE) else ""
        try:
            self._stream.write(start + _lines(text[len(start) :]))
        except OSError as error:
            error.filename = error.filename or f"standard {'output' if self is sys.stdout else 'error'}"
            raise
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Standard output and error escape what is printed meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_safe(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _safe(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, SafeStream) else SafeStream(stream)
