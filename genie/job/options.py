"""Options of commands that play a workload, in groups: each is described once, here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from genie.collectives.nccl.tuning import NEWEST, gpus, versions
from genie.config.limits import QUEUE_PAIRS_MAX, SPRAY_MAX
from genie.config.source_ports import PAIR, PINNED, SourcePorts
from genie.errors import UsageError
from genie.job.option import ADVANCED, FAULTS, NETWORK, TWIN, WIRE, WORKLOAD, Option, check_choices
from genie.job.tracing import TRACES, trace_problem
from genie.live.settings import ICRC_CHECKS
from genie.live.transport import SOFTROCE, TRANSPORTS
from genie.live.verbs.environment import given_settings
from simtwin.levels.names import ANALYTIC, FLOW, LEVELS, MODELS, SHARINGS, SKIP
from simtwin.play.wire import DEFAULT_GPU, WIRES

PATIENCE_MAX_S = 10**6
CONTROLS = "none, window, dcqcn, dcqcn-timer, timely, swift, dctcp or nscc; in the twin also hpcc"


@dataclass(frozen=True)
class TrafficOptions:
    """The workload and how it becomes packets, in both worlds."""

    workload: Annotated[
        str,
        Option(
            "Folder with a trace for each rank (`PREFIX.RANK.et`) and a groups file. Alternatively the path of such "
            "files up to PREFIX, or a job file (`JOB.toml`).",
            WORKLOAD,
            is_argument=True,
        ),
    ] = ""
    ranks: Annotated[
        int | None,
        Option(
            "Number of ranks. The command refuses a workload with another number of ranks.",
            WORKLOAD,
            default="the number of ranks in the workload",
        ),
    ] = None
    compute: Annotated[
        str | None,
        Option(
            "Model that gives a duration to compute nodes and memory nodes without one: `roofline:TFLOPS,GBPS`. TFLOPS "
            "is in 10^12 operations per second, GBPS is in 10^9 bytes per second. Example: `roofline:300,2000`.",
            WORKLOAD,
            default="none. Each compute node and memory node must then have a duration",
        ),
    ] = None
    slots: Annotated[
        str | None,
        Option(
            "Nodes that a rank may run at the same time. `streams`: one node on each stream of the trace. `astra`: one "
            "CPU node, one compute node and one communication node.",
            WORKLOAD,
            choices=("streams", "astra"),
            default="`streams` if the trace has streams, otherwise `astra`",
        ),
    ] = None
    fabric: Annotated[
        Path | None,
        Option(
            "Fabric file, or a `network.yml` of ASTRA-sim.",
            NETWORK,
            default="none. The twin then plays one switch, on which only the NICs limit the rate",
        ),
    ] = None
    hosts: Annotated[
        Path | None,
        Option(
            "Hosts file. It gives the machine, the IP address and the host of the fabric for each rank.",
            NETWORK,
            default="none. Rank r then takes host r of the fabric. In a live run, rank r has a loopback address of "
            "this machine",
        ),
    ] = None
    rate: Annotated[
        str | None,
        Option(
            "Line rate of the NIC of each rank, such as 200Mb/s, or `unlimited`. With a fabric file, the rate must be "
            "that of the host links, except in `check`. Do not give it for RDMA devices, which have their own rate.",
            NETWORK,
            default="the rate of the host links in the fabric file. Without a fabric file, `run` and `bench` on the "
            "network take `unlimited`, and `validate` and `calibrate` take 200Mb/s. Without a fabric file, `simulate` "
            "and the twin of `bench` need this option",
        ),
    ] = None
    wire: Annotated[
        str,
        Option(
            "Messages that make up a collective. `nccl`: messages as NCCL sends them, with slices and clear-to-sends; "
            "the environment variables of NCCL apply. `plain`: one message for each step of the algorithm.",
            WIRE,
            choices=WIRES,
        ),
    ] = "plain"
    algorithm: Annotated[
        tuple[str, ...],
        Option(
            "Algorithm of an operation, as `OPERATION=ALGORITHM`, such as `all_reduce=ring`. May be repeated. With "
            "`--wire nccl`, all_reduce has ring and tree, and all_gather and reduce_scatter have ring and pat. With "
            "`--wire plain`, all_reduce also has hierarchical, which knows nodes (`--ranks-per-node`). There, "
            "`OPERATION=FILE.xml` names an MSCCL algorithm. Groups and sizes that the MSCCL file does not fit take the "
            "default algorithm.",
            WIRE,
            default="chosen by operation and size",
        ),
    ] = ()
    channels: Annotated[
        int | None,
        Option(
            "Number of channels of each collective.",
            WIRE,
            minimum=1,
            maximum=64,
            default="1 with `--wire plain`, and twice the ranks of a node with `--wire nccl`. `NCCL_MIN_NCHANNELS` and "
            "`NCCL_MAX_NCHANNELS` limit the latter",
        ),
    ] = None
    credit: Annotated[
        bool,
        Option(
            "With `--wire plain`: a sender waits for a clear-to-send of the receiver before it sends a message. With "
            "recursive doubling no sender waits. With `--wire nccl` the option has no effect: messages of NCCL always "
            "have clear-to-sends.",
            WIRE,
        ),
    ] = False
    ranks_per_node: Annotated[
        int | None,
        Option(
            "With `--wire nccl`, or with a hierarchical algorithm: number of ranks on each node. A node is a machine "
            "with several ranks. With `--wire nccl`, data between ranks of one node is not sent.",
            WIRE,
            minimum=1,
            default="the number of ranks on each machine, if the hosts file has several machines with equally many "
            "ranks. Without such a hosts file, the number of hosts in each server of the fabric file, otherwise 1",
        ),
    ] = None
    slice_delay: Annotated[
        str | None, Option("With `--wire nccl`: time that a GPU needs before it sends each slice, such as 10us.", WIRE)
    ] = None
    gpu: Annotated[
        str | None,
        Option(
            f"With `--wire nccl`: GPU of the servers: {', '.join(gpus())}. NCCL's steps then take the time that they "
            "take on this GPU, also inside servers, in the simulation and in live runs. NCCL's own rule chooses "
            "algorithm and protocol of each collective. With `none`, GPUs take no time.",
            WIRE,
            default="`gpu` of `[server]` in the fabric file. Without it, GPUs take no time, but servers of several "
            f"ranks on a known fabric have GPUs of type {DEFAULT_GPU}",
        ),
    ] = None
    nccl: Annotated[
        str | None,
        Option(f"With a GPU: version of NCCL: {', '.join(versions())}.", WIRE, default=NEWEST),
    ] = None
    queue_pairs: Annotated[
        int | None,
        Option(
            "Number of queue pairs of each connection between two ranks.",
            WIRE,
            minimum=1,
            maximum=QUEUE_PAIRS_MAX,
            default="the value of the fabric file, otherwise that of an environment variable of NCCL, otherwise 1",
        ),
    ] = None
    split: Annotated[
        bool | None,
        Option(
            "`--split` cuts each message into parts, one for each queue pair of the connection. `--in-turn` sends each "
            "message whole, on one queue pair after the other.",
            WIRE,
            ("--split/--in-turn",),
            default="the value of the fabric file, otherwise that of an environment variable of NCCL, otherwise "
            "`--in-turn`",
        ),
    ] = None
    spray: Annotated[
        int | None,
        Option(
            "Number of UDP source ports that the packets of each queue pair take in turn. ECMP then spreads the "
            "packets of one message over several paths. The receiver places each packet by the address that it "
            "carries, in any order. For softroce and the twin. With 1, packets keep one port and their order.",
            WIRE,
            minimum=1,
            maximum=SPRAY_MAX,
            default="the value of the fabric file, otherwise 1",
        ),
    ] = None
    congestion: Annotated[
        str | None,
        Option(
            f"Congestion control of the senders: {CONTROLS}.",
            WIRE,
            default="the control of the fabric file, otherwise `none`",
        ),
    ] = None
    dilation: Annotated[
        int,
        Option(
            "Factor by which a live run on softroce is slowed down, for rates that the hosts cannot reach. During the "
            "run, times are longer and the rate is lower by this factor. The records have the times and the rate "
            "without it.",
            ADVANCED,
            minimum=1,
            maximum=1000,
            default="1",
        ),
    ] = 1
    seed: Annotated[int, Option(
        "Seed of all random draws. Two simulations with the same inputs and the same seed have identical results.",
        ADVANCED, (), 0, 2**62, default="1",
    )] = 1  # fmt: skip

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class LiveOptions:
    """Options of live runs only."""

    iterations: Annotated[int, Option(
        "Number of iterations that count. One iteration plays the whole workload once.",
        WORKLOAD, ("--iterations", "-n"), 1, 10**6, default="1 for `run`, 10 for `validate`",
    )] = 1  # fmt: skip
    warmup: Annotated[int, Option(
        "Number of warm-up iterations. They come first and do not count.",
        WORKLOAD, (), 0, 10**6, default="0 for `run`, 2 for `validate`",
    )] = 0  # fmt: skip
    transport: Annotated[
        str,
        Option(
            "Transport of the ranks for which the hosts file names none. `softroce`: RoCEv2 in user space over UDP. "
            "`verbs`: RDMA devices.",
            WIRE,
            choices=TRANSPORTS,
        ),
    ] = SOFTROCE
    source_ports: Annotated[
        str,
        Option(
            "UDP source ports of the queue pairs of softroce. ECMP hashes them to choose a path. `pair`: a port "
            "computed from the two ranks and the number of the queue pair. `nccl`: a port computed from both queue "
            "pair numbers, as RDMA devices do. PORT: one port for all. FIRST-LAST, such as 49152-49167: the ports of "
            "the range in turn. `pinned` (`run` and `validate` only): ports that spread the load over the links of the "
            "learned paths. The twin ignores this option. The twin takes the paths that the live run has learned, "
            "otherwise `source_ports` of the fabric file.",
            WIRE,
        ),
    ] = PAIR
    trace_paths: Annotated[
        str | None,
        Option(
            "Learn the path of each queue pair before and after the run. A verdict can accuse links only if it knows "
            "the paths. `on`: learn paths. `off`: do not learn paths. `auto`: learn paths if the fabric file has "
            "`[addresses]`, if the ranks run in a lab, or with `--source-ports pinned`. On loopback there are no paths "
            "to learn.",
            NETWORK,
            choices=TRACES,
        ),
    ] = None
    traffic_class: Annotated[
        int | None,
        Option(
            "IP traffic class of the packets: DSCP times 4. The lower two bits are the ECN field, which the NIC sets.",
            WIRE,
            (),
            0,
            255,
            default="the value of the fabric file, otherwise `NCCL_IB_TC` on verbs, otherwise 0",
        ),
    ] = None
    verify: Annotated[
        bool, Option("Fill each message with a payload of its own, and compare the payload at the receiver.", WIRE)
    ] = False
    icrc: Annotated[
        str,
        Option(
            "Check of the ICRC (invariant CRC of RoCE) in packets that softroce receives. `strict`: softroce reads the "
            "IP header too, and checks the whole ICRC. `strict` needs CAP_NET_RAW. `plain`: softroce does not see the "
            "IP header. In packets of RDMA devices over IPv4, softroce then checks 16 of the 32 bits. `auto`: `strict` "
            "if the run mixes softroce and verbs and has CAP_NET_RAW, otherwise `plain`.",
            WIRE,
            choices=ICRC_CHECKS,
        ),
    ] = "auto"
    verbs: Annotated[
        tuple[str, ...],
        Option(
            "Setting of the RDMA devices for ranks on verbs, as `KEY=VALUE`. May be repeated. The keys are `hca`, "
            "`gid_index`, `roce_version`, `service_level`, `timeout`, `retry_count`, `rnr_retry`, `min_rnr_timer`, "
            "`huge_pages`, `numa_bind`, `completion`, `signal_every`, `send_depth` and `receive_depth`.",
            WIRE,
            metavar="KEY=VALUE",
            default="the environment variables of NCCL, otherwise the defaults of NCCL",
        ),
    ] = ()
    events: Annotated[
        bool,
        Option(
            "Sleep until a packet comes, instead of polling.",
            ADVANCED,
            default="poll if the machine has a core for each of its ranks, otherwise sleep",
        ),
    ] = False
    offload: Annotated[
        bool,
        Option(
            "Give the kernel one datagram for each packet, so that a capture shows the packets as a cable carries "
            "them. By default the kernel cuts one large send into packets.",
            ADVANCED,
            (" /--no-offload",),
        ),
    ] = True
    faults: Annotated[
        Path | None,
        Option(
            "Fault plan: a TOML file with `[[rate]]`, `[[loss]]`, `[[delay]]` and `[[congestion]]` tables. The live "
            "run gets these faults, and the twin does not.",
            FAULTS,
        ),
    ] = None
    udp_port: Annotated[int, Option("UDP port at which softroce receives.", ADVANCED, (), 1024, 65535)] = 4791
    join: Annotated[
        float, Option("Time limit in seconds within which all ranks must have started.", ADVANCED, minimum=0.1)
    ] = 60.0
    stall: Annotated[
        float,
        Option(
            "Time in seconds without progress after which a rank gives up. Genie adds the compute time of one "
            "iteration on the busiest rank to this value.",
            ADVANCED,
            minimum=0.1,
        ),
    ] = 10.0

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
            "Run the ranks in the lab of this fabric file: its network, built from network namespaces on this machine. "
            "If `genie lab up` has built the lab, the command uses that lab with its faults. Otherwise the command "
            "builds a lab for this run. The option implies `--fabric` and `--no-offload`.",
            NETWORK,
        ),
    ] = None
    lab_fault: Annotated[
        tuple[str, ...],
        Option(
            "Fault of a link of the lab during this run, such as `'leaf0-spine1 rate=40%'`. May be repeated. The keys "
            "are the options of `genie lab set`; `from=2s until=8s` and `period=2s on=20%` say when it is there. "
            "The twin does not get the fault.",
            FAULTS,
            default="none",
            metavar="'LINK KEY=VALUE'",
        ),
    ] = ()


@dataclass(frozen=True)
class TwinOptions:
    """Options of the twin only."""

    level: Annotated[
        str,
        Option(
            "Level of detail of the twin. `packet`: every packet passes every queue, exactly. `packet+skip`: the same "
            "results; the twin skips periods of a state that recurs, and plays once what comes again elsewhere or "
            "later. `flow`: messages share links as fluids. `analytic`: formulas give the time of each collective and "
            "message. `validate` takes `packet` and `packet+skip` only.",
            TWIN,
            metavar="|".join(LEVELS),
        ),
    ] = SKIP
    sharing: Annotated[
        str,
        Option(
            f"With `--level {FLOW}`: division of a link among its messages. `max-min`: max-min fair shares. `equal`: "
            "equal shares, as in TrioSim.",
            TWIN,
            choices=SHARINGS,
        ),
    ] = SHARINGS[0]
    model: Annotated[
        str,
        Option(
            f"With `--level {ANALYTIC}`: origin of the formulas. `genie`: formulas of Genie. `astra-sim`: formulas of "
            f"ASTRA-sim; also give `--fabric NETWORK.yml` and `--system SYSTEM.json`.",
            TWIN,
            choices=MODELS,
        ),
    ] = MODELS[0]
    system: Annotated[Path | None, Option("With `--model astra-sim`: file `system.json` of ASTRA-sim.", TWIN)] = None
    logical: Annotated[
        Path | None, Option("With `--model astra-sim`: file `logical_topology.json` of ASTRA-sim.", TWIN)
    ] = None
    threads: Annotated[int, Option(
        "Number of threads of a simulation at level `packet` or `packet+skip`. The results do not depend on the "
        "number. With one thread, level `packet+skip` plays collectives that come again once.",
        TWIN, (), 1, 1024, default="1",
    )] = 1  # fmt: skip
