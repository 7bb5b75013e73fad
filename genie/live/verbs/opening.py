"""The device of a rank: finding and opening it, and connecting its queue pairs to a peer's."""

from __future__ import annotations

from typing import Any, Protocol

from genie.errors import EXIT_ENVIRONMENT
from genie.live.settings import RunSettings, VerbsSettings
from genie.live.transport import TransportError
from genie.live.verbs.device import MTU_CODES, Device, DeviceError
from genie.live.verbs.gids import GidEntry, gid_of
from genie.live.verbs.library import Pyverbs
from genie.live.verbs.selection import bind_to_node, find_port


class Destination(Protocol):
    """The address of a rank to send to: from a run's endpoint, or a bench's."""

    @property
    def address(self) -> str: ...

    @property
    def gid(self) -> str: ...

    @property
    def lid(self) -> int: ...


def open_device(settings: RunSettings, rank: int, memory_bytes: int) -> tuple[Device, GidEntry | None]:
    """Open a rank's device; return it and the GID to send from, None where LIDs are used. Raise TransportError."""
    port, gid = find_port(settings, rank, memory_bytes)
    if settings.verbs.numa_bind:
        bind_to_node(port)
    try:
        return Device(Pyverbs(), port), gid
    except DeviceError as error:
        raise TransportError(f"rank {rank}: {error}", EXIT_ENVIRONMENT) from error


def gid_on(endpoint: Destination) -> str:
    """Return the GID of a rank to send to; "" where it has only a LID."""
    return gid_of(endpoint.gid or endpoint.address) if endpoint.gid or endpoint.address else ""


def connect(
    device: Device,
    own_gid: GidEntry | None,
    settings: VerbsSettings,
    queue_pair: Any,
    endpoint: Destination,
    *,
    number: int,
    psns: tuple[int, int],
    mtu_bytes: int,
) -> None:
    """Connect a queue pair to the peer's queue pair `number`. `psns`: the first PSN sent, the first received.

    Raise DeviceError.
    """
    device.connect(
        queue_pair,
        device.path_to(gid_on(endpoint), endpoint.lid, own_gid, settings.service_level, settings.traffic_class),
        dest_qp_num=number,
        path_mtu=MTU_CODES[mtu_bytes],
        sq_psn=psns[0],
        rq_psn=psns[1],
        min_rnr_timer=settings.min_rnr_timer,
        timeout=settings.timeout,
        retry_cnt=settings.retry_count,
        rnr_retry=settings.rnr_retry,
    )
