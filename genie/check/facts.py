"""Facts about a rank's own host: interfaces, addresses, RDMA devices, and disabled congestion control."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path

from genie.check.duplicate_addresses import duplicate_owner, own_ethernet
from genie.check.settings import CheckSettings, Facts
from genie.live.counters.devices import place
from genie.live.counters.netlink import interface_of, interfaces
from genie.live.paths.icmp import family_of
from genie.live.transport import VERBS
from genie.live.verbs.gids import TYPE_OF_VERSION
from genie.live.verbs.ports import list_ports

GET_MTU, GET_FLAGS, IS_UP, IS_RUNNING = 0x8921, 0x8913, 0x1, 0x40  # linux/sockios.h, linux/if.h


def facts_of(settings: CheckSettings, rank: int) -> Facts:
    """Return the facts about this rank's host. Raise OSError."""
    address = settings.addresses[rank]
    found = interfaces()
    if not found:  # loopback at least is always listed
        raise OSError(errno.EIO, "the kernel does not list its interfaces (netlink): see ip addr there")
    having = interface_of(address, found)
    name = having.name if having else ""
    mtu_bytes, is_up = state_of(name) if name else (0, False)
    return Facts(
        machine=place(),
        addresses={each.name: [str(own) for own in each.addresses] for each in found if each.addresses},
        interface=name,
        mtu_bytes=mtu_bytes,
        is_up=is_up,
        # One of the ranks that share an address tests the port: two would conflict there.
        roce_port=port_problem(address, settings.udp_port)
        if name and settings.addresses.index(address) == rank
        else "",
        duplicate_owner=duplicate_owner(name, address) if is_up and having and not having.loopback else "",
        gid=gid_problem(settings, rank) if settings.transport_of(rank) == VERBS else "",
        switches_off=switched_off(name) if name else [],
    )


def state_of(interface: str) -> tuple[int, bool]:
    """Return an interface's MTU in bytes, and whether it is up with a carrier. Raise OSError."""
    # /sys is not used: in a process that entered another network namespace it still shows the former one.
    request = struct.pack("16s24x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        mtu = struct.unpack_from("=i", fcntl.ioctl(any_socket, GET_MTU, request), 16)[0]
        flags = struct.unpack_from("=H", fcntl.ioctl(any_socket, GET_FLAGS, request), 16)[0]
    return int(mtu), flags & (IS_UP | IS_RUNNING) == IS_UP | IS_RUNNING


def port_problem(address: str, port: int) -> str:
    """Return why a UDP port of an address cannot be bound; "" when it can."""
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            return "is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
    return ""


def gid_problem(settings: CheckSettings, rank: int) -> str:
    """Return why no RDMA device has the GID of this rank's address; "" when an active one has it."""
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
    """Return the switches of a mlx5 interface's congestion control that are off: "roce_np priority 3"."""
    found = []
    with suppress(OSError, ValueError):
        # /sys shows the namespace in which it was mounted, where another interface may have the name.
        if bytes.fromhex((root / interface / "address").read_text().strip().replace(":", "")) not in own_ethernet():
            return []
        for side in ("roce_np", "roce_rp"):
            for path in sorted((root / interface / "ecn" / side / "enable").glob("[0-9]")):
                if path.read_text().strip() == "0":
                    found.append(f"{side} priority {path.name}")
    return found
