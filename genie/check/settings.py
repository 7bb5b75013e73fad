"""What a check is, as all of its ranks know it, and what they observe."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from genie.live.settings import RunSettings
from genie.record import CHECK, launch_mark

HOST_QUEUE_PAIRS_MAX = 1024
FIRST_PORT, PORTS = 0xC000, 0x4000  # of RoCEv2's source ports (annex A17)
ROCE, OTHER, ECT0, ECT1 = range(1, 5)  # what a probe tries; larger numbers are path MTUs in bytes
SMALL = (ROCE, OTHER, ECT0, ECT1)

Pair = tuple[int, int]
Sound = Mapping[Pair, int]  # pairs of stations, the lower first -> path MTU in bytes, 0: none gets through


class CheckSettings(RunSettings, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One check. `traffic_class` is what is sent to see whether it arrives as it is."""

    schema: str = launch_mark(CHECK)
    paths: int = 8  # UDP source ports that are tried from each host to each other, so that ECMP's ways are seen
    quick: bool = False  # without rates and congestion
    marks: bool = True  # switches are expected to mark
    link_names: dict[str, str] = msgspec.field(default_factory=dict)  # by the IP address at which a link ends

    @property
    def slow_share(self) -> float:
        """Of what others reach; below it a rate is slow. Without a line rate hosts reach what their CPUs allow."""
        return 0.85 if self.rate_bps else 0.6

    @property
    def stream_paths(self) -> int:
        """Paths from each host to each other that have a queue pair: fewer where there are many hosts."""
        return max(min(self.paths, HOST_QUEUE_PAIRS_MAX // max(self.ranks, 1)), 1)

    @property
    def probe_ports(self) -> list[int]:
        """Alike on all hosts; none of them neighbours, which simple hashes would send the same way."""
        step = PORTS // self.paths
        return [FIRST_PORT + number * step + (self.seed * 37 + number * 101) % step for number in range(self.paths)]


class Facts(Struct, frozen=True, kw_only=True):
    """What a rank sees of its own host."""

    machine: str  # boot and network namespace: the same for ranks of one host
    addresses: dict[str, list[str]]  # by interface
    interface: str = ""  # that has the rank's address; "" none
    mtu_bytes: int = 0  # of that interface
    is_up: bool = False
    roce_port: str = ""  # why the UDP port cannot be had; "" it can
    duplicate_owner: str | None = (
        ""  # Ethernet address of a machine that has the rank's address too; None: nobody was asked
    )
    gid: str = ""  # with RDMA devices: why none has the rank's address; "" one has
    switches_off: list[str] = []  # settings of the device that turn congestion control off


class Refusal(Struct, frozen=True, order=True):
    """What came back instead of an arrival: an ICMP message, or the own kernel's error."""

    source: int
    target: int
    path: int  # number of the source port; -1: of none in particular
    by: str  # address of who says so; "" the own kernel
    kind: int  # of ICMP, or the error number
    code: int = 0
    mtu_bytes: int = 0  # that it names


class Changed(Struct, frozen=True, order=True):
    """A probe whose TOS (or traffic class) is not what was sent."""

    source: int
    target: int
    path: int
    sent: int
    arrived: int


class Lost(Struct, frozen=True, order=True):
    """A probe that has not arrived in any try."""

    source: int
    target: int
    path: int
    what: int


class Trace(Struct, frozen=True):
    """The addresses at which a path's links end, as routers answered; "" one that did not."""

    source: int
    target: int
    path: int
    hops: list[str]


class Probed(Struct, kw_only=True):
    """What one rank, or all of them, have seen of the paths."""

    lost: list[Lost] = []
    changed: list[Changed] = []
    refusals: list[Refusal] = []
    traces: list[Trace] = []
    other_traces: list[Trace] = []  # to the other UDP port, where the job's gets lost: they take ways of their own


class Flow(Struct, frozen=True):
    """What is sent to measure a rate: by which source port, or by all (-1)."""

    source: int
    target: int
    path: int = -1


class Rated(Struct, frozen=True):
    """A flow's rate as its receiver saw it; 0 when not even half of it came."""

    flow: Flow
    rate_bps: float


class LinkTest(Struct, frozen=True):
    """Flows that all cross some links (addresses at which they end), and what they got together."""

    links: list[str]
    flows: list[Flow]
    rate_bps: float = 0.0


class Rates(Struct, kw_only=True):
    """All rates. What looked slow was measured again alone, and the better of both counts."""

    pairs: list[Rated] = []  # over all paths at once
    links: list[LinkTest] = []


class Tally(Struct, frozen=True):
    """Of how many packets on each path of a pair, how many were lost, by path."""

    source: int
    target: int
    sent: int
    lost: list[int]


class Incast(Struct, frozen=True, kw_only=True):
    """Several hosts that send to one, and what their NICs counted; lists by sender."""

    receiver: int
    senders: list[int]
    marks: int = 0  # CE that the receiver saw
    cnps_sent: int = 0
    cnps_received: list[int] = []
    rates_bps: list[float] = []


class Observed(Struct, kw_only=True):
    """All that a check has seen."""

    facts: list[Facts]
    stations: list[int]  # ranks that sent and received
    mtu_bytes: dict[int, int] = {}  # by station: the largest path MTU of RoCE that its interface carries
    probed: Probed
    tallies: list[Tally] = []
    rates: Rates | None = None  # None: not measured
    incasts: list[Incast] | None = None  # None: not tried
    notes: list[str] = []  # what was not tried, and why


def pair_of(one: int, other: int) -> tuple[int, int]:
    """Two ranks, the lower first."""
    return (one, other) if one < other else (other, one)
