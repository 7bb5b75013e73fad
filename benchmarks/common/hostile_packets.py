"""Hostile RoCE packets by name, made by hand, and the facts that an attacker on the path can learn."""

from __future__ import annotations

import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PORT = 4791
ETH_P_IP = 0x0800
PSN_COUNT = 1 << 24
WINDOW = 256  # packets in flight of a queue pair
IDENTIFICATION = 1  # of IP's header; 0 would let the kernel choose
WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM, SEND_ONLY, SEND_ONLY_IMM = 0x06, 0x0A, 0x0B, 0x04, 0x05
READ_REQUEST, READ_RESPONSE_ONLY, ACKNOWLEDGE, COMPARE_SWAP, FETCH_ADD, CNP = 0x0C, 0x10, 0x11, 0x13, 0x14, 0x81
ANSWERS = (READ_RESPONSE_ONLY, ACKNOWLEDGE, CNP)


@dataclass
class Link:
    """One direction of a queue pair: addresses and ports, and the last request seen."""

    source: str
    source_port: int
    target: str
    qpn: int
    psn: int = 0  # of the last request
    rkey: int = 0
    address: int = 0
    last: bytes = b""  # UDP payload of the last request


@dataclass
class Numbers:
    """Numbers in a packet: queue pair, PSN, and memory address and key."""

    qpn: int
    psn: int
    rkey: int = 0
    address: int = 0
    last: bytes = b""


Make = Callable[[Numbers], bytes]


def base_header(opcode: int, numbers: Numbers, pads: int = 0) -> bytes:
    return struct.pack("!BBHII", opcode, pads << 4, 0xFFFF, numbers.qpn, 1 << 31 | numbers.psn % PSN_COUNT)


def request(
    opcode: int, payload: bytes = b"", *, immediate: bool = False, atomic: bool = False, size_bytes: int = -1
) -> Make:
    """A function that makes requests of this kind, given their numbers."""

    def make(numbers: Numbers) -> bytes:
        header = base_header(opcode, numbers, -len(payload) % 4)
        if opcode in (WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM, READ_REQUEST):
            length = len(payload) if size_bytes < 0 else size_bytes
            header += struct.pack("!QII", numbers.address, numbers.rkey, length)
        if atomic:
            header += struct.pack("!QIQQ", numbers.address, numbers.rkey, 1, 2)
        return header + bytes(4) * immediate + payload + bytes(-len(payload) % 4)

    return make


def answer(syndrome: int, opcode: int = ACKNOWLEDGE, payload: bytes = b"") -> Make:
    """A function that makes answers with this syndrome."""

    def make(numbers: Numbers) -> bytes:
        return base_header(opcode, numbers) + struct.pack("!I", syndrome << 24 | 1) + payload

    return make


def notification(numbers: Numbers) -> bytes:
    return base_header(CNP, Numbers(numbers.qpn, 0)) + bytes(16)


def replay(numbers: Numbers) -> bytes:
    """The last request seen, repeated to the given queue pair."""
    heard = numbers.last[:-4]
    if not heard:
        return request(WRITE_ONLY, bytes(64))(numbers)
    psn = (numbers.psn % PSN_COUNT).to_bytes(3, "big")
    return heard[:5] + numbers.qpn.to_bytes(3, "big") + heard[8:9] + psn + heard[12:]


@dataclass(frozen=True)
class Kind:
    """A hostile packet. `spoil`: change of the finished datagram, ICRC included."""

    name: str
    make: Make
    counters: tuple[str, ...]  # counters that may count it when its PSN is not the connection's
    is_answer: bool = False
    spoil: Callable[[bytes], bytes] = field(default=lambda datagram: datagram)


NAKS = ("forged_naks",)
AHEAD = ("forged_requests", "duplicates")
KINDS = (
    Kind("ACK", answer(0x1F), ("forged_acks",), True),
    Kind("NAK sequence", answer(0x60), NAKS, True),
    Kind("NAK invalid request", answer(0x61), NAKS, True),
    Kind("NAK remote access", answer(0x62), NAKS, True),
    Kind("NAK remote operation", answer(0x63), NAKS, True),
    Kind("NAK reserved", answer(0x65), NAKS, True),
    Kind("RNR NAK", answer(0x20), NAKS, True),
    Kind("CNP", notification, ("forged_cnps",), True),
    Kind("READ", request(READ_REQUEST, size_bytes=4096), ("reads_dropped",)),
    Kind("READ of nothing", request(READ_REQUEST, size_bytes=0), ("reads_dropped",)),
    Kind("READ's data", answer(0x1F, READ_RESPONSE_ONLY, bytes(64)), ("forged_acks",), True),
    Kind("WRITE", request(WRITE_ONLY, b"\xee" * 64), AHEAD),
    Kind("WRITE, longer than it says", request(WRITE_ONLY, b"\xee" * 64, size_bytes=32), AHEAD),
    Kind("WRITE, first of many", request(WRITE_FIRST, b"\xee" * 64, size_bytes=1 << 20), AHEAD),
    Kind("WRITE_WITH_IMM", request(WRITE_ONLY_IMM, b"\xee" * 64, immediate=True), AHEAD),
    Kind("SEND", request(SEND_ONLY, b"\xee" * 64), AHEAD),
    Kind("SEND_WITH_IMM", request(SEND_ONLY_IMM, b"\xee" * 64, immediate=True), AHEAD),
    Kind("FETCH_ADD", request(FETCH_ADD, atomic=True), AHEAD),
    Kind("COMPARE_SWAP", request(COMPARE_SWAP, atomic=True), AHEAD),
    Kind("an opcode that is not there", request(0x1E, bytes(64)), ("malformed",)),
    Kind("a duplicate", replay, AHEAD),
    Kind("truncated", request(WRITE_ONLY, bytes(64)), ("malformed", "bad_icrc"), spoil=lambda datagram: datagram[:20]),
    Kind("bad ICRC", request(WRITE_ONLY, b"\xee" * 64), ("bad_icrc",), spoil=lambda d: d[:-1] + bytes([d[-1] ^ 0x40])),
)


def icrc_of(covered: bytes) -> bytes:
    """ICRC of an IPv4 packet without options up to its ICRC (annex A17.3.3); fields that routers change count
    as ones.
    """
    masked = bytearray(covered)
    masked[1] = masked[8] = masked[32] = 0xFF  # type of service, time to live; BTH's FECN and BECN
    masked[10:12] = masked[26:28] = b"\xff\xff"  # checksums
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


def _headers(source: str, source_port: int, target: str, size_bytes: int) -> bytes:
    """Headers of IPv4 and UDP for a payload of this size."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + size_bytes, IDENTIFICATION, 0x4000, 64, socket.IPPROTO_UDP, 0)
    return ip + ends + struct.pack("!HHHH", source_port, PORT, 8 + size_bytes, 0)


class Forger:
    """Sends from any address and port. Needs CAP_NET_RAW."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def send(self, kind: Kind, numbers: Numbers, source: str, source_port: int, target: str) -> None:
        body = kind.make(numbers)
        meant = _headers(source, source_port, target, len(body) + 4)
        datagram = kind.spoil(body + icrc_of(meant + body))
        self._socket.sendto(_headers(source, source_port, target, len(datagram)) + datagram, (target, 0))

    def close(self) -> None:
        self._socket.close()


class Listener:
    """Receives all packets of some addresses on loopback, as an attacker on the path does. Needs CAP_NET_RAW."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = {socket.inet_aton(address) for address in addresses}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind(("lo", ETH_P_IP))
        self._socket.setblocking(False)
        self.links: dict[tuple[str, str], Link] = {}  # by source and target

    def listen(self, most: int = 2000) -> None:
        """Take the packets that have arrived."""
        for packet in self._packets(most):
            source, target = socket.inet_ntoa(packet[26:30]), socket.inet_ntoa(packet[30:34])
            port, _, _, _ = struct.unpack_from("!HHHH", packet, 34)
            body = packet[42:]
            opcode, qpn, psn = body[0], int.from_bytes(body[5:8], "big"), int.from_bytes(body[9:12], "big")
            link = self.links.setdefault((source, target), Link(source, port, target, qpn))
            if opcode in ANSWERS:
                continue
            link.psn, link.last = psn, body
            if opcode in (WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM):
                link.address, link.rkey = struct.unpack_from("!QI", body, 12)

    def _packets(self, most: int) -> Iterator[bytes]:
        for _ in range(most):
            try:
                packet = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            own = packet[26:30] in self._addresses and packet[30:34] in self._addresses
            # The identification marks packets of its own.
            if own and packet[23] == 17 and packet[36:38] == PORT.to_bytes(2, "big") and packet[18:20] == bytes(2):
                yield packet

    def close(self) -> None:
        self._socket.close()


def old_psn(sender: int, receiver: int) -> int:
    """A first PSN from a seed that is known to all."""
    return random.Random(f"1/{sender}/{receiver}/psn").getrandbits(24)


def old_key(rank: int) -> int:
    """An rkey from a seed that is known to all."""
    return random.Random(f"1/{rank}/rkey").getrandbits(32)
