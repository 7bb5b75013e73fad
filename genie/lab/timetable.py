"""Faults that come and go while a lab runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

NEVER_S = float("inf")


@dataclass(frozen=True)
class Timetable:
    """Times at which a fault is there, in seconds from the start of a run.

    With a period, the fault is there in the first `share` of each period, from `from_s` until `until_s`.
    """

    from_s: float = 0.0
    until_s: float = NEVER_S
    period_s: float = 0.0  # 0: none
    share: float = 1.0

    def is_on(self, at_s: float) -> bool:
        """Whether the fault is there at a time."""
        if not self.from_s <= at_s < self.until_s:
            return False
        return not self.period_s or (at_s - self.from_s) % self.period_s < self.share * self.period_s

    def next_s(self, at_s: float) -> float:
        """Return the next time after this one at which the fault may come or go; NEVER_S without any."""
        times = [self.from_s, self.until_s]
        if self.period_s and at_s < self.until_s:
            began_s = self.from_s + max(at_s - self.from_s, 0.0) // self.period_s * self.period_s
            times += [began_s + self.share * self.period_s, began_s + self.period_s]
        return min((each for each in times if each > at_s), default=NEVER_S)


@contextmanager
def followed(tables: Sequence[Timetable], switch: Callable[[list[bool]], None]) -> Iterator[None]:
    """Context in which a thread calls `switch` whenever one of the timetables changes, with whether each is on.

    An error of `switch` is raised when the context ends.
    """
    ended, failed = threading.Event(), list[Exception]()
    began_s = time.monotonic()

    def states(at_s: float) -> list[bool]:
        return [each.is_on(at_s) for each in tables]

    def follow() -> None:
        was = states(0.0)
        while not ended.is_set():
            now_s = time.monotonic() - began_s
            is_on = states(now_s)
            if is_on != was:
                try:
                    switch(is_on)
                except Exception as error:
                    failed.append(error)
                    return
                was = is_on
            upcoming_s = min(each.next_s(now_s) for each in tables)
            ended.wait(min(upcoming_s - now_s, 3600.0))

    switch(states(0.0))
    thread = threading.Thread(target=follow, name="lab-timetable", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]
