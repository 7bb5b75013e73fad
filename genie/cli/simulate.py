"""`genie simulate`."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from genie.cli.groups import flattened
from genie.cli.output import out_folder
from genie.cli.simulation.choices import UNLIMITED_BYTES, Choices, checked_choices
from genie.cli.simulation.progress import Progress, StopSignals
from genie.cli.simulation.result import print_result
from genie.config.congestion import Hpcc
from genie.errors import UsageError
from genie.job.job import Job, resolve
from genie.job.levels import model_of
from genie.job.option import OUTPUT, WORKLOAD
from genie.job.option import TWIN as TWIN_PANEL
from genie.job.options import TrafficOptions, TwinOptions
from genie.job.outputs import OutputOptions
from genie.job.warnings import warn
from genie.live.launch.launcher import refuse_running
from genie.live.launch.merge import open_live_run
from genie.record import TWIN, Run, prepare_folder
from simtwin.levels.names import ANALYTIC, PACKET
from simtwin.play.band import has_compute
from simtwin.play.run import Follow, simulate_to_folder
from simtwin.play.series import Series
from simtwin.play.twin import LevelError, Twin
from simtwin.play.watching import Watch

SIMULATE_EXAMPLES = """
Examples:

```text
genie simulate TRACE --fabric hosts/fabrics/leaf-spine.toml -o runs/sim
genie simulate TRACE --fabric FABRIC.toml --report -o runs/sim
genie simulate TRACE --fabric FABRIC.toml --level flow -o runs/flow
genie simulate TRACE --fabric FABRIC.toml --follow runs/live -o runs/twin
genie simulate TRACE --fabric FABRIC.toml --series 10us -o runs/series
genie simulate TRACE --fabric FABRIC.toml --band --report -o runs/band
genie simulate TRACE --fabric FABRIC.toml --verify-skip -o runs/skip
genie simulate TRACE --fabric FABRIC.toml --skip-error 1% -o runs/estimate
genie simulate TRACE --fabric FABRIC.toml --dry-run
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("simulate", epilog=SIMULATE_EXAMPLES)(flattened(simulate, {OutputOptions: {"metrics"}}, wire="nccl"))


def simulate(
    traffic: TrafficOptions,
    simulated: TwinOptions,
    output: OutputOptions,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            "-n",
            min=1,
            max=10**6,
            help="Number of iterations. One iteration plays the whole workload once.  [default: 1, or with `--follow` "
            "the number of the live run]",
            rich_help_panel=WORKLOAD,
        ),
    ] = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            help="Run folder of a live run. The twin starts each collective, send and receive at the time that the "
            "live run measured. The twin also takes the learned paths of the live run.  [default: none]",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = None,
    series: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL",
            help="Interval of simulated time, such as 10us. At each interval the command samples queues, utilisation, "
            "pauses, ECN marks and rates into `series.parquet`. The option needs level `packet` or `packet+skip`. "
            "Level `packet+skip` then plays alike collectives each time, and may take longer.  [default: none]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(
            "--stop-after",
            metavar="TIME",
            help="Simulated time, such as 5ms. The simulation stops when an iteration reaches this time, and the "
            "command writes the part before it. The option needs level `packet` or `packet+skip`. "
            "Level `packet+skip` then plays alike collectives each time, and may take longer.  [default: none]",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = None,
    band: Annotated[
        bool,
        typer.Option(
            "--band",
            help="Play the workload at 0.85 and 1.15 times its compute times too, with unchanged communication. The "
            "command prints the time of an iteration at all three. This takes three times as long.",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = False,
    verify_skip: Annotated[
        bool,
        typer.Option(
            "--verify-skip",
            help="With `--level packet+skip`: play all packets too, and compare. At the first difference the command "
            "ends with exit code 1.",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = False,
    skip_memory: Annotated[
        str | None,
        typer.Option(
            "--skip-memory",
            metavar="SIZE",
            help="With `--level packet+skip`: memory for episodes and checkpoints that are used again, such as "
            "`500MiB`, or `unlimited`. Less memory costs time and does not change results.  [default: 1GiB]",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = None,
    skip_error: Annotated[
        str,
        typer.Option(
            "--skip-error",
            metavar="PERCENT",
            help="With `--level packet+skip`: also skip long messages whose rates fluctuate about a mean, by an "
            "estimate. PERCENT, such as `1%`, at most 10%, is the largest error of a flow's mean rate. Results then "
            "differ from level `packet`; `run.json` has the bound of each message that was moved. One thread plays "
            "the simulation.",
            rich_help_panel=TWIN_PANEL,
        ),
    ] = "0%",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Simulate nothing and write nothing. Print how many nodes, packets and queue pairs the job has. Print "
            "the time of the set-up on this machine, and the memory that the simulation is expected to take. At the "
            "packet levels, also print its expected time.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Also write `OUT/report.html`, a page about the simulation.", rich_help_panel=OUTPUT
        ),
    ] = False,
) -> int:
    """Play a workload in the twin, packet by packet or at a coarser level.

    Ctrl-C stops the simulation, and the command writes the part that it has played. A second Ctrl-C ends the command at
    once.

    Exit codes: 0 done, 1 the simulation cannot go on or --verify-skip found a difference, 130 stopped by Ctrl-C, 143 by
    SIGTERM.
    """
    with out_folder(output.out, "simulate") as out:
        choices = checked_choices(
            simulated,
            out,
            iterations=iterations,
            follow=follow,
            series=series,
            stop_after=stop_after,
            band=band,
            verify_skip=verify_skip,
            skip_memory=skip_memory,
            skip_error=skip_error,
        )
        live = None if follow is None else _run_to_follow(follow)
        if live is not None:
            traffic = replace(traffic, dilation=int(live.info.get("dilation", 1)))
        job = resolve(traffic)
        job.check_rate()
        job.warn_of_calibration()
        model = model_of(simulated, traffic, job.ranks)
        if dry_run:
            print_expected(job, choices, iterations or 1, simulated.threads)
            return 0
        threads = 1 if choices.skip_error else simulated.threads
        twin = job.twin(threads=threads, level=choices.level, model=model)
        _warn_of_idle(simulated, job, twin, choices, skip_memory=skip_memory)
        run, signal_number = _play(job, twin, traffic, choices, iterations=iterations or 1, live=live, out=out)
        return print_result(
            run, job, twin, choices, threads=simulated.threads, report=report, signal_number=signal_number
        )


def _play(
    job: Job, twin: Twin, traffic: TrafficOptions, choices: Choices, *, iterations: int, live: Run | None, out: Path
) -> tuple[Run, int | None]:
    """Play the job, write its folder, and return the run and the number of the signal that stopped it, if one did.

    `live`: the run to follow. Raises SimulationError, FollowError and RecordError.
    """
    kept = Series(choices.series_ps, twin.network.link_names) if choices.series_ps else None
    refuse_running(out)
    prepare_folder(out, TWIN)
    with StopSignals() as stop, Progress() as progress:
        watch = Watch(
            progress=progress,
            stop=partial(progress.heed, stop),
            stop_after_ps=choices.stop_after_ps,
            series=kept,
            played=partial(progress.writing, out=out),
            begins=progress.begin,
            begins_again=progress.begin_again,
            verifies_skips=choices.verify_skip,
            skip_memory_bytes=choices.skip_memory_bytes,
            skip_error=choices.skip_error,
        )
        run = simulate_to_folder(
            twin,
            job.workload,
            out,
            workload_path=str(Path(traffic.workload).resolve()),
            slots=traffic.slots,  # type: ignore[arg-type]
            lowering=job.lowering,
            iterations=iterations,
            follow=None if live is None else Follow(live),
            compute=traffic.compute,
            watch=watch,
            nccl_variables=job.nccl_variables(),
            band=choices.band,
        )
    return run, stop.number


def print_expected(job: Job, choices: Choices, iterations: int, threads: int) -> None:
    """Print the size of a job, and what its simulation is expected to take. Raises LevelError."""
    from genie.plan.build import build_plan
    from simtwin.fabric.topology import build_network
    from simtwin.play.expected import expected_of

    level, plays = choices.level, iterations * (3 if choices.band else 1)
    if problem := level.problem(job.fabric):
        raise LevelError(f"fabric '{job.fabric.name}': {problem}")
    began = time.perf_counter()
    network = build_network(job.fabric)
    job.placed(network, job.fabric)
    plan = build_plan(job.workload, lowering=job.lowering)
    planned_s = time.perf_counter() - began  # a simulation spends this after reading the trace, too
    expected = expected_of(job.fabric, network, plan, plays, level)
    print(f"{job.workload.name}: {job.ranks} ranks on {job.fabric.name}; --dry-run: nothing is simulated")
    print(
        f"an iteration: {expected.nodes:,} nodes, {expected.transfers:,} transfers, {expected.packets:,} data packets, "
        f"{expected.queue_pairs:,} queue pairs"
    )
    if level.has_packets:
        fastest, slowest = words_of_time(expected.fastest_s), words_of_time(expected.slowest_s)
        span = fastest if fastest == slowest else f"{fastest} to {slowest}"
        skips = "; level packet+skip takes less where it can skip, and more where it cannot" if level.skips else ""
        skips += ", and --verify-skip plays both" if choices.verify_skip else ""
        of_plays = f" for {plays} plays" if plays > 1 else ""
        setup = words_of_time(planned_s + expected.setup_s)
        print(f"time: {setup} of set-up after reading; level packet {span} on one core{of_plays}{skips}")
    else:
        rest = f"the rest is not estimated at level {level.name}, only at level {PACKET}"
        fastest = f"for large jobs {ANALYTIC} is fastest"
        print(f"time: {words_of_time(planned_s)} of set-up after reading; {rest}; {fastest}")
    limit = (
        f"up to {choices.skip_memory_bytes / 1e9:.2g} GB"
        if choices.skip_memory_bytes < UNLIMITED_BYTES
        else "any amount"
    )
    of_skips = f", and {limit} of episodes and checkpoints (--skip-memory)"
    more = of_skips if level.skips and not choices.option_without_episodes(threads) else ""
    print(f"memory: about {expected.memory_bytes / 1e9:.2g} GB{more}")
    if expected.recorded_ranks < job.ranks:
        print(f"tables: {expected.recorded_ranks} of {job.ranks} ranks, one of each class")


def words_of_time(seconds: float) -> str:
    """Return a time in one unit, as a person would say it."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def _run_to_follow(folder: Path) -> Run:
    live = open_live_run(folder)
    if live.info.get("world") != "live":
        raise UsageError(f"--follow {folder}: is not a live run: give the folder of genie run")
    return live


def _warn_of_idle(simulated: TwinOptions, job: Job, twin: Twin, choices: Choices, *, skip_memory: str | None) -> None:
    """Warn of options that change nothing in this simulation, each on a line."""
    if simulated.threads > 1 and choices.skip_error:
        warn("--skip-error needs one thread: --threads 1 is used")
    elif simulated.threads > 1 and isinstance(job.fabric.control, Hpcc):
        warn("hpcc's telemetry needs one thread: --threads 1 is used")
    elif simulated.threads > twin.threads:
        warn(f"level {simulated.level} runs in one thread: --threads 1 is used")
    if skip_memory is not None and (other := choices.option_without_episodes(twin.threads)):
        warn(f"--skip-memory changes nothing beside {other}: no episodes are played, so that none are kept")
    job.warn_of_idle_options(choices.level.name)
    if choices.band and not has_compute(job.workload):
        warn("--band: the workload has no compute times: the iteration takes the same time at all three")
