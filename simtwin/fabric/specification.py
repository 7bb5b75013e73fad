"""A fabric's network as the packet kernel takes it, made once from all of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import genie_core
import numpy as np

from genie.config.source_ports import FIRST, LAST, NCCL, PAIR
from simtwin.fabric.faults import Change, changes_of
from simtwin.fabric.frames import frames_of
from simtwin.fabric.network import Network
from simtwin.fabric.paths import pinned_paths
from simtwin.fabric.queues import Queues
from simtwin.fabric.routing import Routes
from simtwin.fabric.schema import Fabric

Pin = tuple[int, int, Sequence[int], int]  # source and target host, links, source port of a queue pair (-1: all)


@dataclass(frozen=True)
class Specification:
    """A fabric's network, queues, routes and their changes in time."""

    fabric: Fabric
    network: Network
    queues: Queues
    routes: tuple[Routes, ...]  # the first from the beginning; changes refer to the others
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, fabric: Fabric, network: Network, queues: Queues, routes: Routes) -> Specification:
        """Return a fabric's specification. Raises FaultError."""
        changes, later = changes_of(fabric, network)
        return cls(fabric, network, queues, (routes, *later), tuple(changes))

    def native(self, pins: Iterable[Pin] = ()) -> genie_core.Network:
        """Return the network as the kernel takes it. `pins`: paths beside those of the fabric file."""
        own, network = self.fabric, self.network
        named = ((source, target, links, -1) for source, target, links in pinned_paths(own, network))
        return genie_core.Network(
            hosts=network.hosts,
            nodes=network.nodes,
            frame_overhead_bytes=own.frame.overhead_bytes,
            source=network.src_node,
            target=network.dst_node,
            rate_bps=network.rate_bps,
            delay_ps=network.delay_ps,
            buffer_bytes=network.buffer_bytes,
            packet_latency_ps=network.packet_latency_ps,
            message_latency_ps=network.message_latency_ps,
            queues=self.queues.native(),
            devices=_devices_of(own, network),
            routes=[routes.native() for routes in self.routes],
            changes=[genie_core.Change(it.time_ps, it.kind, it.number, it.rate_bps) for it in self.changes],
            pinned=[genie_core.Pinned(*pin) for pin in (*named, *pins)],
        )


def _devices_of(fabric: Fabric, network: Network) -> genie_core.DeviceSettings:
    """Return a fabric's devices as the kernel takes them."""
    rule, ports = fabric.load_balancing.source_ports, (FIRST, LAST)
    if rule not in (PAIR, NCCL):
        first, _, last = rule.partition("-")
        rule, ports = "range", (int(first), int(last or first))
    return genie_core.DeviceSettings(
        burst_bytes=network.burst_bytes,
        loss=network.loss,
        retry_ps=network.retry_ps,
        doorbell_ps=int(fabric.host.doorbell_latency),
        notification_ps=int(fabric.host.notification_latency),
        nic=_nic_of(fabric, network),
        cut_through=fabric.switch.cut_through,
        trims=fabric.switch.trimming,
        source_ports=rule,
        port_range=ports,
    )


def _nic_of(fabric: Fabric, network: Network) -> genie_core.NicCosts:
    """Return the costs of NICs, at the ports of hosts towards the network."""
    if (nic := fabric.nic) is None:
        none = np.zeros(0, np.uint8)
        return genie_core.NicCosts(message_ps=0, packet_ps=0, pcie_rate_bps=0, prefetch_bytes=0, on_link=none)
    pcie_rate_bps = int(nic.pcie_rate or 0)
    prefetch_bytes = int(frames_of(fabric).payload_bytes if nic.prefetch is None else nic.prefetch)
    on_link = (network.src_node < network.hosts) & ~network.is_bridge[network.dst_node]
    return genie_core.NicCosts(
        message_ps=int(nic.message_time),
        packet_ps=int(nic.packet_time),
        pcie_rate_bps=pcie_rate_bps,
        prefetch_bytes=prefetch_bytes if pcie_rate_bps else 0,
        on_link=on_link.astype(np.uint8),
    )
