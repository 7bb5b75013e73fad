"""Progress, stops and sampling of a simulation in progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genie.config.units import Duration, format_duration
from simtwin.play.series import NEVER_PS, Series

EVENTS_PER_CALL = 200_000  # between two calls of the watch, at the most
EVENTS_LEAST = 1_000  # with several threads
SLOW_S = 1.0  # of a call: the next has fewer events, so that a stop is heard soon

# A simulator has start(), run(events) → whether anything is left, now_ps, events, and share_done where it is known. A
# simulator that can pause at a time has run(events, until_ps) → whether anything is left before that time. It also has
# `over` (nothing is left at all), `done`, and the methods of series.Sampled.
Simulator = Any


@dataclass(frozen=True)
class Stopped:
    """A simulation that stopped before its end."""

    iteration: int
    at_ps: int
    why: str
    is_failure: bool = False  # it could not continue


@dataclass
class Watch:
    """Callbacks, limits and samples of a simulation in progress.

    `progress` is called with (simulator, place of the iteration, number of iterations) a few times a second or more
    often. `stop` is called as often; it returns why to stop, or None. `played` is called with (iterations, rows of the
    timeline) at the end, before tables are made. `begins` is called with its name before each further play, of the band
    or of all packets. `begins_again` is called before an iteration is played from its beginning again.
    """

    progress: Callable[[Simulator, int, int], None] | None = None
    stop: Callable[[], str | None] | None = None
    stop_after_ps: int | None = None  # simulated time, of the first iteration that reaches it
    series: Series | None = None
    played: Callable[[int, int], None] | None = None
    begins: Callable[[str], None] | None = None
    begins_again: Callable[[], None] | None = None
    verifies_skips: bool = False  # play all packets too, and compare
    skip_memory_bytes: int = 1 << 30  # of episodes and checkpoints that are used again
    skip_error: float = 0.0  # of a flow's mean rate that an estimate may have, as a share; 0: nothing is estimated

    @property
    def no_episodes(self) -> str:
        """The reason why nothing may be played apart; "" where it may."""
        if self.skip_error:
            return "an estimate needs all packets in one simulator"
        if self.series is not None or self.stop_after_ps is not None:
            return "samples, and a stop at a time, need all packets in one simulator"
        return ""

    def play(
        self,
        simulator: Simulator,
        iteration: int,
        place: int = 0,
        iterations: int = 1,
        run: Callable[..., bool] | None = None,
    ) -> Stopped | None:
        """Play until nothing is left, something fails, or `stop` gives a reason; then all threads reach that time.

        Sampling instants and stops split the run without changing its result. `run` takes the place of the simulator's
        own.
        """
        stands = hasattr(simulator, "sample")
        if not stands and (self.series is not None or self.stop_after_ps is not None):
            raise ValueError("this level has no packets: use series and stop_after_ps at level packet")
        series = None if self.series is None or self.series.is_full else self.series
        sampled_ps = 0
        next_ps = NEVER_PS if series is None else series.interval_ps
        limit_ps = self.stop_after_ps or NEVER_PS
        why, is_told = "", False
        # On a busy machine threads wait for each other: how long a call takes is found from few events on. One thread
        # has the same calls in each run, so that the same is skipped.
        has_threads = getattr(simulator, "threads", 1) > 1
        events = EVENTS_LEAST if has_threads else EVENTS_PER_CALL

        def share() -> float | None:
            done = share_done(simulator)
            return None if done is None else (place + done) / iterations

        simulator.start()
        while True:
            if not is_told and self.stop is not None and (told := self.stop()):
                is_told, why = True, told
                if not stands:
                    return Stopped(iteration, simulator.now_ps, why)
                # Go on until all threads have reached one time.
                limit_ps = min(limit_ps, max(whole_ns(simulator.now_ps), sampled_ps))
            until_ps = min(next_ps, limit_ps)
            began = time.monotonic()
            more = (run or simulator.run)(events, *([] if until_ps == NEVER_PS else [until_ps]))
            if has_threads:
                events = next_events(events, time.monotonic() - began)
            if self.progress is not None:
                self.progress(simulator, place, iterations)
            is_over = not more and (until_ps == NEVER_PS or simulator.over)
            if not more and until_ps == limit_ps and simulator.done:
                limit_ps = NEVER_PS  # only timers are left
            is_end = is_over or (not more and until_ps == limit_ps)
            if series is not None and not more and until_ps > sampled_ps:
                end_ps = whole_ns(simulator.now_ps) if is_over else until_ps
                sampled_ps = end_ps if end_ps > sampled_ps else until_ps
                next_ps = series.sample(simulator, iteration, sampled_ps, share)
                if series.is_full:
                    series, next_ps = None, NEVER_PS
            if is_end:
                if series is not None:
                    series.take(simulator, iteration)
                if is_over:
                    return None
                after = format_duration(Duration(self.stop_after_ps or 0))
                return Stopped(iteration, limit_ps, why or f"told to stop after {after}")


def next_events(events: int, took_s: float) -> int:
    """Return the events of the next call, after one of so many. Threads wait long for each other on a busy machine."""
    if took_s > SLOW_S:
        return max(EVENTS_LEAST, events // 4)
    return min(EVENTS_PER_CALL, 2 * events) if took_s < SLOW_S / 8 else events


def share_done(simulator: Simulator) -> float | None:
    """Return the share of the work that a simulator has done, 0 to 1; None where it is not known."""
    share: float | None = getattr(simulator, "share_done", None)
    return share


def whole_ns(time_ps: int) -> int:
    """Return a time rounded up to whole ns, in ps."""
    return -(-time_ps // 1000) * 1000
