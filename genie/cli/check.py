"""`genie check`: tests of the network before a job."""

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
from genie.check.findings import KINDS
from genie.check.rank import PROGRESS
from genie.check.settings import CheckSettings
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
    without,
    workplace,
    write_json,
)
from genie.cli.exits import counted
from genie.cli.groups import flattened
from genie.config.hosts import load_hosts
from genie.errors import EXIT_FAILED, UsageError
from genie.invocation import detail
from genie.job.job import Job, loopback_defaults
from genie.job.live_settings import live_settings
from genie.job.options import LabOptions, LiveOptions, TrafficOptions
from genie.job.outputs import check_junit
from genie.job.site import ExecutionSite, execution_site
from genie.live.launch.launcher import mpirun_line, refuse_running, remote_hosts
from genie.live.parts import PARTS
from genie.live.transport import VERBS
from genie.record import CHECK, launch_mark, prepare_folder
from genie.workload.graph import Group, Workload
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

MODULE, REPORT_KIND = "genie.check.rank", "check-report"
WATCH_S = 0.2
RANKS_MAX = 65536
NO_ROCE_PORT = 4792
ROCE_CLASS = 104  # DSCP 26, as in most RoCE clusters, where no option and no fabric file gives another

EXAMPLES = """
Examples:

```text
genie check --hosts hosts/cluster.toml || exit 1  # in a script before a job
genie check --hosts hosts.toml --rate 25Gb/s --json check.json
genie check --hosts hosts.toml --quick            # no rates, no incasts
genie check --lab FABRIC.toml --lab-fault 'host3-leaf0 mtu=1500'
genie check --schedule --ranks 1024               # sends nothing
```
"""


TRAFFIC, LIVE = ("hosts", "fabric", "rate", "seed"), (
    "transport", "traffic_class", "faults", "verbs", "udp_port", "join", "stall",
)  # fmt: skip

SHOWN_DEFAULTS = {
    "hosts": "none. The check needs `--hosts` or `--lab`",
    "fabric": "none",
    "rate": "the rate of the host links in the fabric file, otherwise `unlimited`",
    "traffic_class": f"the value of the fabric file, otherwise {ROCE_CLASS} (DSCP 26)",
}


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    leave_out = {TrafficOptions: without(TrafficOptions, *TRAFFIC), LiveOptions: without(LiveOptions, *LIVE)}
    app.command("check", epilog=EXAMPLES)(flattened(check, leave_out, SHOWN_DEFAULTS))


def check(
    traffic: TrafficOptions,
    live: LiveOptions,
    given: LabOptions,
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip the measurement of rates and the test of congestion control.")
    ] = False,
    paths: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Number of UDP source ports to try from each host to each other host. Each port may lead to another "
            "path.",
        ),
    ] = 8,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Print the rounds of disjoint pairs, and send nothing.")
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=2, max=RANKS_MAX, help="With `--schedule`: number of ranks.  [default: all ranks of the hosts file]"
        ),
    ] = None,
    mtu: Mtu = None,
    as_json: AsJson = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="NAME.xml: the findings as JUnit XML.  [default: none]")
    ] = None,
    out: Kept = None,
) -> int:
    """Find faults of the network between hosts before a job, each with a remedy.

    The check tests the addresses of the hosts. It sends small and full packets between all pairs of hosts, in both
    directions and over several paths. It compares the ECN and DSCP bits of packets on arrival with the bits that were
    sent. It measures rates, and tests whether congestion control reacts to an incast.

    Exit codes: 0 nothing found, 1 findings or a rank died, 2 usage, 3 the check could not run.
    """
    if schedule:
        sys.stdout.write("\n".join(schedule_lines(_ranks_of(traffic.hosts, ranks))) + "\n")
        return 0
    if ranks is not None:
        raise UsageError("--ranks: needs --schedule; a check tests all hosts: leave --ranks out")
    if traffic.hosts is None and given.lab is None:
        raise UsageError("give --hosts FILE, or --lab FABRIC.toml")
    check_started_by_hand(live, given)
    check_json(as_json, REPORT_KIND)
    check_junit(junit)
    with execution_site(traffic, live, given) as site:
        info = _checked(site, out, mtu_from(mtu), paths=paths, quick=quick)
    if as_json is not None:
        write_json(as_json, info, REPORT_KIND)
    if junit is not None:
        from genie.report.junit import cases_of_check, write_junit

        write_junit(junit, "genie", cases_of_check(info, KINDS))
    return _print_findings(info)


def _ranks_of(hosts: Path | None, ranks: int | None) -> int:
    if (hosts is None) == (ranks is None):
        raise UsageError("--schedule: give --ranks N or --hosts FILE")
    return load_hosts(hosts).ranks if hosts is not None else ranks or 0


def schedule_lines(ranks: int) -> list[str]:
    """Return the pairs of each round, one line per round, and a last line with their number."""
    lines = [
        f"round {number}: " + " ".join([f"{one}-{other}" for one, other in pairs])
        for number, pairs in enumerate(rounds_of(ranks), 1)
    ]
    return [*lines, f"{ranks} hosts, {ranks * (ranks - 1) // 2} pairs, {len(lines)} rounds: nothing is sent"]


def _checked(site: ExecutionSite, out: Path | None, mtu_bytes: int, **asked: Any) -> dict[str, Any]:
    """Run all ranks, and return the report of rank 0."""
    lab = site.lab
    if lab is not None:  # one rank per rail
        count = lab.plan.hosts * max(len(lab.addresses[name]) for name in lab.plan.nodes[: lab.plan.hosts])
    else:
        count = load_hosts(_given(site.traffic.hosts)).ranks
    if count < 2:
        raise UsageError(f"{site.traffic.hosts}: places {count} rank: a check needs 2 or more")
    hosts = site.hosts(count)
    with workplace(out, hosts) as folder:
        target = folder / "check"
        workload = Workload("check", count, [Group("0", tuple(range(count)))], {})
        described = Job(site.traffic, site.live, workload, hosts, site.fabric_as_written()).described
        # A host may have several links, each with a rank: the fabric file's placement of ranks is not used.
        rate = site.traffic.rate or (None if described is None else f"{_line_rate_bps(described)}b/s")
        settings = live_settings(Job(replace(site.traffic, fabric=None, rate=rate), site.live, workload, hosts), target)
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
            # RDMA devices receive at RoCE's port themselves.
            "udp_port": NO_ROCE_PORT if VERBS in settings.kinds else settings.udp_port,
            **asked,
        }
        settings = CheckSettings(**fields)
        refuse_running(target)
        prepare_folder(target, CHECK)
        line = mpirun_line(settings, remote_hosts(hosts), MODULE, site.wrapper(count))
        detail(" ".join(line))
        with site.faults_injected(), _progress(settings):
            run_ranks(settings, line, "check")
        info: dict[str, Any] = json.loads((target / "run.json").read_bytes())
    return info


def _line_rate_bps(fabric: Fabric) -> int:
    """Return the rate of the hosts' links. Raises UsageError where they differ: softroce has one rate for all."""
    network = build_network(fabric)
    rates = set(network.rate_bps[network.src_node < network.hosts].tolist())
    if len(rates) > 1:
        raise UsageError(f"{fabric.name}: hosts' links differ in rate: give the lowest with --rate")
    return int(rates.pop())


def class_of(live: LiveOptions, fabric: Fabric | None) -> int:
    """Return the traffic class of the job. A given 0 counts: it is the default of NCCL_IB_TC."""
    if live.traffic_class is not None:
        return live.traffic_class
    written = None if fabric is None else fabric.transport.traffic_class
    return ROCE_CLASS if written is None else written


def _given(hosts: Path | None) -> Path:
    assert hosts is not None
    return hosts


@contextmanager
def _progress(settings: CheckSettings) -> Iterator[None]:
    """Show the current step on a terminal."""

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
