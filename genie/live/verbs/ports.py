"""RDMA ports of the machine as the kernel shows them under /sys, and the choice of a rank's port."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from genie.live.verbs.gids import IB, GidEntry
from genie.live.verbs.hca import HcaFilter, Port

SYSFS = Path("/sys/class/infiniband")
ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"


@dataclass(frozen=True)
class PortInfo:
    """One port of an RDMA device."""

    port: Port
    active: bool
    link_layer: str  # ETHERNET (RoCE) or INFINIBAND
    lid: int
    gids: tuple[GidEntry, ...]
    numa_node: int  # -1: unknown

    @property
    def name(self) -> str:
        return f"{self.port.device} port {self.port.number}"

    def has(self, address: str) -> bool:
        """Return whether one of its GIDs is that of an IP address."""
        wanted = ipaddress.ip_address(address)
        return any(entry.address == wanted for entry in self.gids)


def list_ports(root: Path = SYSFS) -> list[PortInfo]:
    """Return all ports of all devices, by device name and port number."""
    found = []
    for device in sorted(root.glob("*"), key=lambda path: (len(path.name), path.name)):
        for folder in sorted(device.glob("ports/[0-9]*"), key=lambda path: int(path.name)):
            found.append(_port(device, folder))
    return found


def _port(device: Path, folder: Path) -> PortInfo:
    layer = _read(folder / "link_layer")
    entries = []
    for path in sorted(folder.glob("gids/[0-9]*"), key=lambda path: int(path.name)):
        gid = _read(path)
        if gid and gid.strip("0:"):
            kind = _read(folder / "gid_attrs" / "types" / path.name) or IB
            entries.append(GidEntry(int(path.name), gid, kind))
    return PortInfo(
        port=Port(device.name, int(folder.name)),
        active="ACTIVE" in _read(folder / "state"),
        link_layer=layer,
        lid=int(_read(folder / "lid") or "0", 16),
        gids=tuple(entries),
        numa_node=int(_read(device / "device" / "numa_node") or -1),
    )


def _read(path: Path) -> str:
    """Return a file's text; "" when it cannot be read, as for empty entries of a GID table."""
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def choose_port(ports: Sequence[PortInfo], hca: HcaFilter, address: str, place: int, name: str) -> PortInfo:
    """Return the port of a rank: the one that has its address; else the one of its index among the host's ranks.

    `place`: the rank's index among those of its host, from 0. Ranks take the chosen ports in turn, which makes each
    port a rail. `name`: the filter's name in errors. Raise ValueError that names the machine's ports.
    """
    by_port = {info.port: info for info in ports}
    taken = [by_port[port] for port in hca.select([info.port for info in ports])]
    there = ", ".join(f"{info.name} ({'active' if info.active else 'down'})" for info in ports)
    if not taken:
        raise ValueError(f"{name} takes no RDMA port; there are {there}")
    active = [info for info in taken if info.active]
    if not active:
        raise ValueError(f"no RDMA port that {name} takes is active; there are {there}: bring its interface up")
    having = [info for info in active if address and info.has(address)]
    if having:
        return having[place % len(having)]
    if address and all(info.link_layer == ETHERNET for info in active):
        have = ", ".join(f"{info.name} {_addresses(info)}" for info in active)
        raise ValueError(f"no RDMA port has the address {address}: {have}; correct the hosts file or the interface")
    return active[place % len(active)]


def _addresses(info: PortInfo) -> str:
    shown = sorted({str(entry.address) for entry in info.gids if not entry.address.is_link_local})
    return f"has {', '.join(shown)}" if shown else "has no address"


def cpus_of_node(node: int, root: Path = Path("/sys/devices/system/node")) -> set[int]:
    """Return the CPUs of a NUMA node; empty when unknown."""
    cpus: set[int] = set()
    for part in filter(None, _read(root / f"node{node}" / "cpulist").split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def hardware_counters(port: Port, root: Path = SYSFS) -> dict[str, int]:
    """Return the device's own counters of a port, by the kernel's names; empty where there are none."""
    counted = {}
    for path in sorted((root / port.device / "ports" / str(port.number) / "hw_counters").glob("*")):
        text = _read(path)
        if text.isdecimal() and path.name != "lifespan":
            counted[path.name] = int(text)
    return counted


def counted_since(before: Mapping[str, int], port: Port) -> dict[str, int]:
    """Return the growth of a port's `hardware_counters` since they were `before`: `device_...`."""
    return {f"device_{name}": value - before.get(name, 0) for name, value in hardware_counters(port).items()}
