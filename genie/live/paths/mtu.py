"""Path MTU to the other ranks: from routes, and by sending datagrams.

A packet too long for the sender's route is refused and never sent. One too long for a later hop may vanish silently. So
discovery sends datagrams of each size with "don't fragment" set, and ranks agree on those that arrived.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress

from genie.errors import EXIT_ENVIRONMENT, EXIT_USAGE, RankError
from genie.live.paths.icmp import udp_socket, version_of
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import RunSettings

IP_MTU, IPV6_MTU = 14, 24  # linux/in.h and linux/in6.h; the socket module does not name them
# UDP payload beyond the packet's own: BTH, RETH, immediate data, ICRC (InfiniBand 1.4, chapter 9).
TRANSPORT_BYTES = 12 + 16 + 4 + 4
# The headers of the largest packet, by IP version.
HEADER_BYTES = {4: 20 + 8 + TRANSPORT_BYTES, 6: 40 + 8 + TRANSPORT_BYTES}
MTUS = (4096, 2048, 1024, 512, 256)
GIVE_MTU = "give mtu = {0} under [transport] of a --fabric file (--mtu {0} of a bench)"

PROBE = struct.Struct("!8sIII")  # mark, run's seed (32 bits), sending rank, path MTU
PROBE_MARK = b"genieMTU"
WAITS_S = (0.05, 0.1, 0.2, 0.4)  # for the datagrams of one size; missing ones are sent again


def route_mtu_bytes(own: str, peer: str, port: int) -> int:
    """Return the largest IP packet that the route between two addresses takes. Raise OSError without a route."""
    with udp_socket(own, 0) as probe:
        probe.connect((peer, port))  # sends nothing
        if version_of(own) == 6:
            return probe.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
        return probe.getsockopt(socket.IPPROTO_IP, IP_MTU)


def _where(addresses: list[str], rank: int, peer: int) -> str:
    return f"rank {rank} at {addresses[rank]} to rank {peer} at {addresses[peer]}"


def _peers(addresses: list[str], rank: int) -> Iterable[int]:
    """Yield one rank for each other address: ranks of one address have the same paths."""
    seen = set()
    for peer, address in enumerate(addresses):
        if peer != rank and address not in seen:
            seen.add(address)
            yield peer


def path_problem(addresses: list[str], rank: int, port: int, mtu_bytes: int) -> str:
    """Return why packets of this path MTU do not get from a rank to all others; "" when they do."""
    own = addresses[rank]
    headers = HEADER_BYTES[version_of(own)]
    for peer in _peers(addresses, rank):
        where = _where(addresses, rank, peer)
        try:
            route = route_mtu_bytes(own, addresses[peer], port)
        except OSError as error:
            return f"no route from {where}: {error.strerror}; see ip addr and ip route there"
        if route < mtu_bytes + headers:
            fits = next((mtu for mtu in MTUS if mtu + headers <= route), None)
            what = GIVE_MTU.format(fits) if fits else "give a network for 320 bytes and more"
            return (
                f"the route from {where} takes packets of {route} bytes, and mtu = {mtu_bytes} makes "
                f"{mtu_bytes + headers}: {what}, or raise the interface's MTU"
            )
    return ""


def _route_limit_bytes(addresses: list[str], rank: int, port: int) -> int:
    """Return the largest path MTU that all routes from a rank take; the smallest MTU if none fits."""
    own = addresses[rank]
    routes = [route_mtu_bytes(own, addresses[peer], port) for peer in _peers(addresses, rank)]
    room = min(routes, default=MTUS[0] + HEADER_BYTES[6]) - HEADER_BYTES[version_of(own)]
    return next((mtu for mtu in MTUS if mtu <= room), MTUS[-1])


class Prober:
    """Sends and receives one rank's datagrams. Ranks of one address are tried once, by the first of them."""

    def __init__(self, settings: RunSettings, rank: int) -> None:
        self._addresses, self._rank = settings.addresses, rank
        self._seed = settings.seed & 0xFFFFFFFF
        self._socket = udp_socket(self._addresses[rank], 0)
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.port: int = self._socket.getsockname()[1]
        self._arrived: set[tuple[int, int]] = set()  # sender, path MTU

    def send(self, mtu_bytes: int, ports: dict[int, int]) -> None:
        """Send a datagram as long as a packet of this path MTU to each of `ports`: rank -> UDP port."""
        head = PROBE.pack(PROBE_MARK, self._seed, self._rank, mtu_bytes)
        datagram = head.ljust(mtu_bytes + TRANSPORT_BYTES, b"\0")
        # Each rank starts with a different peer, so that receivers are not flooded in turn.
        for peer in sorted(ports, key=lambda peer: (peer - self._rank) % len(self._addresses)):
            with suppress(OSError):  # longer than the route, or refused: it does not arrive, which the receiver reports
                self._socket.sendto(datagram, (self._addresses[peer], ports[peer]))

    def missing(self, mtu_bytes: int, senders: set[int], limit_s: float) -> set[int]:
        """Return the senders whose datagram of this path MTU has not arrived within the limit."""
        deadline = time.monotonic() + limit_s
        while missing := {rank for rank in senders if (rank, mtu_bytes) not in self._arrived}:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return missing
            with suppress(OSError):
                data, source = self._socket.recvfrom(65536)
                self._note(data, source[0])
        return set()

    def _note(self, data: bytes, source: str) -> None:
        if len(data) < PROBE.size:
            return
        mark, seed, rank, mtu_bytes = PROBE.unpack_from(data)
        if mark != PROBE_MARK or seed != self._seed or rank >= len(self._addresses):
            return
        if self._addresses[rank] == source and len(data) == mtu_bytes + TRANSPORT_BYTES:
            self._arrived.add((rank, mtu_bytes))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def discover(meet: Rendezvous, settings: RunSettings, rank: int, mtu_max_bytes: int, *, over_ip: bool) -> int:
    """Return the largest path MTU that all ranks' devices support and all paths between them carry.

    All ranks call it together. `mtu_max_bytes`: of this rank's device; `over_ip`: this rank sends by IP. Raise
    RankError on all of them when a path carries nothing.
    """
    problem = path_problem(settings.addresses, rank, settings.udp_port, MTUS[-1]) if over_ip else ""
    prober = Prober(settings, rank) if over_ip and not problem else None
    if prober:  # sizes beyond the rank's own routes need not be tried
        mtu_max_bytes = min(mtu_max_bytes, _route_limit_bytes(settings.addresses, rank, settings.udp_port))
    try:
        everyone = meet.agree([prober.port if prober else 0, mtu_max_bytes, problem])
        problems = [its_problem for _, _, its_problem in everyone if its_problem]
        if problems:
            raise RankError(problems[0], EXIT_USAGE, agreed=True)
        largest = min(limit for _, limit, _ in everyone)
        ports = _tried(settings.addresses, {r: port for r, (port, _, _) in enumerate(everyone) if port})
        lost: list[tuple[int, int]] = []
        for mtu_bytes in (mtu for mtu in MTUS if mtu <= largest):
            lost = _lost(meet, prober if rank in ports else None, rank, mtu_bytes, ports)
            if not lost:
                return mtu_bytes
    finally:
        if prober:
            prober.close()
    source, target = lost[0]
    raise RankError(
        f"no datagram of {MTUS[-1] + TRANSPORT_BYTES} bytes comes from {_where(settings.addresses, source, target)}: "
        f"see ip route and the firewall there (UDP, all ports), or {GIVE_MTU.format('BYTES')}",
        EXIT_ENVIRONMENT,
        agreed=True,
    )


def _tried(addresses: list[str], ports: dict[int, int]) -> dict[int, int]:
    """Return the first rank of each address, and its port."""
    first: dict[str, int] = {}
    for rank in ports:
        first.setdefault(addresses[rank], rank)
    return {rank: ports[rank] for rank in first.values()}


def _lost(
    meet: Rendezvous, prober: Prober | None, rank: int, mtu_bytes: int, ports: dict[int, int]
) -> list[tuple[int, int]]:
    """Return the paths (sender, receiver) on which datagrams of this path MTU have not arrived after all tries."""
    others = {peer: port for peer, port in ports.items() if peer != rank}
    lost = [(source, target) for source in ports for target in ports if source != target]
    for wait_s in WAITS_S:
        missing: set[int] = set()
        if prober:
            prober.send(mtu_bytes, {target: others[target] for source, target in lost if source == rank})
            missing = prober.missing(mtu_bytes, set(others), wait_s)
        reports = meet.agree(sorted(missing))
        lost = [(source, target) for target, sources in enumerate(reports) for source in sources]
        if not lost:
            break
    return lost
