"""Fabrics for the tests of the packet level, and a run that keeps the kernel's picoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.config.congestion import Dcqcn
from genie.config.units import Duration, Rate, Size
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.schema import (
    Downlink,
    Ecn,
    Explicit,
    Fabric,
    Host,
    LeafSpine,
    Link,
    NamedHost,
    NamedLink,
    NamedSwitch,
    Pfc,
    Priority,
    SingleSwitch,
    Switch,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Loss, Simulation, Twin

KIB, MIB = 1 << 10, 1 << 20
GBPS = 10**9
NS = 1000  # picoseconds
US = 1000 * NS
# Wire bytes of a packet without its payload: frame 38, IPv4 20, UDP 8, BTH 12, ICRC 4; RETH 16, immediate 4, AETH 4.
HEADERS = 38 + 20 + 8 + 12 + 4
ACK_BYTES = HEADERS + 4


def single_switch(
    hosts: int,
    rate_bps: int = 100 * GBPS,
    delay_ps: int = 500 * NS,
    *,
    downlink_bps: int | None = None,
    buffer_bytes: int = -1,
    packet_latency_ps: int = 0,
    message_latency_ps: int = 0,
    **transport: Any,
) -> Fabric:
    return Fabric(
        topology=SingleSwitch(hosts=hosts),
        link=Link(Rate(rate_bps), Duration(delay_ps)),
        downlink=None if downlink_bps is None else Downlink(Rate(downlink_bps)),
        switch=Switch(Size(buffer_bytes)),
        host=Host(Duration(packet_latency_ps), Duration(message_latency_ps)),
        transport=Transport(**transport),
    )


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    rate_bps: int = 100 * GBPS,
    delay_ps: int = 500 * NS,
    *,
    spine_bps: int | None = None,
    buffer_bytes: int = -1,
    **transport: Any,
) -> Fabric:
    spine_link = None if spine_bps is None else Link(Rate(spine_bps), Duration(delay_ps))
    return Fabric(
        topology=LeafSpine(leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, spine_link=spine_link),
        link=Link(Rate(rate_bps), Duration(delay_ps)),
        switch=Switch(Size(buffer_bytes)),
        transport=Transport(**transport),
    )


def crowded(topology: Any, delay_ps: int = US // 2) -> Fabric:
    """Buffers so small that ports pause, thresholds so low that they mark."""
    return Fabric(
        topology=topology,
        link=Link(Rate(100 * GBPS), Duration(delay_ps)),
        transport=Transport(mtu=1024, ack_every_packets=1, ack_timeout=Duration(10**10)),
        switch=Switch(shared_buffer=Size(MIB)),
        ecn=Ecn(minimum=Size(20 * KIB), maximum=Size(80 * KIB), probability=0.5),
        pfc=Pfc(),
        priority=Priority(data=3, control=6),
        congestion=Dcqcn(),
    )


@dataclass(frozen=True)
class Cable:
    """One cable of a path: rates there and back (0: unlimited) and the delay."""

    rate_bps: int
    rate_back_bps: int
    delay_ps: int


def path(cables: Sequence[Cable], latencies_ps: tuple[int, int] = (0, 0), **transport: Any) -> Fabric:
    """Two hosts with a switch between each cable and the next; packet latency of each host."""
    names = ["a", *(f"s{at}" for at in range(1, len(cables))), "b"]
    links = [
        NamedLink(
            a=names[at],
            b=names[at + 1],
            rate=Rate(it.rate_bps),
            rate_back=Rate(it.rate_back_bps),
            delay=Duration(it.delay_ps),
        )
        for at, it in enumerate(cables)
    ]
    hosts = [NamedHost("a", Duration(latencies_ps[0])), NamedHost("b", Duration(latencies_ps[1]))]
    topology = Explicit(host=hosts, switch=[NamedSwitch(name) for name in names[1:-1]], link=links)
    return Fabric(topology=topology, transport=Transport(**transport))


def incast(senders: int, size_bytes: int, messages: int = 1) -> Workload:
    """Ranks 0 to `senders` - 1 send to the last."""
    workload = Workload("incast", senders + 1, [Group("0", tuple(range(senders + 1)))], {})
    receiver = RankBuilder(senders)
    for rank in range(senders):
        builder, sent = RankBuilder(rank), ()
        for at in range(messages):
            sent = (builder.add(at, "send", Kind.SEND, sent, size_bytes=size_bytes, peer=senders, tag=at),)
            receiver.add(rank * messages + at, "recv", Kind.RECV, size_bytes=size_bytes, peer=rank, tag=at)
        workload.ranks[rank], _ = builder.finish()
    workload.ranks[senders], _ = receiver.finish()
    return workload


def twin_of(fabric: Fabric, ranks: int | None = None, seed: int = 1, hosts: Sequence[int] = ()) -> Twin:
    """Rank r on host r, or on `hosts[r]`."""
    placed = hosts or range(fabric.hosts if ranks is None else ranks)
    return Twin(fabric, build_network(fabric), list(placed), seed)


@dataclass
class NativeRun:
    """A run in picoseconds. Records: per rank, nodes, sends and receives as the walker keeps them."""

    records: list[dict[str, dict[str, NDArray[Any]]]]
    links: dict[str, NDArray[np.int64]]
    counters: list[dict[str, int]]
    dropped: int
    data_packets: int

    @property
    def end_ps(self) -> int:
        return max(int(it["nodes"]["end_ps"].max(initial=0)) for it in self.records)


def run_native(
    twin: Twin, workload: Workload, lowering: Lowering | None = None, losses: Sequence[Loss] = ()
) -> NativeRun:
    """Play once in the kernel that the twin drives, and keep its own units."""
    plan = build_plan(workload, lowering=lowering)
    simulator = genie_core.Simulator(twin._native, twin._config, plan.native, twin.host_of_rank, twin.seed)
    for loss in losses:
        simulator.lose(loss.source, loss.target, loss.every, list(loss.numbers))
    simulator.start()
    while simulator.run(1_000_000):
        pass
    assert simulator.done, simulator.problems()
    return NativeRun(
        records=[simulator.records(rank) for rank in plan.ranks],
        links=simulator.links(),
        counters=[simulator.counters(rank) for rank in plan.ranks],
        dropped=simulator.dropped,
        data_packets=simulator.data_packets,
    )


def wire_bytes(size_bytes: int, mtu: int = 4096) -> list[int]:
    """Bytes on the link of each packet of one WRITE with immediate."""
    payloads = [min(mtu, size_bytes - at) for at in range(0, size_bytes, mtu)] or [0]
    last = len(payloads) - 1
    return [
        HEADERS + (16 if at == 0 else 0) + (4 if at == last else 0) + (payload + 3) // 4 * 4
        for at, payload in enumerate(payloads)
    ]


def transmission_ps(size_bytes: int, rate_bps: int) -> int:
    """Rounded to the nearest picosecond; 0 at an unlimited rate."""
    return 0 if rate_bps == 0 else (size_bytes * 8 * 10**12 + rate_bps // 2) // rate_bps


def to_other_leaf(fabric: Fabric, size_bytes: int = 4 * MIB, **more: Any) -> tuple[Simulation, NDArray[np.int64]]:
    """Host 0 sends to host 3; data packets by spine: those that leave the first leaf upwards."""
    twin = twin_of(fabric, hosts=(0, 3))
    result = twin.play(collective(Op.BROADCAST, 2, size_bytes), **more)
    up = [link for link, name in enumerate(twin.network.link_names) if name.startswith("leaf0->spine")]
    return result, np.array([result.counters["links"]["packets"][link] for link in up])
