"""The command line of the current command, and the amount of its notes on standard error.

--quiet drops notes, and --verbose adds details.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class _Volume:
    is_quiet: bool = False
    is_verbose: bool = False


_now = _Volume()
_command = ""
_began = time.monotonic()


def set_command(arguments: Sequence[str]) -> None:
    """Keep the words of this command. `arguments`: after the program's name."""
    global _command, _began
    _began = time.monotonic()
    _command = f"cd {shlex.quote(os.getcwd())} && {shlex.join(['genie', *arguments])}" if arguments else ""


def command() -> str:
    """Return the shell command that repeats this one; "" for a script."""
    return _command


def elapsed_s() -> float:
    """Return the seconds since this command, or the script, began."""
    return time.monotonic() - _began


def is_quiet() -> bool:
    """Whether only results and errors are printed."""
    return _now.is_quiet


def is_verbose() -> bool:
    """Whether details, such as the line that starts the ranks, are printed too."""
    return _now.is_verbose


def chosen(*, quiet: bool, verbose: bool) -> Callable[[], None]:
    """Choose the volume, in addition to an earlier choice; call the result to restore the earlier choice."""
    before = _now.is_quiet, _now.is_verbose
    _now.is_quiet |= quiet
    _now.is_verbose |= verbose

    def restore() -> None:
        _now.is_quiet, _now.is_verbose = before

    return restore


def note(text: str) -> None:
    """Print a note."""
    if not _now.is_quiet:
        print(f"genie: {text}", file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """Print a detail, with --verbose only."""
    if _now.is_verbose:
        print(f"genie: {text}", file=sys.stderr, flush=True)
