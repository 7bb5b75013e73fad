"""Network interfaces of this process's namespace, their addresses and statistics, from the kernel by netlink.

/sys/class/net is not used: it shows the namespace that /sys was mounted in, which may differ from the process's.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

# linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/if.h
RTM_GETLINK, RTM_GETADDR = 18, 22
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
IFLA_IFNAME, IFLA_STATS64 = 3, 23
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_LOOPBACK = 0x8
HEADER, LINK, ADDRESS, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBHiII"), struct.Struct("=BBBBI"), "=HH"
# struct rtnl_link_stats64, in order; newer kernels append more.
STATISTICS = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
    "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
    "tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler",
)  # fmt: skip
ANSWER_MAX_BYTES = 1 << 18
PATIENCE_S = 2.0


@dataclass
class Interface:
    """One network interface."""

    index: int
    name: str
    loopback: bool
    statistics: dict[str, int]  # by the names in /sys/class/net/NAME/statistics
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = field(default_factory=list)


def interfaces() -> list[Interface]:
    """Return all interfaces; none where the kernel does not answer."""
    try:
        found = {made.index: made for body in _dump(RTM_GETLINK) if (made := _interface(body))}
        for body in _dump(RTM_GETADDR):
            index = ADDRESS.unpack_from(body)[4]
            attributes = dict(_attributes(body[ADDRESS.size :]))
            raw = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
            if raw and index in found:
                found[index].addresses.append(ipaddress.ip_address(raw))
    except (OSError, ValueError, struct.error):
        return []
    return list(found.values())


def interface_of(address: str, among: list[Interface]) -> Interface | None:
    """Return the interface that has an address of this machine; None when none has."""
    wanted = ipaddress.ip_address(address)
    having = [each for each in among if wanted in each.addresses]
    if not having and wanted.is_loopback:  # every address of 127.0.0.0/8 is local without being listed
        having = [each for each in among if each.loopback]
    return having[0] if having else None


def _interface(body: bytes) -> Interface | None:
    _, _, _, index, flags, _ = LINK.unpack_from(body)
    attributes = dict(_attributes(body[LINK.size :]))
    if IFLA_IFNAME not in attributes:
        return None
    raw = attributes.get(IFLA_STATS64, b"")
    values = struct.unpack_from(f"={len(raw) // 8}Q", raw)
    name = attributes[IFLA_IFNAME].rstrip(b"\0").decode(errors="replace")
    return Interface(index, name, bool(flags & IFF_LOOPBACK), dict(zip(STATISTICS, values, strict=False)))


def _dump(kind: int) -> Iterator[bytes]:
    """Yield the bodies of all messages that answer a dump request of a kind. Raise OSError when the kernel refuses."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(PATIENCE_S)
        # The shortest body that both kinds accept: any address family.
        kernel.send(HEADER.pack(HEADER.size + LINK.size, kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(LINK.size))
        while True:
            answer = kernel.recv(ANSWER_MAX_BYTES)
            while answer:
                length, what, _, _, _ = HEADER.unpack_from(answer)
                if what == NLMSG_DONE:
                    return
                if what == NLMSG_ERROR or length < HEADER.size:
                    raise OSError("netlink refuses")
                yield answer[HEADER.size : length]
                answer = answer[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from(ATTRIBUTE, data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
