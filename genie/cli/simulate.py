"""`genie simulate`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genie.cli.exits import signal_in_words
from genie.cli.groups import flattened
from genie.cli.output import out_folder
from genie.cli.simulation_progress import Progress, StopSignals
from genie.config.congestion import Hpcc
from genie.config.units import parse_size
from genie.errors import UsageError
from genie.invocation import elapsed_s, is_quiet, note
from genie.job.job import Job, resolve
from genie.job.levels import level_of, model_of
from genie.job.option import OUTPUT, WORKLOAD
from genie.job.option import TWIN as TWIN_PANEL
from genie.job.options import TrafficOptions, TwinOptions
from genie.job.outputs import OutputOptions
from genie.job.warnings import warn
from genie.live.launch.launcher import refuse_running
from genie.live.launch.merge import open_live_run
from genie.page import duration
from genie.record import TWIN, Run, prepare_folder
from simtwin.levels.names import ANALYTIC, PACKET, Level
from simtwin.play.band import has_compute
from simtwin.play.run import Follow, simulate_to_folder
from simtwin.play.series import SAMPLED_LEVELS, Series, simulated_time
from simtwin.play.skipping import NO_ESTIMATE, SEVERAL_THREADS
from simtwin.play.twin import LevelError, SimulationError, Twin
from simtwin.play.watching import Watch
from simtwin.report.band import band_in_words

if TYPE_CHECKING:
    from simtwin.report.digest import Digest

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


SKIP_ERROR_MAX = 10  # percent
SKIP_MEMORY = "1GiB"
PRINTED_ROWS_MAX = 2_000_000  # rows of a timeline: more take seconds, and --report shows the same


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("simulate", epilog=SIMULATE_EXAMPLES)(flattened(simulate, {OutputOptions: {"metrics"}}, wire="nccl"))


def events_of(counters: dict[str, Any]) -> list[str]:
    """Return the counts of switch events in words: drops always; all others only if above 0."""
    said = [f"{counters['dropped']} dropped"]
    for name, words in (("marked", "marked"), ("trimmed", "trimmed"), ("replays", "replayed"), ("pauses", "pauses")):
        if count := sum(link[name] for link in counters["links"]):
            said.append(f"{count} {words}")
    return said


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
            "pauses, ECN marks and rates into `series.parquet`. The option needs level `packet` or `packet+skip`.  "
            "[default: none]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(
            "--stop-after",
            metavar="TIME",
            help="Simulated time, such as 5ms. The simulation stops when an iteration reaches this time, and the "
            "command writes the part before it. The option needs level `packet` or `packet+skip`.  [default: none]",
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
            "`500MiB`. Less memory costs time and does not change results.",
            rich_help_panel=TWIN_PANEL,
            show_default=SKIP_MEMORY,
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

    Exit codes: 0 done, 1 the simulation cannot go on or --verify-skip found a difference, 130 stopped by Ctrl-C.
    """
    with out_folder(output.out, "simulate") as out:
        level = level_of(simulated)
        series_ps = time_option("--series", "10us", series, level.name)
        stop_after_ps = time_option("--stop-after", "5ms", stop_after, level.name)
        if follow is not None and iterations is not None:
            raise UsageError("--iterations: a followed run has its own number of iterations; leave one of the two out")
        if follow is not None and out.resolve() in (follow.resolve(), *follow.resolve().parents):
            raise UsageError(f"-o {out}: holds the run to follow, which would be replaced; choose another -o")
        memory_bytes, error = _memory_of(SKIP_MEMORY if skip_memory is None else skip_memory), _error_of(skip_error)
        if skip_memory is not None and not level.skips:
            raise UsageError(f"--skip-memory: level {level.name} skips nothing; give --level packet+skip")
        if error and not level.skips:
            raise UsageError(f"--skip-error: level {level.name} skips nothing; give --level packet+skip")
        if error and series is not None:
            raise UsageError("--skip-error: samples of --series would end each estimate; leave one of the two out")
        if error and verify_skip:
            raise UsageError("--verify-skip: estimates differ from level packet; leave --skip-error out")
        if verify_skip and not level.skips:
            raise UsageError(f"--verify-skip: level {level.name} skips nothing; give --level packet+skip")
        if verify_skip and stop_after is not None:
            raise UsageError("--verify-skip: compares whole iterations; leave --stop-after out")
        if band and (follow is not None or stop_after is not None):
            other = "--stop-after" if follow is None else "--follow"
            raise UsageError(f"--band: {other} fixes times of the iteration; leave one of the two out")
        live = None if follow is None else _run_to_follow(follow)
        if live is not None:
            traffic = replace(traffic, dilation=int(live.info.get("dilation", 1)))
        job = resolve(traffic)
        job.check_rate()
        job.warn_of_calibration()
        model = model_of(simulated, traffic, job.ranks)
        if dry_run:
            print_expected(job, level, (iterations or 1) * (3 if band else 1), memory_bytes, verify_skip)
            return 0
        twin = job.twin(threads=1 if error else simulated.threads, level=level, model=model)
        _warn_of_threads(simulated, job, twin, error > 0)
        job.warn_of_idle_options(level.name)
        if band and not has_compute(job.workload):
            warn("--band: the workload has no compute times: the iteration takes the same time at all three")
        kept = Series(series_ps, twin.network.link_names) if series_ps else None
        refuse_running(out)
        prepare_folder(out, TWIN)
        with StopSignals() as stop, Progress() as progress:
            written = partial(progress.writing, out=out)
            watch = Watch(
                progress, stop, stop_after_ps, kept, written, progress.begin, verify_skip, memory_bytes, error
            )
            run = simulate_to_folder(
                twin,
                job.workload,
                out,
                workload_path=str(Path(traffic.workload).resolve()),
                slots=traffic.slots,  # type: ignore[arg-type]
                lowering=job.lowering,
                iterations=iterations or 1,
                follow=None if live is None else Follow(live),
                compute=traffic.compute,
                watch=watch,
                nccl_variables=job.nccl_variables(),
                band=band,
            )
        tells = not is_quiet() and run.timeline.height <= PRINTED_ROWS_MAX
        digest = _digest(run, job, twin) if run.info["complete"] and (tells or report) else None
        if report:
            from simtwin.report import write_simulation_report

            print(f"report: {write_simulation_report(out, digest)}")
        if stop.number is not None:
            skip = run.info.get("skip") or {}
            in_progress = "over by then" if skip.get("episodes", {}).get("replayed") else "played until then"
            played = "all of it" if run.info["complete"] else f"what was {in_progress}"
            print(f"genie: {signal_in_words(stop.number)}, {extent_of(run)}; {played} is in {out}", file=sys.stderr)
            return 128 + stop.number
        if stop_after_ps is not None and run.info["complete"]:
            note("no iteration took as long as --stop-after")
        print(f"{job.workload.name}: {job.ranks} ranks on {job.fabric.name}, {_result(run, level)}; {out}")
        if digest is not None and tells:
            _print_collectives(run, digest)
        skip = run.info.get("skip") or {}
        if SEVERAL_THREADS in skip.get("reasons", ()):
            note(
                f"--threads {simulated.threads}: collectives and messages that come again were played each time; one "
                "thread can play them once for all that are alike"
            )
        difference = skip.get("difference")
        if difference == "" and (skip["packets"] or skip["episodes"]["replayed"]):
            note("--verify-skip: all packets were played too; timeline, transfers and link counters are the same")
        elif difference == "":
            note("--verify-skip: nothing was skipped, so that there is nothing to compare")
        if difference:
            raise SimulationError(f"--verify-skip: level packet+skip differs from level packet: {difference}")
    return 0


def print_expected(job: Job, level: Level, iterations: int, skip_memory_bytes: int, verify_skip: bool) -> None:
    """Print the size of a job, and what its simulation is expected to take."""
    from genie.plan.build import build_plan
    from simtwin.fabric.topology import build_network
    from simtwin.play.expected import expected_of

    if problem := level.problem(job.fabric):
        raise LevelError(f"fabric '{job.fabric.name}': {problem}")
    began = time.perf_counter()
    network = build_network(job.fabric)
    job.placed(network, job.fabric)
    plan = build_plan(job.workload, lowering=job.lowering)
    planned_s = time.perf_counter() - began  # a simulation spends this after reading the trace, too
    expected = expected_of(job.fabric, network, plan, iterations, level)
    print(f"{job.workload.name}: {job.ranks} ranks on {job.fabric.name}; --dry-run: nothing is simulated")
    print(
        f"an iteration: {expected.nodes:,} nodes, {expected.transfers:,} transfers, {expected.packets:,} data packets, "
        f"{expected.queue_pairs:,} queue pairs"
    )
    if level.has_packets:
        fastest, slowest = words_of_time(expected.fastest_s), words_of_time(expected.slowest_s)
        span = fastest if fastest == slowest else f"{fastest} to {slowest}"
        skips = "; level packet+skip takes less where it can skip" if level.skips else ""
        skips += ", and --verify-skip plays both" if verify_skip else ""
        plays = f" for {iterations} plays" if iterations > 1 else ""
        setup = words_of_time(planned_s + expected.setup_s)
        print(f"time: {setup} of set-up after reading; level packet {span} on one core{plays}{skips}")
    else:
        rest = f"the rest is not estimated at level {level.name}, only at level {PACKET}"
        fastest = f"for large jobs {ANALYTIC} is fastest"
        print(f"time: {words_of_time(planned_s)} of set-up after reading; {rest}; {fastest}")
    of_skips = f", and up to {skip_memory_bytes / 1e9:.2g} GB of episodes and checkpoints (--skip-memory)"
    more = of_skips if level.skips else ""
    print(f"memory: about {expected.memory_bytes / 1e9:.2g} GB{more}")
    if expected.recorded_ranks < job.ranks:
        print(f"tables: {expected.recorded_ranks} of {job.ranks} ranks, one of each class")


def words_of_time(seconds: float) -> str:
    """Return a time in one unit, as a person would say it."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def _digest(run: Run, job: Job, twin: Twin) -> Digest:
    """Return the digest, and write its limits as JSON."""
    from simtwin.report.digest import digest_of
    from simtwin.report.limits_file import write_limits

    digest = digest_of(run, twin.network, twin.parts_of(job.workload, job.lowering))
    write_limits(run.path, digest.collectives)
    return digest


def _print_collectives(run: Run, digest: Digest) -> None:
    """Print the collectives of most time, the exposed communication, and the critical path of the longest iteration."""
    from simtwin.report.critical_path import in_words
    from simtwin.report.limits import no_limits
    from simtwin.report.sentence import left_out
    from simtwin.report.terminal import exposed_line, table_lines

    for line in table_lines(digest.collectives):
        print(line)
    if digest.collectives and (why := no_limits(run)):
        print(why)
    if exposed := exposed_line(run):
        print(exposed)
    if path := in_words(digest.path, digest.longest):
        print(path)
    if left := left_out(run):
        print(left)


def _run_to_follow(folder: Path) -> Run:
    live = open_live_run(folder)
    if live.info.get("world") != "live":
        raise UsageError(f"--follow {folder}: is not a live run: give the folder of genie run")
    return live


def _memory_of(text: str) -> int:
    """Return the bytes of --skip-memory; unlimited: more than any machine has."""
    try:
        size_bytes = int(parse_size(text))
    except ValueError as problem:
        raise UsageError(f"--skip-memory {text}: {problem}: give a size such as 500MiB") from None
    return 1 << 62 if size_bytes < 0 else size_bytes


def _error_of(text: str) -> float:
    """Return --skip-error as a share."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= SKIP_ERROR_MAX:
        raise UsageError(f"--skip-error {text}: must be a percentage from 0 to {SKIP_ERROR_MAX}, such as 1%")
    return percent / 100


def _warn_of_threads(simulated: TwinOptions, job: Job, twin: Twin, estimates: bool) -> None:
    if simulated.threads > 1 and estimates:
        warn("--skip-error needs one thread: --threads 1 is used")
    elif simulated.threads > 1 and isinstance(job.fabric.control, Hpcc):
        warn("hpcc's telemetry needs one thread: --threads 1 is used")
    elif simulated.threads > twin.threads:
        warn(f"level {simulated.level} runs in one thread: --threads 1 is used")


def _result(run: Run, level: Level) -> str:
    """Return the simulated time of an iteration, the packets that were played, and the real time that it took.

    The command also reads traces, makes the plan and the routes, and writes tables.
    """
    wall_s = run.info["wall_s"]
    took = f"{duration(wall_s * 1e9)} of simulation, {duration(elapsed_s() * 1e9)} in all"
    if not level.has_packets:
        return f"{extent_of(run)}, level {level.name}, {took}"
    packets = run.info["data_packets"]
    done = f"{packets} data packets ({packets / max(wall_s, 1e-9) / 1e6:.2f} M/s)"
    if skip := run.info.get("skip"):
        skipped = f"{skip['share']:.1%} of {packets} data packets skipped, {_bits(skip)}"
        done = skipped if skip["packets"] else f"{done}, none skipped"
    return ", ".join([extent_of(run), done, *events_of(run.counters), took])


def _bits(skip: dict[str, Any]) -> str:
    """Return how near the results are to those of level packet."""
    if not (estimates := skip.get("estimates")):
        if skip.get("difference"):
            return "results differ from level packet"
        if skip.get("difference") == "":
            return "same bits as level packet"
        may_estimate = any(reason.startswith(NO_ESTIMATE) for reason in skip.get("reasons", ()))
        return "not compared with level packet" + ("" if may_estimate else " (--verify-skip does)")
    return (
        f"{estimates['packets']} of them by estimates: mean rates within {estimates['error']:.2%}, ends of the "
        f"messages moved within {estimates['apart']:.1%} of level packet ({estimates['confidence']:.0%} confidence, "
        "if rates only fluctuate)"
    )


def _milliseconds(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3f} ms" if time_ns >= 1000 else f"{time_ns:.0f} ns"


def extent_of(run: Run) -> str:
    """Return the length of an iteration, or where the simulation stopped, in words."""
    if run.info["complete"]:
        band = band_in_words(run.info, _milliseconds, max)
        recorded = run.info.get("recorded") or {}
        longest_ns: int = recorded.get("last_end_ns") or run.timeline["end_ns"].max()  # type: ignore[assignment]
        return f"{_milliseconds(longest_ns)} an iteration{f' ({band})' if band else ''}"
    return f"stopped at {_milliseconds(run.info['stopped_at_ns'])} of iteration {run.info['stopped_iteration']}"


def time_option(option: str, example: str, text: str | None, level: str) -> int | None:
    """Return an option's time in ps, above 0 and a whole number of ns; None if not given. Raises UsageError."""
    if text is None:
        return None
    if level not in SAMPLED_LEVELS:
        raise UsageError(
            f"{option}: level {level} has no queues to sample and no packets to stop at: give --level packet"
        )
    try:
        return simulated_time(text, example)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
