"""The plan of a lab: each node of the fabric's network with its addresses, and each direction of a cable.

Every host and every switch is a network namespace, and every switch is an IP router. A cable is a pair of virtual
Ethernet devices with a /31 of its own, 10.0.CABLE.0 and .1; a host has .1 of its cables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from genie.lab.as_built import QUEUE_BYTES, TBF_HEADER_BYTES, AsBuilt, as_built, bucket_bytes
from genie.lab.failure import LabError
from simtwin.fabric.network import UNLIMITED_BUFFER, Network
from simtwin.fabric.queues import NO_MARKS, queues_of
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

HOSTS_MAX = 64
NODES_MAX = 256
CABLES_MAX = 200
DEVICE_MTU_BYTES = 9000


@dataclass(frozen=True)
class LabLink:
    """One direction of a cable: a token bucket at its source."""

    name: str  # "leaf0->spine1"
    source: int  # node
    target: int  # node
    device: str  # name of the interface at both ends
    source_address: str
    target_address: str
    rate_bps: int  # 0: unlimited
    burst_bytes: int  # 0: none, where the rate is unlimited
    queue_bytes: int
    overhead_bytes: int  # per frame, beyond what the kernel counts itself
    marks: tuple[int, int, float] | None = None  # queue bytes above which some, and all are marked; share of some


@dataclass(frozen=True, eq=False)
class Plan:
    """A lab before it is built. Node numbers are the network's: hosts come first."""

    built: AsBuilt
    network: Network  # of the fabric as built
    links: tuple[LabLink, ...]  # by link number of the network

    @property
    def fabric(self) -> Fabric:
        """The fabric as built, which the twin plays."""
        return self.built.fabric

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.network.node_names

    @property
    def hosts(self) -> int:
        return self.network.hosts

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """Node name -> its IP addresses, in the order of its cables."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for link in self.links:
            found[self.nodes[link.source]].append(link.source_address)
        return found

    def next_hops(self, down: frozenset[str] = frozenset()) -> list[dict[str, tuple[LabLink, ...]]]:
        """Return, by node, host address -> the links that lead there, as in the twin's routing.

        `down`: names of links that routing has noticed to be down.
        """
        is_down = np.array([link.name in down for link in self.links], np.bool_)
        routes = shortest_path_routes(self.network, is_down if down else None)
        tables: list[dict[str, tuple[LabLink, ...]]] = [{} for _ in self.nodes]
        for node, table in enumerate(tables):
            for host in range(self.hosts):
                links = tuple(self.links[link] for link in routes.choices(node, host).tolist())
                if links and host != node:
                    table.update(dict.fromkeys(self.addresses[self.nodes[host]], links))
        return tables


def plan_of(fabric: Fabric, *, marks: bool = True) -> Plan:
    """Return the plan of a checked fabric (`simtwin.fabric.reading`). `marks`: whether its switches may set ECN marks.

    Raise LabError when the fabric is too large for one machine.
    """
    network = build_network(fabric)
    cables = network.links // 2
    for count, most, what in (
        (network.hosts, HOSTS_MAX, "hosts"),
        (cables, CABLES_MAX, "cables"),
        (network.nodes, NODES_MAX, "hosts and switches"),
    ):
        if count > most:
            raise LabError(f"{fabric.name}: {count} {what} are too many for a lab: give a fabric of at most {most}")
    built = as_built(fabric, network, marks)
    network = build_network(built.fabric)
    return Plan(built, network, tuple(_links(built.fabric, network)))


def addresses_of(cable: int, *, swapped: bool) -> tuple[str, str]:
    """Return the addresses of a cable's ends a and b; `swapped`: a has .1."""
    base = f"10.{cable // 256}.{cable % 256}"
    return (f"{base}.1", f"{base}.0") if swapped else (f"{base}.0", f"{base}.1")


def _links(fabric: Fabric, network: Network) -> Iterator[LabLink]:
    queues = queues_of(fabric, network)
    for number in range(network.links):
        source, target = int(network.src_node[number]), int(network.dst_node[number])
        # On a cable between a host and a switch, the host has .1.
        a, b = (source, target) if number % 2 == 0 else (target, source)
        ends = addresses_of(number // 2, swapped=a < network.hosts <= b)
        here, there = ends if number % 2 == 0 else ends[::-1]
        rate_bps, held_bytes = int(network.rate_bps[number]), int(network.buffer_bytes[number])
        least, most = int(queues.ecn_minimum_bytes[number]), int(queues.ecn_maximum_bytes[number])
        yield LabLink(
            name=network.link_names[number],
            source=source,
            target=target,
            device=f"cable{number // 2}",
            source_address=here,
            target_address=there,
            rate_bps=rate_bps,
            burst_bytes=int(network.burst_bytes[number]) or bucket_bytes(fabric, rate_bps),
            queue_bytes=QUEUE_BYTES if held_bytes == UNLIMITED_BUFFER else held_bytes,
            overhead_bytes=network.frame_overhead_bytes - TBF_HEADER_BYTES,
            marks=None if least == NO_MARKS else (least, most, float(queues.ecn_probability[number])),
        )
