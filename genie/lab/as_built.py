"""The fabric as built in a lab: the file as far as namespaces can model it, and sentences on what they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from genie.config.units import Duration, Rate, Size, format_rate, format_size
from simtwin.fabric.frames import frames_of
from simtwin.fabric.network import NO_RETRY, UNLIMITED_BUFFER, Network
from simtwin.fabric.schema import (
    Explicit,
    Fabric,
    Frame,
    Host,
    LoadBalancing,
    NamedHost,
    NamedLink,
    NamedSwitch,
    Priority,
    Switch,
)

TBF_HEADER_BYTES = 14  # Ethernet header, which the kernel's token bucket counts in addition to the IP packet
QUEUE_BYTES = 4 * 1024 * 1024  # where the file sets no limit
BUCKET_FRAMES = 2
# Timers may be late by so much. A bucket of this size lets a port catch up at once with what the delay held back.
BUCKET_NS = 250_000
SPEED_MAX_BPS = 10**9  # the fastest link that namespaces can forward on most machines


@dataclass(frozen=True)
class AsBuilt:
    """A fabric of named nodes and cables, with the lab's additions and without what the lab cannot model."""

    fabric: Fabric
    cannot: tuple[str, ...]  # sentences on what it cannot model


def bucket_bytes(fabric: Fabric, rate_bps: int) -> int:
    """Return the size of a token bucket for which the file gives none; 0 without a rate."""
    if rate_bps == 0:
        return 0
    return max(BUCKET_FRAMES * frames_of(fabric).full_bytes, caught_up_bytes(rate_bps))


def caught_up_bytes(rate_bps: int) -> int:
    """Return the bytes to send at once when a timer is late by BUCKET_NS."""
    return rate_bps * BUCKET_NS // 8_000_000_000


def as_built(fabric: Fabric, network: Network, marks: bool = True) -> AsBuilt:
    """Return the fabric as the lab builds it; `network`: the fabric's own. Nodes, links and lengths are kept.

    `marks`: whether this machine lets the lab's switches set ECN marks.
    """
    cannot = tuple(_cannot(fabric, network, marks))
    # Other keys of [frame] describe other simulators' frames: the lab's packets are RoCEv2's.
    frame = Frame(overhead_bytes=max(fabric.frame.overhead_bytes, TBF_HEADER_BYTES))
    fabric = msgspec.structs.replace(fabric, frame=frame)
    built = msgspec.structs.replace(
        fabric,
        topology=_explicit(fabric, network),
        link=None,
        downlink=None,
        host=Host(fabric.host.packet_latency, fabric.host.message_latency),
        nic=None,
        switch=Switch(),
        ecn=fabric.ecn if marks else None,
        pfc=None,
        priority=Priority(),
        load_balancing=LoadBalancing(source_ports=fabric.load_balancing.source_ports),
        path=[],
        fault=[],
    )
    return AsBuilt(built, cannot)


def _explicit(fabric: Fabric, network: Network) -> Explicit:
    topology, names = fabric.topology, network.node_names
    hosts = [NamedHost(name) for name in names[: network.hosts]]
    if isinstance(topology, Explicit):
        hosts = topology.host
    switches = [NamedSwitch(name, buffer=Size(QUEUE_BYTES)) for name in names[network.hosts :]]
    links = []
    for number in range(network.links):
        node = int(network.src_node[number]) - network.hosts
        if node >= 0:
            switches[node] = NamedSwitch(names[node + network.hosts], _queue_bytes(fabric, network, number))
    for there in range(0, network.links, 2):
        back = there + 1
        links.append(
            NamedLink(
                names[network.src_node[there]],
                names[network.dst_node[there]],
                rate=Rate(int(network.rate_bps[there])),
                delay=Duration(0),
                rate_back=Rate(int(network.rate_bps[back])),
                burst=_burst(fabric, network, there),
                burst_back=_burst(fabric, network, back),
                length=int(network.length[there]),
            )
        )
    return Explicit(host=hosts, switch=switches, link=links)


def _queue_bytes(fabric: Fabric, network: Network, link: int) -> Size:
    """Return a switch port's queue limit: its own buffer, or the dynamic threshold when no other port is busy."""
    held, switch = int(network.buffer_bytes[link]), fabric.switch
    limits = [] if held == UNLIMITED_BUFFER else [held]
    if switch.shared_buffer is not None and int(switch.shared_buffer) >= 0:
        limits.append(round(int(switch.shared_buffer) * switch.alpha / (1 + switch.alpha)))
    return Size(max(min(limits, default=QUEUE_BYTES), frames_of(fabric).full_bytes))


def _burst(fabric: Fabric, network: Network, link: int) -> Size | None:
    """Return a link's burst for the twin; None on hosts' ports: soft NICs pace, so the bucket never empties."""
    rate_bps = int(network.rate_bps[link])
    if rate_bps == 0 or network.src_node[link] < network.hosts:
        return None
    return Size(int(network.burst_bytes[link]) or bucket_bytes(fabric, rate_bps))


def _cannot(fabric: Fabric, network: Network, marks: bool) -> Iterator[str]:
    """Yield a sentence for each setting of the file that the lab leaves out or models differently."""
    switch = fabric.switch
    if network.delay_ps.any():
        yield "Links and switches have no delay: the lab's queues delay packets for their rates only."
    if (network.retry_ps != NO_RETRY).any():
        yield "Links lose and replay no frames: the lab has no link-level retry."
    elif network.loss.any():
        yield "Links lose no frames: give genie lab set --loss, or --lab-fault."
    if switch.shared_buffer is not None:
        yield (
            "Switches share no buffer: each port has what dynamic thresholds leave to the only busy port, "
            f"{format_size(_queue_bytes(fabric, network, _of_a_switch(network)))}."
        )
    elif (network.buffer_bytes[network.src_node >= network.hosts] == UNLIMITED_BUFFER).any():
        yield f"Buffers without limit hold {format_size(QUEUE_BYTES)} a port."
    if fabric.pfc is not None:
        yield "There is no priority flow control: packets that find no room are dropped."
    if switch.cut_through:
        yield "Switches store and forward: there is no cut-through."
    if switch.trimming:
        yield "Packets are not trimmed: packets that find no room are dropped."
    if fabric.ecn is not None:
        yield (
            "ECN marks follow the queue that a packet joins, not the one that it leaves behind."
            if marks
            else "Switches set no ECN marks: only root may load the eBPF program that does."
        )
    if fabric.priority.data != fabric.priority.control:
        yield "All packets share one queue: there are no priorities."
    if fabric.load_balancing.mode != "ecmp":
        yield f'Paths follow a hash of addresses and UDP ports: there is no load balancing by "{_mode(fabric)}".'
    if fabric.path:
        yield "Tables [[path]] are left out: paths are the kernel's choice, by a hash of addresses and UDP ports."
    if fabric.fault:
        yield "Tables [[fault]] are left out: give genie lab set, or --lab-fault."
    for table, keys, instead in (
        (fabric.host, ("doorbell_latency", "notification_latency"), "hosts take the time that this machine takes"),
        (fabric.frame, ("payload", "data_header", "control", "pause", "time_unit"), "frames are RoCEv2's"),
    ):
        if given := [key for key in keys if getattr(table, key) != getattr(type(table)(), key)]:
            yield f"[{type(table).__name__.lower()}] {', '.join(given)}: left out, {instead}."
    if fabric.nic is not None:
        yield "The table [nic] is left out: soft NICs take the time that this machine takes."
    if fabric.frame.overhead_bytes < TBF_HEADER_BYTES:
        yield f"Each packet counts {TBF_HEADER_BYTES} bytes besides IP, which the kernel's token buckets add."
    if (fastest := int(network.rate_bps.max(initial=0))) > SPEED_MAX_BPS:
        yield (
            f"Links of {format_rate(fastest)} are faster than most machines forward: scale the file's rates down, "
            f"below {format_rate(SPEED_MAX_BPS)}."
        )


def _of_a_switch(network: Network) -> int:
    return int((network.src_node >= network.hosts).argmax())


def _mode(fabric: Fabric) -> str:
    return fabric.load_balancing.mode
