"""Options of commands that play a workload, in groups: each is described once, here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from genie.config.limits import QUEUE_PAIRS_MAX
from genie.config.source_ports import PAIR, PINNED, SourcePorts
from genie.errors import UsageError
from genie.job.option import ADVANCED, FAULTS, NETWORK, OUTPUT, TWIN, WIRE, WORKLOAD, Option, check_choices
from genie.job.tracing import TRACES, trace_problem
from genie.live.settings import ICRC_CHECKS
from genie.live.transport import SOFTROCE, TRANSPORTS
from genie.live.verbs.environment import given_settings
from simtwin.levels.names import ANALYTIC, BUILT_LEVELS, FLOW, MODELS, PACKET, SHARINGS
from simtwin.play.wire import WIRES

PATIENCE_MAX_S = 10**6
CONTROLS = "none, window, dcqcn, dcqcn-timer, timely, swift, dctcp or nscc; in the twin also hpcc"
COVERAGES = ("nics", "links", "none")


@dataclass(frozen=True)
class TrafficOptions:
    """The workload and how it becomes packets, in both worlds."""

    workload: Annotated[
        str,
        Option(
            "Folder of .et files with its groups file, their prefix, or a job file (JOB.toml).",
            WORKLOAD,
            is_argument=True,
        ),
    ] = ""
    ranks: Annotated[
        int | None, Option("Number of ranks; must fit the workload.", WORKLOAD, default="the workload's")
    ] = None
    compute: Annotated[
        str | None,
        Option(
            "Model for compute nodes without a duration: roofline:TFLOPS,GBPS, for example roofline:300,2000.", WORKLOAD
        ),
    ] = None
    slots: Annotated[
        str | None,
        Option(
            "Nodes at once: streams, one on each stream; astra, one each of CPU, compute and communication.",
            WORKLOAD,
            choices=("streams", "astra"),
            default="streams where the trace has streams, otherwise astra",
        ),
    ] = None
    fabric: Annotated[
        Path | None,
        Option(
            "Fabric file, or ASTRA-sim's network.yml.", NETWORK, default="loopback, one switch that only NICs limit"
        ),
    ] = None
    hosts: Annotated[
        Path | None,
        Option("Hosts file, with each rank's address and its port of the fabric.", NETWORK, default="loopback"),
    ] = None
    rate: Annotated[
        str | None,
        Option(
            "Line rate of each rank's soft NIC, such as 200Mb/s, or unlimited.",
            NETWORK,
            default="the fabric's; without a fabric `run` has unlimited, `validate` 200Mb/s, `simulate` needs one",
        ),
    ] = None
    wire: Annotated[
        str,
        Option(
            "Messages of collectives: nccl sends them as NCCL does (slices, clear-to-sends, its variables); plain "
            "sends one message a step.",
            WIRE,
            choices=WIRES,
        ),
    ] = "plain"
    algorithm: Annotated[
        tuple[str, ...],
        Option(
            "OPERATION=ALGORITHM, for example all_reduce=ring; may be repeated. With --wire plain also "
            "OPERATION=FILE.xml, an MSCCL algorithm, for the groups and sizes that it fits.",
            WIRE,
        ),
    ] = ()
    channels: Annotated[
        int | None,
        Option(
            "Channels of each collective.",
            WIRE,
            minimum=1,
            maximum=64,
            default="1; with --wire nccl as NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS allow, from two for each "
            "rank of a node",
        ),
    ] = None
    credit: Annotated[bool, Option("Senders wait for their receivers' clear-to-send.", WIRE)] = False
    ranks_per_node: Annotated[
        int | None,
        Option(
            "Ranks of a node; with --wire nccl only traffic that leaves a node is sent.",
            WIRE,
            minimum=1,
            default="those of each host of the hosts file, or of each server of the fabric; otherwise 1",
        ),
    ] = None
    slice_delay: Annotated[
        str | None, Option("With --wire nccl: time that a GPU needs before each slice, such as 10us.", WIRE)
    ] = None
    queue_pairs: Annotated[
        int | None,
        Option(
            "Queue pairs of each connection.", WIRE, minimum=1, maximum=QUEUE_PAIRS_MAX, default="the fabric's, or 1"
        ),
    ] = None
    split: Annotated[
        bool | None,
        Option(
            "Split each message over all queue pairs of its connection, or send messages whole on each in turn.",
            WIRE,
            ("--split/--in-turn",),
            default="the fabric's, or in turn",
        ),
    ] = None
    congestion: Annotated[
        str | None, Option(f"Congestion control of the senders: {CONTROLS}.", WIRE, default="the fabric's, or none")
    ] = None
    dilation: Annotated[
        int, Option("Multiply all times by this factor, and divide the rate by it.", ADVANCED, minimum=1, maximum=1000)
    ] = 1
    seed: Annotated[
        int, Option("Seed of all random draws: the same seed gives the same bits.", ADVANCED, minimum=0, maximum=2**62)
    ] = 1

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class LiveOptions:
    """Options of live runs only."""

    iterations: Annotated[
        int, Option("Iterations that count, plays of the whole graph.", WORKLOAD, ("--iterations", "-n"), 1, 10**6)
    ] = 1
    warmup: Annotated[int, Option("Number of warm-up iterations, which do not count.", WORKLOAD, (), 0, 10**6)] = 0
    transport: Annotated[str, Option("Transport of ranks whose host names none.", WIRE, choices=TRANSPORTS)] = SOFTROCE
    source_ports: Annotated[
        str,
        Option(
            "UDP source ports of softroce, which ECMP hashes. pair: one for each pair of ranks; nccl: from the queue "
            "pair numbers, as devices do; a port; a range such as 49152-49167 to sweep; pinned (run and validate): "
            "ports that spread load over the links of the learned paths.",
            WIRE,
        ),
    ] = PAIR
    trace_paths: Annotated[
        str | None,
        Option(
            "Learn the path of each queue pair before and after the run, so that links can be accused. auto: where "
            "the fabric file has [addresses].",
            NETWORK,
            choices=TRACES,
        ),
    ] = None
    traffic_class: Annotated[
        int | None,
        Option(
            "IP traffic class: DSCP times 4. NICs set the lower two bits, ECN's.",
            WIRE,
            (),
            0,
            255,
            default="the fabric's, or 0",
        ),
    ] = None
    verify: Annotated[bool, Option("Give each message its own payload, and check it at the receiver.", WIRE)] = False
    icrc: Annotated[
        str,
        Option(
            "ICRC check of softroce. strict covers the IP header (needs CAP_NET_RAW), plain does not; auto is strict "
            "where another RoCE stack takes part and CAP_NET_RAW allows it.",
            WIRE,
            choices=ICRC_CHECKS,
        ),
    ] = "auto"
    verbs: Annotated[
        tuple[str, ...],
        Option(
            "For --transport verbs; may be repeated: hca, gid_index, roce_version, service_level, timeout, "
            "retry_count, rnr_retry, min_rnr_timer, huge_pages, numa_bind, completion, signal_every, send_depth or "
            "receive_depth.",
            WIRE,
            metavar="KEY=VALUE",
            default="NCCL's variables, or NCCL's defaults",
        ),
    ] = ()
    events: Annotated[
        bool, Option("Sleep until a packet comes.", ADVANCED, default="poll, with a core for each rank")
    ] = False
    offload: Annotated[
        bool, Option("Send one datagram per packet, so that captures show a real wire.", ADVANCED, (" /--no-offload",))
    ] = True
    faults: Annotated[
        Path | None,
        Option("Fault plan: [[rate]], [[loss]], [[delay]] and [[congestion]] tables that inject faults.", FAULTS),
    ] = None
    udp_port: Annotated[int, Option("UDP port of softroce.", ADVANCED, (), 1024, 65535)] = 4791
    join: Annotated[float, Option("Seconds within which all ranks must have started.", ADVANCED, minimum=0.1)] = 60.0
    stall: Annotated[float, Option("Seconds without progress before a rank gives up.", ADVANCED, minimum=0.1)] = 10.0

    def __post_init__(self) -> None:
        for option, value in (("--join", self.join), ("--stall", self.stall)):
            if not 0 < value <= PATIENCE_MAX_S:
                raise UsageError(f"{option} {value}: give seconds, at most {PATIENCE_MAX_S}")
        if self.source_ports == PINNED and self.trace_paths is None:
            raise UsageError("--source-ports pinned: is for genie run and validate, which learn paths")
        check_choices(self)
        if problem := trace_problem(self.trace_paths or "auto", self.source_ports):
            raise UsageError(problem)
        try:
            ports = SourcePorts(self.source_ports)
        except ValueError as error:
            raise UsageError(f"--source-ports: {error}") from error
        if self.udp_port in ports:
            raise UsageError(
                f"--source-ports {self.source_ports}: {self.udp_port} is the port that softroce receives at "
                "(--udp-port): leave it out"
            )
        try:
            given_settings(self.verbs)
        except ValueError as error:
            raise UsageError(str(error)) from error


@dataclass(frozen=True)
class LabOptions:
    """The lab of network namespaces in which ranks run."""

    lab: Annotated[
        Path | None,
        Option(
            "Run in the lab of this fabric file, made of network namespaces: the one that `genie lab up` has built, or "
            "one built for this run.",
            NETWORK,
        ),
    ] = None
    lab_fault: Annotated[
        tuple[str, ...],
        Option(
            "Fault of a lab's link during the run, as for `genie lab set`, such as 'leaf0-spine1 rate=40%'; may be "
            "repeated. The twin does not get the fault.",
            FAULTS,
            metavar="'LINK KEY=VALUE'",
        ),
    ] = ()


@dataclass(frozen=True)
class TwinOptions:
    """Options of the twin only."""

    level: Annotated[
        str,
        Option(
            "packet: every packet, exact; flow: messages share links as fluids; analytic: closed-form costs.",
            TWIN,
            metavar="|".join(BUILT_LEVELS),
        ),
    ] = PACKET
    sharing: Annotated[
        str,
        Option(
            f"With --level {FLOW}: max-min, or equal (TrioSim's: an even part of each link).", TWIN, choices=SHARINGS
        ),
    ] = SHARINGS[0]
    model: Annotated[
        str,
        Option(
            f"With --level {ANALYTIC}: genie, or astra-sim (--fabric NETWORK.yml --system SYSTEM.json).",
            TWIN,
            choices=MODELS,
        ),
    ] = MODELS[0]
    system: Annotated[Path | None, Option("With --model astra-sim: ASTRA-sim's system.json.", TWIN)] = None
    logical: Annotated[Path | None, Option("With --model astra-sim: ASTRA-sim's logical_topology.json.", TWIN)] = None
    threads: Annotated[
        int, Option("Threads of the simulation; their number does not change the results.", TWIN, (), 1, 1024)
    ] = 1


@dataclass(frozen=True)
class VerdictOptions:
    """Options of a verdict."""

    require_coverage: Annotated[
        str | None,
        Option(
            "Coverage that a pass needs. nics: all NICs; links: also all links between switches; none: no coverage.",
            OUTPUT,
            choices=COVERAGES,
            default="links where the fabric has links between switches, nics otherwise",
        ),
    ] = None

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class OutputOptions:
    """Options of a run's results."""

    out: Annotated[
        Path | None,
        Option(
            "Folder for the results; an earlier run in it is replaced.",
            OUTPUT,
            ("-o", "--out"),
            default="runs/COMMAND-TIME, and runs/latest points to it",
        ),
    ] = None
    metrics: Annotated[
        Path | None,
        Option(
            "NAME.prom: metrics for node_exporter's textfile collector, written at the end, whatever the result.",
            OUTPUT,
        ),
    ] = None
