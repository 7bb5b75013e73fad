"""The choice of a rank's port and GID, and its binding to a NUMA node."""

from __future__ import annotations

import os

from genie.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from genie.live.settings import RunSettings
from genie.live.transport import TransportError
from genie.live.verbs.diagnose import look, problem
from genie.live.verbs.environment import refuse_unsupported
from genie.live.verbs.gids import AUTO, GidEntry, choose_gid
from genie.live.verbs.hca import parse_hca
from genie.live.verbs.ports import ETHERNET, PortInfo, choose_port, cpus_of_node, list_ports


def find_port(settings: RunSettings, rank: int, memory_bytes: int) -> tuple[PortInfo, GidEntry | None]:
    """Return the port of a rank and the GID to send from, None where LIDs are used. Raise TransportError."""
    verbs, hca_from = settings.verbs, "device" if settings.devices else "NCCL_IB_HCA"
    try:
        refuse_unsupported(settings)
        hca = parse_hca(settings.device_of(rank), hca_from)
    except ValueError as error:
        raise TransportError(str(error), EXIT_USAGE) from error
    missing = problem(look(), memory_bytes)
    if missing:
        raise TransportError(f"rank {rank}: {missing}", EXIT_ENVIRONMENT)
    address, host = settings.addresses[rank], settings.host_names
    place = sum(name == host[rank] for name in host[:rank])
    try:
        port = choose_port(list_ports(), hca, address, place, hca_from)
        if port.link_layer != ETHERNET and verbs.gid_index == AUTO:
            return port, None
        gid = choose_gid(port.gids, port.name, address, index=verbs.gid_index, roce_version=verbs.roce_version)
    except ValueError as error:
        raise TransportError(f"rank {rank}: {error}", EXIT_ENVIRONMENT) from error
    return port, gid


def bind_to_node(port: PortInfo) -> None:
    """Run on the CPUs of the device's NUMA node, so that memory touched from now on is local to it."""
    cpus = cpus_of_node(port.numa_node) & os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
