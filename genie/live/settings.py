"""Settings of a live run: everything a rank needs, resolved, as launch.json and run.json hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from genie.collectives.nccl.shape import NcclShape
from genie.inputs.content import read_bytes
from genie.live.path_names import TracePlan
from genie.plan.lowering import Lowering
from genie.record import LIVE, launch_mark

# Stretched by the largest dilation (1000) and in picoseconds, these still fit 63 bits.
REAL_TIME_PRIORITY = 10  # of ranks under SCHED_FIFO
TIME_MAX_S = 3600
DELAY_MAX_US = 60_000_000
EVERY_MAX = 10**9
# The ICRC covers the IPv4 identification, which a UDP socket does not see. strict: read the headers, which needs
# CAP_NET_RAW; auto: strict where it is allowed and another stack takes part. plain: softroce's own identifications are
# known, and for another stack's packets any identification that makes the ICRC right is accepted.
ICRC_CHECKS = ("auto", "strict", "plain")

Completion = Literal["auto", "poll", "channel"]  # channel: sleep until the device reports a completion


class RateFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The NIC of a rank runs at `factor` times its rate, in the iterations [from_iteration, until_iteration)."""

    rank: int
    factor: float
    from_iteration: int = 0
    until_iteration: int | None = None
    from_s: float = 0.0  # seconds from the start of each such iteration
    until_s: float | None = None


class LossFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The NIC of a rank loses one of every `every` data packets to one peer, or to each peer.

    Which packet is lost varies within a run, and is the same in every run.
    """

    rank: int
    every: int
    peer: int | None = None


class DelayFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Packets from a rank to a peer arrive `delay_us` later."""

    rank: int
    peer: int
    delay_us: float


class CongestionFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The NIC of a rank has no congestion control: it sends no ECN-capable packets and no CNPs, and ignores CNPs."""

    rank: int
    control: Literal[False]


class Faults(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A fault plan: [[rate]], [[loss]], [[delay]] and [[congestion]] tables."""

    rate: list[RateFault] = []
    loss: list[LossFault] = []
    delay: list[DelayFault] = []
    congestion: list[CongestionFault] = []


class VerbsSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of `--transport verbs`; the defaults are NCCL's."""

    hca: str = ""  # devices to use, in NCCL_IB_HCA's grammar; "": all
    gid_index: Annotated[int, Meta(ge=-1, le=65535)] = -1  # -1: chosen by RoCE version and address
    roce_version: Annotated[int, Meta(ge=1, le=2)] = 2
    traffic_class: Annotated[int, Meta(ge=0, le=255)] = 0
    service_level: Annotated[int, Meta(ge=0, le=15)] = 0
    timeout: Annotated[int, Meta(ge=0, le=31)] = 20  # ACK timeout: 4.096 us x 2^timeout; 0: none
    retry_count: Annotated[int, Meta(ge=0, le=7)] = 7
    rnr_retry: Annotated[int, Meta(ge=0, le=7)] = 7  # 7: unlimited
    min_rnr_timer: Annotated[int, Meta(ge=0, le=31)] = 12  # code of table 45 of the InfiniBand specification: 0.64 ms
    huge_pages: bool = False
    numa_bind: bool = False  # run on the CPUs of the device's NUMA node, and take memory there
    completion: Completion = "auto"
    signal_every: Annotated[int, Meta(ge=1, le=65535)] = 16  # work requests per signaled completion, at most
    send_depth: Annotated[int, Meta(ge=1, le=65535)] = 512  # work requests in flight on a queue pair, at most
    receive_depth: Annotated[int, Meta(ge=1, le=65535)] = 512  # receives posted ahead on a queue pair, at most

    def sleeps(self, spin: bool) -> bool:
        """Return whether a rank waits in the kernel for completions. `spin`: the rank has a core to poll on."""
        return self.completion == "channel" or (self.completion == "auto" and not spin)


class RunSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of one live run."""

    schema: str = launch_mark(LIVE)  # of the launch file: the kind of run folder that the run writes
    workload: str
    out: str
    ranks: int
    addresses: list[str]
    ports: list[str | None]  # by rank: its host in the fabric file; None: none
    host_names: list[str]
    fabric: str = ""  # name in the fabric file; "" without one
    rate_bps: int = 0
    dilation: int = 1
    iterations: int = 1
    warmup: int = 0
    seed: int = 1
    slots: str | None = None
    compute: str | None = None
    channels: int = 1
    credit: bool = False
    algorithms: dict[str, str] = {}
    ranks_per_node: int = 1  # for plain algorithms that know nodes
    nccl: NcclShape | None = None  # NCCL's message pattern; None: one plain message per transfer
    nccl_variables: list[dict[str, str]] = []  # NCCL's environment variables that are set, and their effect here
    mtu: int = 4096  # path MTU in bytes; 0: the largest that all paths of the run carry
    window_packets: int = 256
    ack_every_packets: int = 16
    ack_timeout_ns: int = 67_000_000
    retry_limit: int = 7
    rnr_retry_limit: int = 7
    frame_overhead_bytes: int = 38
    offload: bool = True
    real_time: bool = True
    spin: bool | None = None
    udp_port: int = 4791
    stall_s: float = 10.0
    join_s: float = 60.0
    faults: Faults = Faults()
    keep_trace: bool = False
    transport: str = "softroce"
    transports: list[str] = []  # by rank, for runs that mix transports; empty: `transport` everywhere
    devices: list[str | None] = []  # by rank: devices that override verbs.hca; empty: none
    queue_pairs: int = 1  # between two ranks, per transport
    split: bool = False  # split each message over all of them, instead of sending whole messages on each in turn
    spray: int = 1  # source ports that the packets of softroce's queue pair take in turn; above 1 it is the only one
    reordering_packets: int | None = None  # of them: see genie/config/spraying.py
    source_ports: str = "pair"  # of softroce: see genie/config/source_ports.py
    trace: TracePlan | None = None  # learn the paths of queue pairs; None: do not
    traffic_class: int = 0  # of softroce: DSCP in the upper six bits
    congestion: dict[str, int | float | str | bool] = {}  # of softroce's senders: see config.congestion
    base_round_trip_ps: int = 0  # of the fabric, for congestion controls that need it
    icrc: str = "auto"  # softroce's check of the ICRC, see ICRC_CHECKS
    verify: bool = False  # give every message bytes of its own, which the receiver checks
    verbs: VerbsSettings = VerbsSettings()
    warnings: list[str] = []  # found while the settings were resolved, for run.json
    collectives: str = ""  # that were played in place of a trace
    command: str = ""  # that repeats the run; "" for a script
    lab: dict[str, Any] = {}  # the lab that the ranks run in: its name, its faults, and what it cannot model

    @property
    def out_path(self) -> Path:
        return Path(self.out)

    @property
    def lowering(self) -> Lowering:
        return Lowering(self.channels, self.credit, self.algorithms, self.nccl, self.ranks_per_node)

    @property
    def ports_each(self) -> int:
        """The source ports between two ranks, in one direction."""
        return self.queue_pairs * self.spray

    @property
    def kinds(self) -> frozenset[str]:
        """The transports of this run."""
        return frozenset(self.transports or [self.transport])

    def transport_of(self, rank: int) -> str:
        """Return the transport of a rank: `softroce` or `verbs`."""
        return self.transports[rank] if self.transports else self.transport

    def device_of(self, rank: int) -> str:
        """Return the RDMA devices that a rank may use, in NCCL_IB_HCA's grammar; "": all."""
        return (self.devices[rank] if self.devices else None) or self.verbs.hca


def load_faults(path: Path, ranks: int) -> Faults:
    """Read a fault plan. Raise ValueError that names the file, the place and the allowed values."""
    try:
        faults = msgspec.toml.decode(read_bytes(path), type=Faults)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # too long, not text, not TOML, or not a fault plan
        raise ValueError(f"{path}: {error}; docs/reference-files.md lists the keys of a fault plan") from error
    named: list[tuple[str, int, int | None]] = [("rate", entry.rank, None) for entry in faults.rate]
    named += [("loss", entry.rank, entry.peer) for entry in faults.loss]
    named += [("delay", entry.rank, entry.peer) for entry in faults.delay]
    named += [("congestion", entry.rank, None) for entry in faults.congestion]
    for name, rank, peer in named:
        for key, value in (("rank", rank), ("peer", peer)):
            if value is not None and not 0 <= value < ranks:
                raise ValueError(f"{path}: [[{name}]] {key} = {value}: must be in 0..{ranks - 1}")
    twice = [name for name, count in Counter(entry for entry in named if entry[0] != "rate").items() if count > 1]
    if twice:
        name, rank, peer = twice[0]
        to = "" if peer is None else f", peer = {peer}"
        raise ValueError(f"{path}: two [[{name}]] tables have rank = {rank}{to}: leave one out")
    for table, number, key, given, allowed in _wrong_values(faults):
        raise ValueError(f"{path}: [[{table}]] number {number + 1}: {key} = {given}: must be {allowed}")
    return faults


def _wrong_values(faults: Faults) -> Iterator[tuple[str, int, str, object, str]]:
    """Yield table, index, key, value and allowed values of each value out of range."""
    for number, rate in enumerate(faults.rate):
        if not 0 < rate.factor <= 1:
            yield "rate", number, "factor", rate.factor, "above 0 and at most 1"
        if rate.from_iteration < 0:
            yield "rate", number, "from_iteration", rate.from_iteration, "0 or more"
        if rate.until_iteration is not None and rate.until_iteration <= rate.from_iteration:
            yield (
                "rate",
                number,
                "until_iteration",
                rate.until_iteration,
                f"above from_iteration = {rate.from_iteration}",
            )
        if not 0 <= rate.from_s < TIME_MAX_S:
            yield "rate", number, "from_s", rate.from_s, f"0 or more, below {TIME_MAX_S}"
        if rate.until_s is not None and not rate.from_s < rate.until_s <= TIME_MAX_S:
            yield "rate", number, "until_s", rate.until_s, f"above from_s = {rate.from_s}, at most {TIME_MAX_S}"
    for number, loss in enumerate(faults.loss):
        if not 1 <= loss.every <= EVERY_MAX:
            yield "loss", number, "every", loss.every, f"in 1..{EVERY_MAX}"
        if loss.peer == loss.rank:
            yield "loss", number, "peer", loss.peer, "another rank"
    for number, delay in enumerate(faults.delay):
        if not 0 <= delay.delay_us <= DELAY_MAX_US:
            yield "delay", number, "delay_us", delay.delay_us, f"in 0..{DELAY_MAX_US}"
        if delay.peer == delay.rank:
            yield "delay", number, "peer", delay.peer, "another rank"
