"""The transport interface: messages between ranks. Each transport is a folder of its own behind it.

A transport plays the native walker of one rank: it starts what the walker asks for and reports what has completed. All
ranks set up their transports together: `turn` orders their opening, then endpoints are exchanged, then all connect.
Times are picoseconds of the transport's own clock, which starts when the transport is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from genie.errors import GenieError

if TYPE_CHECKING:
    import genie_core

    from genie.live.settings import RunSettings

PlayState = Literal["done", "timeout", "failed"]

SOFTROCE, VERBS = "softroce", "verbs"
TRANSPORTS = (SOFTROCE, VERBS)
# Kinds of failure: no progress; the peer refused a request; this end refused a packet and ended the connection.
STALLED, REFUSED, ENDED = "stalled", "refused", "ended"


class TransportError(GenieError):
    """A transport cannot work as asked: one line that says what is wrong, where, and what to do; and the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Site:
    """The place of this rank among the others."""

    local_rank: int  # among the ranks of its address
    sharers: int  # ranks of its address, itself included
    neighbours: int  # ranks of its machine, itself included
    shared_clock: bool  # with rank 0


@dataclass(frozen=True)
class TransportContext:
    """The inputs of a transport: one rank of a run, its site and its limits."""

    settings: RunSettings
    rank: int
    site: Site
    memory_bytes: int  # the largest message of any rank; at least 4096
    stall_s: float  # longest time without any progress
    spin: bool  # poll instead of sleeping in the kernel
    ports: Mapping[int, Sequence[int]] = field(default_factory=dict)  # peer -> chosen UDP source ports by queue pair


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Connection data of a rank that its peers need to send to it, whatever transport each of them has."""

    transport: str
    rank: int
    address: str  # IP address of the data network; "" on InfiniBand
    local_rank: int  # among the ranks of its address
    mtu_bytes: int  # path MTU: payload of a full packet
    rkey: int
    memory_address: int  # base of the memory that peers write to
    memory_bytes: int
    queue_pairs: list[list[int]]  # by peer, then by queue pair: numbers of this rank's queue pairs
    first_psns: list[list[int]]  # by peer, then by queue pair: first PSN that this rank sends
    window_packets: int = 0  # packets in flight on a queue pair, at most; 0: the device decides
    gid: str = ""  # of its device's port, as an IPv6 address; "": the GID of the address
    lid: int = 0  # InfiniBand only
    # Set where a rank checks the contents of received messages: each queue pair cycles through `slots` places of
    # `slot_bytes` each, from an address on. Without slots all messages go to `memory_address`.
    places: list[list[int]] = []  # by peer, then by queue pair: the address of its first slot
    slots: int = 0
    slot_bytes: int = 0

    def queue_pairs_for(self, peer: int, count: int) -> list[int]:
        """Return the numbers of this rank's queue pairs that `peer` sends to; ValueError unless there are `count`."""
        numbers = self.queue_pairs[peer]
        if len(numbers) != count or len(self.first_psns[peer]) != count:
            raise ValueError(
                f"rank {self.rank} has {len(numbers)} queue pairs for rank {peer}, which wants {count}: start all "
                "ranks with the same settings"
            )
        return numbers


class Transport(Protocol):
    """Messages of one rank. Methods raise TransportError until the first iteration; later failures are in `error`."""

    name: str
    turn: int  # opens after all ranks with a lower turn have opened
    mtu_max_bytes: int  # the largest path MTU that its device supports
    over_ip: bool  # packets travel by IP between the ranks' addresses, so that paths can be probed with datagrams
    rdma_port: str  # the RDMA device and port that it sends from, such as "mlx5_0:1"; "" without one

    def open(self, mtu_bytes: int) -> None:
        """Acquire sockets, devices and memory, so that peers can connect. `mtu_bytes`: path MTU of the run."""

    def endpoint_info(self) -> EndpointInfo:
        """Return the connection data that peers need; valid after open()."""

    def connect(self, endpoints: Sequence[EndpointInfo]) -> None:
        """Connect to all other ranks. `endpoints`: in rank order, this rank's own included."""

    def ports(self) -> list[list[int]]:
        """Return UDP source ports by peer, then by queue pair; 0 where unknown. Valid after connect()."""

    def expect(self, ports: Sequence[Sequence[Sequence[int]]]) -> None:
        """Accept a peer's packets from these source ports only, where not 0. `ports`: each rank's ports(), by rank."""

    def set_plan(self, plan: genie_core.Plan) -> None:
        """Set the plan to play; this rank is its only one."""

    def begin(self, origin_ps: int) -> PlayState:
        """Wait for `origin_ps`, time 0 of the plan, and start the plan from its beginning."""

    def run(self, deadline_ps: int) -> PlayState:
        """Continue until the plan is done, something fails or the deadline passes."""

    def serve(self, deadline_ps: int) -> PlayState:
        """Answer peers until the deadline, without playing."""

    def set_faults(self, iteration: int, origin_ps: int) -> None:
        """Apply the fault plan's faults of an iteration, before it begins."""

    def waiting(self) -> str:
        """Return what the nodes that have started and not ended wait for, separated by `; `."""

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the walker's records of the last iteration: nodes, sends, receives; arrays, ps from the origin."""

    def counters(self) -> Mapping[str, int]:
        """Return counts since the start; their names are the transport's own."""

    def refused_senders(self) -> list[tuple[str, str, int, int]]:
        """Return the sources of refused packets: counter, IP address, UDP port of the first, number of packets."""

    def paths(self) -> list[str]:
        """Return, by peer, what distinguishes its paths, such as UDP source ports; "" for this rank itself."""

    def trace(self) -> list[Any]:
        """Return the packets sent so far, where the settings keep them and the transport sees them."""

    def close(self) -> None:
        """Release all resources. The transport cannot be used afterwards."""

    @property
    def error(self) -> str: ...

    @property
    def failure(self) -> str:
        """The kind of the error: stalled (no progress), refused (by a peer), or another; empty without an error."""

    @property
    def icrc(self) -> str:
        """How the ICRC of received packets is checked, in words."""

    @property
    def now_ps(self) -> int: ...

    @property
    def epoch_ns(self) -> int:
        """The monotonic clock's time at the transport's time 0."""


def draw_psns(count: int) -> list[int]:
    """Return random first PSNs of `count` queue pairs, which only the ranks of the run can know."""
    return [secrets.randbits(24) for _ in range(count)]


def draw_key() -> int:
    """Return a random rkey for a rank that chooses its own; only the ranks of the run can know it."""
    return secrets.randbits(32)
