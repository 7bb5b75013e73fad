"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genie.config.limits import QUEUE_PAIRS_MAX

Workload = Annotated[
    str, typer.Argument(help="Folder of .et files with its groups file, or their prefix.", show_default=False)
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder for the results; an earlier run in it is replaced.")]
Ranks = Annotated[int | None, typer.Option(help="Number of ranks; must fit the workload.  [default: the workload's]")]
HostsFile = Annotated[
    Path | None,
    typer.Option("--hosts", help="Hosts file: rank to address and port of the fabric.  [default: loopback]"),
]
Transport = Annotated[str, typer.Option(help="softroce or verbs.")]
Rate = Annotated[
    str | None,
    typer.Option(
        help="Line rate of every rank's soft NIC, such as 200Mb/s, or unlimited.  [default: the fabric's; without a "
        "fabric run has unlimited, validate 200Mb/s, and simulate needs one]"
    ),
]
Dilation = Annotated[
    int, typer.Option(min=1, max=1000, help="Stretch every time by this factor and divide the rate by it.")
]
FaultsFile = Annotated[
    Path | None,
    typer.Option(
        "--faults",
        help="Fault plan: [[rate]], [[loss]], [[delay]] and [[congestion]] tables to inject known anomalies.",
    ),
]
RequireCoverage = Annotated[
    str | None,
    typer.Option(
        "--require-coverage",
        metavar="nics|links|none",
        help="Coverage that is enough for a pass: all NICs; links between switches too; or whatever could be judged. "
        "[default: links where the fabric has links between switches, nics otherwise]",
    ),
]
Iterations = Annotated[
    int, typer.Option("--iterations", "-n", min=1, max=10**6, help="Plays of the whole graph that count.")
]
Warmup = Annotated[int, typer.Option(min=0, max=10**6, help="Plays before them that do not.")]
Wire = Annotated[
    str,
    typer.Option(
        help="Messages of collectives: nccl, as NCCL sends them (slices, clear-to-sends, its variables); plain, one "
        "message a step."
    ),
]
RanksPerNode = Annotated[
    int | None,
    typer.Option(
        "--ranks-per-node",
        min=1,
        help="With --wire nccl only what leaves a node is sent.  [default: those of each host of the hosts file, or of "
        "each server of the fabric; otherwise 1]",
    ),
]
SliceDelay = Annotated[
    str | None,
    typer.Option("--slice-delay", help="With --wire nccl: what a GPU takes before each slice, such as 10us."),
]
NoOffload = Annotated[bool, typer.Option("--no-offload", help="One datagram a packet: captures show a real wire.")]
Lab = Annotated[
    Path | None,
    typer.Option(
        help="Run on the hosts of this fabric file's lab of network namespaces: as it is where genie lab up has built "
        "it, or built for this run."
    ),
]
LabFault = Annotated[
    list[str] | None,
    typer.Option(
        "--lab-fault",
        metavar="'LINK KEY=VALUE'",
        help="What is wrong with a link of the lab during the run, as genie lab set has it, such as 'leaf0-spine1 "
        "rate=40%'; may be repeated. The twin is not told.",
    ),
]
FabricFile = Annotated[
    Path | None,
    typer.Option(
        "--fabric",
        help="Fabric file, or ASTRA-sim's network.yml.  [default: loopback, one switch that only the NICs limit]",
    ),
]
System = Annotated[Path | None, typer.Option(help="With --model astra-sim: its system.json.")]
Logical = Annotated[Path | None, typer.Option(help="With --model astra-sim: its logical_topology.json.")]
Level = Annotated[
    str,
    typer.Option(
        help="packet: every packet, exact; flow: messages share links as fluid; analytic: closed forms. packet+skip is "
        "not built yet."
    ),
]
Sharing = Annotated[
    str,
    typer.Option(
        help="With --level flow: max-min, or equal (TrioSim's: an even part of each link, whoever cannot use it)."
    ),
]
Model = Annotated[
    str, typer.Option(help="With --level analytic: genie, or astra-sim (--fabric NETWORK.yml --system SYSTEM.json).")
]
Threads = Annotated[
    int, typer.Option(min=1, max=1024, help="Threads of the simulation; the results are the same, bit for bit.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Same seed, same bits.")]
Compute = Annotated[
    str | None,
    typer.Option(help="Duration of compute nodes that have none: roofline:TFLOPS,GBPS, for example roofline:300,2000."),
]
Slots = Annotated[
    str | None,
    typer.Option(help="streams: one node at a time a stream; astra: one CPU, one compute, one communication slot."),
]
Algorithm = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        help="OPERATION=ALGORITHM, for example all_reduce=ring; may be repeated. With --wire plain also "
        "OPERATION=FILE.xml: an algorithm of MSCCL's, for groups of as many members as it has and sizes that fall into "
        "its chunks.",
    ),
]
Channels = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Channels of each collective.  [default: 1; with --wire nccl as NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS "
        "allow, from two for each rank of a node]",
        show_default=False,
    ),
]
Credit = Annotated[bool, typer.Option("--credit", help="A sender waits for its receiver's clear-to-send.")]
QueuePairs = Annotated[
    int | None,
    typer.Option(
        "--queue-pairs", min=1, max=QUEUE_PAIRS_MAX, help="Of each connection.  [default: the fabric's, or 1]"
    ),
]
Split = Annotated[
    bool | None,
    typer.Option(
        "--split/--in-turn",
        help="Each message over all queue pairs of the connection, or whole on each in turn.  [default: the fabric's, "
        "or in turn]",
        show_default=False,
    ),
]
Congestion = Annotated[
    str | None,
    typer.Option(
        help="Congestion control at the senders: none, window, dcqcn, dcqcn-timer, timely, swift, dctcp or nscc; "
        "in the twin also hpcc.  [default: the fabric's, or none]"
    ),
]
Ports = Annotated[
    str,
    typer.Option(
        "--source-ports",
        help="softroce's UDP source ports, which ECMP hashes: pair, one a pair of ranks; nccl, from the queue pair "
        "numbers as devices do; a port, or a range such as 49152-49167 to sweep; pinned (run and validate), those that "
        "spread load over the links of the paths that they lead to.",
    ),
]
TracePaths = Annotated[
    str,
    typer.Option(
        "--trace-paths",
        help="Learn the path of each queue pair, before the run and after it, so that links can be accused: on, off or "
        "auto: where the fabric file has [addresses].",
    ),
]
TrafficClass = Annotated[
    int | None,
    typer.Option(
        "--traffic-class",
        min=0,
        max=255,
        help="Of IP: DSCP times 4; the lower two bits are ECN's, which NICs set.  [default: the fabric's, or 0]",
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Give every message bytes of its own, and check them where they arrive.")
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics", help="NAME.prom: at the end, whatever the result, metrics for node_exporter's textfile collector."
    ),
]
Verbs = Annotated[
    list[str] | None,
    typer.Option(
        "--verbs",
        metavar="KEY=VALUE",
        help="For --transport verbs, may be repeated: hca, gid_index, roce_version, service_level, timeout, "
        "retry_count, rnr_retry, min_rnr_timer, huge_pages, numa_bind, completion, signal_every, send_depth or "
        "receive_depth.  [default: NCCL's variables, or NCCL's defaults]",
    ),
]
Icrc = Annotated[
    str,
    typer.Option(
        help="How softroce checks ICRCs: strict sees IP headers (needs CAP_NET_RAW), plain does not; auto: strict "
        "where another stack takes part and it is allowed."
    ),
]
Events = Annotated[
    bool, typer.Option("--events", help="Sleep until something comes.  [default: poll, with a core for each rank]")
]
UdpPort = Annotated[int, typer.Option(min=1024, max=65535, help="UDP port of softroce.")]
Join = Annotated[float, typer.Option("--join", min=0.1, help="Seconds in which all ranks must have started.")]
Stall = Annotated[float, typer.Option("--stall", min=0.1, help="Seconds without progress before giving up.")]
