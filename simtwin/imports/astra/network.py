"""ASTRA-sim's networks: dimensions of rings, switches and meshes, and the time of a single message."""

from __future__ import annotations

from math import prod
from typing import Literal

from msgspec import Struct

BYTES_PER_GB = 2**30  # in a network file; for memory it is 10^9
NS_PER_S = 10**9

Kind = Literal["Ring", "Switch", "FullyConnected"]


class Dimension(Struct, frozen=True):
    """One dimension of a network; every line of NPUs along it has the same links."""

    kind: Kind
    npus: int  # on each line
    bandwidth_gbps: float  # 2^30 bytes a second, of each link in one direction
    latency_ns: float  # of each link

    @property
    def rate_bps(self) -> int:
        return round(self.bandwidth_gbps * BYTES_PER_GB * 8)

    @property
    def latency_ps(self) -> int:
        return round(self.latency_ns * 1000)

    def hops(self, source: int, target: int) -> int:
        """Return the links between two places on a line."""
        if self.kind == "Ring":
            clockwise = (target - source) % self.npus
            return min(clockwise, self.npus - clockwise)
        return 2 if self.kind == "Switch" else 1

    def delay_ns(self, hops: int, size_bytes: int) -> int:
        """Return the time of a message without contention: latencies and one serialisation, truncated to whole ns."""
        bytes_per_ns = self.bandwidth_gbps * BYTES_PER_GB / NS_PER_S
        return int(hops * self.latency_ns + size_bytes / bytes_per_ns)


class Network(Struct, frozen=True):
    """A network of dimensions.

    NPU i is at i % npus of the first dimension, (i // npus) % npus of the second, and so on.
    """

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
        """Whether any two NPUs are equally far from each other."""
        return len(self.dimensions) == 1 and self.dimensions[0].kind != "Ring"

    def route(self, source: int, target: int) -> tuple[int, int]:
        """Return the (dimension, hops) that a message between two different NPUs is charged for.

        ASTRA-sim's congestion-unaware backend counts only the first dimension in which they differ.
        """
        for number, dimension in enumerate(self.dimensions):
            source, here = divmod(source, dimension.npus)
            target, there = divmod(target, dimension.npus)
            if here != there:
                return number, dimension.hops(here, there)
        raise ValueError("a message to its sender has no route")

    def delay_ns(self, route: tuple[int, int], size_bytes: int) -> int:
        """Return the time of a message on a route, in ns."""
        return self.dimensions[route[0]].delay_ns(route[1], size_bytes)
