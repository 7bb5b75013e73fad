"""The host's side of `guest_warm.py`: starts in a guest that need no imports."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rxe.command import Command
from rxe.guest import TOOLS, Guest

PROGRAM = f"{TOOLS}/guest_warm.py"
_numbers = itertools.count()


class WarmPython:
    """Begins to import at once; `wait_ready` before use. It lives as long as its guest.

    Args:
        guest: where it runs.
        modules: what it imports.
        env: of it, and the least of what its starts must be given.
    """

    def __init__(self, guest: Guest, modules: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._guest = guest
        self._door = f"{TOOLS}/warm{next(_numbers)}"
        self._command = guest.start(["python3", "-P", PROGRAM, self._door, *modules], env=env)

    def wait_ready(self, limit_s: float) -> None:
        """Until all is imported.

        Raises:
            RigError: a module cannot be, or leaves a thread running, or it takes longer.
        """
        self._command.read_line(limit_s)

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, folder: str = "/") -> Command:
        """As `Guest.start`, of `python3 -P -m MODULE ARGS` in a fork of this Python."""
        return self._guest.start(argv, env=env, folder=folder, warm=self._door)
