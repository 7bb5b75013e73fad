"""A simulation under a person's eyes: how far it is, and a signal that stops it and keeps what it has."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from genie.cli.exits import counted, signal_in_words
from genie.live.parts import ENDING_SIGNALS
from simtwin.play.watching import Simulator, share_done

TERMINAL_S, LOG_S = 0.5, 10.0  # between two lines
ROWS_AT_ONCE = 200_000  # are written in about a second
TWICE_S = 0.5  # timeout(1) sends its signal twice, to the command and to its group


class Progress:
    """A line on standard error now and then, on a terminal in place: simulated time, events per second, what is left.

    The share that is done is that of the plan's packets, the iterations before included; packets that are sent again
    make it too large. Where a simulator knows no share, it is that of the iterations. The time left follows from the
    share alone.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self._place = self._events = 0  # of the iteration that plays
        self._before = 0  # events of those before it
        self._told = 0  # events of all, at the last line
        self._shown = False

    def __call__(self, simulator: Simulator, place: int, iterations: int) -> None:
        if place != self._place:
            self._place, self._before = place, self._before + self._events
        self._events = simulator.events
        now = time.monotonic()
        if now - self._last < (TERMINAL_S if self._terminal else LOG_S):
            return
        events = self._before + self._events
        rate = (events - self._told) / (now - self._last)
        self._last, self._told = now, events
        which = f"iteration {place + 1} of {iterations}: " if iterations > 1 else ""
        line = f"genie: {which}{simulator.now_ps / 1e9:.3f} ms simulated, {_per_second(rate)}"
        share = share_done(simulator)
        if share is not None or place:
            line += self._left((place + (share or 0)) / iterations, now - self._began, place > 0)
        self._print(line)

    def writing(self, iterations: int, rows: int, out: Path) -> None:
        """All is played; a line where it takes a while to write it."""
        if rows > ROWS_AT_ONCE:
            self._print(f"genie: writing {counted(iterations, 'iteration')} to {out}")

    def _print(self, line: str) -> None:
        self._shown = True
        print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def _left(self, share: float, played_s: float, is_known: bool) -> str:
        words = f", {'under 1' if 0 < share < 0.01 else int(share * 100)} % done"
        enough = is_known or share > 0.001
        return f"{words}, about {_rough(played_s * (1 - share) / share)} left" if enough else words

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal's line empty."""
        if self._terminal and self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _per_second(rate: float) -> str:
    """Levels without packets have few events, and much to do in each."""
    return f"{rate / 1e6:.2f} M events/s" if rate >= 5e4 else f"{rate:,.0f} events/s"


def _rough(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class StopSignals:
    """While a simulation plays, the first signal that would end the command asks the simulation to stop instead.

    A second one ends the command at once, as does one that comes before anything has been played. Signals that were
    ignored stay ignored.
    """

    def __init__(self) -> None:
        self.number: int | None = None  # of the first
        self._told = 0.0
        self._is_playing = False
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Self:
        for number in ENDING_SIGNALS:
            before = signal.getsignal(number)
            if callable(before):
                self._before[number] = before
                signal.signal(number, self._heed)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def __call__(self) -> str | None:
        """Why to stop, if so: asked while something plays."""
        self._is_playing = True
        return None if self.number is None else signal_in_words(self.number)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._is_playing and self.number is None:
            self.number, self._told = number, time.monotonic()
        elif self.number is None or time.monotonic() - self._told > TWICE_S:
            self._before[number](number, frame)
