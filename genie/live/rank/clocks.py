"""Clock offsets between ranks, from ping-pongs with rank 0 (reference: NTP's offset; the fastest exchange counts).

Ranks of one boot and one time namespace share a clock: their offset is 0 and exact. Others fit offset = a + b·t
through the best exchanges before and after the run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from genie.live.rendezvous.channel import CLOCK_TAG
from genie.live.rendezvous.meeting import Rendezvous

EXCHANGES = 32


def clock_identity() -> tuple[str, str]:
    """This machine's boot id, and with it what tells whose monotonic clock a process reads (its time namespace)."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/time")
    return boot, str(namespace.stat().st_ino) if namespace.exists() else ""


@dataclass(frozen=True)
class Exchange:
    """One ping-pong: sent and received by our clock, answered by rank 0's; all ns."""

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
        """Our clock minus rank 0's, if both ways took equally long; wrong by half the round trip at most."""
        return self.middle_ns - self.answered_ns


def exchange(meet: Rendezvous, remote: list[int]) -> list[Exchange]:
    """Ping-pongs between rank 0 and each of the ranks `remote`, which have clocks of their own.

    Returns those of the calling rank: none on rank 0 and where the clock is rank 0's. Raises RendezvousError.
    """
    exchanges: list[Exchange] = []
    if meet.rank == 0:
        for _ in range(EXCHANGES * len(remote)):
            caller, _ = meet.wait_for(CLOCK_TAG, remote, _do_nothing)
            meet.channel.send(caller, CLOCK_TAG, str(time.monotonic_ns()).encode())
    elif meet.rank in remote:
        for _ in range(EXCHANGES):
            sent = time.monotonic_ns()
            meet.channel.send(0, CLOCK_TAG, b"")
            _, payload = meet.wait_for(CLOCK_TAG, [0], _do_nothing)
            exchanges.append(Exchange(sent, int(payload), time.monotonic_ns()))
    return exchanges


def _do_nothing() -> None:
    """While clocks are compared, a rank that slept would answer late."""


@dataclass(frozen=True)
class ClockFit:
    """Our clock minus rank 0's = offset_ns + drift · (t − origin_ns), right to within bound_ns."""

    offset_ns: float = 0.0
    drift: float = 0.0
    origin_ns: float = 0.0
    bound_ns: float = 0.0

    def at(self, time_ns: float) -> float:
        """Offset at a time of our clock."""
        return self.offset_ns + self.drift * (time_ns - self.origin_ns)

    def at_reference(self, time_ns: float) -> float:
        """Offset at a time of rank 0's clock."""
        return (self.offset_ns + self.drift * (time_ns - self.origin_ns)) / (1 - self.drift)


SHARED_CLOCK = ClockFit()


def fit(before: list[Exchange], after: list[Exchange]) -> ClockFit:
    """A line through the fastest exchange of each side; the bound is half its round trip plus the worst residual.

    Residuals are taken on the next fastest exchanges, which the line was not fitted to.
    """
    first = min(before, key=lambda e: e.round_trip_ns)
    if not after:
        return ClockFit(first.offset_ns, 0.0, first.middle_ns, first.round_trip_ns / 2)
    last = min(after, key=lambda e: e.round_trip_ns)
    span_ns = last.middle_ns - first.middle_ns
    drift = (last.offset_ns - first.offset_ns) / span_ns if span_ns > 0 else 0.0
    line = ClockFit(first.offset_ns, drift, first.middle_ns)
    held_out = [
        exchange
        for side, used in ((before, first), (after, last))
        for exchange in sorted(side, key=lambda e: e.round_trip_ns)[: max(2, len(side) // 4)]
        if exchange is not used
    ]
    residual = max((abs(e.offset_ns - line.at(e.middle_ns)) for e in held_out), default=0.0)
    bound = max(first.round_trip_ns, last.round_trip_ns) / 2 + residual
    return ClockFit(first.offset_ns, drift, first.middle_ns, bound)
