"""`genie validate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from genie.cli.groups import flattened
from genie.cli.judging import conclude
from genie.cli.launching import be_a_rank, check_live, refuse_half_a_launch
from genie.cli.metrics import MetricsAtTheEnd
from genie.cli.output import out_folder
from genie.errors import UsageError
from genie.job.job import Job, resolve
from genie.job.levels import check_level
from genie.job.live_settings import live_settings
from genie.job.options import LabOptions, LiveOptions, OutputOptions, TrafficOptions, TwinOptions, VerdictOptions
from genie.job.playing import run_live, twin_of_run
from genie.job.site import ExecutionSite, execution_site
from genie.job.warnings import warn
from genie.live.launch.launcher import refuse_running
from genie.live.launched import launched_by
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import VALIDATION, begin_record, prepare_folder

DEFAULT_RATE = "200Mb/s"

VALIDATE_EXAMPLES = """
Examples:

```text
genie validate examples/transformer -o runs/mine
genie validate TRACE --hosts hosts.toml --fabric FABRIC.toml -o runs/cluster
genie validate TRACE -o lab --lab LAB.toml --lab-fault 'host3-leaf0 rate=9%'
genie validate JOB.toml
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    leave_out = {TwinOptions: {"sharing", "model", "system", "logical", "threads"}}
    command = flattened(validate, leave_out, wire="nccl", trace_paths="auto", iterations=10, warmup=2)
    app.command("validate", epilog=VALIDATE_EXAMPLES)(command)


def validate(
    traffic: TrafficOptions,
    live: LiveOptions,
    given: LabOptions,
    simulated: TwinOptions,
    wanted: VerdictOptions,
    output: OutputOptions,
) -> int:
    """Play a workload on the wire and in the twin, and report what differs.

    The output folder gets the runs, live and twin, and the files verdict.json, report.html and timeline.pftrace. Under
    mpirun or srun the command is one rank, and rank 0 also plays the twin and judges.

    Exit code 0: pass, 1: fail, 4: inconclusive, run again or longer.
    """
    with out_folder(output.out, "validate") as out, MetricsAtTheEnd(output.metrics, out, traffic.workload) as end:
        check_level(simulated.level, judged=True)
        if launched_by() is not None:
            end.rank, end.code = _as_a_rank(traffic, live, given, out, wanted, end)
        else:
            check_live(live, given)
            refuse_half_a_launch()
            with execution_site(traffic, live, given) as site:
                end.code = _validate(site, out, wanted)
    return end.code


def _validate(site: ExecutionSite, out: Path, wanted: VerdictOptions) -> int:
    job = site.job(default_rate=DEFAULT_RATE)
    settings = _settings(job, out)
    refuse_running(out)
    prepare_folder(out, VALIDATION)
    if job.hosts.calibration is None and VERBS not in settings.kinds:
        from genie.job.calibration import calibrated  # imported here, because few commands need it

        site = replace(site, traffic=job.traffic)
        job = replace(job, hosts=calibrated(site, job.hosts, out / "calibration"))
    else:
        _warn(job)
    with site.faults_injected():
        outcome = run_live(settings, job.hosts, site)
    if outcome.code != 0:
        return outcome.code
    begin_record()
    _warn(job)
    return conclude(*twin_of_run(job, out), out, wanted.require_coverage).exit_code


def _settings(job: Job, out: Path) -> RunSettings:
    job.twin()  # refuse a fabric that does not fit before anything runs
    if job.written is None and VERBS in job.transports:
        raise UsageError("--transport verbs: give --fabric FILE, which describes the network that the devices are on")
    return live_settings(job, out / "live")


def _warn(job: Job) -> None:
    if job.hosts.calibration is None:
        warn("no calibrated host latency given: the twin's hosts cost nothing")
    else:
        job.warn_of_calibration()


def _as_a_rank(
    traffic: TrafficOptions,
    live: LiveOptions,
    given: LabOptions,
    out: Path,
    wanted: VerdictOptions,
    end: MetricsAtTheEnd,
) -> tuple[int, int]:
    """Be one rank of a validation that a launcher has started: all play live, and rank 0 plays the twin and judges.

    Returns the rank and its exit code.
    """
    jobs: list[Job] = []

    def ready() -> RunSettings:
        end.check()
        check_live(live, given)
        jobs.append(resolve(traffic, live, default_rate=DEFAULT_RATE))
        return _settings(jobs[0], out)

    rank, code = be_a_rank(live, ready, out)
    if rank != 0 or code != 0:
        return rank, code
    begin_record()
    _warn(jobs[0])
    return rank, conclude(*twin_of_run(jobs[0], out), out, wanted.require_coverage).exit_code
