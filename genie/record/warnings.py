"""Warnings of a command: each is said once on standard error, and kept for the records of the runs that it writes."""

from __future__ import annotations

import sys

from genie.inputs.printable import one_line

_said: set[str] = set()
_kept: dict[str, None] = {}


def warn(text: str, *, aloud: bool = True) -> None:
    """Say it the first time, and keep it, as one line. `aloud`: False on ranks for which another one speaks."""
    text = one_line(text)
    _kept[text] = None
    if aloud and text not in _said:
        _said.add(text)
        print(f"genie: {text}", file=sys.stderr, flush=True)


def warn_of_old_name(where: str, old: str, new: str) -> None:
    """Say that a key or an option has a new name, and that the old one is read for one release."""
    warn(f"{where}{': ' if where else ''}{old} is called {new} now; the next release no longer reads {old}")


def kept_warnings() -> list[str]:
    """Those since the record of another run was begun."""
    return list(_kept)


def begin_record() -> None:
    """Begin the record of another run: warnings from now on belong to it."""
    _kept.clear()


def forget_warnings() -> None:
    """Another command begins, which says its own."""
    _kept.clear()
    _said.clear()
