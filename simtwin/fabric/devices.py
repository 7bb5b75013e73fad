"""Latencies, bursts, switch modes, source ports and pinned paths, as the packet kernel takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from genie.config.source_ports import FIRST, LAST, NCCL, PAIR
from simtwin.fabric.frames import frames_of
from simtwin.fabric.network import Network
from simtwin.fabric.paths import pinned_paths
from simtwin.fabric.schema import Fabric

if TYPE_CHECKING:
    import genie_core


def give_devices(fabric: Fabric, network: Network, native: genie_core.Network) -> None:
    """Set a fabric's devices in a network of the kernel."""
    native.set_bursts(network.burst_bytes)
    native.set_errors(network.loss, network.retry_ps)
    native.set_switches(fabric.switch.cut_through, fabric.switch.trimming)
    native.set_latencies(int(fabric.host.doorbell_latency), int(fabric.host.notification_latency))
    _give_nics(fabric, network, native)
    rule = fabric.load_balancing.source_ports
    if rule in (PAIR, NCCL):
        native.set_source_ports(rule, FIRST, LAST)
    else:
        first, _, last = rule.partition("-")
        native.set_source_ports("range", int(first), int(last or first))
    for source, target, links in pinned_paths(fabric, network):
        native.pin(source, target, links)


def _give_nics(fabric: Fabric, network: Network, native: genie_core.Network) -> None:
    """Set the costs of NICs, at the ports of hosts towards the network."""
    if (nic := fabric.nic) is None:
        return
    pcie_rate_bps = int(nic.pcie_rate or 0)
    prefetch_bytes = int(frames_of(fabric).payload_bytes if nic.prefetch is None else nic.prefetch)
    on_link = (network.src_node < network.hosts) & ~network.is_bridge[network.dst_node]
    native.set_nics(
        int(nic.message_time),
        int(nic.packet_time),
        pcie_rate_bps,
        prefetch_bytes if pcie_rate_bps else 0,
        on_link.astype(np.uint8),
    )
