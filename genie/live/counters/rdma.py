"""What an RDMA port counts, as the kernel shows it under /sys, and whose driver it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SYSFS = Path("/sys/class/infiniband")
# The driver of the device behind it -> that of the RDMA device.
DRIVERS = {"mlx5_core": "mlx5", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "idpf": "irdma", "efa": "efa"}
NO_COUNTERS = ("lifespan", "active_", "watermark_")  # files beside them that go up and down, by their beginning


def port_counters(device: str, port: int, root: Path = SYSFS) -> dict[str, int]:
    """`counters` and `hw_counters` of a port by the kernel's names; empty where there is none.

    Of `counters`, port_xmit_data and port_rcv_data are in units of four bytes.
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
    """`mlx5`, `rxe` and so on; the name of the driver behind it where it is none that we know, "" without one."""
    folder = root / device
    if (folder / "parent").exists():  # rxe alone says so which interface it is on; behind it may be that one's driver
        return "rxe"
    with suppress(OSError):
        behind = (folder / "device" / "driver").readlink().name
        return DRIVERS.get(behind, behind)
    return ""


def ports(root: Path = SYSFS) -> list[tuple[str, int]]:
    """All ports of all devices."""
    return [(path.parent.parent.name, int(path.name)) for path in sorted(root.glob("*/ports/[0-9]*"))]
