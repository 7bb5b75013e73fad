"""Latencies, bursts, switch modes, source ports and pinned paths, as the packet kernel takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genie.config.source_ports import FIRST, LAST, NCCL, PAIR
from simtwin.fabric.network import Network
from simtwin.fabric.paths import pinned_paths
from simtwin.fabric.schema import Fabric

if TYPE_CHECKING:
    import genie_core


def give_devices(fabric: Fabric, network: Network, native: genie_core.Network) -> None:
    """Set a fabric's devices in a network of the kernel."""
    native.set_bursts(network.burst_bytes)
    native.set_switches(fabric.switch.cut_through, fabric.switch.trimming)
    native.set_latencies(int(fabric.host.doorbell_latency), int(fabric.host.notification_latency))
    rule = fabric.load_balancing.source_ports
    if rule in (PAIR, NCCL):
        native.set_source_ports(rule, FIRST, LAST)
    else:
        first, _, last = rule.partition("-")
        native.set_source_ports("range", int(first), int(last or first))
    for source, target, links in pinned_paths(fabric, network):
        native.pin(source, target, links)
