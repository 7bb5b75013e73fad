"""Warnings of a command: each is printed once on standard error and kept for the records of the command's runs."""

from __future__ import annotations

import sys

from genie.inputs.printable import one_line
from genie.invocation import is_quiet

_said: set[str] = set()
_kept: dict[str, None] = {}


def warn(text: str, *, aloud: bool = True) -> None:
    """Print a warning the first time and keep it, as one line. `aloud`: False on ranks for which another rank prints
    it.
    """
    text = one_line(text)
    _kept[text] = None
    if aloud and not is_quiet() and text not in _said:
        _said.add(text)
        print(f"genie: {text}", file=sys.stderr, flush=True)


def warn_of_old_name(where: str, old: str, new: str) -> None:
    """Warn that a key or an option has a new name, and that the old name is read for one more release."""
    warn(f"{where}{': ' if where else ''}{old} is called {new} now; the next release no longer reads {old}")


def kept_warnings() -> list[str]:
    """Warnings since the current run's record was begun."""
    return list(_kept)


def begin_record() -> None:
    """Begin the record of another run; later warnings belong to it."""
    _kept.clear()


def forget_warnings() -> None:
    """Forget all warnings, because another command begins."""
    _kept.clear()
    _said.clear()
