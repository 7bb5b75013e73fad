"""Counters of an RDMA port, as the kernel shows them under /sys, and the device's driver."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SYSFS = Path("/sys/class/infiniband")
# Driver of the PCI device -> driver of its RDMA device.
DRIVERS = {"mlx5_core": "mlx5", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "idpf": "irdma", "efa": "efa"}
NO_COUNTERS = ("lifespan", "active_", "watermark_")  # prefixes of files beside the counters that are gauges


def port_counters(device: str, port: int, root: Path = SYSFS) -> dict[str, int]:
    """Return `counters` and `hw_counters` of a port by the kernel's names; empty where there are none.

    In `counters`, port_xmit_data and port_rcv_data are in units of four bytes.
    """
    counted = {}
    for kind in ("counters", "hw_counters"):
        for path in sorted((root / device / "ports" / str(port) / kind).glob("*")):
            with suppress(OSError):
                text = path.read_text().strip()
                if text.isdecimal() and not path.name.startswith(NO_COUNTERS):
                    counted[path.name] = int(text)
    return counted


def rdma_driver(device: str, root: Path = SYSFS) -> str:
    """Return the RDMA driver: `mlx5`, `rxe` and so on; "" where there is none.

    A PCI driver that DRIVERS does not list is returned under its own name.
    """
    folder = root / device
    if (folder / "parent").exists():  # only rxe has this file; `device/driver` may then be the driver of its interface
        return "rxe"
    with suppress(OSError):
        behind = (folder / "device" / "driver").readlink().name
        return DRIVERS.get(behind, behind)
    return ""


def ports(root: Path = SYSFS) -> list[tuple[str, int]]:
    """Return all ports of all RDMA devices."""
    return [(path.parent.parent.name, int(path.name)) for path in sorted(root.glob("*/ports/[0-9]*"))]
