"""ASTRA-sim's networks: dimensions of rings, switches and meshes, and what a message takes alone on one."""

from __future__ import annotations

from math import prod
from typing import Literal

from msgspec import Struct

BYTES_PER_GB = 2**30  # in a network file; of memory it is 10^9
NS_PER_S = 10**9

Kind = Literal["Ring", "Switch", "FullyConnected"]


class Dimension(Struct, frozen=True):
    """One dimension of a network; every line of NPUs along it is joined alike."""

    kind: Kind
    npus: int  # on each line
    bandwidth_gbps: float  # 2^30 bytes a second, of each link one way
    latency_ns: float  # of each link

    @property
    def rate_bps(self) -> int:
        return round(self.bandwidth_gbps * BYTES_PER_GB * 8)

    @property
    def latency_ps(self) -> int:
        return round(self.latency_ns * 1000)

    def hops(self, source: int, target: int) -> int:
        """Links between two places on a line."""
        if self.kind == "Ring":
            clockwise = (target - source) % self.npus
            return min(clockwise, self.npus - clockwise)
        return 2 if self.kind == "Switch" else 1

    def delay_ns(self, hops: int, size_bytes: int) -> int:
        """Of a message that meets no other: the links' latencies and one serialisation, in whole ns, cut off."""
        bytes_per_ns = self.bandwidth_gbps * BYTES_PER_GB / NS_PER_S
        return int(hops * self.latency_ns + size_bytes / bytes_per_ns)


class Network(Struct, frozen=True):
    """NPU i is at i % npus of the first dimension, (i // npus) % npus of the second, and so on."""

    dimensions: tuple[Dimension, ...]
    path: str = "network.yml"

    @property
    def sizes(self) -> tuple[int, ...]:
        """NPUs of each dimension."""
        return tuple(dimension.npus for dimension in self.dimensions)

    @property
    def npus(self) -> int:
        return prod(self.sizes)

    @property
    def is_uniform(self) -> bool:
        """Any two NPUs are as far from each other as any other two."""
        return len(self.dimensions) == 1 and self.dimensions[0].kind != "Ring"

    def route(self, source: int, target: int) -> tuple[int, int]:
        """(dimension, hops) that a message between two different NPUs is charged for.

        Of dimensions that differ ASTRA-sim's congestion-unaware backend takes the first and forgets the others.
        """
        for number, dimension in enumerate(self.dimensions):
            source, here = divmod(source, dimension.npus)
            target, there = divmod(target, dimension.npus)
            if here != there:
                return number, dimension.hops(here, there)
        raise ValueError("a message to its sender has no route")

    def delay_ns(self, route: tuple[int, int], size_bytes: int) -> int:
        """What a message takes on a route."""
        return self.dimensions[route[0]].delay_ns(route[1], size_bytes)
