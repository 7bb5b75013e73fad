"""What carries messages between ranks: the small face behind which each transport is a folder of its own.

A transport plays the native walker of one rank: it starts what the walker asks for and tells it what has completed.
Ranks build theirs in step: `turn` says when each may open, endpoints are exchanged, all connect. Times are picoseconds
of the transport's own clock, which starts when it is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    import genie_core

    from genie.live.settings import RunSettings

PlayState = Literal["done", "timeout", "failed"]

SOFTROCE, VERBS = "softroce", "verbs"
TRANSPORTS = (SOFTROCE, VERBS)


class TransportError(Exception):
    """A transport that cannot work as asked: one line that says what, where and what to do; the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Site:
    """Where this rank sits among the others."""

    local_rank: int  # among those of its address
    sharers: int  # ranks of its address
    neighbours: int  # ranks of its machine
    shared_clock: bool  # with rank 0


@dataclass(frozen=True)
class TransportContext:
    """What a transport is made for: one rank of a run."""

    settings: RunSettings
    rank: int
    site: Site
    memory_bytes: int  # the largest message of any rank
    stall_s: float  # longest time without any progress
    spin: bool  # poll instead of sleeping in the kernel
    ports: Mapping[int, Sequence[int]] = field(default_factory=dict)  # peer -> pinned source ports by queue pair


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the others need to know of a rank to send to it, whatever transport each of them has."""

    transport: str
    rank: int
    address: str  # IP address of the data network; "" on InfiniBand
    local_rank: int  # among the ranks of its address
    mtu_bytes: int  # path MTU: payload of a full packet
    rkey: int
    memory_address: int  # base of the memory that peers write to
    memory_bytes: int
    queue_pairs: list[list[int]]  # by peer, then by connection: the numbers of this rank's queue pairs
    first_psns: list[list[int]]  # by peer, then by connection: of what this rank sends
    window_packets: int = 0  # that it has under way on a queue pair, at most; 0: its device knows
    gid: str = ""  # of its device's port, as an IPv6 address; "": that of the address
    lid: int = 0  # InfiniBand only
    # Where a rank checks messages once they are there: queue pair by queue pair they take turns in `slots` places of
    # `slot_bytes` each, from an address on. Without slots all messages go to `memory_address`.
    places: list[list[int]] = []  # by peer, then by connection
    slots: int = 0
    slot_bytes: int = 0

    def queue_pairs_for(self, peer: int, count: int) -> list[int]:
        """The numbers of this rank's queue pairs that `peer` sends to. Raises ValueError when there are not so many."""
        numbers = self.queue_pairs[peer]
        if len(numbers) != count or len(self.first_psns[peer]) != count:
            raise ValueError(
                f"rank {self.rank} has {len(numbers)} queue pairs for rank {peer}, which wants {count}: start all "
                "ranks with the same settings"
            )
        return numbers


class Transport(Protocol):
    """One rank's messages. Methods raise TransportError until the first iteration; later failures are in `error`."""

    name: str
    turn: int  # opens after all ranks with a lower one have
    mtu_max_bytes: int  # the largest path MTU that its device takes
    over_ip: bool  # packets go from its address to its peers' by IP: paths can be tried with datagrams
    rdma_port: str  # the device and port that it sends by, such as "mlx5_0:1"; "" without one

    def open(self, mtu_bytes: int) -> None:
        """Take what peers need to find: sockets, devices, memory. `mtu_bytes`: what all paths of the job carry."""

    def endpoint_info(self) -> EndpointInfo:
        """What peers need to know; after open()."""

    def connect(self, endpoints: Sequence[EndpointInfo]) -> None:
        """Make connections to all other ranks; `endpoints` in rank order, the own one included."""

    def ports(self) -> list[list[int]]:
        """By peer, then by connection: the UDP source ports that it sends from, 0 where it does not know; connected."""

    def expect(self, ports: Sequence[Sequence[Sequence[int]]]) -> None:
        """Take a peer's packets from these ports alone, where they are not 0: what each rank's ports() says."""

    def set_plan(self, plan: genie_core.Plan) -> None:
        """What to play: the only rank of the plan."""

    def begin(self, origin_ps: int) -> PlayState:
        """Wait for `origin_ps`, the plan's time 0, and start it over."""

    def run(self, deadline_ps: int) -> PlayState:
        """Play on until the plan is done, something fails or the deadline passes."""

    def serve(self, deadline_ps: int) -> PlayState:
        """Answer peers until the deadline, without playing."""

    def set_faults(self, iteration: int, origin_ps: int) -> None:
        """Put the fault plan's anomalies of an iteration into force, before it begins."""

    def waiting(self) -> str:
        """What the nodes that have started and not ended wait for, parted by `; `."""

    def records(self) -> dict[str, dict[str, Any]]:
        """The walker's records of the last iteration: nodes, sends, receives; arrays, ps from the origin."""

    def counters(self) -> Mapping[str, int]:
        """What has been counted since the start; the names are the transport's own."""

    def refused_senders(self) -> list[tuple[str, str, int, int]]:
        """Where packets came from that it refused: counter, address, UDP port of the first, how many."""

    def paths(self) -> list[str]:
        """By peer: what tells its path from others, such as UDP source ports; "" for the own rank."""

    def trace(self) -> list[Any]:
        """Packets sent so far, where the settings ask to keep them and the transport sees them."""

    def close(self) -> None:
        """Give back what it holds. The transport is of no use afterwards."""

    @property
    def error(self) -> str: ...

    @property
    def icrc(self) -> str:
        """How the ICRC of what arrives is checked, in words."""

    @property
    def now_ps(self) -> int: ...

    @property
    def epoch_ns(self) -> int:
        """The monotonic clock at the transport's time 0."""


def draw_psns(count: int) -> list[int]:
    """First packet sequence numbers of `count` queue pairs, which nobody but the ranks of the run can know."""
    return [secrets.randbits(24) for _ in range(count)]


def draw_key() -> int:
    """The rkey of a rank that chooses its own; nobody but the ranks of the run can know it."""
    return secrets.randbits(32)
