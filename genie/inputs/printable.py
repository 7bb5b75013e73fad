"""Text from files made safe for a terminal: control characters and lone surrogates are escaped."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from reprlib import Repr
from typing import Any, TextIO

# C0 without tab and newline, delete, C1; marks that change the writing direction; line separators; lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
VALUE_MAX = 200
LINE_MAX, TAIL = 1000, 300  # characters of an error, and of its end, which has the advice
_BREAKS = re.compile("[\t\n]")
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 60
# Start or end of a line that is redrawn in place; a name from a file never stands there.
ERASE_LINE = "\r\x1b[K"


def printable(text: object) -> str:
    """The text as one line: control characters are escaped, newlines and tabs too."""
    return _BREAKS.sub(_escape, _lines(str(text)))


def one_line(text: str) -> str:
    """A line of at most about LINE_MAX characters; of a longer text, its two ends."""
    if len(text) > LINE_MAX:
        text = f"{text[: LINE_MAX - TAIL]} ... {text[-TAIL:]}"
    return printable(text)


def shown_value(value: object) -> str:
    """A value as errors show it: short, and made without traversing all of a large value."""
    shown = printable(_SHORT.repr(value))
    return shown if len(shown) <= VALUE_MAX else f"{shown[:VALUE_MAX]}..."


def _lines(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


class SafeStream:
    """A text stream that escapes its input; `ERASE_LINE` at the start and a lone carriage return pass."""

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

    @property
    def unescaped(self) -> TextIO:
        """The stream below, for a terminal's own sequences around printable text."""
        return self._stream

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Escape what is printed on standard output and standard error inside the context."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_safe(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _safe(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, SafeStream) else SafeStream(stream)
