"""What a rank's own host says: its interfaces and addresses, its RDMA devices, what is turned off on them."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from genie.live.check.claims import claimed_by
from genie.live.check.settings import CheckSettings, Facts
from genie.live.clocks import clock_identity
from genie.live.path_mtu import version_of
from genie.live.transport import VERBS
from genie.live.verbs.gids import TYPE_OF_VERSION
from genie.live.verbs.ports import list_ports

GET_MTU, GET_FLAGS, IS_UP, IS_RUNNING = 0x8921, 0x8913, 0x1, 0x40  # linux/sockios.h, linux/if.h
_GET_ADDRESSES, _NEW_ADDRESS, _DONE, _DUMP = 22, 20, 3, 0x301  # linux/rtnetlink.h, linux/netlink.h
_ADDRESS, _LOCAL = 1, 2  # linux/if_addr.h


def facts_of(settings: CheckSettings, rank: int) -> Facts:
    """What this rank's host says of itself."""
    address = settings.addresses[rank]
    found = interfaces()
    having = [name for name, addresses in found.items() if address in addresses]
    if not having and ipaddress.ip_address(address).is_loopback:
        having = ["lo"]  # which has all of 127.0.0.0/8
    name = having[0] if having else ""
    mtu_bytes, is_up = state_of(name) if name else (0, False)
    return Facts(
        machine=f"{clock_identity()[0]} {os.stat('/proc/self/ns/net').st_ino}",
        addresses=found,
        interface=name,
        mtu_bytes=mtu_bytes,
        is_up=is_up,
        roce_port=port_problem(address, settings.udp_port) if name else "",
        claimed_by=claimed_by(name, address) if is_up and name != "lo" and version_of(address) == 4 else "",
        gid=gid_problem(settings, rank) if settings.transport_of(rank) == VERBS else "",
        switches_off=switched_off(name) if name else [],
    )


def interfaces() -> dict[str, list[str]]:
    """IP addresses by interface, from the kernel."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(5)
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHII", 20, _GET_ADDRESSES, _DUMP, 1, 0) + bytes(4))
        while True:
            answer = netlink.recv(1 << 17)
            at = 0
            while at + 16 <= len(answer):
                size, kind = struct.unpack_from("=IH", answer, at)
                if kind == _DONE or size < 16:
                    return found
                if kind == _NEW_ADDRESS:
                    index, text = _address_of(answer[at + 16 : at + size])
                    with suppress(OSError):
                        found.setdefault(socket.if_indextoname(index), []).append(text)
                at += -(-size // 4) * 4


def _address_of(body: bytes) -> tuple[int, str]:
    """Interface index and address of an ifaddrmsg."""
    family, index = body[0], struct.unpack_from("=I", body, 4)[0]
    texts, at = {}, 8
    while at + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, at)
        if size < 4:
            break
        if kind in (_ADDRESS, _LOCAL):
            texts[kind] = socket.inet_ntop(family, body[at + 4 : at + size])
        at += -(-size // 4) * 4
    return index, texts.get(_LOCAL) or texts.get(_ADDRESS, "")


def state_of(interface: str) -> tuple[int, bool]:
    """MTU in bytes, and whether it is up with a carrier. Raises OSError."""
    # Not from /sys, which shows another network namespace's to those who have entered one.
    request = struct.pack("16s24x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        mtu = struct.unpack_from("=i", fcntl.ioctl(any_socket, GET_MTU, request), 16)[0]
        flags = struct.unpack_from("=H", fcntl.ioctl(any_socket, GET_FLAGS, request), 16)[0]
    return int(mtu), flags & (IS_UP | IS_RUNNING) == IS_UP | IS_RUNNING


def port_problem(address: str, port: int) -> str:
    """Why a UDP port of an address cannot be had; "" when it can."""
    family = socket.AF_INET6 if version_of(address) == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            return "is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
    return ""


def gid_problem(settings: CheckSettings, rank: int) -> str:
    """Why no RDMA device has the GID of this rank's address; "" when one has, which is active."""
    address, kind = settings.addresses[rank], TYPE_OF_VERSION[settings.verbs.roce_version]
    ports = list_ports()
    if not ports:
        return "there is no RDMA device: load the driver, and see genie doctor"
    holders = [info for info in ports if info.has(address)]
    if not holders:
        there = sorted({f"{info.name} {entry.address}" for info in ports for entry in info.gids})
        return f"no RDMA device has a GID of {address}; there are {', '.join(there) or 'no GIDs'}"
    if not any(info.active for info in holders):
        return f"{holders[0].name} has the GID and is not active: bring its interface up"
    right = [entry for info in holders for entry in info.gids if str(entry.address) == address and entry.kind == kind]
    if not right:
        return f"{holders[0].name} has {address} and no entry of it as {kind}: see its gid_attrs/types"
    index = settings.verbs.gid_index
    if index >= 0 and index not in {entry.index for entry in right}:
        said = f"GID index {index} is not {address} as {kind}"
        return f"{said}: that is {right[0].index}: give gid_index={right[0].index}, or leave it out"
    return ""


def switched_off(interface: str, root: Path = Path("/sys/class/net")) -> list[str]:
    """Switches of a mlx5 interface's congestion control that are off: "roce_np priority 3"."""
    found = []
    for side in ("roce_np", "roce_rp"):
        for path in sorted((root / interface / "ecn" / side / "enable").glob("[0-9]")):
            with suppress(OSError):
                if path.read_text().strip() == "0":
                    found.append(f"{side} priority {path.name}")
    return found
