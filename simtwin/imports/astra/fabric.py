"""ASTRA-sim's networks as fabrics.

An NPU is a host. Hosts never forward, and in ASTRA-sim NPUs do. Each host therefore has a router of its own, at the end
of a cable without rate limit or delay. Rings, switches and meshes join the routers. On a single switch no NPU forwards,
and there are no routers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb, prod
from pathlib import Path

from genie.config.units import Duration, Rate
from simtwin.fabric.reading import FabricError, parse_fabric, to_toml
from simtwin.fabric.schema import Explicit, Fabric, Link, NamedHost, NamedLink, NamedSwitch, SingleSwitch
from simtwin.fabric.size import LINKS_MAX
from simtwin.imports.astra.files import AstraError, read_network
from simtwin.imports.astra.network import Dimension, Network

UNLIMITED = Rate(0)


def read_fabric(path: Path) -> tuple[Fabric, tuple[str, ...]]:
    """Return the fabric of a network file, and a note for each difference. Raises AstraError."""
    network, notes = read_network(path)
    fabric = fabric_of(network)
    try:
        parse_fabric(to_toml(fabric), "its fabric.toml")
    except FabricError as wrong:
        raise AstraError(f"{path}: makes what the twin cannot play: {wrong}") from wrong
    return fabric, (*notes, *(f"{path}: {note}" for note in _differences(network)))


def fabric_of(network: Network) -> Fabric:
    """Return the fabric of a network; host i is NPU i. Raises AstraError for a network that is too large."""
    name = Path(network.path).stem[:64] or "fabric"
    first = network.dimensions[0]
    if len(network.dimensions) == 1 and first.kind == "Switch":
        link = Link(Rate(first.rate_bps), Duration(first.latency_ps))
        return Fabric(name=name, topology=SingleSwitch(first.npus), link=link)
    if (cables := _cables(network)) > LINKS_MAX // 2:
        raise AstraError(f"{network.path}: npus_count: makes {cables} cables; give NPUs for at most {LINKS_MAX // 2}")
    npus = range(network.npus)
    switches = [NamedSwitch(_router(npu)) for npu in npus]
    links = [NamedLink(f"host{npu}", _router(npu), UNLIMITED, Duration(0)) for npu in npus]
    for number, dimension in enumerate(network.dimensions):
        rate, delay = Rate(dimension.rate_bps), Duration(dimension.latency_ps)
        for place, line in enumerate(_lines(network, number)):
            ends = [_router(npu) for npu in line]
            if dimension.kind == "Switch":
                switch = f"dimension{number}switch{place}"
                switches.append(NamedSwitch(switch))
                links += [NamedLink(end, switch, rate, delay) for end in ends]
            else:
                links += [NamedLink(ends[a], ends[b], rate, delay) for a, b in _pairs(dimension)]
    hosts = [NamedHost(f"host{npu}") for npu in npus]
    return Fabric(name=name, topology=Explicit(host=hosts, switch=switches, link=links))


def _router(npu: int) -> str:
    return f"router{npu}"


def _lines(network: Network, number: int) -> Iterator[range]:
    """Yield the lines of a dimension: NPUs that differ in this dimension alone."""
    stride, size = prod(network.sizes[:number]), network.sizes[number]
    for npu in range(network.npus):
        if npu // stride % size == 0:
            yield range(npu, npu + stride * size, stride)


def _pairs(dimension: Dimension) -> list[tuple[int, int]]:
    """Return the places on a line that a cable joins; with two places, one cable joins both ways around a ring."""
    if dimension.kind == "Ring" and dimension.npus > 2:
        return [(place, (place + 1) % dimension.npus) for place in range(dimension.npus)]
    return list(combinations(range(dimension.npus), 2))


def _cables(network: Network) -> int:
    count = network.npus
    for dimension in network.dimensions:
        on_a_line = comb(dimension.npus, 2) if dimension.kind == "FullyConnected" else dimension.npus
        count += network.npus // dimension.npus * on_a_line
    return count


def _differences(network: Network) -> list[str]:
    rates = ", ".join(f"{dimension.rate_bps / 1e9:.6g}" for dimension in network.dimensions)
    notes = [f"bandwidth: a GB is 2^30 bytes: {rates} Gb/s"]
    if len(network.dimensions) > 1:
        notes.append("topology: paths may take the dimensions in any order; ASTRA-sim takes the first dimension first")
    return notes
