"""`genie simulate`."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.cli import options
from genie.cli.exits import signal_in_words
from genie.cli.watching import Progress, StopSignals
from genie.config.congestion import Hpcc
from genie.job.levels import level_of, model_of
from genie.job.resolve import (
    Play,
    UsageError,
    check_rate,
    fabric_of,
    hosts_of,
    line_rates,
    load_workload,
    twin_of,
    twin_variables,
    warn_of_calibration,
)
from genie.job.wire import lowering_of, warn
from genie.live.launch.launcher import refuse_running
from genie.live.launch.merge import open_live_run
from genie.record import TWIN, Run, prepare_folder
from simtwin.levels.names import PACKET
from simtwin.play.effects import idle_options
from simtwin.play.run import simulate_to_folder
from simtwin.play.series import SAMPLED_LEVELS, Series, simulated_time
from simtwin.play.watching import Watch

SIMULATE_EXAMPLES = """
Examples:

```text
genie simulate TRACE --fabric hosts/fabrics/leaf-spine.toml -o runs/twin
genie simulate TRACE --fabric FABRIC.toml --report -o runs/twin
genie simulate TRACE --fabric FABRIC.toml --level flow -o runs/flow
genie simulate TRACE --fabric FABRIC.toml --follow runs/live -o runs/twin
genie simulate TRACE --fabric FABRIC.toml --series 10us -o runs/twin
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command(epilog=SIMULATE_EXAMPLES)(simulate)


def events_of(counters: dict[str, Any]) -> list[str]:
    """What switches did to packets, in words: drops always, the rest where there was some."""
    said = [f"{counters['dropped']} dropped"]
    for name, words in (("marked", "marked"), ("trimmed", "trimmed"), ("pauses", "pauses")):
        if count := sum(link[name] for link in counters["links"]):
            said.append(f"{count} {words}")
    return said


def simulate(
    workload: options.Workload,
    out: options.Out,
    fabric: options.FabricFile = None,
    level: options.Level = "packet",
    sharing: options.Sharing = "max-min",
    model: options.Model = "genie",
    system: options.System = None,
    logical: options.Logical = None,
    ranks: options.Ranks = None,
    hosts: options.HostsFile = None,
    rate: options.Rate = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            "-n",
            min=1,
            max=10**6,
            help="Plays of the whole graph.  [default: 1, or the followed run's]",
        ),
    ] = None,
    threads: options.Threads = 1,
    seed: options.Seed = 1,
    follow: Annotated[
        Path | None, typer.Option(help="Run folder of the live world: start each collective when it was reached there.")
    ] = None,
    compute: options.Compute = None,
    slots: options.Slots = None,
    algorithm: options.Algorithm = None,
    channels: options.Channels = None,
    credit: options.Credit = False,
    queue_pairs: options.QueuePairs = None,
    split: options.Split = None,
    congestion: options.Congestion = None,
    wire: options.Wire = "nccl",
    ranks_per_node: options.RanksPerNode = None,
    slice_delay: options.SliceDelay = None,
    series: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL",
            help="Write queues, utilisation, pauses, marks and rates to series.parquet, at this interval of simulated "
            "time, such as 10us.",
        ),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(
            "--stop-after",
            metavar="TIME",
            help="Stop in the first iteration that takes this simulated time, such as 5ms, and write what was played "
            "until then.",
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Also write OUT/report.html, the simulation as a page to look at.")
    ] = False,
) -> int:
    """Play a workload in the twin, under the virtual clock: every packet through every queue, or at a coarser level.

    Ctrl-C stops it, and what was played until then is written; a second one ends it at once.
    """
    at_level = level_of(level, sharing, model)
    series_ps = time_option("--series", "10us", series, level)
    stop_after_ps = time_option("--stop-after", "5ms", stop_after, level)
    if follow is not None and iterations is not None:
        raise UsageError("--iterations: a followed run has its own number of iterations; leave one of the two out")
    play = Play(
        workload, ranks, hosts, fabric, rate, 1, compute, slots, tuple(algorithm or ()), channels, credit, seed,
        queue_pairs, split, congestion, wire, ranks_per_node, slice_delay,
    )  # fmt: skip
    lowering = lowering_of(play)
    loaded = load_workload(play)
    placed = hosts_of(play, loaded.world_size)
    live = open_live_run(follow) if follow else None
    if follow is not None and out.resolve() in (follow.resolve(), *follow.resolve().parents):
        raise UsageError(f"-o {out}: holds the run to follow, which would be replaced; choose another -o")
    if live is not None and live.info.get("world") != "live":
        raise UsageError(f"--follow {follow}: is no run of the live world: give the -o of genie run")
    if live is not None:
        play = replace(play, dilation=int(live.info.get("dilation", 1)))
    built = fabric_of(play, loaded.world_size, placed)
    rates = line_rates(play, built, placed, loaded.world_size)
    check_rate(play, rates)
    warn_of_calibration(play, placed, rates)
    costs = model_of(play, at_level, system, logical, loaded.world_size)
    twin = twin_of(built, play, loaded.world_size, placed, threads, at_level, costs)
    if threads > 1 and isinstance(built.control, Hpcc):
        warn("hpcc's telemetry is that of one thread: --threads 1 is used")
    elif threads > twin.threads:
        warn(f"level {level} plays in one thread: --threads 1 is used")
    kept = Series(series_ps, twin.network.link_names) if series_ps else None
    for text in idle_options(play, loaded, lowering, built.transport, level, seed):
        warn(text)
    refuse_running(out)
    prepare_folder(out, TWIN)
    with StopSignals() as stop, Progress() as progress:
        run = simulate_to_folder(
            twin,
            loaded,
            out,
            workload_path=str(Path(workload).resolve()),
            slots=slots,  # type: ignore[arg-type]
            lowering=lowering,
            iterations=iterations or 1,
            follow=live,
            compute=compute,
            watch=Watch(progress, stop, stop_after_ps, kept, partial(progress.writing, out=out)),
            nccl_variables=twin_variables(play, lowering, loaded, placed),
        )
    if report:
        from simtwin.report import write_simulation_report

        print(f"report: {write_simulation_report(out)}")
    if stop.number is not None:
        played = "all of it" if run.info["complete"] else "what was played until then"
        print(f"genie: {signal_in_words(stop.number)}, {extent_of(run)}; {played} is in {out}", file=sys.stderr)
        return 128 + stop.number
    if stop_after_ps is not None and run.info["complete"]:
        print("genie: no iteration took as long as --stop-after", file=sys.stderr)
    packets_per_s = run.info["data_packets"] / max(run.info["wall_s"], 1e-9)
    played = f"level {level} in {run.info['wall_s']:.3g} s"
    if level == PACKET:
        done = f"{run.info['data_packets']} data packets ({packets_per_s / 1e6:.2f} M/s)"
        played = ", ".join([done, *events_of(run.counters)])
    print(f"{loaded.name}: {loaded.world_size} ranks on {built.name}, {extent_of(run)}, {played}; {out}")
    return 0


def extent_of(run: Run) -> str:
    """How long an iteration took, or where the simulation stopped, in words."""
    if run.info["complete"]:
        return f"{run.timeline['end_ns'].max() / 1e6:.3f} ms an iteration"  # type: ignore[operator]
    return f"stopped at {run.info['stopped_at_ns'] / 1e6:.3f} ms of iteration {run.info['stopped_iteration']}"


def time_option(option: str, example: str, text: str | None, level: str) -> int | None:
    """An option's time above 0, in ps, a whole number of ns; None without. Raises UsageError."""
    if text is None:
        return None
    if level not in SAMPLED_LEVELS:
        raise UsageError(
            f"{option}: level {level} has no queues to look at and no packets to stop: give --level packet"
        )
    try:
        return simulated_time(text, example)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
