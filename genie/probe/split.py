"""Links that no path between hosts distinguishes, told apart by probes whose TTL ends between them.

A probe with TTL k crosses the first k links of its path, and router k answers. The first router whose answers show the
fault comes behind the faulty link. Answers take another way back, which may have the fault too. So a router before all
candidates is asked first. If its answers show the fault, nothing is decided.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from genie.live.paths.icmp import version_of
from genie.live.paths.mtu import TRANSPORT_BYTES
from genie.live.paths.probe import MARK, PROBE, PathProber
from genie.probe.faults import Fault

LOSSES = 12  # expected where the link loses packets
LOST_MIN = 5
LOST_MAX = 0.3  # of all answers: more, and the router limits their rate
PACKETS_MAX = 12_000
BATCH, ANSWER_S = 16, 0.05
TRIALS = 24  # of a delay, an MTU and header bits
TIME_EXCEEDED = 11
IP_BYTES, ICMP_BYTES = 20, 8  # headers without options


@dataclass
class TtlProbes:
    """Probes of one flow of this host. `to`: its destination and source port. `tos`: where it tests header bits."""

    prober: PathProber
    own: str
    to: tuple[str, int]
    tos: int

    def first_faulty(self, fault: Fault, ttls: Sequence[int]) -> int:
        """Return the index of the first candidate link that shows a fault, -1 where that cannot be told.

        `ttls`: of the router before all candidates (0: there is none), then of the router behind each candidate but
        the last. If none of these shows the fault, the last candidate has it.
        """
        if self.to[1] not in self.prober.open([self.to[1]]):
            return -1
        shown = [False if ttl == 0 else self._shows(fault, ttl) for ttl in ttls]
        if shown[0] is not False or any(each is None for each in shown):
            return -1
        behind = [bool(each) for each in shown[1:]]
        return behind.index(True) if True in behind else len(behind)

    def _shows(self, fault: Fault, ttl: int) -> bool | None:
        """Whether probes that end at this router show the fault; None where that cannot be told."""
        if fault.kind == "loss":
            return self._loses(ttl, fault.size)
        if fault.kind == "delay":
            took_ns = self._least_ns(ttl)
            return None if took_ns is None else took_ns > fault.size / 2
        if fault.kind == "mtu":
            return None if not self._answers(ttl, 0) else not self._answers(ttl, int(fault.size))
        if fault.kind in ("dscp", "ecn"):
            came = self._quoted_tos(ttl)
            if came is None:
                return None
            return came >> 2 != self.tos >> 2 if fault.kind == "dscp" else came & 3 not in (self.tos & 3, 3)
        return None

    def _loses(self, ttl: int, share: float) -> bool | None:
        count = min(ceil(LOSSES / max(share, 1e-6)), PACKETS_MAX)
        sent: set[int] = set()
        seen: set[int] = set()
        for first in range(0, count, BATCH):
            batch = range(first, min(first + BATCH, count))
            trials = {trial for trial in batch if self.prober.send(self.to, PROBE.pack(MARK, 0, ttl, trial), ttl)}
            sent |= trials
            deadline = time.monotonic() + ANSWER_S
            while not seen.issuperset(trials) and (left := deadline - time.monotonic()) > 0:
                seen.update(answer.trial for answer in self.prober.hear(left) if answer.ttl == ttl)
            if first >= 4 * BATCH and len(seen) < (1 - LOST_MAX) * len(sent):
                return None
        seen.update(answer.trial for answer in self.prober.hear(ANSWER_S) if answer.ttl == ttl)
        return len(sent - seen) >= LOST_MIN

    def _least_ns(self, ttl: int) -> int | None:
        least: int | None = None
        for trial in range(TRIALS):
            self.prober.hear(0)  # discard late answers
            began_ns = time.time_ns()
            self.prober.send(self.to, PROBE.pack(MARK, 0, ttl, trial), ttl)
            for answer in self.prober.hear(ANSWER_S):
                if answer.ttl == ttl and answer.trial == trial:
                    took_ns = answer.time_ns - began_ns
                    least = took_ns if least is None else min(least, took_ns)
        return least

    def _answers(self, ttl: int, mtu_bytes: int) -> bool:
        """Whether a probe as long as a packet of this path MTU is answered. 0: a short probe."""
        for trial in range(TRIALS):
            self.prober.hear(0)
            probe = PROBE.pack(MARK, 0, ttl, trial)
            self.prober.send(self.to, probe.ljust(mtu_bytes + TRANSPORT_BYTES if mtu_bytes else 0, b"\0"), ttl)
            if any(answer.ttl in (ttl, -1) for answer in self.prober.hear(ANSWER_S)):
                return True
        return False

    def _quoted_tos(self, ttl: int) -> int | None:
        """Return the TOS with which a probe arrived at a router, from the header that its answer quotes.

        Reading ICMP takes a raw socket, which only root may open; None without one, or without an answer.
        """
        if version_of(self.own) != 4:
            return None
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as ears:
            ears.bind((self.own, 0))
            for trial in range(TRIALS):
                self.prober.send(self.to, PROBE.pack(MARK, 0, ttl, trial), ttl, self.tos)
                deadline = time.monotonic() + ANSWER_S
                while (left := deadline - time.monotonic()) > 0:
                    ears.settimeout(left)
                    try:
                        came = quoted_tos(ears.recv(2048), self.to)
                    except TimeoutError:
                        break
                    if came is not None:
                        return came
        return None


def quoted_tos(packet: bytes, to: tuple[str, int]) -> int | None:
    """Return the TOS of the datagram that an ICMP Time Exceeded quotes, if it is of this flow; else None.

    `packet`: with its IP header (RFC 792). `to`: destination and source port.
    """
    at = 4 * (packet[0] & 15) if packet else 0
    inner = packet[at + ICMP_BYTES :]
    if len(packet) <= at or packet[at] != TIME_EXCEEDED or len(inner) < IP_BYTES + 2:
        return None
    if socket.inet_ntoa(inner[16:20]) != to[0]:
        return None
    port = struct.unpack_from("!H", inner, 4 * (inner[0] & 15))[0] if len(inner) >= 4 * (inner[0] & 15) + 2 else -1
    return inner[1] if port == to[1] else None
