"""The entry of a port's GID table to send from: chosen by rule, or the one that was given.

A RoCE port has an entry for each address of its network interface and each version of RoCE. IPv4 addresses are written
as `::ffff:a.b.c.d` (annex A17.4.5.2 of the InfiniBand specification).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

ROCE_V1, ROCE_V2, IB = "IB/RoCE v1", "RoCE v2", "IB"
TYPE_OF_VERSION = {1: ROCE_V1, 2: ROCE_V2}
AUTO = -1

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class GidEntry:
    """One entry of a port's table. `kind` as the kernel writes it: `IB/RoCE v1` or `RoCE v2`."""

    index: int
    gid: str  # an IPv6 address, in any notation
    kind: str

    @property
    def address(self) -> IpAddress:
        """The IP address of the entry."""
        return address_of(self.gid)


def address_of(gid: str) -> IpAddress:
    """Return the IP address of a GID: IPv4 where it is mapped. Raise ValueError."""
    address = ipaddress.IPv6Address(gid)
    return address.ipv4_mapped or address


def gid_of(address: str) -> str:
    """Return the GID of an IP address, as an IPv6 address in full hexadecimal groups, which is how pyverbs reads it."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv4Address):
        ip = ipaddress.IPv6Address((0xFFFF << 32) | int(ip))
    return ip.exploded


def choose_gid(
    table: Sequence[GidEntry], port: str, address: str = "", *, index: int = AUTO, roce_version: int = 2
) -> GidEntry:
    """Return the entry to use on a port: the one with the given index, or of `address`, or the best of its family.

    Without an entry for `address` itself, one of its family (IPv4 or IPv6; IPv4 without an address) is taken. The
    lowest index comes first, and link-local entries last. Raise ValueError that names the port and its table's entries.
    """
    entries = [entry for entry in table if int(ipaddress.IPv6Address(entry.gid)) != 0]
    if index != AUTO:
        found = next((entry for entry in entries if entry.index == index), None)
        if found is None:
            raise ValueError(f"{port}: GID index {index} is empty: {_listed(entries)}")
        return found
    kind = TYPE_OF_VERSION[roce_version]
    wanted = ipaddress.ip_address(address) if address else None
    right = [entry for entry in entries if entry.kind == kind]
    same = [entry for entry in right if entry.address == wanted]
    version = 4 if wanted is None else wanted.version
    family = [entry for entry in right if entry.address.version == version]
    chosen = min(same or family, key=lambda entry: (entry.address.is_link_local, entry.index), default=None)
    if chosen is None:
        raise ValueError(
            f"{port}: no RoCE v{roce_version} GID of an IPv{version} address: {_listed(entries)}; give the interface "
            "an address, or choose by NCCL_IB_GID_INDEX"
        )
    return chosen


def _listed(entries: Sequence[GidEntry]) -> str:
    if not entries:
        return "its GID table is empty (is its network interface up?)"
    return "it has " + ", ".join(f"{entry.index}: {entry.address} ({entry.kind})" for entry in entries)
