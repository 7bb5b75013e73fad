"""`genie diff` and `genie validate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from genie.cli import options
from genie.cli.live_commands import be_a_rank, refuse_half_a_launch, run_live
from genie.cli.resolve import (
    DEFAULT_VALIDATE_RATE,
    Live,
    Play,
    UsageError,
    check_level,
    check_live,
    fabric_of,
    hosts_of,
    line_rates,
    load_workload,
    lowering_of,
    remark_on_calibration,
    settings_of,
    transports_of,
    twin_of,
)
from genie.config.hosts import Hosts
from genie.live.launcher import Outcome, refuse_running
from genie.live.merge import open_live_run
from genie.live.rendezvous import launched_by
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import RecordWriteError, Run, open_run, prepare_folder
from genie.verdict import Verdict, judge, write_perfetto, write_report
from genie.workload.graph import Workload
from simtwin.fabric_schema import Fabric
from simtwin.run import simulate_to_folder

VALIDATE_EXAMPLES = """
Examples:

```text
genie validate examples/transformer -o runs/mine
genie validate TRACE --hosts hosts/cluster.toml --fabric FABRIC.toml -o runs/cluster
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
) -> int:
    """Compare a measured run with a simulated one: wait, wire and excess, and who is to blame."""
    verdict = conclude(open_live_run(live), open_run(twin), out)
    return verdict.exit_code


def conclude(live: Run, twin: Run, out: Path | None) -> Verdict:
    """Judge, write what the verdict consists of, and print its line."""
    verdict = judge(live, twin)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "verdict.json").write_text(json.dumps(verdict.to_dict(), indent=1) + "\n")
            write_report(out / "report.html", verdict, live, twin)
            write_perfetto(out / "timeline.pftrace", live, twin)
        except OSError as error:
            print(verdict.line())
            raise RecordWriteError(f"{out}: cannot be written: {error.strerror}; choose another -o") from error
    print(verdict.line())
    if out is not None:
        print(f"report: {out / 'report.html'}")
    return verdict


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
    compute: options.Compute = None,
    slots: options.Slots = None,
    algorithm: options.Algorithm = None,
    channels: options.Channels = 1,
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
    wire: options.Wire = "plain",
    no_offload: options.NoOffload = False,
    lab: options.Lab = None,
    seed: options.Seed = 1,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """The main job: play a workload on the wire and in the twin, compare, and say what differs.

    Writes OUT/live, OUT/twin, verdict.json, report.html and timeline.pftrace. Exit code 0 only when it is a pass.
    Started under mpirun or srun it is a rank, and rank 0 plays the twin and judges.
    """
    check_level(level)
    if launched_by() is None:
        check_live(transport, wire, lab)
    play = Play(
        workload, ranks, hosts, fabric, rate, dilation, compute, slots, tuple(algorithm or ()), channels, credit, seed,
        queue_pairs, split, congestion,
    )  # fmt: skip
    live = Live(
        iterations, warmup, faults, not no_offload, udp_port, join_limit, stall, transport,
        source_ports, traffic_class, verify, icrc, tuple(verbs or ()), trace_paths,
    )  # fmt: skip
    if launched_by() is not None:
        return _validate_as_a_rank(play, live, out, lambda: check_live(transport, wire, lab))
    refuse_half_a_launch()
    loaded = load_workload(play)
    placed = hosts_of(play, loaded.world_size, udp_port)
    built = fabric_of(play, loaded.world_size, placed, DEFAULT_VALIDATE_RATE)
    settings = _settings(play, live, out, loaded, placed, built)
    refuse_running(out)
    prepare_folder(out)
    if placed.calibration is None and VERBS not in settings.kinds:
        placed = _calibrated(play, placed, out, udp_port)
        built = fabric_of(play, loaded.world_size, placed, DEFAULT_VALIDATE_RATE)
    else:
        _remark(play, placed, line_rates(play, built, placed, loaded.world_size))
    outcome, runs = play_in_both(play, settings, placed, built, loaded, out)
    if runs is None:
        return outcome.code
    verdict = conclude(*runs, out)
    return verdict.exit_code


def _settings(play: Play, live: Live, out: Path, workload: Workload, hosts: Hosts, fabric: Fabric) -> RunSettings:
    twin_of(fabric, play, workload.world_size, hosts)  # a fabric that does not fit is said before anything runs
    if play.fabric is None and VERBS in transports_of(live, hosts):
        raise UsageError("--transport verbs: give --fabric FILE, which describes the network that the devices are on")
    limited = replace(play, rate=play.rate or (DEFAULT_VALIDATE_RATE if play.fabric is None else None))
    return settings_of(limited, live, out / "live", workload, hosts, fabric)


def _remark(play: Play, hosts: Hosts, rates: dict[int, int]) -> None:
    if hosts.calibration is None:
        print("genie: no calibrated host latency given: the twin's hosts cost nothing", file=sys.stderr, flush=True)
    else:
        remark_on_calibration(play, hosts, rates)


def _validate_as_a_rank(play: Play, live: Live, out: Path, check: Callable[[], None]) -> int:
    """One rank of a validation that a launcher has started: all play, and rank 0 plays the twin and judges."""
    loaded: list[tuple[Workload, Hosts, Fabric]] = []

    def ready() -> RunSettings:
        check()
        workload = load_workload(play)
        hosts = hosts_of(play, workload.world_size)
        fabric = fabric_of(play, workload.world_size, hosts, DEFAULT_VALIDATE_RATE)
        loaded.append((workload, hosts, fabric))
        return _settings(play, live, out, workload, hosts, fabric)

    rank, code = be_a_rank(live, ready)
    if rank != 0 or code != 0:
        return code
    workload, hosts, fabric = loaded[0]
    _remark(play, hosts, line_rates(play, fabric, hosts, workload.world_size))
    return conclude(*_twin_of_run(play, hosts, fabric, workload, out), out).exit_code


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
    )
    return measured, simulated


def _calibrated(play: Play, hosts: Hosts, out: Path, udp_port: int) -> Hosts:
    """The hosts with a latency measured now, because their file has none."""
    from genie.cli.calibrating import measure

    print("genie: no calibrated host latency given: measuring it first", file=sys.stderr, flush=True)
    folder = out / "calibration"
    play = replace(play, rate=play.rate or (DEFAULT_VALIDATE_RATE if play.fabric is None else None))
    calibration = measure(play, hosts, folder, udp_port)
    print(
        f"genie: packet latency {calibration.packet_latency_ns / 1000:.1f} us "
        f"(spread {calibration.packet_latency_spread_ns / 1000:.1f} us, {calibration.samples} samples)",
        file=sys.stderr,
        flush=True,
    )
    return replace(hosts, calibration=calibration)
