"""UDP datagrams from each host to each other: arrivals, their TOS, and ICMP answers.

The two directions are distinguished, because receivers report through the rendezvous. In a round each host has one
partner. Missing probes are sent again, twice, in several copies: here only paths without any arrival count, and
losses.py counts the rest.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from genie.bench.rounds import rounds_of
from genie.check.settings import (
    ECT0,
    ECT1,
    OTHER,
    ROCE,
    SMALL,
    Changed,
    CheckSettings,
    Lost,
    Pair,
    Probed,
    Refusal,
)
from genie.live.paths.icmp import ANY_SIZE, family_of, message_of, udp_socket, version_of
from genie.live.paths.mtu import MTUS, TRANSPORT_BYTES
from genie.live.paths.probe import SO_TIMESTAMPNS, ns_of
from genie.live.rendezvous.meeting import Rendezvous, decoded

IPV6_RECVTCLASS, IPV6_TCLASS = 66, 67  # linux/in6.h; the socket module does not name them
PROBE = struct.Struct("!8sIIII")  # mark, seed (32 bits), sending rank, what the probe tests, path
SENT = struct.Struct("!q")  # behind it, in probes of latency: the time of sending, ns
MARK = b"genieAID"
WAITS_S = (0.06, 0.15, 0.4)  # for a partner's probes, by try
AGAIN_COPIES = 3  # so that a path that loses a fifth of its packets is not taken for one that loses all
DRAIN_S = 0.02  # for late probes at the end of a try
RECEIVE_BYTES = 4 << 20
FIRST_TIMED = 1 << 24  # the number of the first round of latency probes; lower numbers test other things


class Prober:
    """Sockets of one host: two that receive, and one per path that sends."""

    def __init__(self, settings: CheckSettings, rank: int) -> None:
        """Open all sockets. Raise OSError."""
        self.settings, self.rank = settings, rank
        self._address = settings.addresses[rank]
        self._six = version_of(self._address) == 6
        self._seed = settings.seed & 0xFFFFFFFF
        self._rank_at = {address: rank for rank, address in reversed(list(enumerate(settings.addresses)))}
        self._sockets: list[socket.socket] = []
        try:
            # First, so that the kernel does not choose one of their ports below.
            self._senders = [self._sender(port) for port in settings.probe_ports]
            self._receivers = [self._receiver(port) for port in (settings.udp_port, 0)]
        except OSError:
            self.close()
            raise
        self.other_port: int = self._receivers[1].getsockname()[1]
        self.arrived: dict[tuple[int, int, int], int] = {}  # sender, what, path -> TOS
        self.refusals: set[Refusal] = set()
        self.took_ns: dict[tuple[int, int], list[int]] = {}  # sender, path -> latencies, by both hosts' clocks

    def close(self) -> None:
        """Close all sockets. Arrivals and refusals stay."""
        for each in self._sockets:
            each.close()

    def _receiver(self, port: int) -> socket.socket:
        made = socket.socket(family_of(self._address), socket.SOCK_DGRAM)
        self._sockets.append(made)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        if self._six:
            made.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
        else:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        made.bind((self._address, port))
        return made

    def _sender(self, port: int) -> socket.socket:
        made = udp_socket(self._address, port, ANY_SIZE, hears_errors=True)
        self._sockets.append(made)
        made.setblocking(False)
        return made

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, target: int, other_port: int, probes: Iterable[tuple[int, int]]) -> None:
        """Send probes (what, path) to a host; note errors of this host's kernel."""
        for what, path in probes:
            self._set_tos(path, tos_of(self.settings, what))
            size = PROBE.size if what in SMALL else what + TRANSPORT_BYTES
            port = other_port if what == OTHER else self.settings.udp_port
            self.send_one(target, port, what, path, size)

    def send_as(self, tos: int) -> None:
        """Set the TOS of all following datagrams."""
        for path in range(len(self._senders)):
            self._set_tos(path, tos)

    def send_one(self, target: int, port: int, what: int, path: int, size: int) -> None:
        """Send one datagram that carries its own description, and the time if it tests the latency."""
        data = PROBE.pack(MARK, self._seed, self.rank, what, path).ljust(size, b"\0")
        if what >= FIRST_TIMED:
            data = data[: PROBE.size] + SENT.pack(time.time_ns())
        deadline = time.monotonic() + 0.2
        while True:
            try:
                self._senders[path].sendto(data, (self.settings.addresses[target], port))
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return
                select.select([], [self._senders[path]], [], 0.02)
            except OSError as error:
                # An ICMP answer to an earlier datagram fails the next send, whose datagram is then not sent.
                if self.hear(path) == 0 or time.monotonic() > deadline:
                    self.refusals.add(Refusal(self.rank, target, path, "", error.errno or errno.EIO))
                    return

    def _set_tos(self, path: int, tos: int) -> None:
        if self._six:
            self._senders[path].setsockopt(socket.IPPROTO_IPV6, IPV6_TCLASS, tos)
        else:
            self._senders[path].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)

    def hear(self, path: int) -> int:
        """Read the ICMP answers to datagrams sent on a path; return their number."""
        heard = 0
        sender = self._senders[path]
        while True:
            try:
                _, more, _, destination = sender.recvmsg(64, 512, socket.MSG_ERRQUEUE)
            except OSError:
                break
            target = self._rank_at.get(destination[0], -1)
            for message in (message_of(*each) for each in more):
                if message is None or target < 0:
                    continue
                heard += 1
                kind, code = (message.kind, message.code) if message.is_icmp else (message.number, 0)
                by = message.by if message.is_icmp else ""
                self.refusals.add(Refusal(self.rank, target, path, by, kind, code, message.info))
        sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # clears the pending error
        return heard

    # -- receiving -------------------------------------------------------------------------------------------

    def receive(self, expected: set[tuple[int, int, int]], limit_s: float) -> set[tuple[int, int, int]]:
        """Receive until all `expected` (sender, what, path) have arrived; return those missing at the limit."""
        deadline = time.monotonic() + limit_s
        while missing := {each for each in expected if each not in self.arrived}:
            left = deadline - time.monotonic()
            ready = select.select(self._receivers, [], [], max(left, 0))[0]
            if not ready:
                return missing
            for receiver in ready:
                self._take(receiver)
        return set()

    def drain(self, limit_s: float) -> None:
        """Receive for a while."""
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            for receiver in select.select(self._receivers, [], [], left)[0]:
                self._take(receiver)

    def _take(self, receiver: socket.socket) -> None:
        with suppress(OSError):
            while True:
                data, more, _, _ = receiver.recvmsg(65536, 128)
                if len(data) < PROBE.size:
                    continue
                mark, seed, rank, what, path = PROBE.unpack_from(data)
                if mark != MARK or seed != self._seed or rank >= len(self.settings.addresses):
                    continue
                # Source address and port are not checked: the network may translate them.
                tos = next((int(value[0]) for _, kind, value in more if kind in (socket.IP_TOS, IPV6_TCLASS)), 0)
                self.arrived.setdefault((rank, what, path), tos)
                if what >= FIRST_TIMED and len(data) >= PROBE.size + SENT.size:
                    came_ns = next((ns_of(value) for _, kind, value in more if kind == SO_TIMESTAMPNS), 0)
                    took_ns = came_ns - SENT.unpack_from(data, PROBE.size)[0]
                    self.took_ns.setdefault((rank, path), []).append(took_ns)


def tos_of(settings: CheckSettings, what: int) -> int:
    """Return the TOS of a probe: the job's DSCP with each of the ECN codes, otherwise 0."""
    dscp = settings.traffic_class & 0xFC
    return {ECT0: dscp | 2, ECT1: dscp | 1}.get(what, 0)


def probe(
    meet: Rendezvous,
    prober: Prober | None,
    settings: CheckSettings,
    partners: Sequence[int | None],
    mtus: dict[int, int],
) -> tuple[Probed, dict[int, int]]:
    """Test all paths between stations; all ranks call it together. Return this rank's observations after all tries.

    Also return, by station to which a probe of this rank was lost, its other UDP port. `partners`: by round. `mtus`: by
    station, the largest path MTU that its interface carries.
    """
    ports: list[int] = meet.agree(prober.other_port if prober else 0)
    paths = range(settings.paths)
    # (sender, receiver) -> probes to be received there
    wanted = {
        (source, target): {(what, path) for what in (*SMALL, min(mtus[source], mtus[target])) if what for path in paths}
        for pair in ((meet.rank, partner) for partner in partners if partner is not None)
        for source, target in (pair, pair[::-1])
    }
    for wait_s in WAITS_S:
        copies = 1 if wait_s == WAITS_S[0] else AGAIN_COPIES
        if prober:
            for partner in partners:
                if partner is None:
                    continue
                probes = sorted(wanted.get((meet.rank, partner), ()), key=_by_path)
                prober.send(partner, ports[partner], probes * copies)
                prober.receive({(partner, *each) for each in wanted.get((partner, meet.rank), ())}, wait_s)
                meet.alive()
            for path in paths:
                prober.hear(path)
        meet.agree(None)  # all ranks have sent everything
        missing = []
        if prober:
            prober.drain(DRAIN_S)
            missing = [
                (source, what, path)
                for (source, target), probes in wanted.items()
                if target == meet.rank
                for what, path in sorted(probes)
                if (source, what, path) not in prober.arrived
            ]
        reports: list[list[tuple[int, int, int]]] = meet.agree(missing)
        lost = [(source, target, what, path) for target, each in enumerate(reports) for source, what, path in each]
        if not lost:
            break
        wanted = _again(lost, meet.rank, wait_s != WAITS_S[-1])
    if prober is None:
        return Probed(), {}
    lossy = {target: ports[target] for source, target, what, _ in lost if source == meet.rank and what == ROCE}
    probed = Probed(
        lost=sorted(Lost(source, target, path, what) for source, target, what, path in lost if target == meet.rank),
        changed=_changed(prober),
        refusals=sorted(prober.refusals),
    )
    return probed, lossy


def _again(
    lost: list[tuple[int, int, int, int]], rank: int, smaller: bool
) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Return the probes to send once more, with smaller sizes where a large one is lost."""
    wanted: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for source, target, what, path in lost:
        if rank in (source, target):
            sizes = [mtu for mtu in MTUS if mtu < what] if smaller and what not in SMALL else []
            wanted.setdefault((source, target), set()).update((each, path) for each in (what, *sizes))
    return wanted


def _by_path(probe: tuple[int, int]) -> tuple[int, int]:
    return probe[1], probe[0]


def _changed(prober: Prober) -> list[Changed]:
    found = []
    for (source, what, path), tos in sorted(prober.arrived.items()):
        if what in (ECT0, ECT1) and tos != (sent := tos_of(prober.settings, what)):
            found.append(Changed(source, prober.rank, path, sent, tos))
    return found


def partners_of(stations: Sequence[int], rank: int, apart: Collection[Pair] = ()) -> list[int | None]:
    """Return by round the partner of a station; None in a round in which it rests. `apart`: pairs left out."""
    found: list[int | None] = []
    for pairs in rounds_of(len(stations)):
        met = [stations[b if stations[a] == rank else a] for a, b in pairs if rank in (stations[a], stations[b])]
        found.append(met[0] if met and (rank, met[0]) not in apart else None)
    return found


def merged(payloads: Sequence[bytes]) -> Probed:
    """Return the observations of all ranks, merged from each rank's."""
    whole = Probed(lost=[], changed=[], refusals=[], traces=[], other_traces=[])
    for rank, payload in enumerate(payloads):
        part = decoded(rank, payload, Probed)
        whole.lost += part.lost
        whole.changed += part.changed
        whole.refusals += part.refusals
        whole.traces += part.traces
        whole.other_traces += part.other_traces
    return whole
