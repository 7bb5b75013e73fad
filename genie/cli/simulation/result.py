"""The result of `genie simulate`: its report, its lines, and its exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from genie.cli.exits import signal_in_words
from genie.cli.simulation.choices import Choices
from genie.invocation import elapsed_s, is_quiet, note
from genie.job.job import Job
from genie.page import duration
from genie.page.words import upper_bound
from genie.record import Run
from simtwin.play.twin import SimulationError, Twin
from simtwin.report.band import band_in_words

if TYPE_CHECKING:
    from simtwin.report.digest import Digest

PRINTED_ROWS_MAX = 2_000_000  # rows of a timeline: more take seconds, and --report shows the same


def print_result(
    run: Run, job: Job, twin: Twin, choices: Choices, *, threads: int, report: bool, signal_number: int | None
) -> int:
    """Print all lines about a simulation that has been written, and return the exit code.

    `threads`: of the option. `report`: whether to write the page. `signal_number`: of the signal that stopped the
    simulation; None for none. Raises SimulationError where --verify-skip found a difference.
    """
    tells = not is_quiet() and run.timeline.height <= PRINTED_ROWS_MAX
    digest = _digest(run, job, twin) if run.info["complete"] and (tells or report) else None
    if report:
        from simtwin.report import write_simulation_report

        print(f"report: {write_simulation_report(run.path, digest)}")
    skip = run.info.get("skip") or {}
    if signal_number is not None:
        in_progress = "over by then" if skip.get("episodes", {}).get("replayed") else "played until then"
        played = "all of it" if run.info["complete"] else f"what was {in_progress}"
        if unfinished := run.info.get("unfinished_plays"):
            played = f"all but the plays of {' and '.join(unfinished)}"
        print(f"genie: {signal_in_words(signal_number)}, {extent_of(run)}; {played} is in {run.path}", file=sys.stderr)
        return 128 + signal_number
    if choices.stop_after_ps is not None and run.info["complete"]:
        note("no iteration took as long as --stop-after")
    print(f"{job.workload.name}: {job.ranks} ranks on {job.fabric.name}, {_result(run, choices)}; {run.path}")
    if digest is not None and tells:
        _print_collectives(run, digest)
    _note_skips(skip, threads)
    if choices.skip_error and not skip.get("estimates"):
        note(
            "--skip-error: no estimate was made, and collectives and messages that come again were played each time; "
            "without --skip-error they may be played once"
        )
    return 0


def _note_skips(skip: dict[str, Any], threads: int) -> None:
    """Print notes on skips that threads prevented and on the comparison. Raises SimulationError at a difference."""
    if skip and skip["episodes"]["need_one_thread"]:
        note(
            f"--threads {threads}: collectives and messages that come again were played each time; one "
            "thread may play them once for all that are alike"
        )
    difference = skip.get("difference")
    if difference == "" and (skip["packets"] or skip["episodes"]["replayed"]):
        note("--verify-skip: all packets were played too; timeline, transfers and link counters are the same")
    elif difference == "":
        note("--verify-skip: nothing was skipped; timeline, transfers and link counters are those of level packet")
    if difference:
        raise SimulationError(f"--verify-skip: level packet+skip differs from level packet: {difference}")


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


def _result(run: Run, choices: Choices) -> str:
    """Return the simulated time of an iteration, the packets that were played, and the real time that it took.

    The command also reads traces, makes the plan and the routes, and writes tables.
    """
    wall_s = run.info["wall_s"]
    took = f"{duration(wall_s * 1e9)} of simulation, {duration(elapsed_s() * 1e9)} in all"
    if not choices.level.has_packets:
        return f"{extent_of(run)}, level {choices.level.name}, {took}"
    packets = run.info["data_packets"]
    done = f"{packets} data packets ({packets / max(wall_s, 1e-9) / 1e6:.2f} M/s)"
    if skip := run.info.get("skip"):
        bits = _bits(skip, may_estimate=choices.skip_error > 0)
        skipped = f"{skip['share']:.1%} of {packets} data packets skipped, {bits}"
        done = skipped if skip["packets"] else f"{done}, none skipped"
    return ", ".join([extent_of(run), done, *events_of(run.counters), took])


def _bits(skip: dict[str, Any], *, may_estimate: bool) -> str:
    """Return how near the results are to those of level packet. `may_estimate`: whether --skip-error was above 0."""
    if not (estimates := skip.get("estimates")):
        if skip.get("difference"):
            return "results differ from level packet"
        if skip.get("difference") == "":
            return "same bits as level packet"
        return "not compared with level packet" + ("" if may_estimate else " (--verify-skip does)")
    rates = f"{estimates['packets']} of them by estimates: mean rates within {upper_bound(estimates['error'])}"
    confidence = f"({estimates['confidence']:.0%} confidence, if rates only fluctuate)"
    if estimates["apart"] is None:
        return f"{rates} {confidence}, not all ends with a bound"
    return f"{rates}, ends of the messages moved within {upper_bound(estimates['apart'])} of level packet {confidence}"


def events_of(counters: dict[str, Any]) -> list[str]:
    """Return the counts of switch events in words: drops always; all others only if above 0."""
    said = [f"{counters['dropped']} dropped"]
    for name, words in (("marked", "marked"), ("trimmed", "trimmed"), ("replays", "replayed"), ("pauses", "pauses")):
        if count := sum(link[name] for link in counters["links"]):
            said.append(f"{count} {words}")
    return said


def extent_of(run: Run) -> str:
    """Return the length of an iteration, or where the simulation stopped, in words."""
    if run.info["complete"]:
        band = band_in_words(run.info, _milliseconds, max)
        recorded = run.info.get("recorded") or {}
        longest_ns: int = recorded.get("last_end_ns") or run.timeline["end_ns"].max()  # type: ignore[assignment]
        return f"{_milliseconds(longest_ns)} an iteration{f' ({band})' if band else ''}"
    return f"stopped at {_milliseconds(run.info['stopped_at_ns'])} of iteration {run.info['stopped_iteration']}"


def _milliseconds(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3f} ms" if time_ns >= 1000 else f"{time_ns:.0f} ns"
