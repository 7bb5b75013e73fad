"""Reasons why verbs cannot be used on this machine, in one line."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from genie.live.verbs.library import LibraryMissingError, Pyverbs
from genie.live.verbs.ports import SYSFS, list_ports

DEVICES = Path("/dev/infiniband")
INSTEAD = "--transport softroce works without"


@dataclass(frozen=True)
class Machine:
    """The state of a machine, as far as verbs depends on it."""

    release: str  # of the kernel
    modules: bool  # the kernel has RDMA modules, loaded or not
    devices: tuple[str, ...]
    user_access: tuple[str, ...]  # paths /dev/infiniband/uverbs*
    unusable: tuple[str, ...]  # those of user_access that this user may not open
    library: str  # why pyverbs cannot be used; "" when it can
    memlock_bytes: int  # memory that may be locked; -1: no limit


def look() -> Machine:
    """Inspect this machine."""
    release = os.uname().release
    drivers = Path("/lib/modules") / release / "kernel" / "drivers" / "infiniband"
    nodes = sorted(DEVICES.glob("uverbs*"))
    try:
        Pyverbs()
        library = ""
    except LibraryMissingError as error:
        library = str(error)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Machine(
        release=release,
        modules=drivers.is_dir() or SYSFS.is_dir(),
        devices=tuple(sorted({info.port.device for info in list_ports()})),
        user_access=tuple(str(path) for path in nodes),
        unusable=tuple(str(path) for path in nodes if not os.access(path, os.R_OK | os.W_OK)),
        library=library,
        # CAP_IPC_LOCK overrides the limit, and root has it.
        memlock_bytes=-1 if limit == resource.RLIM_INFINITY or os.geteuid() == 0 else limit,
    )


def missing(machine: Machine, memory_bytes: int = 0) -> list[str]:
    """Return the obstacles to using verbs, one phrase each, the first cause first; [] when there are none."""
    found = []
    if not machine.devices:
        if machine.modules:
            found.append(
                "no RDMA device (modprobe the NIC's driver such as mlx5_ib, or rdma_rxe and then "
                "rdma link add rxe0 type rxe netdev INTERFACE)"
            )
        else:
            found.append(f"no RDMA device, and the kernel {machine.release} has no RDMA modules")
    elif not machine.user_access:
        found.append("no /dev/infiniband/uverbs* (modprobe ib_uverbs)")
    elif set(machine.unusable) == set(machine.user_access):
        found.append(f"no access to {machine.unusable[0]} (join the group rdma)")
    if machine.library:
        found.append(machine.library)
    if 0 <= machine.memlock_bytes < memory_bytes:
        found.append(
            f"only {machine.memlock_bytes >> 10} KiB of memory may be locked and {-(-memory_bytes >> 10)} are needed "
            "(ulimit -l unlimited, or memlock in /etc/security/limits.conf)"
        )
    return found


def problem(machine: Machine, memory_bytes: int = 0) -> str:
    """Return one line that says why verbs cannot be used; "" when it can."""
    found = missing(machine, memory_bytes)
    return f"verbs cannot be used here: {'; '.join(found)}; {INSTEAD}" if found else ""
