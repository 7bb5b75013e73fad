"""Checks of a fabric's values: those that divide by zero, never end, fit into no packet or mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import genie_core
import numpy as np
from msgspec import Struct

from genie.config.spraying import spray_problem
from genie.config.strict_toml import Document
from genie.config.units import Rate, Size, format_duration, format_rate
from simtwin.fabric.frames import frames_of
from simtwin.fabric.network import NO_RETRY, Network
from simtwin.fabric.queues import PS_PER_S
from simtwin.fabric.schema import Explicit, Fabric, Photonic

FRAME_MAX_BYTES = 65535  # the packet kernel keeps lengths in 16 bits
SHORTEST_PS = 1000
SLOWEST_BPS, LEAST_RATE = 10_000, "10kb/s"  # 64 bits of picoseconds hold 100,000 full frames at it
MAY_BE_UNLIMITED = "buffer"  # the other sizes are thresholds, shares and lengths


def check_values(document: Document, fabric: Fabric) -> None:
    """Raise the document's error for the first impossible value."""
    for key, value in _values(fabric):
        if isinstance(value, Size) and value < 0 and key[-1] != MAY_BE_UNLIMITED:
            raise document.error(key, ' = "unlimited": give a size such as "64KiB"')
    if fabric.ecn is not None and fabric.ecn.at == 0:
        raise document.error(("ecn", "at"), ' = "unlimited": give the rate that the thresholds are for')
    _check_frames(document, fabric)
    _check_buffers(document, fabric)
    _check_transport(document, fabric)
    _check_nic(document, fabric)
    _check_pauses(document, fabric)


def check_retries(document: Document, fabric: Fabric, network: Network) -> None:
    """Raise the document's error for link-level retry behind a token bucket, from which packets leave at once."""
    both = np.flatnonzero((network.retry_ps != NO_RETRY) & (network.burst_bytes > 0)).tolist()
    if both:
        key = next(key for key, value in _values(fabric) if key[-1] == "retry" and value == "go-back-n")
        raise document.error(
            key, f' = "go-back-n", and {network.link_names[both[0]]} has a token bucket: leave out retry or burst'
        )


def check_rates(document: Document, fabric: Fabric, network: Network) -> None:
    """Raise the document's error for links on which a full frame takes no time at all, or hours."""
    for key, value in _values(fabric):
        if isinstance(value, Rate) and 0 < value < SLOWEST_BPS:
            raise document.error(key, f" = {format_rate(value)}: give {LEAST_RATE} or more")
    limited = network.rate_bps > 0
    if limited.any():
        fastest, unit_ps = int(np.argmax(network.rate_bps)), int(fabric.frame.time_unit)
        most_ps = 2 * (frames_of(fabric).full_bytes * 8 * PS_PER_S // int(network.rate_bps[fastest]))
        if unit_ps > max(most_ps, 1):
            raise document.error(
                ("frame", "time_unit"),
                f" = {format_duration(unit_ps)} rounds a full frame on {network.link_names[fastest]} to no time: give "
                f"{format_duration(max(most_ps, 1))} or less",
            )


def _values(table: Struct, key: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield key and value of everything in the file's tables except [congestion], which has its own checks."""
    for field in table.__struct_fields__:
        value = getattr(table, field)
        if isinstance(value, Struct):
            if field != "congestion":
                yield from _values(value, (*key, field))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, Struct):
                    yield from _values(item, (*key, field, number))
        else:
            yield (*key, field), value


def _check_frames(document: Document, fabric: Fabric) -> None:
    frame, most = fabric.frame, f"give {FRAME_MAX_BYTES} B or less"
    for key in ("payload", "data_header", "control", "pause"):
        if (size_bytes := getattr(frame, key) or 0) > FRAME_MAX_BYTES:
            raise document.error(("frame", key), f" = {size_bytes} B: {most}")
    if (size_bytes := frames_of(fabric).full_bytes) > FRAME_MAX_BYTES:
        key = "payload" if frame.payload else "data_header"
        raise document.error(("frame", key), f" makes frames of {size_bytes} B, headers included: {most}")
    if frame.time_unit == 0:
        raise document.error(("frame", "time_unit"), " = 0ns: give 1ps or more")


def _check_buffers(document: Document, fabric: Fabric) -> None:
    """Refuse buffers and token buckets below one full packet: they would drop or hold back every packet."""
    least = frames_of(fabric).full_bytes
    bursts = [(key, int(value)) for key, value in _values(fabric) if key[-1] in ("burst", "burst_back") and value]
    for key, held_bytes in (*_buffers(fabric), *bursts):
        if 0 <= held_bytes < least:
            raise document.error(key, f" = {held_bytes} B cannot hold one packet: give {least} B or more")


def _check_transport(document: Document, fabric: Fabric) -> None:
    transport = fabric.transport
    if transport.ack_timeout is not None and transport.ack_timeout < SHORTEST_PS:
        timeout = format_duration(transport.ack_timeout)
        raise document.error(("transport", "ack_timeout"), f" = {timeout}: nothing is acknowledged so soon: give more")
    window = transport.window_packets or genie_core.QueuePairConfig().window_packets
    if fabric.load_balancing.mode == "reps":
        if fabric.ecn is None:
            raise document.error(
                ("load_balancing", "mode"), ' = "reps": ports are good while nothing marks: give [ecn]'
            )
        if fabric.spray == 1:
            raise document.error(("transport", "spray"), ' = 1: [load_balancing] mode = "reps" chooses among several')
    if problem := spray_problem(fabric.spray, transport.queue_pairs or 1):
        raise document.error(("transport", "spray"), f" = {problem}")
    reordering = transport.reordering_packets
    if reordering and reordering >= window:
        raise document.error(
            ("transport", "reordering_packets"),
            f" = {reordering} is not below window_packets = {window}, so that no loss would be noticed: "
            f"give {window - 1} or less",
        )


def _check_nic(document: Document, fabric: Fabric) -> None:
    """Refuse a prefetch that takes no time, and NICs of hosts that have none."""
    nic = fabric.nic
    if nic is None:
        return
    if nic.prefetch is not None and not nic.pcie_rate:
        raise document.error(("nic", "prefetch"), " takes no time without a rate: give [nic] pcie_rate too")
    if isinstance(fabric.topology, Photonic):
        raise document.error(("nic",), ': topology kind = "photonic" has no costs of NICs: leave the table out')


def _check_pauses(document: Document, fabric: Fabric) -> None:
    """Refuse buffers that drop lossless packets, and lossless priorities that no packet has."""
    if (pfc := fabric.pfc) is None:
        return
    if fabric.switch.shared_buffer is None:
        raise document.error(("pfc",), ": give [switch] shared_buffer, from which thresholds for pauses follow")
    for key, buffer_bytes in _buffers(fabric):
        if buffer_bytes >= 0:
            raise document.error(key, " drops what [pfc] is to keep: leave it out beside shared_buffer")
    used = fabric.priority
    if pfc.priorities is not None and not {used.data, used.control} & set(pfc.priorities):
        raise document.error(
            ("pfc", "priorities"),
            f" = {list(pfc.priorities)} has neither [priority] data = {used.data} nor control = {used.control}, so "
            "no packet would be paused: give one of them",
        )


def _buffers(fabric: Fabric) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Yield key and size of every output port's buffer that the file may give."""
    yield ("switch", "buffer"), int(fabric.switch.buffer)
    if isinstance(fabric.topology, Explicit):
        for number, switch in enumerate(fabric.topology.switch):
            if switch.buffer is not None:
                yield ("topology", "switch", number, "buffer"), int(switch.buffer)
