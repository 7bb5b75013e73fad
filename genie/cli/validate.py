"""`genie validate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from genie.cli.groups import flattened
from genie.cli.judging import check_baseline, check_baseline_of, check_known, judged, probe_targets, told_of_failed_run
from genie.cli.launching import be_a_rank, check_live, refuse_half_a_launch
from genie.cli.output import out_folder
from genie.cli.results.metrics import MetricsAtTheEnd
from genie.errors import EXIT_FAILED, UsageError
from genie.invocation import note
from genie.job.collectives import save_traces, workload_of
from genie.job.job import Job, latency_in_words, resolve
from genie.job.levels import check_level
from genie.job.live_settings import live_settings
from genie.job.option import WORKLOAD
from genie.job.options import LabOptions, LiveOptions, TrafficOptions, TwinOptions
from genie.job.outputs import OutputOptions, VerdictOptions
from genie.job.playing import expected_of_run, run_live, twin_of_run
from genie.job.probing import Targets, probed_links
from genie.job.site import ExecutionSite, execution_site
from genie.job.warnings import warn
from genie.live.launch.launcher import refuse_running
from genie.live.launched import launched_by
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import COLLECTIVES, VALIDATION, begin_record, prepare_folder

DEFAULT_RATE = "200Mb/s"

VALIDATE_EXAMPLES = """
Examples:

```text
genie validate examples/transformer -o runs/mine
genie validate TRACE --hosts hosts.toml --fabric FABRIC.toml -o runs/cluster
genie validate --collectives all_reduce,all_to_all --ranks 8
genie validate TRACE -o lab --lab LAB.toml --lab-fault 'host3-leaf0 rate=9%'
genie validate JOB.toml
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    leave_out = {TwinOptions: {"sharing", "model", "system", "logical", "threads"}}
    command = flattened(validate, leave_out, workload="", wire="nccl", trace_paths="auto", iterations=10, warmup=2)
    app.command("validate", epilog=VALIDATE_EXAMPLES)(command)


def validate(
    traffic: TrafficOptions,
    live: LiveOptions,
    given: LabOptions,
    simulated: TwinOptions,
    wanted: VerdictOptions,
    output: OutputOptions,
    collectives: Annotated[
        str | None,
        typer.Option(
            help="Operations to play in place of a trace, such as all_reduce,all_to_all: each at 64 KiB, 256 KiB, "
            "1 MiB, 4 MiB and 16 MiB. Under a launcher, such as srun or mpirun, this option is refused.  "
            "[default: none]",
            rich_help_panel=WORKLOAD,
        ),
    ] = None,
) -> int:
    """Play a workload on the real network and in the twin, and report the differences.

    The output folder gets three run folders: live, twin, and expected with one iteration of the twin from its own
    starts. It also gets the files verdict.json, report.html and timeline.pftrace.
    Without a launcher, the command starts the ranks with mpirun. Under mpirun, srun or another launcher, the command is
    itself one rank. Rank 0 then also plays the twin and judges.

    Exit codes: 0 pass, 1 fail or the run died, 4 inconclusive: run again, or longer.
    """
    with out_folder(output.out, "validate") as out, MetricsAtTheEnd(output.metrics, out, traffic.workload) as end:
        check_level(simulated.level, judged=True)
        check_baseline(wanted.baseline, out)
        if not traffic.workload and collectives is None:
            raise UsageError("give WORKLOAD, the folder of a trace, or --collectives")
        if launched_by() is not None:
            if collectives is not None:
                raise UsageError("--collectives: starts the ranks itself: start it by hand, not under a launcher")
            end.rank, end.code = _as_a_rank(traffic, live, given, out, wanted, end)
        else:
            check_live(live, given)
            refuse_half_a_launch()
            with execution_site(traffic, live, given) as site:
                end.code = _validate(site, out, wanted, collectives)
    return end.code


def _validate(site: ExecutionSite, out: Path, wanted: VerdictOptions, collectives: str | None) -> int:
    generated = None if collectives is None else workload_of(collectives, site)
    job = site.job(default_rate=DEFAULT_RATE, workload=generated)
    if generated is not None:
        job = job.of(generated, str(out / COLLECTIVES))
    settings = msgspec.structs.replace(_settings(job, out), collectives=collectives or "")
    check_known(wanted.known, job)
    check_baseline_of(wanted.baseline, settings)
    refuse_running(out)
    prepare_folder(out, VALIDATION)
    if generated is not None:
        save_traces(generated, out, collectives or "")
    if job.hosts.calibration is None and VERBS not in settings.kinds:
        from genie.job.calibration import calibrated  # imported here, because few commands need it

        site = replace(site, traffic=job.traffic)
        job = replace(job, hosts=calibrated(site, job.hosts, out / "calibration"))
    else:
        if site.lab is not None and job.hosts.calibration is not None:
            note(f"{latency_in_words(job.hosts.calibration)}, as measured in this lab before")
        _warn(job)
    with site.faults_injected():
        outcome = run_live(settings, job.hosts, site)
        if outcome.code != 0:
            may_be_network = outcome.code == EXIT_FAILED and wanted.probe_time > 0
            told_of_failed_run(
                probed_links(job, site, settings, out / "probe", Targets(), wanted.probe_time)
                if may_be_network
                else None,
                wanted,
            )
            return outcome.code
        begin_record()
        _warn(job)
        runs = twin_of_run(job, out)
        expected = expected_of_run(job, out, runs[0])
        probes = None
        if wanted.probe_time > 0:
            probes = probed_links(job, site, settings, out / "probe", probe_targets(*runs), wanted.probe_time)
    return judged(*runs, out, wanted, out.parent, probes, expected)


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
        check_known(wanted.known, jobs[0])
        return _settings(jobs[0], out)

    rank, code = be_a_rank(live, ready, out)
    if rank != 0 or code != 0:
        return rank, code
    begin_record()
    _warn(jobs[0])
    measured, simulated = twin_of_run(jobs[0], out)
    expected = expected_of_run(jobs[0], out, measured)
    return rank, judged(measured, simulated, out, wanted, out.parent, expected=expected)
