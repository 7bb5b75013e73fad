"""`genie diff` and `genie validate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from genie.cli import options
from genie.cli.live_commands import be_a_rank, refuse_half_a_launch, run_live
from genie.cli.metrics import MetricsAtTheEnd
from genie.config.hosts import Hosts
from genie.inputs.printable import printable
from genie.job.levels import check_level
from genie.job.resolve import (
    DEFAULT_VALIDATE_RATE,
    Live,
    Play,
    UsageError,
    check_live,
    fabric_of,
    hosts_of,
    line_rates,
    load_workload,
    settings_of,
    transports_of,
    twin_of,
    warn_of_calibration,
)
from genie.job.site import ExecutionSite, execution_site
from genie.job.wire import lowering_of, warn
from genie.live.launch.launcher import Outcome, refuse_running
from genie.live.launch.merge import open_live_run
from genie.live.rendezvous.meeting import launched_by
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import (
    VALIDATION,
    RecordError,
    Run,
    begin_record,
    lock_folder,
    marked_json,
    open_run,
    prepare_folder,
    replace_own,
    unwritable,
)
from genie.workload.graph import Workload
from simtwin.fabric.schema import Fabric
from simtwin.play.run import simulate_to_folder

if TYPE_CHECKING:
    from genie.verdict import Verdict
    from genie.verdict.coverage import Require

REQUIRE: tuple[Require, ...] = ("nics", "links", "none")

VERDICT_KIND = "verdict"

VALIDATE_EXAMPLES = """
Examples:

```text
genie validate examples/transformer -o runs/mine
genie validate TRACE --hosts hosts.toml --fabric FABRIC.toml -o runs/cluster
genie validate TRACE -o lab --lab LAB.toml --lab-fault 'host3-leaf0 rate=9%'
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command()(diff)
    app.command(epilog=VALIDATE_EXAMPLES)(validate)


def diff(
    live: Annotated[Path, typer.Argument(help="Run folder of genie run.", show_default=False)],
    twin: Annotated[Path, typer.Argument(help="Run folder of genie simulate.", show_default=False)],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the verdict.  [default: none]")] = None,
    require_coverage: options.RequireCoverage = None,
) -> int:
    """Compare a measured run with a simulated one: wait, wire and excess, and which component is to blame.

    Exit code 0: pass, 1: fail, 4: inconclusive, run again or longer.
    """
    require = coverage_from(require_coverage)
    if out is not None and out.is_dir():
        lock_folder(out)
    verdict = conclude(open_live_run(live), open_run(twin), out, require)
    return verdict.exit_code


def coverage_from(text: str | None) -> Require | None:
    """--require-coverage; None: all that the fabric has. Raises UsageError."""
    for known in REQUIRE:
        if text == known:
            return known
    if text is not None:
        raise UsageError(f"--require-coverage {text}: must be {', '.join(REQUIRE[:-1])} or {REQUIRE[-1]}")
    return None


def conclude(live: Run, twin: Run, out: Path | None, require: Require | None = None) -> Verdict:
    """Judge, write what the verdict consists of, and print its line."""
    from genie.report.page import write_report
    from genie.report.perfetto_trace import write_perfetto
    from genie.verdict import Options, judge

    verdict = judge(live, twin, Options(require_coverage=require))
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            record = marked_json(VERDICT_KIND, {**verdict.to_dict(), "runs": _runs(live, twin)})
            replace_own(out / "verdict.json", record, VERDICT_KIND)
            write_report(out / "report.html", verdict, live, twin)
            write_perfetto(out / "timeline.pftrace", live, twin)
        except RecordError:
            print(verdict.line())
            raise
        except OSError as error:
            print(printable(verdict.line()))
            raise unwritable(out, error) from error
    print(printable(verdict.line()))
    if out is not None:
        print(f"report: {out / 'report.html'}")
    return verdict


def _runs(live: Run, twin: Run) -> dict[str, str]:
    """What the verdict is about, in verdict.json."""
    return {
        "live": str(live.path.resolve()),
        "twin": str(twin.path.resolve()),
        "workload": str(live.info.get("workload", "")),
        "fabric": str(twin.info.get("fabric", "")),
    }


def validate(
    workload: options.Workload,
    out: options.Out,
    ranks: options.Ranks = None,
    hosts: options.HostsFile = None,
    fabric: options.FabricFile = None,
    transport: options.Transport = "softroce",
    rate: options.Rate = None,
    dilation: options.Dilation = 1,
    faults: options.FaultsFile = None,
    iterations: options.Iterations = 10,
    warmup: options.Warmup = 2,
    level: options.Level = "packet",
    require_coverage: options.RequireCoverage = None,
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
    """The main job: play a workload on the wire and in the twin, compare, and say what differs.

    Writes OUT/live, OUT/twin, verdict.json, report.html and timeline.pftrace. Exit code 0: pass, 1: fail, 4:
    inconclusive, run again or longer.
    Started under mpirun or srun it is a rank, and rank 0 plays the twin and judges.
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
        check_level(level, judged=True)
        require = coverage_from(require_coverage)
        if launched_by() is not None:

            def check() -> None:
                end.check()
                check_live(transport, wire, lab)

            end.rank, end.code = _validate_as_a_rank(play, live, out, require, check)
        else:
            check_live(transport, wire, lab)
            refuse_half_a_launch()
            with execution_site(play, live, lab, lab_fault) as site:
                end.code = _validate(site, out, require)
    return end.code


def _validate(site: ExecutionSite, out: Path, require: Require | None) -> int:
    play = site.play
    loaded = load_workload(play)
    placed = site.hosts(loaded.world_size)
    built = fabric_of(play, loaded.world_size, placed, DEFAULT_VALIDATE_RATE)
    settings = _settings(play, site.live, out, loaded, placed, built)
    refuse_running(out)
    prepare_folder(out, VALIDATION)
    if placed.calibration is None and VERBS not in settings.kinds:
        from genie.cli.calibrating import calibrated  # here, because few commands need what it imports

        limited = replace(site, play=_limited(play))
        placed = calibrated(limited, placed, out / "calibration")
        built = fabric_of(play, loaded.world_size, placed, DEFAULT_VALIDATE_RATE)
    else:
        _warn(play, placed, line_rates(play, built, placed, loaded.world_size))
    with site.faults_injected():
        outcome = run_live(settings, placed, site)
    if outcome.code != 0:
        return outcome.code
    begin_record()
    _warn(play, placed, line_rates(play, built, placed, loaded.world_size))
    runs = _twin_of_run(play, placed, built, loaded, out)
    verdict = conclude(*runs, out, require)
    return verdict.exit_code


def _settings(play: Play, live: Live, out: Path, workload: Workload, hosts: Hosts, fabric: Fabric) -> RunSettings:
    twin_of(fabric, play, workload.world_size, hosts)  # a fabric that does not fit is said before anything runs
    if play.fabric is None and VERBS in transports_of(live, hosts):
        raise UsageError("--transport verbs: give --fabric FILE, which describes the network that the devices are on")
    return settings_of(_limited(play), live, out / "live", workload, hosts, fabric)


def _limited(play: Play) -> Play:
    """With a line rate, as something must limit the soft NICs."""
    return replace(play, rate=play.rate or (DEFAULT_VALIDATE_RATE if play.fabric is None else None))


def _warn(play: Play, hosts: Hosts, rates: dict[int, int]) -> None:
    if hosts.calibration is None:
        warn("no calibrated host latency given: the twin's hosts cost nothing")
    else:
        warn_of_calibration(play, hosts, rates)


def _validate_as_a_rank(
    play: Play, live: Live, out: Path, require: Require | None, check: Callable[[], None]
) -> tuple[int, int]:
    """One rank of a validation that a launcher has started: all play, and rank 0 plays the twin and judges.

    Returns which one, and its exit code.
    """
    loaded: list[tuple[Workload, Hosts, Fabric]] = []

    def ready() -> RunSettings:
        check()
        workload = load_workload(play)
        hosts = hosts_of(play, workload.world_size)
        fabric = fabric_of(play, workload.world_size, hosts, DEFAULT_VALIDATE_RATE)
        loaded.append((workload, hosts, fabric))
        return _settings(play, live, out, workload, hosts, fabric)

    rank, code = be_a_rank(live, ready, out)
    if rank != 0 or code != 0:
        return rank, code
    workload, hosts, fabric = loaded[0]
    begin_record()
    _warn(play, hosts, line_rates(play, fabric, hosts, workload.world_size))
    return rank, conclude(*_twin_of_run(play, hosts, fabric, workload, out), out, require).exit_code


def play_in_both(
    play: Play, settings: RunSettings, hosts: Hosts, fabric: Fabric, workload: Workload, out: Path
) -> tuple[Outcome, tuple[Run, Run] | None]:
    """Play live into OUT/live, then in the twin, from the measured arrivals, into OUT/twin; no runs if live failed."""
    outcome = run_live(settings, hosts)
    if outcome.code != 0:
        return outcome, None
    return outcome, _twin_of_run(play, hosts, fabric, workload, out)


def _twin_of_run(play: Play, hosts: Hosts, fabric: Fabric, workload: Workload, out: Path) -> tuple[Run, Run]:
    """The run in OUT/live, and the twin's from its arrivals, into OUT/twin."""
    measured = open_run(out / "live")
    simulated = simulate_to_folder(
        twin_of(fabric, play, workload.world_size, hosts),
        workload,
        out / "twin",
        workload_path=measured.info["workload"],
        slots=play.slots,  # type: ignore[arg-type]
        lowering=lowering_of(play),
        follow=measured,
        compute=play.compute,
        nccl_variables=measured.info["nccl_variables"],
    )
    return measured, simulated
