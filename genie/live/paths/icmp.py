"""Unfragmented datagrams, and the ICMP messages they cause, read from the error queues of sockets.

Error queues need no privilege (ip(7), IP_RECVERR).
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

# linux/in.h and linux/in6.h; the socket module does not name all of them.
_MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
_RECVERR = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
KNOWN_MTU, ANY_SIZE = 2, 3  # "don't fragment": refuse a datagram above the known path MTU, or send it anyway
EXTENDED_ERROR = struct.Struct("=IBBBBII")  # linux/errqueue.h: errno, origin, type, code, -, info, data; an address
ORIGIN_ICMP, ORIGIN_ICMP6 = 2, 3
TIME_EXCEEDED = ((ORIGIN_ICMP, 11), (ORIGIN_ICMP6, 3))  # (origin, type)


@dataclass(frozen=True)
class Message:
    """An entry of a socket's error queue, about one datagram."""

    number: int  # errno
    origin: int
    kind: int  # ICMP type
    code: int
    info: int  # the MTU that would fit, when the datagram was too long
    by: str  # address of the node that reports it; "": this kernel

    @property
    def is_icmp(self) -> bool:
        return self.origin in (ORIGIN_ICMP, ORIGIN_ICMP6)

    @property
    def is_time_exceeded(self) -> bool:
        """The datagram's TTL expired on the way."""
        return (self.origin, self.kind) in TIME_EXCEEDED


def version_of(address: str) -> int:
    """Return the IP version of an address: 4 or 6."""
    return ipaddress.ip_address(address).version


def family_of(address: str) -> socket.AddressFamily:
    """Return the address family of an IP address."""
    return socket.AF_INET6 if version_of(address) == 6 else socket.AF_INET


def udp_socket(address: str, port: int, mode: int = KNOWN_MTU, *, hears_errors: bool = False) -> socket.socket:
    """Return a socket bound to an address and a port (0: chosen by the kernel), with "don't fragment" set.

    `hears_errors`: it has an error queue; several such sockets may have one port, one after the other. Raise OSError.
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
    """Parse one piece of an error queue's ancillary data; None when it is of another kind."""
    if (level, kind) not in _RECVERR.values() or len(data) < EXTENDED_ERROR.size:
        return None
    number, origin, what, code, _, info, _ = EXTENDED_ERROR.unpack_from(data)
    return Message(number, origin, what, code, info, address_in(data[EXTENDED_ERROR.size :]))


def address_in(data: bytes) -> str:
    """Return the IP address of a sockaddr; "" when it has none."""
    family = struct.unpack_from("=H", data)[0] if len(data) >= 2 else 0
    if family == socket.AF_INET and len(data) >= 8:
        return str(ipaddress.ip_address(data[4:8]))
    if family == socket.AF_INET6 and len(data) >= 24:
        return str(ipaddress.ip_address(data[8:24]))
    return ""
