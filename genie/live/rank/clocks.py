"""Clock offsets between ranks, from ping-pongs with rank 0 (as NTP's offset; the fastest exchange counts).

Ranks of one boot and one time namespace share a clock: their offset is exactly 0. Others fit offset = a + b·t through
the fastest exchanges before and after the run. Where other processes delay most answers, a rank asks more often.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from pathlib import Path

from genie.live.rendezvous.channel import CLOCK_TAG
from genie.live.rendezvous.meeting import Rendezvous

EXCHANGES_MIN = 32
EXCHANGES_MAX = 512  # of a rank, while other processes delay its answers
EXCHANGES_TOTAL = 4096  # of all ranks together: rank 0 answers one at a time
FASTEST = 9  # one gives the offset, and the others test it
SPREAD_MAX = 1.5  # longest round trip of the fastest, over the shortest

_ASK = b""
_END = b"end"


def clock_identity() -> tuple[str, str]:
    """Return this machine's boot id and time namespace, which together identify the monotonic clock of a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/time")
    return boot, str(namespace.stat().st_ino) if namespace.exists() else ""


@dataclass(frozen=True)
class Exchange:
    """One ping-pong: sent and received by this rank's clock, answered by rank 0's; all in ns."""

    sent_ns: int
    answered_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.received_ns - self.sent_ns

    @property
    def middle_ns(self) -> float:
        return (self.sent_ns + self.received_ns) / 2

    @property
    def offset_ns(self) -> float:
        """This rank's clock minus rank 0's, if both directions took equally long.

        The error is half the round trip at most.
        """
        return self.middle_ns - self.answered_ns


def exchange(meet: Rendezvous, remote: list[int]) -> list[Exchange]:
    """Exchange ping-pongs between rank 0 and each of the ranks `remote`, whose clocks differ from rank 0's.

    Return those of the calling rank: none on rank 0 and on ranks that share its clock. Raise RendezvousError.
    """
    exchanges: list[Exchange] = []
    if meet.rank == 0:
        asking = set(remote)
        while asking:
            caller, payload = meet.wait_for(CLOCK_TAG, asking, _do_nothing)
            if payload == _END:
                asking.remove(caller)
            else:
                meet.channel.send(caller, CLOCK_TAG, str(time.monotonic_ns()).encode())
    elif meet.rank in remote:
        limit = min(EXCHANGES_MAX, EXCHANGES_TOTAL // len(remote))
        while len(exchanges) < EXCHANGES_MIN or (len(exchanges) < limit and _are_unlike(exchanges)):
            sent = time.monotonic_ns()
            meet.channel.send(0, CLOCK_TAG, _ASK)
            _, payload = meet.wait_for(CLOCK_TAG, [0], _do_nothing)
            exchanges.append(Exchange(sent, int(payload), time.monotonic_ns()))
        meet.channel.send(0, CLOCK_TAG, _END)
    return exchanges


def _are_unlike(exchanges: list[Exchange]) -> bool:
    """Return whether the fastest exchanges took unlike times: then other processes have delayed some of them."""
    fastest = _fastest_of(exchanges)
    return fastest[-1].round_trip_ns > SPREAD_MAX * fastest[0].round_trip_ns


def _fastest_of(exchanges: list[Exchange]) -> list[Exchange]:
    return heapq.nsmallest(FASTEST, exchanges, key=lambda each: each.round_trip_ns)


def _do_nothing() -> None:
    """Do not sleep: while clocks are compared, a sleeping rank would answer late."""


@dataclass(frozen=True)
class ClockFit:
    """This rank's clock minus rank 0's = offset_ns + drift · (t − origin_ns), correct to within bound_ns."""

    offset_ns: float = 0.0
    drift: float = 0.0
    origin_ns: float = 0.0
    bound_ns: float = 0.0

    def at(self, time_ns: float) -> float:
        """Return the offset at a time of this rank's clock."""
        return self.offset_ns + self.drift * (time_ns - self.origin_ns)

    def at_reference(self, time_ns: float) -> float:
        """Return the offset at a time of rank 0's clock."""
        return (self.offset_ns + self.drift * (time_ns - self.origin_ns)) / (1 - self.drift)


SHARED_CLOCK = ClockFit()


def fit(before: list[Exchange], after: list[Exchange]) -> ClockFit:
    """Fit a line through the fastest exchange of each side; the bound is half its round trip plus the worst residual.

    Residuals are taken on the next fastest exchanges, which the line was not fitted to.
    """
    first, *others = _fastest_of(before)
    if not after:
        return ClockFit(first.offset_ns, 0.0, first.middle_ns, first.round_trip_ns / 2)
    last, *later = _fastest_of(after)
    span_ns = last.middle_ns - first.middle_ns
    drift = (last.offset_ns - first.offset_ns) / span_ns if span_ns > 0 else 0.0
    line = ClockFit(first.offset_ns, drift, first.middle_ns)
    residual = max((abs(e.offset_ns - line.at(e.middle_ns)) for e in others + later), default=0.0)
    bound = max(first.round_trip_ns, last.round_trip_ns) / 2 + residual
    return ClockFit(first.offset_ns, drift, first.middle_ns, bound)
