"""Datagrams that are not fragmented, and what comes back for them: ICMP messages in sockets' error queues.

Queues of errors need no privilege (ip(7), IP_RECVERR).
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

# linux/in.h and linux/in6.h; the socket module does not name all of them.
_MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
_RECVERR = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
KNOWN_MTU, ANY_SIZE = 2, 3  # "don't fragment": refuse what the kernel knows to be too long, or send it all the same
EXTENDED_ERROR = struct.Struct("=IBBBBII")  # linux/errqueue.h: errno, origin, type, code, -, info, data; an address
ORIGIN_ICMP, ORIGIN_ICMP6 = 2, 3
TIME_EXCEEDED = ((ORIGIN_ICMP, 11), (ORIGIN_ICMP6, 3))  # (origin, type)


@dataclass(frozen=True)
class Message:
    """What an error queue says of a datagram."""

    number: int  # errno
    origin: int
    kind: int  # of ICMP
    code: int
    info: int  # the MTU that fits, of a datagram that is too long
    by: str  # address of who says so; "" the own kernel

    @property
    def is_icmp(self) -> bool:
        return self.origin in (ORIGIN_ICMP, ORIGIN_ICMP6)

    @property
    def is_time_exceeded(self) -> bool:
        """It died on the way, of its TTL."""
        return (self.origin, self.kind) in TIME_EXCEEDED


def version_of(address: str) -> int:
    """4 or 6."""
    return ipaddress.ip_address(address).version


def family_of(address: str) -> socket.AddressFamily:
    """Of the sockets that have an address."""
    return socket.AF_INET6 if version_of(address) == 6 else socket.AF_INET


def udp_socket(address: str, port: int, mode: int = KNOWN_MTU, *, hears_errors: bool = False) -> socket.socket:
    """Bound to an address and a port (0: one that the kernel chooses), with "don't fragment" set. Raises OSError.

    `hears_errors`: it has a queue of errors; several such sockets may have one port, one after the other.
    """
    version = version_of(address)
    made = socket.socket(family_of(address), socket.SOCK_DGRAM)
    try:
        made.setsockopt(*_MTU_DISCOVER[version], mode)
        if hears_errors:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(*_RECVERR[version], 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def message_of(level: int, kind: int, data: bytes) -> Message | None:
    """What one piece of ancillary data of an error queue says; None when it is something else."""
    if (level, kind) not in _RECVERR.values() or len(data) < EXTENDED_ERROR.size:
        return None
    number, origin, what, code, _, info, _ = EXTENDED_ERROR.unpack_from(data)
    return Message(number, origin, what, code, info, address_in(data[EXTENDED_ERROR.size :]))


def address_in(data: bytes) -> str:
    """The IP address of a sockaddr; "" when it has none."""
    family = struct.unpack_from("=H", data)[0] if len(data) >= 2 else 0
    if family == socket.AF_INET and len(data) >= 8:
        return str(ipaddress.ip_address(data[4:8]))
    if family == socket.AF_INET6 and len(data) >= 24:
        return str(ipaddress.ip_address(data[8:24]))
    return ""
