"""Traceroute with the flow's own five-tuple: each ICMP Time Exceeded names the next hop.

Probes have the flow's source and destination ports, and TTL 1, 2, and so on. The ICMP answers are read from the
sockets' error queues, which needs no privilege (ip(7), IP_RECVERR).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from genie.live.path_names import SILENT
from genie.live.paths.icmp import message_of, udp_socket, version_of

SO_TIMESTAMPNS = 35  # asm/socket.h
TIMESPEC = struct.Struct("@qq")
MARK = b"genieTTL"
PROBE = struct.Struct("!8sIHH")  # mark, index of the flow, TTL, trial
HOPS_MAX = 16
SILENT_MAX = 3  # consecutive silent hops after which a flow is given up
WAITS_S = (0.05, 0.1, 0.25)  # for the answers of a hop; flows without an answer are probed again
PER_BURST = 64  # probes; then pending answers are read, since hops limit their rate of answers
BURST_S = 0.002
TRAIN_TTL = 64
TRIAL_WAIT_S = 0.25
SEND_TRIES = 8

Flow = tuple[str, int]  # destination address, source port


@dataclass(frozen=True)
class Answer:
    """The answer to a probe. `ttl` and `trial` are -1 where a hop returns too little of the probe."""

    source_port: int
    destination: str
    hop: str  # address of the node that answered
    is_end: bool  # an answer other than Time Exceeded, such as Port Unreachable: the path ends here
    ttl: int
    trial: int
    time_ns: int  # kernel timestamp, real-time clock


def ns_of(timestamp: bytes) -> int:
    """Return the ns of a kernel timestamp (SO_TIMESTAMPNS)."""
    seconds, ns = TIMESPEC.unpack_from(timestamp)
    return int(seconds) * 10**9 + int(ns)


class PathProber:
    """Sockets of one address, one per source port."""

    def __init__(self, address: str, udp_port: int) -> None:
        self._address, self._udp_port = address, udp_port
        self._six = version_of(address) == 6
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.poll()

    def open(self, ports: Iterable[int]) -> set[int]:
        """Bind these source ports and release all others; return those that could be bound."""
        wanted = set(ports)
        for port in set(self._sockets) - wanted:
            self._drop(port)
        for port in sorted(wanted - set(self._sockets)):
            with suppress(OSError):
                self._sockets[port] = self._open(port)
                self._poll.register(self._sockets[port], 0)  # poll always reports errors
        return set(self._sockets)

    def _open(self, port: int) -> socket.socket:
        made = udp_socket(self._address, port, hears_errors=True)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setblocking(False)
        return made

    def _drop(self, port: int) -> None:
        gone = self._sockets.pop(port)
        self._poll.unregister(gone)
        gone.close()

    def close(self) -> None:
        """Release all ports."""
        self.open(())

    def send(self, flow: Flow, payload: bytes, ttl: int, tos: int = 0) -> bool:
        """Send a datagram of a flow; return whether it was sent. Each pending error of an earlier one fails one try.

        `tos`: over IPv4.
        """
        level, kind = (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT) if self._six else (socket.IPPROTO_IP, socket.IP_TTL)
        more = [(level, kind, struct.pack("i", ttl))]
        more += [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", tos))] if tos and not self._six else []
        for _ in range(SEND_TRIES):
            with suppress(OSError):
                self._sockets[flow[1]].sendmsg([payload], more, 0, (flow[0], self._udp_port))
                return True
        return False

    def hear(self, limit_s: float) -> list[Answer]:
        """Return the answers that are there, or arrive within the limit."""
        by_number = {its.fileno(): (port, its) for port, its in self._sockets.items()}
        found: list[Answer] = []
        for number, _ in self._poll.poll(max(0.0, limit_s) * 1000):
            port, its = by_number[number]
            while (answer := self._next(port, its)) is not None:
                found += [answer] if answer.hop else []
            its.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # clears the pending error for the next send
        return found

    def _next(self, port: int, its: socket.socket) -> Answer | None:
        """Return the next message of a socket's error queue; None without any. `hop` is "" unless a node sent it."""
        try:
            data, extra, _, destination = its.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            return None
        hop, is_end, time_ns = "", False, time.time_ns()
        for level, kind, value in extra:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                time_ns = ns_of(value)
            elif (message := message_of(level, kind, value)) is not None:
                hop, is_end = message.by, not message.is_time_exceeded
        ttl = trial = -1
        if len(data) >= PROBE.size and data.startswith(MARK):
            _, _, ttl, trial = PROBE.unpack_from(data)
        return Answer(port, str(destination[0]), hop, is_end, ttl, trial, time_ns)


def trace(prober: PathProber, flows: Sequence[Flow], limit_s: float) -> dict[Flow, list[str]]:
    """Return the addresses of each flow's hops without the destination; SILENT where none answered.

    All flows are probed for their first hop, then for their second, and so on. A flow whose source port is in use has
    none.
    """
    deadline = time.monotonic() + limit_s
    free = prober.open(port for _, port in flows)
    hops: dict[Flow, list[str]] = {flow: [] for flow in flows}
    going = {flow for flow in flows if flow[1] in free}
    for ttl in range(1, HOPS_MAX + 1):
        answered: dict[Flow, Answer] = {}
        for trial, wait_s in enumerate(WAITS_S):
            asked = [flow for flow in sorted(going) if flow not in answered]
            left_s = deadline - time.monotonic()
            if not asked or left_s <= 0:
                break
            _ask(prober, asked, ttl, trial, min(wait_s, left_s), answered)
        for flow in sorted(going):
            answer = answered.get(flow)
            hops[flow].append(SILENT if answer is None else answer.hop)
            is_end = answer is not None and (answer.is_end or answer.hop == flow[0])
            if is_end:
                hops[flow].pop()
            if is_end or hops[flow][-SILENT_MAX:] == [SILENT] * SILENT_MAX:
                going.remove(flow)
        if not going or time.monotonic() >= deadline:
            break
    for path in hops.values():
        while path and path[-1] == SILENT:
            path.pop()
    return hops


def _ask(
    prober: PathProber, flows: Sequence[Flow], ttl: int, trial: int, wait_s: float, answered: dict[Flow, Answer]
) -> None:
    """Send one probe for each flow, and collect answers until all have answered or the wait is over."""

    def note(answers: list[Answer]) -> None:
        for answer in answers:
            if answer.ttl in (ttl, -1):
                answered.setdefault((answer.destination, answer.source_port), answer)

    for at, flow in enumerate(flows):
        if at and at % PER_BURST == 0:
            note(prober.hear(BURST_S))
        prober.send(flow, PROBE.pack(MARK, at, ttl, trial), ttl)
    deadline = time.monotonic() + wait_s
    while any(flow not in answered for flow in flows) and time.monotonic() < deadline:
        note(prober.hear(deadline - time.monotonic()))


def train(prober: PathProber, flow: Flow, hops: int, *, count: int, size_bytes: int, trials: int) -> list[int]:
    """Return the times in ns until each hop answers a probe sent behind `count` datagrams that go all the way.

    Each is the minimum over the trials, -1 where none was answered. A link on which the train must queue makes it
    longer.
    """
    least = [-1] * hops
    if flow[1] not in prober.open([flow[1]]):
        return least
    for trial in range(trials):
        prober.hear(0)  # discard late answers
        began_ns = time.time_ns()
        for _ in range(count):
            prober.send(flow, bytes(size_bytes), TRAIN_TTL)
        for ttl in range(1, hops + 1):
            prober.send(flow, PROBE.pack(MARK, 0, ttl, trial), ttl)
        deadline, missing = time.monotonic() + TRIAL_WAIT_S, set(range(1, hops + 1))
        while missing and time.monotonic() < deadline:
            for answer in prober.hear(deadline - time.monotonic()):
                if answer.ttl in missing and answer.trial == trial:
                    missing.remove(answer.ttl)
                    took_ns = answer.time_ns - began_ns
                    at = answer.ttl - 1
                    least[at] = took_ns if least[at] < 0 else min(least[at], took_ns)
    return least
