"""`genie run` and `genie calibrate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from genie.cli import options
from genie.cli.exits import exit_code_of, text_of
from genie.cli.metrics import MetricsAtTheEnd
from genie.config.hosts import Hosts, load_hosts, write_calibration
from genie.job.resolve import (
    Live,
    Play,
    UsageError,
    check_live,
    fabric_of,
    hosts_of,
    load_workload,
    settings_of,
    twin_of,
)
from genie.job.site import ExecutionSite, execution_site
from genie.job.wire import warn
from genie.live.launch.closing import closing_line, counted_amiss, warned
from genie.live.launch.launcher import Outcome, launch, mpirun_line, refuse_running, remote_hosts, write_launch_file
from genie.live.launch.loopback import free_loopback_hosts
from genie.live.rendezvous.meeting import join, launched_by, speaks
from genie.live.settings import RunSettings
from genie.record import LIVE, VALIDATION, prepare_folder
from genie.workload.files import find_files

RANKS_MAX = 1024  # of a calibration on one machine
EFFECTS_MAX_BYTES = 64 << 20  # of traces: about two seconds

RUN_EXAMPLES = """
Examples:

```text
genie run examples/transformer -o runs/mine --rate 200Mb/s -n 10 --warmup 2
genie run TRACE --hosts hosts/cluster.toml -o runs/cluster
genie run TRACE --lab FABRIC.toml -o runs/lab
srun --mpi=pmi2 genie run TRACE --hosts hosts/slurm.toml -o runs/cluster
```

A fault plan, with all of its keys:

```text
[[rate]]             # rank 5's NIC at half its rate, in iterations 6 to 8,
rank = 5             # from 1 ms after each one's start until 50 ms
factor = 0.5
from_iteration = 6   # default 0; warm-up iterations count too
until_iteration = 9  # default: to the end
from_s = 0.001       # default 0
until_s = 0.05       # default: to the iteration's end

[[loss]]             # rank 2's NIC loses one of every 100 data packets
rank = 2
every = 100
peer = 3             # only those to rank 3; default: to each peer

[[delay]]            # packets from rank 1 to rank 3 come 200 us later
rank = 1
peer = 3
delay_us = 200

[[congestion]]       # rank 4 has no congestion control: no ECN, no CNPs
rank = 4
control = false
```
"""

CALIBRATE_EXAMPLES = """
Examples:

```text
genie calibrate --hosts hosts/loopback.toml --rate 200Mb/s
genie calibrate --hosts hosts/cluster.toml --fabric FABRIC.toml
genie calibrate --lab FABRIC.toml
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command(epilog=RUN_EXAMPLES)(run)
    app.command(epilog=CALIBRATE_EXAMPLES)(calibrate)


def run(
    workload: options.Workload,
    out: options.Out,
    ranks: options.Ranks = None,
    hosts: options.HostsFile = None,
    fabric: options.FabricFile = None,
    transport: options.Transport = "softroce",
    rate: options.Rate = None,
    dilation: options.Dilation = 1,
    faults: options.FaultsFile = None,
    iterations: options.Iterations = 1,
    warmup: options.Warmup = 0,
    compute: options.Compute = None,
    slots: options.Slots = None,
    algorithm: options.Algorithm = None,
    channels: options.Channels = None,
    credit: options.Credit = False,
    queue_pairs: options.QueuePairs = None,
    split: options.Split = None,
    congestion: options.Congestion = None,
    source_ports: options.Ports = "pair",
    trace_paths: options.TracePaths = "auto",
    traffic_class: options.TrafficClass = None,
    verify: options.Verify = False,
    icrc: options.Icrc = "auto",
    verbs: options.Verbs = None,
    wire: options.Wire = "nccl",
    ranks_per_node: options.RanksPerNode = None,
    slice_delay: options.SliceDelay = None,
    events: options.Events = False,
    no_offload: options.NoOffload = False,
    lab: options.Lab = None,
    lab_fault: options.LabFault = None,
    seed: options.Seed = 1,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
    metrics: options.MetricsFile = None,
) -> int:
    """Play a workload on the wire: one rank a process, real RDMA traffic, compute as sleep.

    Started by hand it prints and executes the mpirun line. Started under mpirun or srun it is a rank.
    """
    play = Play(
        workload, ranks, hosts, fabric, rate, dilation, compute, slots, tuple(algorithm or ()), channels, credit, seed,
        queue_pairs, split, congestion, wire, ranks_per_node, slice_delay,
    )  # fmt: skip
    live = Live(
        iterations, warmup, faults, not no_offload, udp_port, join_limit, stall, transport,
        source_ports, traffic_class, verify, icrc, tuple(verbs or ()), trace_paths, events,
    )  # fmt: skip
    with MetricsAtTheEnd(metrics, out, workload) as end:
        if launched_by() is not None:

            def ready() -> RunSettings:
                end.check()
                check_live(transport, wire, lab)
                return _settings(ExecutionSite(play, live), out)[0]

            end.rank, end.code = be_a_rank(live, ready)
        else:
            check_live(transport, wire, lab)
            refuse_half_a_launch()
            with execution_site(play, live, lab, lab_fault) as site:
                settings, placed = _settings(site, out)
                with site.faults_injected():
                    end.code = run_live(settings, placed, site).code
    return end.code


def _settings(site: ExecutionSite, out: Path) -> tuple[RunSettings, Hosts]:
    play, live = site.play, site.live
    loaded = load_workload(play, shape_only=launched_by() is not None and not _sees_all_ranks(play))
    # Ranks that a launcher started must agree: only a run started by hand may look for a free block.
    placed = hosts_of(play, loaded.world_size) if launched_by() else site.hosts(loaded.world_size)
    fabric = fabric_of(play, loaded.world_size, placed) if play.fabric else None
    if fabric is not None:
        twin_of(fabric, play, loaded.world_size, placed)  # a fabric that does not fit is said before anything runs
    return settings_of(play, live, out, loaded, placed, fabric), placed


def _sees_all_ranks(play: Play) -> bool:
    """Whether this rank of a launch loads every rank's trace, so that options without effect are known at the start.

    One does so for all, and only where that is soon done.
    """
    if not speaks():
        return False
    size_bytes = sum(trace.stat().st_size for trace in find_files(play.workload).traces.values())
    if size_bytes <= EFFECTS_MAX_BYTES:
        return True
    warn(
        f"{play.workload}: options without effect are not looked for in {size_bytes / 2**20:.0f} MiB of traces (at "
        f"most {EFFECTS_MAX_BYTES >> 20} MiB under a launcher): genie simulate says them"
    )
    return False


def run_live(settings: RunSettings, hosts: Hosts, site: ExecutionSite | None = None) -> Outcome:
    """Start the ranks, wait for them, say in one line what went wrong."""
    refuse_running(settings.out_path)
    prepare_folder(settings.out_path, LIVE)
    if site is not None:
        settings = site.with_lab_facts(settings)
    wrapper = site.wrapper(settings.ranks) if site else ()
    line = mpirun_line(settings, remote_hosts(hosts), wrapper=wrapper)
    print("genie: " + " ".join(line), file=sys.stderr, flush=True)
    outcome = launch(settings, line)
    said = outcome.problem or closing_line(settings.out_path)
    for words in (said, *counted_amiss(settings.out_path)):
        print(f"genie: {words}", file=sys.stderr)
    for text in warned(settings.out_path):
        warn(text)
    return outcome


def refuse_half_a_launch() -> None:
    """A launcher without MPI that has told only half: each of its processes would start the whole run."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise UsageError("RANK and WORLD_SIZE are set and MASTER_ADDR is not: set it to be a rank, or unset RANK")


def refuse_launched() -> None:
    """Commands that start ranks themselves cannot be ranks."""
    if launched_by() is not None:
        raise UsageError("this command starts ranks itself: start it by hand; under mpirun or srun give genie run")


def be_a_rank(live: Live, ready: Callable[[], RunSettings], around: Path | None = None) -> tuple[int, int]:
    """Be one rank of a run that a launcher has started; which one, and its exit code.

    `ready` checks what was given and says what to play: when one rank cannot, all leave together. `around`: the folder
    of a validation, whose live world this run is.
    """
    from genie.errors import EXIT_FAILED, RankError
    from genie.live.launch.endings import check_size, unexpected
    from genie.live.rank.process import run_and_sign
    from genie.live.rank.worker import run_rank

    rendezvous = join(limit_s=live.join_s)
    problem: tuple[int, str] | None = None
    settings: RunSettings | None = None
    try:
        settings = ready()
        check_size(settings, rendezvous.size)
        if rendezvous.rank == 0:
            if around is not None:
                prepare_folder(around, VALIDATION)
            prepare_folder(settings.out_path, LIVE)
            write_launch_file(settings)
    except RankError as error:
        problem = (error.code, str(error))
    except Exception as error:
        code = exit_code_of(error)
        fault = unexpected(error) if code is None else None
        problem = (fault.code, str(fault)) if fault else (code or EXIT_FAILED, text_of(error))
    problems = [each for each in rendezvous.agree(problem) if each]
    if problems or settings is None:
        code, text = problems[0]
        if rendezvous.rank == 0:
            print(f"genie: {text}", file=sys.stderr)
        rendezvous.channel.close()
        return rendezvous.rank, int(code)
    agreed = settings
    code = run_and_sign(agreed, rendezvous.rank, lambda: run_rank(agreed, rendezvous))
    if code == 0 and rendezvous.rank == 0:
        for line in (closing_line(agreed.out_path), *counted_amiss(agreed.out_path)):
            print(f"genie: {line}", file=sys.stderr)
        for text in warned(agreed.out_path):
            warn(text)
    return rendezvous.rank, code


def calibrate(
    hosts: options.HostsFile = None,
    lab: options.Lab = None,
    ranks: Annotated[
        int | None, typer.Option(min=2, max=RANKS_MAX, help="How many of the hosts' ranks.  [default: all]")
    ] = None,
    fabric: options.FabricFile = None,
    rate: Annotated[
        str | None, typer.Option(help="Line rate of the soft NICs.  [default: the fabric's; without one 200Mb/s]")
    ] = None,
    dilation: options.Dilation = 1,
    out: options.Out = Path("runs/calibrate"),
    udp_port: options.UdpPort = 4791,
) -> int:
    """Measure what a message costs on these hosts, and store it with its spread in the hosts file.

    All ranks pass messages around a ring at the line rate; the twin plays the same with a latency of zero;
    what is left per hop is the hosts' latency. A verdict uses it as it is: it is never fitted to the run it judges.
    """
    from genie.cli.calibrating import measured_on

    refuse_launched()
    if hosts is None and ranks is None and lab is None:
        raise UsageError("give --hosts FILE, --lab FABRIC, or --ranks N for loopback")
    play = Play("", None, hosts, fabric, rate or "200Mb/s" if fabric is None and lab is None else rate, dilation)
    with execution_site(play, Live(udp_port=udp_port), lab, None) as site:
        if site.lab is not None:
            placed = site.hosts(ranks or site.lab.plan.hosts)
        else:
            placed = load_hosts(hosts) if hosts else free_loopback_hosts(ranks or 2, udp_port)
        if ranks is not None:
            placed = placed.first(ranks)
        calibration = measured_on(site, placed, out)
    print(
        f"packet latency {calibration.packet_latency_ns / 1000:.1f} us, "
        f"spread {calibration.packet_latency_spread_ns / 1000:.1f} us "
        f"({calibration.samples} samples, {placed.ranks} ranks at {calibration.rate}, {calibration.scheduling})"
    )
    if hosts:
        write_calibration(hosts, calibration)
        print(f"stored in {hosts}")
    return 0
