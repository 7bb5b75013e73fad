"""Playing a job: live by its ranks, and in the twin from the arrivals of a live run."""

from __future__ import annotations

import sys
from pathlib import Path

from genie.config.hosts import Hosts
from genie.invocation import detail, note
from genie.job.job import Job
from genie.job.site import ExecutionSite
from genie.job.warnings import warn
from genie.live.launch.closing import closing_line, counted_amiss, warned
from genie.live.launch.launcher import Outcome, launch, mpirun_line, refuse_running, remote_hosts
from genie.live.settings import RunSettings
from genie.record import EXPECTED, LIVE, Run, open_run, prepare_folder
from simtwin.play.run import Follow, simulate_to_folder


def run_live(settings: RunSettings, hosts: Hosts, site: ExecutionSite | None = None) -> Outcome:
    """Start the ranks, wait for them, and print one line if something went wrong."""
    refuse_running(settings.out_path)
    prepare_folder(settings.out_path, LIVE)
    if site is not None:
        settings = site.with_lab_facts(settings)
    wrapper = site.wrapper(settings.ranks) if site else ()
    line = mpirun_line(settings, remote_hosts(hosts), wrapper=wrapper)
    detail(" ".join(line))
    outcome = launch(settings, line)
    if outcome.problem:
        print(f"genie: {outcome.problem}", file=sys.stderr)
    print_end(settings.out_path, is_complete=not outcome.problem)
    return outcome


def play_in_both(job: Job, settings: RunSettings, out: Path) -> tuple[Outcome, tuple[Run, Run] | None]:
    """Play live into OUT/live, then in the twin, from the measured arrivals, into OUT/twin; no runs if live failed."""
    outcome = run_live(settings, job.hosts)
    return outcome, None if outcome.code != 0 else twin_of_run(job, out)


def twin_of_run(job: Job, out: Path) -> tuple[Run, Run]:
    """Return the run in OUT/live, and the twin's run from its arrivals, which is written to OUT/twin."""
    measured = open_run(out / "live")
    return measured, _simulated(job, out / "twin", Follow(measured))


def expected_of_run(job: Job, out: Path, measured: Run) -> Run:
    """Return one iteration of the twin on a run's paths, from its own starts, which is written to OUT/expected.

    A fault delays what comes after it. The starts of the live run hold this delay, and these starts do not.
    """
    return _simulated(job, out / EXPECTED, Follow(measured, starts=False))


def _simulated(job: Job, out: Path, follow: Follow) -> Run:
    return simulate_to_folder(
        job.twin(),
        job.workload,
        out,
        workload_path=follow.run.info["workload"],
        slots=job.traffic.slots,  # type: ignore[arg-type]
        lowering=job.lowering,
        follow=follow,
        compute=job.traffic.compute,
        nccl_variables=follow.run.info["nccl_variables"],
    )


def print_end(out: Path, *, is_complete: bool) -> None:
    """Print what a live run did, its worst counters, and its warnings."""
    for line in ([closing_line(out)] if is_complete else []) + counted_amiss(out):
        note(line)
    for text in warned(out):
        warn(text)
