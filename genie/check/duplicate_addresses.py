"""Detection of duplicate addresses on the Ethernet, by ARP probes as in RFC 5227, which no cache learns from.

It also finds machines that are not part of the job. It needs IPv4, an Ethernet and CAP_NET_RAW; otherwise no probe is
sent.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import time
from collections.abc import Collection
from contextlib import suppress

from genie.live.paths.icmp import version_of

ARP = struct.Struct("!6s6sHHHBBH6s4s6s4s")  # Ethernet header and ARP of IPv4 (RFC 826)
ETHERTYPE, ETHERNET, IPV4, REQUEST, REPLY = 0x0806, 1, 0x0800, 1, 2
EVERYONE, NOBODY = b"\xff" * 6, bytes(6)
GET_ETHERNET = 0x8927  # linux/sockios.h
PROBES, WAIT_S = 2, 0.15


def duplicate_owner(interface: str, address: str) -> str | None:
    """Return the Ethernet address of another machine that claims an address; "" none does, None: not probed."""
    if version_of(address) != 4:
        return None
    wanted = socket.inet_aton(address)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as wire:
            wire.bind((interface, ETHERTYPE))
            return _answered(wire, wanted)
    except OSError:
        return None


def _answered(wire: socket.socket, wanted: bytes) -> str | None:
    own, ours = wire.getsockname()[4], own_ethernet()
    if len(own) != len(NOBODY) or own == NOBODY:
        return None  # not an Ethernet
    probe = ARP.pack(EVERYONE, own, ETHERTYPE, ETHERNET, IPV4, 6, 4, REQUEST, own, bytes(4), NOBODY, wanted)
    for _ in range(PROBES):
        wire.send(probe)
        deadline = time.monotonic() + WAIT_S
        while (left := deadline - time.monotonic()) > 0 and select.select([wire], [], [], left)[0]:
            if other := other_owner(wire.recv(128), ours, wanted):
                return other
    return ""


def own_ethernet() -> set[bytes]:
    """Return those of all interfaces: by Linux's default each of them answers for all addresses of its machine."""
    found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(any_socket, GET_ETHERNET, struct.pack("16s24x", name.encode()))
                found.add(answer[18:24])
    return found


def other_owner(frame: bytes, own: Collection[bytes], wanted: bytes) -> str:
    """Return the sender of another machine's ARP reply for an address, as text; "" for all other frames."""
    if len(frame) < ARP.size:
        return ""
    _, _, kind, hardware, protocol, _, _, operation, sender, address, _, _ = ARP.unpack_from(frame)
    if (kind, hardware, protocol, operation) != (ETHERTYPE, ETHERNET, IPV4, REPLY):
        return ""
    return sender.hex(":") if address == wanted and sender not in own else ""
