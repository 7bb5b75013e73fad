"""Loopback addresses for a run without a hosts file: a block that no other run is using."""

from __future__ import annotations

import ipaddress
import socket

from genie.config.hosts import Hosts, loopback_hosts

BLOCKS = 200  # blocks that are tried, of at least 256 addresses each

# Blocks taken by this process. Each is held by an abstract socket name, which the kernel frees when the process ends.
# Ranks bind their ports only later, and another run may search meanwhile.
_taken: dict[tuple[str, int], socket.socket] = {}


def free_loopback_hosts(ranks: int, udp_port: int) -> Hosts:
    """Return the first block of loopback addresses, one a rank, with the port free; the first block if none is."""
    step = 256 * (1 + ranks // 256)
    for block in range(BLOCKS):
        base = str(ipaddress.IPv4Address("127.0.1.1") + block * step)
        if _take(base, udp_port) and _free(base, udp_port):
            return loopback_hosts(ranks, base)
    return loopback_hosts(ranks)


def _take(address: str, udp_port: int) -> bool:
    if (address, udp_port) in _taken:
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0genie {address}:{udp_port}")
    except OSError:
        name.close()
        return False
    _taken[address, udp_port] = name
    return True


def _free(address: str, udp_port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, udp_port))
        except OSError:
            return False
    return True
