"""A bench of the path between two ranks: its settings, and the interface that a transport implements for it.

Rank 0 starts and sends; rank 1 answers and receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from genie.live.settings import RunSettings
from genie.record import BENCH, launch_mark

Test = Literal["pingpong", "write"]


class PairSettings(RunSettings, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of a bench of one path."""

    schema: str = launch_mark(BENCH)
    test: Test
    sizes_bytes: list[int]
    rounds: int  # round trips, or messages of a stream, for each size
    depth: int = 128  # messages in flight on each queue pair
    limit_s: float = 600.0  # time limit for one size
    poll: bool | None = None  # poll instead of sleeping; None: poll if there is a core for each rank


class PairEndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Data that the peer needs to send to this rank."""

    address: str  # IP address; "" on InfiniBand
    queue_pairs: list[int]  # queue pair numbers
    first_psns: list[int]  # first PSN that it sends, by queue pair
    rkey: int
    memory_address: int = 0
    gid: str = ""  # of its device's port; "": derived from the address
    lid: int = 0  # InfiniBand only


class Arrivals(msgspec.Struct, frozen=True):
    """Arrivals since `forget`. `span_ps`: from the first packet to the last message."""

    messages: int
    size_bytes: int
    span_ps: int


class PairEnd(Protocol):
    """One end of the path. Each call has a time limit; `error` is the first failure, or ""."""

    name: str
    mtu_max_bytes: int  # the largest path MTU that its device takes
    over_ip: bool  # packets use IP, so that paths can be tested with datagrams

    def open(self, mtu_bytes: int) -> None:
        """Raises TransportError."""

    def endpoint_info(self) -> PairEndpointInfo:
        """Data for the peer's `connect`."""

    def connect(self, peer: PairEndpointInfo) -> None:
        """Raises TransportError."""

    def ports(self) -> list[int]:
        """The UDP source ports that it sends from, by queue pair; empty where its device chooses them."""

    def expect(self, ports: Sequence[int]) -> None:
        """Accept packets of the peer from these ports only, if any are given."""

    def fill(self, size_bytes: int, seed: int) -> None:
        """Write the pattern of this seed where messages come from and where they arrive; the other seed's differs."""

    def differs(self, size_bytes: int, seed: int) -> int:
        """Number of bytes in the peer's messages that differ from this seed's pattern."""

    def forget(self) -> None:
        """Restart the count of arrivals at 0."""

    def pingpong(self, size_bytes: int, rounds: int, *, begins: bool, limit_s: float) -> tuple[bool, list[int]]:
        """Ping-pong with WRITE_WITH_IMM: (whether all rounds were done, round-trip times in ps at the end that
        starts).
        """

    def stream(self, size_bytes: int, messages: int, limit_s: float) -> int:
        """Stream of WRITEs: ps from the first post to the last completion, -1 if that did not come."""

    def serve(self, messages: int, limit_s: float) -> Arrivals:
        """Answer the peer until this many messages have arrived since `forget`."""

    def idle(self) -> None:
        """Answer the peer for a short time."""

    def counters(self) -> dict[str, int]:
        """Counters by name, since the end was made."""

    @property
    def error(self) -> str:
        """The first failure, in words."""


def pattern(size_bytes: int, seed: int) -> NDArray[np.uint8]:
    """The bytes of a message."""
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


@dataclass(frozen=True)
class Latency:
    """A ping-pong of one size, by ib_write_lat's definition: half of each round trip, in us."""

    size_bytes: int
    rounds: int
    minimum_us: float
    maximum_us: float
    typical_us: float  # median
    average_us: float
    deviation_us: float
    percentile_95_us: float  # nearest rank; ib_write_lat has no column for it
    percentile_99_us: float
    percentile_99_9_us: float
    wrong_bytes: int


def latency_of(size_bytes: int, round_trips_ps: list[int], wrong_bytes: int) -> Latency:
    """Statistics of the round trips."""
    half_us = np.asarray(round_trips_ps, np.float64) / 2e6
    at_95, at_99, at_99_9 = np.quantile(half_us, (0.95, 0.99, 0.999), method="inverted_cdf").tolist()
    return Latency(
        size_bytes,
        len(round_trips_ps),
        float(half_us.min()),
        float(half_us.max()),
        float(np.median(half_us)),
        float(half_us.mean()),
        float(half_us.std()),
        at_95,
        at_99,
        at_99_9,
        wrong_bytes,
    )


@dataclass(frozen=True)
class Bandwidth:
    """A stream of one size. The average is the sender's, from its first post to its last completion."""

    size_bytes: int
    messages: int
    peak_bytes_per_s: float  # lower bound from the receiver's fastest tenth of the stream
    average_bytes_per_s: float
    messages_per_s: float
    wrong_bytes: int


def bandwidth_of(
    size_bytes: int, messages: int, took_ps: int, arrivals: list[Arrivals], wrong_bytes: int, queue_pairs: int = 1
) -> Bandwidth:
    """Bandwidths from the sender's time and the receiver's arrivals, taken about every tenth of the stream.

    Most of a message may have arrived before the stretch in which it counts, on every queue pair but one.
    """
    early_bytes = (queue_pairs - 1) * size_bytes
    took_s = took_ps / 1e12
    average = size_bytes * messages / took_s
    windows = zip([Arrivals(0, 0, 0), *arrivals], arrivals, strict=False)
    rates = [
        (after.size_bytes - before.size_bytes - early_bytes) * 1e12 / (after.span_ps - before.span_ps)
        for before, after in windows
        if after.span_ps > before.span_ps
    ]
    return Bandwidth(size_bytes, messages, max([average, *rates]), average, messages / took_s, wrong_bytes)


def line_of(settings: PairSettings, line: dict[str, Any]) -> Latency | Bandwidth:
    """A line that a rank has written, as an object."""
    if settings.test == "pingpong":
        return msgspec.convert(line, Latency)
    return msgspec.convert(line, Bandwidth)
