"""The devices that carry a rank's traffic, and their counters before and after a run.

Ranks may share a device: the first rank of those reads it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genie.live.counters.ethtool import driver_of, statistics, telling
from genie.live.counters.growth import grown
from genie.live.counters.netlink import interface_of, interfaces
from genie.live.counters.rdma import SYSFS, port_counters, rdma_driver

RDMA, INTERFACE = "rdma", "interface"


@dataclass(frozen=True)
class Device:
    """A port of an RDMA device, or a network interface, on this machine."""

    kind: str  # RDMA or INTERFACE
    name: str  # "mlx5_0:1", or the interface's
    driver: str  # "" when unknown

    def read(self, root: Path = SYSFS) -> dict[str, int]:
        """Return the counters that are kept, as absolute values."""
        if self.kind == RDMA:
            device, _, port = self.name.rpartition(":")
            return port_counters(device, int(port), root)
        found = [each for each in interfaces() if each.name == self.name]
        return {**telling(statistics(self.name)), **(found[0].statistics if found else {})}


def devices_of(address: str, rdma_port: str, root: Path = SYSFS) -> list[Device]:
    """Return the devices that carry a rank's traffic.

    `address`: the rank's; `rdma_port`: such as "mlx5_0:1", "" on softroce.
    """
    found = []
    if rdma_port:
        found.append(Device(RDMA, rdma_port, rdma_driver(rdma_port.rpartition(":")[0], root)))
    if address and (interface := interface_of(address, interfaces())):
        found.append(Device(INTERFACE, interface.name, driver_of(interface.name)))
    return found


def place() -> str:
    """Return a key of this machine and network namespace: device names are unique within it."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = str(os.stat("/proc/thread-self/ns/net").st_ino)
    return f"{boot} {namespace}"


class Watched:
    """The devices that this rank reads for all ranks that share them; first read on construction."""

    def __init__(self, rank: int, host: str, mine: Sequence[Device], everyone: Sequence[Sequence[str]]) -> None:
        """`mine`: this rank's devices; `everyone`: by rank, the keys (`key_of`) of its devices."""
        self._host = host
        self._before: list[tuple[Device, list[int], dict[str, int]]] = []
        for device in mine:
            sharers = [other for other, keys in enumerate(everyone) if key_of(device) in keys]
            if sharers[0] == rank:
                self._before.append((device, sharers, device.read()))

    def counted(self) -> list[dict[str, Any]]:
        """Return each device's counter growth since construction, as counters.json holds it."""
        return [
            {
                "host": self._host,
                "device": device.name,
                "kind": device.kind,
                "driver": device.driver,
                "ranks": sharers,
                "counters": grown(before, device.read()),
            }
            for device, sharers, before in self._before
        ]


def key_of(device: Device) -> str:
    """Return a key that is the same on two ranks if and only if they share the device."""
    return f"{place()} {device.kind} {device.name}"
