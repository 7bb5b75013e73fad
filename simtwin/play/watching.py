"""Who looks on while a simulator plays: how far it is, when it is to stop, what is sampled meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genie.config.units import Duration, format_duration
from simtwin.play.series import NEVER_PS, Series

EVENTS_PER_CALL = 200_000  # between two looks

# A simulator: start(), run(events) → whether anything is left, now_ps, events, and share_done where it knows. One that
# can stand still at a time has run(events, until_ps) → whether anything is left before that, `over` when nothing is
# left at all, `done`, and what series.Sampled says.
Simulator = Any


@dataclass(frozen=True)
class Stopped:
    """A simulation that ended before its end."""

    iteration: int
    at_ps: int
    why: str
    is_failure: bool = False  # it could not go on


@dataclass
class Watch:
    """What is asked, told and kept while a simulation plays.

    `progress` is called with (simulator, place of the iteration, how many there are) a few times a second or more
    often; `stop` is asked as often, and says why to stop, if so. `played` is called with (iterations, rows of the
    timeline) when nothing plays any more, before tables are made of it.
    """

    progress: Callable[[Simulator, int, int], None] | None = None
    stop: Callable[[], str | None] | None = None
    stop_after_ps: int | None = None  # simulated, of the first iteration that takes so long
    series: Series | None = None
    played: Callable[[int, int], None] | None = None

    def play(self, simulator: Simulator, iteration: int, place: int = 0, iterations: int = 1) -> Stopped | None:
        """Play until nothing is left, something fails, or somebody says stop; then all has come to that time.

        Sampling instants and stops part what is played without a change to it.
        """
        stands = hasattr(simulator, "sample")
        if not stands and (self.series is not None or self.stop_after_ps is not None):
            raise ValueError("this level has no packets to stand still: series and stop_after_ps are level packet's")
        series = None if self.series is None or self.series.is_full else self.series
        sampled_ps = 0
        next_ps = NEVER_PS if series is None else series.interval_ps
        limit_ps = self.stop_after_ps or NEVER_PS
        why, is_told = "", False

        def share() -> float | None:
            done = share_done(simulator)
            return None if done is None else (place + done) / iterations

        simulator.start()
        while True:
            if not is_told and self.stop is not None and (told := self.stop()):
                is_told, why = True, told
                if not stands:
                    return Stopped(iteration, simulator.now_ps, why)
                # A little further, until all have come to one time.
                limit_ps = min(limit_ps, max(_whole_ns(simulator.now_ps), sampled_ps))
            until_ps = min(next_ps, limit_ps)
            more = simulator.run(EVENTS_PER_CALL, *([] if until_ps == NEVER_PS else [until_ps]))
            if self.progress is not None:
                self.progress(simulator, place, iterations)
            is_over = not more and (until_ps == NEVER_PS or simulator.over)
            if not more and until_ps == limit_ps and simulator.done:
                limit_ps = NEVER_PS  # what is left are timers
            is_end = is_over or (not more and until_ps == limit_ps)
            if series is not None and not more and until_ps > sampled_ps:
                end_ps = _whole_ns(simulator.now_ps) if is_over else until_ps
                sampled_ps = end_ps if end_ps > sampled_ps else until_ps
                next_ps = series.sample(simulator, iteration, sampled_ps, share)
                if series.is_full:
                    series, next_ps = None, NEVER_PS
            if is_end:
                if series is not None:
                    series.take(simulator, iteration)
                if is_over:
                    return None
                time = format_duration(Duration(self.stop_after_ps or 0))
                return Stopped(iteration, limit_ps, why or f"told to stop after {time}")


def share_done(simulator: Simulator) -> float | None:
    """How much of its work a simulator has done, 0 to 1, where it says so."""
    share: float | None = getattr(simulator, "share_done", None)
    return share


def _whole_ns(time_ps: int) -> int:
    """Rounded up."""
    return -(-time_ps // 1000) * 1000
