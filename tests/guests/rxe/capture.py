"""A packet capture at one port of the bridge: what that end of the network sent and received."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rxe.failure import GivenError, RigError
from rxe.machine import spawn
from rxe.network import Network

START_S = 10.0
SETTLE_S = 0.2  # frames on their way when it is told to stop
CATCH_UP_S = 10.0  # for what the kernel holds for a tcpdump that waits for a core: an end would lose it
# On demand in one line, at its end in three.
COUNTS = re.compile(
    r"(\d+) packets? captured[,\n] ?(\d+) packets? received by filter[,\n] ?(\d+) packets? dropped by kernel"
)


def check_path(path: Path) -> None:
    """Raise GivenError unless a capture can be written there."""
    if path.is_dir():
        raise GivenError(f"capture {path} is a folder: give a file's name")
    if not path.parent.is_dir():
        raise GivenError(f"no folder {path.parent} for the capture {path.name}: make it")


def stop_all(captures: Sequence[Capture]) -> None:
    """End these together, which is faster than one after another; the files are complete then.

    Raises:
        RigError: frames are missing in one. All have ended nonetheless.
    """
    if any(capture.running for capture in captures):
        time.sleep(SETTLE_S)
    for capture in captures:
        capture.catch_up()
    for capture in captures:
        capture.interrupt()
    problems = [problem for capture in captures if (problem := capture.conclude())]
    if problems:
        raise RigError("; ".join(problems))


class Capture:
    """Runs from its construction to `stop`, or through a `with` block.

    Frames that the port's own end sends are seen before loss on the bridge, and those it receives after: as at a NIC.

    Raises:
        GivenError: there is no such folder, or it is the name of one.
        RigError: it cannot be written, or does not start.
    """

    def __init__(self, network: Network, port: str, path: Path) -> None:
        check_path(path)
        self.path = path
        self._errors = path.with_suffix(path.suffix + ".log")
        self._caught_up: int | None = None  # frames that it had been given, and had written
        try:
            said = self._errors.open("wb")
        except OSError as error:
            raise RigError(f"capture at {port}: {error}") from None
        with said:
            argv = ["tcpdump", "-i", port, "-w", str(path), "-U", "--immediate-mode", "-B", "32768", "-Z", "root"]
            argv += ["-s", "9100", "udp", "port", "4791"]
            self._process = spawn(network.inside(*argv), stdout=subprocess.DEVNULL, stderr=said)
        until = time.monotonic() + START_S
        while "listening on" not in self._said():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RigError(f"capture at {port}: tcpdump does not start: {self._said().strip()[-200:]}")
            time.sleep(0.01)

    def stop(self) -> Path:
        """End it; the file is complete then.

        Raises:
            RigError: frames are missing in it.
        """
        stop_all([self])
        return self.path

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def catch_up(self) -> None:
        """Wait until it has written all that it was given so far."""
        until = time.monotonic() + CATCH_UP_S
        while self.running and time.monotonic() < until:
            asked = len(self._counts())
            self._process.send_signal(signal.SIGUSR1)
            while self.running and len(self._counts()) == asked and time.monotonic() < until:
                time.sleep(0.005)
            if (counts := self._counts()) and counts[-1][0] >= counts[-1][1]:
                self._caught_up = counts[-1][1]
                return
            time.sleep(0.02)

    def interrupt(self) -> None:
        """Tell it to end, if it has not."""
        if self.running:
            self._process.send_signal(signal.SIGINT)

    def conclude(self) -> str:
        """Wait for its end; what is wrong with it, the empty string when nothing is."""
        self._process.wait(120)
        counts = self._counts()
        captured, received, dropped = counts[-1] if counts else (-1, -1, -1)
        # Packets after the capture had caught up, such as a late acknowledgement, need not be in it.
        if dropped or captured < (received if self._caught_up is None else self._caught_up):
            said = self._said()[-200:]
            return f"capture {self.path.name} has {captured} of {received} frames, {dropped} dropped: {said}"
        self._errors.unlink(missing_ok=True)
        return ""

    def kill(self) -> None:
        """End it without a look at what it has."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _counts(self) -> list[tuple[int, int, int]]:
        """Each time that it said them: frames captured, received, dropped."""
        return [(int(found[1]), int(found[2]), int(found[3])) for found in COUNTS.finditer(self._said())]

    def _said(self) -> str:
        return self._errors.read_text(errors="replace")
