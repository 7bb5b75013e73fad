"""Readiness of this machine for a live run: MPI, UDP port, scheduling, offloads, RDMA devices, counters."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import genie_core

from genie.live.counters.ethtool import driver_of, statistics
from genie.live.counters.netlink import interfaces
from genie.live.counters.rdma import ports, rdma_driver
from genie.live.launch.launcher import LaunchError, find_mpirun
from genie.live.softroce.transport import may_see_headers
from genie.live.verbs.diagnose import look, missing

ROCE_PORT = 4791
GOOD_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class Finding:
    """`state`: ok, limited (a run works less well) or missing (a run cannot work)."""

    state: str
    what: str
    detail: str


def findings() -> list[Finding]:
    """Return the findings of all checks, in the order in which a run needs them."""
    return [
        _native(),
        _mpi(),
        _mpi4py(),
        _port(),
        _scheduling(),
        _cores(),
        _receive_buffer(),
        _loopback(),
        _headers(),
        _rdma(),
        _counters(),
    ]


def _native() -> Finding:
    return Finding("ok", "native core", f"{genie_core.build_flags}; CRC paths {', '.join(genie_core.crc_paths())}")


def _mpi() -> Finding:
    try:
        mpirun = find_mpirun()
        text = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (LaunchError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("missing", "mpirun", str(error))
    found = re.search(r"Version:\s*(\S+)", text) or re.search(r"\(Open MPI\) (\S+)", text)
    return Finding(
        "ok", "mpirun", f"{mpirun}, {'HYDRA' if 'HYDRA' in text else 'Open MPI'} {found[1] if found else ''}"
    )


def _mpi4py() -> Finding:
    try:
        from mpi4py import rc

        rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return Finding("missing", "mpi4py", f"{error}; pip install mpi4py mpich")
    return Finding("ok", "mpi4py", MPI.Get_library_version().splitlines()[0].strip("\x00 "))


def _port() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", ROCE_PORT))
        except OSError as error:
            return Finding(
                "limited", f"UDP port {ROCE_PORT}", f"{error.strerror} on 127.0.0.1; see ss -ulpn, or --udp-port"
            )
    return Finding("ok", f"UDP port {ROCE_PORT}", "free on loopback")


def _scheduling() -> Finding:
    child = os.fork()
    if child == 0:
        os._exit(0 if genie_core.claim_real_time(10) == "SCHED_FIFO" else 1)
    _, status = os.waitpid(child, 0)
    if status == 0:
        return Finding("ok", "SCHED_FIFO", "allowed: paced packets and sleeps are exact also on a busy machine")
    return Finding(
        "limited", "SCHED_FIFO", "not allowed: run as root, or add 'USER - rtprio 10' to /etc/security/limits.conf"
    )


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("ok", "cores", f"{cores}: up to {cores} local ranks poll, more sleep between packets")


def _receive_buffer() -> Finding:
    path = Path("/proc/sys/net/core/rmem_max")
    limit = int(path.read_text()) if path.exists() else 0
    if limit >= GOOD_BUFFER_BYTES or os.geteuid() == 0:
        return Finding("ok", "socket buffers", f"up to {limit >> 10} KiB without privilege")
    return Finding(
        "limited",
        "socket buffers",
        f"{limit >> 10} KiB; for unpaced runs: sysctl -w net.core.rmem_max={GOOD_BUFFER_BYTES}",
    )


def _loopback() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.1.2", 0))
        except OSError as error:
            return Finding("missing", "loopback addresses", f"127.0.1.2: {error.strerror}; bring the interface lo up")
    return Finding("ok", "loopback addresses", "one a rank")


def _rdma() -> Finding:
    machine = look()
    lacking = missing(machine)
    if lacking:
        return Finding("limited", "RDMA devices", f"--transport verbs cannot be used: {'; '.join(lacking)}")
    return Finding("ok", "RDMA devices", ", ".join(machine.devices))


def _counters() -> Finding:
    """List the counters that counters.json of a run can hold beside softroce's own."""
    rdma = [f"{device}:{port} ({rdma_driver(device) or 'driver unknown'})" for device, port in ports()]
    found = interfaces()
    ethernet = [f"{each.name} ({driver_of(each.name)})" for each in found if statistics(each.name)]
    if not found:
        return Finding("limited", "counters", "softroce's own alone: the kernel does not show interfaces by netlink")
    parts = [f"of {len(found)} interface{'s' * (len(found) > 1)}"]
    parts += [f"of drivers (ethtool): {', '.join(ethernet)}"] if ethernet else []
    parts += [f"of RDMA ports: {', '.join(rdma)}"] if rdma else []
    return Finding("ok", "counters", "; ".join(parts))


def _headers() -> Finding:
    if may_see_headers():
        return Finding("ok", "packet sockets", "allowed: --icrc strict checks ICRCs of other stacks in full")
    return Finding("limited", "packet sockets", "not allowed (CAP_NET_RAW): of other stacks' ICRCs 16 bits are checked")
