"""A command in a guest, seen from the host."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any

from rxe.failure import RigError, TimeLimitError

SIGKILL = 9


def shortened(argv: Sequence[str]) -> str:
    """A command on one line, for messages."""
    line = " ".join(" ".join(argv).split())
    return line if len(line) <= 100 else line[:97] + "..."


class Command:
    """Started by `Guest.start`; its outputs collect here while it runs."""

    def __init__(self, number: int, argv: Sequence[str], where: str, say: Callable[[Mapping[str, Any]], None]) -> None:
        self.argv = list(argv)
        self._number = number
        self._where = where
        self._say = say
        self._changed = threading.Condition()
        self._text = {"out": bytearray(), "error": bytearray()}
        self._read = 0
        self._code: int | None = None
        self._problem = ""

    @property
    def code(self) -> int | None:
        """How it ended (minus the signal, when one ended it); None while it runs."""
        return self._code

    def write(self, text: str | bytes) -> None:
        """To its standard input."""
        data = text.encode() if isinstance(text, str) else text
        self._say({"do": "write", "id": self._number, "data": base64.b64encode(data).decode()})

    def close_input(self) -> None:
        """End its standard input, after what has been written."""
        self._say({"do": "close", "id": self._number})

    def kill(self, signal: int = SIGKILL) -> None:
        """Send a signal to it and to all that it started."""
        self._say({"do": "kill", "id": self._number, "signal": int(signal)})

    def read_line(self, timeout_s: float) -> str:
        """Its next line of standard output, without the line's end.

        Raises:
            RigError: it ended before.
            TimeLimitError: it said nothing for so long.
        """
        until = time.monotonic() + timeout_s
        out = self._text["out"]
        with self._changed:
            while (end := out.find(b"\n", self._read)) < 0:
                if self._code is not None or self._problem:
                    raise RigError(f"{self._name}: {self._problem or self._how_it_ended()}")
                self._await(until, timeout_s, "says no line")
            line = bytes(out[self._read : end]).decode(errors="replace")
            self._read = end + 1
            return line

    def take_output(self, timeout_s: float) -> bytes | None:
        """Return new standard output as soon as there is some; None once the command has ended."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while len(self._text["out"]) == self._read and self._code is None:
                self._await(until, timeout_s, "says nothing")
            data = bytes(self._text["out"][self._read :])
            self._read += len(data)
            return data or None

    def wait(self, timeout_s: float) -> CompletedProcess[str]:
        """Until it ends; all that it said to either output, read already or not.

        Raises:
            RigError: it could not be started, or the guest died.
            TimeLimitError: it takes longer; then it is killed.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            while self._code is None:
                try:
                    self._await(until, timeout_s, "does not end")
                except TimeLimitError:
                    self.kill()
                    raise
            out, error = (bytes(self._text[name]).decode(errors="replace") for name in ("out", "error"))
            return CompletedProcess(self.argv, self._code, out, error)

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take a message of the guest about this command."""
        with self._changed:
            if message["is"] == "end":
                self._code = int(message["code"])
            elif message["is"] == "absent":
                self._problem = f"cannot be started: {message['text']}"
            elif message["is"] == "lost":
                self._problem = str(message["text"])
            else:
                self._text[message["is"]] += base64.b64decode(message["data"])
            self._changed.notify_all()

    @property
    def _name(self) -> str:
        return f"{self._where}: {shortened(self.argv)}"

    def _await(self, until: float, limit_s: float, what: str) -> None:
        if self._problem:
            raise RigError(f"{self._name}: {self._problem}")
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeLimitError(f"{self._name}: {what} for {limit_s:g} s{self._last_words()}")
        self._changed.wait(left_s)

    def _how_it_ended(self) -> str:
        return f"ended with {self._code}{self._last_words()}"

    def _last_words(self) -> str:
        said = bytes(self._text["error"]).decode(errors="replace").strip().splitlines()
        return f": {said[-1]}" if said else ""
