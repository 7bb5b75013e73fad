"""The plan by which a run learns its paths."""

from __future__ import annotations

import ipaddress

from genie.config.hosts import Hosts
from genie.config.source_ports import PINNED
from genie.live.path_names import TracePlan
from simtwin.fabric.placement import host_of_rank
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

TRACES = ("auto", "on", "off")


def trace_problem(mode: str, source_ports: str) -> str:
    """Return the error in the options, "" if there is none."""
    if mode not in TRACES:
        return f"--trace-paths {mode}: must be {', '.join(TRACES[:-1])} or {TRACES[-1]}"
    if mode == "off" and source_ports == PINNED:
        return "--source-ports pinned: chooses by the paths that are learned: leave --trace-paths out"
    return ""


def trace_plan(mode: str, source_ports: str, fabric: Fabric | None, hosts: Hosts, ranks: int) -> TracePlan | None:
    """Return the plan, or None if paths are not learned: auto needs [addresses] in the fabric, or pinned ports.

    Raises ValueError where there is nothing to learn.
    """
    asked = mode == "on" or source_ports == PINNED
    if mode == "off" or not (asked or (fabric is not None and fabric.addresses)):
        return None
    if all(ipaddress.ip_address(place.address).is_loopback for place in hosts.places):
        if asked:
            what = "--trace-paths on" if mode == "on" else "--source-ports pinned"
            raise ValueError(f"{what}: loopback has no paths to learn: leave it out")
        return None
    if fabric is None:
        return TracePlan()
    network = build_network(fabric)
    placed = host_of_rank(network, ranks, [place.port for place in hosts.places], fabric=fabric.name).tolist()
    names = network.node_names
    ends = zip(network.src_node[::2].tolist(), network.dst_node[::2].tolist(), strict=True)
    nodes = {
        str(ipaddress.ip_address(address)): name
        for name, addresses in fabric.addresses.items()
        for address in addresses
    }
    return TracePlan([names[host] for host in placed], nodes, [(names[a], names[b]) for a, b in ends])
