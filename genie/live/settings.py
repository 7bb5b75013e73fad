"""What a live run is: everything a rank needs to know, resolved, as it goes into launch.json and run.json."""

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
TIME_MAX_S = 3600
DELAY_MAX_US = 60_000_000
EVERY_MAX = 10**9
# The ICRC covers the IPv4 identification, which a UDP socket does not see. strict: see headers, which needs
# CAP_NET_RAW; auto: where it is allowed and another stack takes part; plain: softroce's own identifications are
# known, and of others any is taken that makes the ICRC right.
ICRC_CHECKS = ("auto", "strict", "plain")

Completion = Literal["auto", "poll", "channel"]  # channel: sleep until the device says that something is complete


class RateFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A rank's NIC runs at `factor` times its rate, in the iterations [from_iteration, until_iteration)."""

    rank: int
    factor: float
    from_iteration: int = 0
    until_iteration: int | None = None
    from_s: float = 0.0  # in seconds from each such iteration's start
    until_s: float | None = None


class LossFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A rank's NIC loses one of every n data packets to one peer, or to each; which one varies, alike in every run."""

    rank: int
    every: int
    peer: int | None = None


class DelayFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Packets from a rank to a peer come later."""

    rank: int
    peer: int
    delay_us: float


class CongestionFault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A rank's NIC without congestion control: it sends no ECN-capable packets and no CNPs, and slows for none."""

    rank: int
    control: Literal[False]


class Faults(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A fault plan: [[rate]], [[loss]], [[delay]] and [[congestion]] tables."""

    rate: list[RateFault] = []
    loss: list[LossFault] = []
    delay: list[DelayFault] = []
    congestion: list[CongestionFault] = []


class VerbsSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What --transport verbs asks of its devices; defaults are NCCL's."""

    hca: str = ""  # devices to use, in NCCL_IB_HCA's grammar; "": all
    gid_index: Annotated[int, Meta(ge=-1, le=65535)] = -1  # -1: found by version and address
    roce_version: Annotated[int, Meta(ge=1, le=2)] = 2
    traffic_class: Annotated[int, Meta(ge=0, le=255)] = 0
    service_level: Annotated[int, Meta(ge=0, le=15)] = 0
    timeout: Annotated[int, Meta(ge=0, le=31)] = 20  # of an acknowledgement: 4.096 us x 2^timeout; 0: none
    retry_count: Annotated[int, Meta(ge=0, le=7)] = 7
    rnr_retry: Annotated[int, Meta(ge=0, le=7)] = 7  # 7: without end
    min_rnr_timer: Annotated[int, Meta(ge=0, le=31)] = 12  # code of table 45 of the InfiniBand specification: 0.64 ms
    huge_pages: bool = False
    numa_bind: bool = False  # run on the CPUs of the device's NUMA node, and take memory there
    completion: Completion = "auto"
    signal_every: Annotated[int, Meta(ge=1, le=65535)] = 16  # work requests from one signal to the next, at most
    send_depth: Annotated[int, Meta(ge=1, le=65535)] = 512  # work requests of a queue pair under way, at most
    receive_depth: Annotated[int, Meta(ge=1, le=65535)] = 512  # receives that a queue pair has posted ahead, at most

    def sleeps(self, spin: bool) -> bool:
        """A rank waits in the kernel for completions; `spin`: there is a core for it to poll on."""
        return self.completion == "channel" or (self.completion == "auto" and not spin)


class RunSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One live run."""

    schema: str = launch_mark(LIVE)  # of the launch file: says what kind of folder the run fills
    workload: str
    out: str
    ranks: int
    addresses: list[str]
    ports: list[str | None]  # the fabric's hosts that the ranks sit on
    host_names: list[str]
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
    nccl: NcclShape | None = None  # NCCL's messages; None: plain ones
    nccl_variables: list[dict[str, str]] = []  # those that are set, and what they do here
    mtu: int = 4096  # path MTU in bytes; 0: the largest that all paths of the job carry
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
    transports: list[str] = []  # by rank, for jobs in which they differ; empty: `transport` everywhere
    devices: list[str | None] = []  # by rank: which take the place of verbs.hca; empty: none
    queue_pairs: int = 1  # between two ranks, of each transport
    split: bool = False  # each message over all of them, instead of one message on each in turn
    source_ports: str = "pair"  # of softroce: see genie/config/source_ports.py
    trace: TracePlan | None = None  # learn the paths of queue pairs
    traffic_class: int = 0  # of softroce: DSCP in the upper six bits
    congestion: dict[str, int | float | str | bool] = {}  # of softroce's senders: see config.congestion
    base_round_trip_ps: int = 0  # of the fabric, for controls that ask for it
    icrc: str = "auto"  # how softroce checks it, see ICRC_CHECKS
    verify: bool = False  # every message has bytes of its own, which the receiver checks
    verbs: VerbsSettings = VerbsSettings()
    warnings: list[str] = []  # made while they were resolved, for run.json
    lab: dict[str, Any] = {}  # that the ranks are in: its name, its faults, and what it cannot do

    @property
    def out_path(self) -> Path:
        return Path(self.out)

    @property
    def lowering(self) -> Lowering:
        return Lowering(self.channels, self.credit, self.algorithms, self.nccl)

    @property
    def kinds(self) -> frozenset[str]:
        """The transports that this job has."""
        return frozenset(self.transports or [self.transport])

    def transport_of(self, rank: int) -> str:
        """`softroce` or `verbs`."""
        return self.transports[rank] if self.transports else self.transport

    def device_of(self, rank: int) -> str:
        """The RDMA devices that a rank may use, in NCCL_IB_HCA's grammar; "": all."""
        return (self.devices[rank] if self.devices else None) or self.verbs.hca


def load_faults(path: Path, ranks: int) -> Faults:
    """Read a fault plan. Raises ValueError that names the file, the place and what is allowed."""
    try:
        faults = msgspec.toml.decode(read_bytes(path), type=Faults)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # too long, no text, no TOML, or no fault plan
        raise ValueError(f"{path}: {error}; see genie run --help for what a fault plan holds") from error
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
    """Table, index, key, value and what is allowed, of values that mean nothing."""
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
