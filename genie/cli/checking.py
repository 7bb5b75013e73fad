"""`genie check`: first aid before a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from genie.bench.rounds import rounds_of
from genie.check.rank import PROGRESS
from genie.check.settings import CheckSettings
from genie.cli import options
from genie.cli.bench.runs import (
    AsJson,
    Kept,
    Mtu,
    check_json,
    check_started_by_hand,
    mtu_from,
    run_ranks,
    show_progress,
    watched,
    workplace,
    write_json,
)
from genie.cli.exits import counted
from genie.config.hosts import load_hosts
from genie.errors import EXIT_FAILED
from genie.job.resolve import Live, Play, UsageError, check_live, fabric_of, loopback_defaults, settings_of
from genie.job.site import ExecutionSite, execution_site
from genie.live.launch.launcher import mpirun_line, refuse_running, remote_hosts
from genie.live.parts import PARTS
from genie.live.transport import SOFTROCE, VERBS
from genie.record import CHECK, launch_mark, prepare_folder
from genie.workload.graph import Group, Workload
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

MODULE, REPORT_KIND = "genie.check.rank", "check-report"
WATCH_S = 0.2
RANKS_MAX = 65536
NO_ROCE_PORT = 4792
ROCE_CLASS = 104  # DSCP 26, which most RoCE clusters use, where nobody says another

EXAMPLES = """
Examples:

```text
genie check --hosts hosts/cluster.toml || exit 1  # in a script before a job
genie check --hosts hosts.toml --rate 25Gb/s --json check.json
genie check --hosts hosts.toml --quick            # no rates, no incasts
genie check --lab FABRIC.toml --lab-fault 'host3-leaf0 mtu=1500'
genie check --schedule --ranks 1024               # nothing is sent
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command(epilog=EXAMPLES)(check)


def check(
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="Hosts file: rank to address. All its ranks take part.")
    ] = None,
    fabric: options.FabricFile = None,
    lab: options.Lab = None,
    lab_fault: options.LabFault = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out rates and congestion control.")] = False,
    rate: Annotated[
        str | None,
        typer.Option(help="Line rate of every host, such as 25Gb/s.  [default: the fabric's, or unlimited]"),
    ] = None,
    mtu: Mtu = None,
    paths: Annotated[
        int, typer.Option(min=1, max=64, help="UDP source ports to try from each host to each other.")
    ] = 8,
    transport: options.Transport = SOFTROCE,
    traffic_class: Annotated[
        int | None,
        typer.Option(
            "--traffic-class",
            min=0,
            max=255,
            help=f"The job's, whose DSCP must arrive as it is.  [default: the fabric's, or {ROCE_CLASS}: DSCP 26]",
        ),
    ] = None,
    faults: options.FaultsFile = None,
    verbs: options.Verbs = None,
    schedule: Annotated[bool, typer.Option("--schedule", help="Print the rounds and send nothing.")] = False,
    ranks: Annotated[
        int | None, typer.Option(min=2, max=RANKS_MAX, help="With --schedule: how many.  [default: the hosts file's]")
    ] = None,
    as_json: AsJson = None,
    out: Kept = None,
    seed: options.Seed = 1,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """Find what is wrong with the network between hosts, minutes before a job: one line each, with what to do.

    Tried are the hosts' addresses; every pair in both directions over several paths, with small and full packets; what
    arrives of ECN and DSCP; rates; and whether an incast makes congestion control work. Exit code 0: nothing found, 1:
    findings, 2: usage, 3: it could not be tried.
    """
    if schedule:
        sys.stdout.write("\n".join(schedule_lines(_ranks_of(hosts, ranks))) + "\n")
        return 0
    if ranks is not None:
        raise UsageError("--ranks: is of --schedule: the hosts file says how many take part")
    if hosts is None and lab is None:
        raise UsageError("give --hosts FILE, or --lab FABRIC.toml")
    check_live(transport, "plain", lab)
    check_started_by_hand(transport)
    check_json(as_json, REPORT_KIND)
    play = Play("", hosts=hosts, fabric=fabric, rate=rate, seed=seed)
    live = Live(
        faults=faults, udp_port=udp_port, join_s=join_limit, stall_s=stall, transport=transport,
        traffic_class=traffic_class, verbs=tuple(verbs or ()),
    )  # fmt: skip
    with execution_site(play, live, lab, lab_fault) as site:
        info = _checked(site, out, mtu_from(mtu), paths=paths, quick=quick)
    if as_json is not None:
        write_json(as_json, info, REPORT_KIND)
    return _print_findings(info)


def _ranks_of(hosts: Path | None, ranks: int | None) -> int:
    if (hosts is None) == (ranks is None):
        raise UsageError("--schedule: give --ranks N or --hosts FILE")
    return load_hosts(hosts).ranks if hosts is not None else ranks or 0


def schedule_lines(ranks: int) -> list[str]:
    """Who meets whom, a line a round, and what it comes to."""
    lines = [
        f"round {number}: " + " ".join([f"{one}-{other}" for one, other in pairs])
        for number, pairs in enumerate(rounds_of(ranks), 1)
    ]
    return [*lines, f"{ranks} hosts, {ranks * (ranks - 1) // 2} pairs, {len(lines)} rounds: nothing is sent"]


def _checked(site: ExecutionSite, out: Path | None, mtu_bytes: int, **asked: Any) -> dict[str, Any]:
    """Run all ranks; what rank 0 has written."""
    lab, play = site.lab, site.play
    if lab is not None:  # a rank on each rail
        count = lab.plan.hosts * max(len(lab.addresses[name]) for name in lab.plan.nodes[: lab.plan.hosts])
    else:
        count = load_hosts(_given(play.hosts)).ranks
    if count < 2:
        raise UsageError(f"{play.hosts}: places {count} rank: a check needs 2")
    hosts = site.hosts(count)
    with workplace(out, hosts) as folder:
        target = folder / "check"
        workload = Workload("check", count, [Group("0", tuple(range(count)))], {})
        described = fabric_of(play, count, hosts) if play.fabric is not None else None
        # A host may have several links, each with a rank: what a fabric file says of placement is not asked.
        rate = play.rate or (None if described is None else f"{_line_rate_bps(described)}b/s")
        settings = settings_of(replace(play, fabric=None, rate=rate), site.live, target, workload, hosts, None)
        names = {link["to"]: name for name, link in lab.facts()["links"].items()} if lab is not None else {}
        fields = msgspec.structs.asdict(settings) | {
            "schema": launch_mark(CHECK),
            "workload": "",
            "mtu": mtu_bytes or (described.transport.mtu if described is not None else 0),
            "frame_overhead_bytes": (described or loopback_defaults(count)).frame.overhead_bytes,
            "congestion": {},
            "traffic_class": class_of(site.live, described),
            "link_names": names,
            "marks": described is None or described.ecn is not None,
            # Devices take RoCE's port for themselves.
            "udp_port": NO_ROCE_PORT if VERBS in settings.kinds else settings.udp_port,
            **asked,
        }
        settings = CheckSettings(**fields)
        refuse_running(target)
        prepare_folder(target, CHECK)
        line = mpirun_line(settings, remote_hosts(hosts), MODULE, site.wrapper(count))
        print("genie: " + " ".join(line), file=sys.stderr, flush=True)
        with site.faults_injected(), _progress(settings):
            run_ranks(settings, line, "check")
        info: dict[str, Any] = json.loads((target / "run.json").read_bytes())
    return info


def _line_rate_bps(fabric: Fabric) -> int:
    """Of the hosts' links. Raises UsageError where they differ: softroce has one rate for all."""
    network = build_network(fabric)
    rates = set(network.rate_bps[network.src_node < network.hosts].tolist())
    if len(rates) > 1:
        raise UsageError(f"{fabric.name}: hosts' links differ in rate: give the lowest with --rate")
    return int(rates.pop())


def class_of(live: Live, fabric: Fabric | None) -> int:
    """The job's; 0 is one too: it is what NCCL_IB_TC's default sends."""
    if live.traffic_class is not None:
        return live.traffic_class
    written = None if fabric is None else fabric.transport.traffic_class
    return ROCE_CLASS if written is None else written


def _given(hosts: Path | None) -> Path:
    assert hosts is not None
    return hosts


@contextmanager
def _progress(settings: CheckSettings) -> Iterator[None]:
    """On a terminal, what is being done."""

    def look() -> None:
        with suppress(OSError, ValueError, KeyError):
            show_progress(json.loads((settings.out_path / PARTS / PROGRESS).read_bytes())["doing"])

    with watched(look, WATCH_S):
        yield


def _print_findings(info: dict[str, Any]) -> int:
    found = info["findings"]
    for each in found:
        print(f"{each['kind']}: {each['text']}")
    for text in info["notes"]:
        print(f"note: {text}")
    tried = ", ".join(counted(info[f"{what}s"], what) for what in ("host", "pair", "round"))
    print(f"{tried}, {info['took_s']:.0f} s: {counted(len(found), 'finding') if found else 'nothing found'}")
    return EXIT_FAILED if found else 0
