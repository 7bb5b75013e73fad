"""The progress of a simulation, and signals that stop it and keep the part that was played."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from genie.cli.exits import counted, signal_in_words
from genie.live.launched import ENDING_SIGNALS
from genie.progress import Display
from simtwin.play.watching import Simulator, share_done

TERMINAL_S, LOG_S = 0.5, 10.0  # between two lines
ROWS_AT_ONCE = 200_000  # are written in about a second
TWICE_S = 0.5  # timeout(1) sends its signal twice, to the command and to its group


class Progress:
    """The progress of a simulation: simulated time, events per second, time left.

    The share that is done counts the plan's packets, those of earlier iterations included. Retransmitted packets make
    it too large. Where a simulator knows no share, whole iterations count. The time left follows from the share alone.
    """

    def __init__(self) -> None:
        self._display = Display()
        self._began = self._last = time.monotonic()
        self._place = self._events = 0  # of the current iteration
        self._before = 0  # events of earlier iterations
        self._told = 0  # all events, at the last line
        self._what = ""  # is played
        self._simulator_began = self._began
        self._is_again = False  # the current iteration, in another simulator
        self._stops = False  # and has said so

    def __call__(self, simulator: Simulator, place: int, iterations: int) -> None:
        now = time.monotonic()
        if place != self._place or simulator.events < self._events:  # another simulator
            if place != self._place:
                self._is_again = False
            self._place, self._before, self._simulator_began = place, self._before + self._events, now
        self._events = simulator.events
        if now - self._last < (TERMINAL_S if self._display.is_terminal else LOG_S):
            return
        events = self._before + self._events
        rate = (events - self._told) / (now - self._last)
        self._last, self._told = now, events
        which = self._what
        which += f"iteration {place + 1} of {iterations}: " if iterations > 1 else ""
        which += "begun again: " if self._is_again else ""
        line = f"{which}{simulator.now_ps / 1e9:.3f} ms simulated, {_per_second(rate)}"
        share = share_done(simulator)
        done = (place + (share or 0)) / iterations if share is not None or place else None
        if done is not None:
            left = self._left(done, now - self._began, is_known=place > 0)
            line += left if self._display.is_terminal else f", {_percent(done)}{left}"
        self._display.update(line, done)

    def begin(self, what: str) -> None:
        """Begin anew, for another play of the workload. `what`: the start of its lines."""
        self._began = self._last = self._simulator_began = time.monotonic()
        self._place = self._events = self._before = self._told = 0
        self._what, self._is_again = what, False

    def begin_again(self) -> None:
        """Begin the current iteration again: what was played of it is lost."""
        now = time.monotonic()
        self._began, self._simulator_began, self._is_again = self._began + now - self._simulator_began, now, True

    def heed(self, stop: Callable[[], str | None]) -> str | None:
        """Return the reason that `stop` gives, and show it the first time: the rest may take seconds."""
        reason = stop()
        if reason is not None and not self._stops:
            self._stops = True
            self._display.update(f"{reason}: the simulation stops, and is written")
        return reason

    def writing(self, iterations: int, rows: int, out: Path) -> None:
        """Show that results are being written, where that takes a while."""
        if rows > ROWS_AT_ONCE:
            self._display.update(f"writing {counted(iterations, 'iteration')} to {out}")

    def _left(self, share: float, played_s: float, *, is_known: bool) -> str:
        enough = is_known or share > 0.001
        return f", about {_rough(played_s * (1 - share) / share)} left" if enough else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.end()


def _percent(share: float) -> str:
    return f"{'under 1' if 0 < share < 0.01 else int(share * 100)} % done"


def _per_second(rate: float) -> str:
    """Events per second; levels without packets have few events, each with much work."""
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
        self.number: int | None = None  # of the first signal
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
        """Return the reason to stop, if there is one. A simulation asks while it plays."""
        self._is_playing = True
        return None if self.number is None else signal_in_words(self.number)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._is_playing and self.number is None:
            self.number, self._told = number, time.monotonic()
        elif self.number is None or time.monotonic() - self._told > TWICE_S:
            self._before[number](number, frame)
