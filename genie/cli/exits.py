"""Failures and counts in the words of a command line."""

from __future__ import annotations

import signal

from genie.inputs.printable import one_line


def text_of(error: BaseException) -> str:
    """Return an error as one line of text."""
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    return one_line(" ".join(str(error).split()))


def signal_in_words(number: int) -> str:
    """Return the words for a signal that ended a command."""
    return "interrupted" if number == signal.SIGINT else f"told to end by {signal.Signals(number).name}"


def counted(count: int, what: str, plural: str = "s") -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {what}" + plural * (count != 1)
