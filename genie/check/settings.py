"""Settings of a check, the same on all of its ranks, and the observations of its ranks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from genie.live.settings import RunSettings
from genie.record import CHECK, launch_mark

HOST_QUEUE_PAIRS_MAX = 1024
FIRST_PORT, PORTS = 0xC000, 0x4000  # of RoCEv2's source ports (annex A17)
ROCE, OTHER, ECT0, ECT1 = range(1, 5)  # purpose of a probe; larger numbers are path MTUs in bytes
SMALL = (ROCE, OTHER, ECT0, ECT1)

Pair = tuple[int, int]
Sound = Mapping[Pair, int]  # pairs of stations, the lower first -> path MTU in bytes, 0: no packet arrives


class CheckSettings(RunSettings, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of one check. `traffic_class` is the job's: a check tests whether it arrives unchanged."""

    schema: str = launch_mark(CHECK)
    paths: int = 8  # UDP source ports that are tested from each host to each other, to cover ECMP's paths
    quick: bool = False  # skip rates and congestion control
    marks: bool = True  # switches are expected to set ECN marks
    link_names: dict[str, str] = msgspec.field(default_factory=dict)  # by the IP address at which a link ends

    @property
    def stream_paths(self) -> int:
        """Paths with a queue pair, from each host to each other: fewer where there are many hosts."""
        return max(min(self.paths, HOST_QUEUE_PAIRS_MAX // max(self.ranks, 1)), 1)

    @property
    def probe_ports(self) -> list[int]:
        """UDP source ports, the same on all hosts. No two are adjacent, as simple hashes might not separate those."""
        step = PORTS // self.paths
        return [FIRST_PORT + number * step + (self.seed * 37 + number * 101) % step for number in range(self.paths)]


class Facts(Struct, frozen=True, kw_only=True):
    """A rank's observations of its own host."""

    machine: str  # boot and network namespace: the same for ranks of one host
    addresses: dict[str, list[str]]  # by interface
    interface: str = ""  # the interface that has the rank's address; "": none
    mtu_bytes: int = 0  # of that interface
    is_up: bool = False
    roce_port: str = ""  # why the UDP port cannot be bound; "": it can
    duplicate_owner: str | None = (
        ""  # Ethernet address of a machine that has the rank's address too; "": none; None: not probed
    )
    gid: str = ""  # with RDMA devices: why none has the rank's address; "": one has
    switches_off: list[str] = []  # settings of the device that turn congestion control off


class Refusal(Struct, frozen=True, order=True):
    """An answer instead of an arrival: an ICMP message, or an error of the sender's kernel."""

    source: int
    target: int
    path: int  # index of the source port; -1: unspecified
    by: str  # address of the node that answered; "": the sender's kernel
    kind: int  # ICMP type, or the error number
    code: int = 0
    mtu_bytes: int = 0  # the MTU named in the answer


class Changed(Struct, frozen=True, order=True):
    """A probe that arrived with another TOS (or traffic class) than was sent."""

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
    """The addresses at which a path's links end, as routers answered; "" for one that did not."""

    source: int
    target: int
    path: int
    hops: list[str]


class Probed(Struct, kw_only=True):
    """Observations of paths, of one rank or of all."""

    lost: list[Lost] = []
    changed: list[Changed] = []
    refusals: list[Refusal] = []
    traces: list[Trace] = []
    other_traces: list[Trace] = []  # to the other UDP port, where the job's is lost: their paths may differ


class Flow(Struct, frozen=True):
    """A flow whose rate is measured: from one source port (`path`), or from all (-1)."""

    source: int
    target: int
    path: int = -1


class Rated(Struct, frozen=True):
    """A flow's rate at its receiver; 0 when less than half of it arrived."""

    flow: Flow
    rate_bps: float


class LinkTest(Struct, frozen=True):
    """Flows that all cross some links (addresses at which these end), and their total rate."""

    links: list[str]
    flows: list[Flow]
    rate_bps: float = 0.0


class Rates(Struct, kw_only=True):
    """All rates. Slow results were measured again alone, and the better of both counts."""

    slow_share: float  # of what others reach: a rate below it is slow
    pairs: list[Rated] = []  # over all paths at once
    links: list[LinkTest] = []

    @property
    def by_flow(self) -> dict[Flow, float]:
        """Rates of the pairs, in b/s."""
        return {each.flow: each.rate_bps for each in self.pairs}


class Tally(Struct, frozen=True):
    """Packets sent on each path of a pair, and packets lost, by path."""

    source: int
    target: int
    sent: int
    lost: list[int]


class Latency(Struct, frozen=True):
    """The least time, in ns, that a small datagram took on a path, by the clocks of both hosts."""

    source: int
    target: int
    path: int
    ns: int


class Incast(Struct, frozen=True, kw_only=True):
    """Several hosts that send to one, and counters of their NICs; lists by sender."""

    receiver: int
    senders: list[int]
    marks: int = 0  # CE marks that the receiver saw
    cnps_sent: int = 0
    cnps_received: list[int] = []
    rates_bps: list[float] = []


class Observed(Struct, kw_only=True):
    """All observations of a check."""

    facts: list[Facts]
    stations: list[int]  # ranks that sent and received
    mtu_bytes: dict[int, int] = {}  # by station: the largest path MTU of RoCE that its interface carries
    probed: Probed
    tallies: list[Tally] = []
    rates: Rates | None = None  # None: not measured
    incasts: list[Incast] | None = None  # None: not tried
    notes: list[str] = []  # tests that were not made, and why


def pair_of(one: int, other: int) -> tuple[int, int]:
    """Return two ranks, the lower first."""
    return (one, other) if one < other else (other, one)
