"""`genie calibrate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from genie.cli.groups import flattened
from genie.cli.launching import refuse_launched
from genie.cli.output import out_folder
from genie.config.hosts import load_hosts, write_calibration
from genie.errors import UsageError
from genie.job.job import uncertainty
from genie.job.option import fields_of
from genie.job.options import LabOptions, LiveOptions, TrafficOptions
from genie.job.outputs import OutputOptions
from genie.job.site import execution_site
from genie.live.launch.loopback import free_loopback_hosts

RANKS_MAX = 1024  # of a calibration on one machine
DEFAULT_RATE = "200Mb/s"

CALIBRATE_EXAMPLES = """
Examples:

```text
genie calibrate --hosts hosts/loopback.toml --rate 200Mb/s
genie calibrate --hosts hosts/cluster.toml --fabric FABRIC.toml
genie calibrate --lab FABRIC.toml
```
"""

CALIBRATED = {"hosts", "fabric", "rate", "dilation"}

SHOWN_DEFAULTS = {"rate": f"the rate of the host links in the fabric file, otherwise {DEFAULT_RATE}"}


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    leave_out = {
        TrafficOptions: {each.name for each in fields_of(TrafficOptions)} - CALIBRATED,
        LiveOptions: {each.name for each in fields_of(LiveOptions)} - {"udp_port"},
        LabOptions: {"lab_fault"},
        OutputOptions: {"metrics"},
    }
    app.command("calibrate", epilog=CALIBRATE_EXAMPLES)(flattened(calibrate, leave_out, SHOWN_DEFAULTS))


def calibrate(
    traffic: TrafficOptions,
    live: LiveOptions,
    given: LabOptions,
    output: OutputOptions,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=RANKS_MAX,
            help="Number of ranks that take part. They are the first ranks of the hosts file or of the lab. Without "
            "`--hosts` and `--lab`, the ranks run on loopback, and this option is required.  [default: all "
            "ranks of the hosts file or of the lab]",
        ),
    ] = None,
) -> int:
    """Measure the latency of the hosts, and store it in the hosts file.

    All ranks pass messages around a ring at the line rate. The twin plays the same ring with hosts of zero latency. The
    difference for each hop is the latency of a host. With `--hosts`, the command stores median and spread in the hosts
    file. With `--lab`, it stores them in the lab. A verdict uses the stored latency. It never fits the latency to the
    run that it judges. If the spread is more than half of the latency, the command prints that it is uncertain.
    """
    from genie.job.calibration import measured_on

    refuse_launched()
    hosts = traffic.hosts
    if hosts is None and ranks is None and given.lab is None:
        raise UsageError("give --hosts FILE, --lab FABRIC, or --ranks N for loopback")
    if traffic.fabric is None and given.lab is None:
        traffic = replace(traffic, rate=traffic.rate or DEFAULT_RATE)
    with out_folder(output.out, "calibrate") as out, execution_site(traffic, live, given) as site:
        if site.lab is not None:
            placed = site.hosts(ranks or site.lab.plan.hosts)
        else:
            placed = load_hosts(hosts) if hosts else free_loopback_hosts(ranks or 2, live.udp_port)
        if ranks is not None:
            placed = placed.first(ranks)
        calibration = measured_on(site, placed, out)
    print(
        f"packet latency {calibration.packet_latency_ns / 1000:.1f} us, "
        f"spread {calibration.packet_latency_spread_ns / 1000:.1f} us "
        f"({calibration.samples} samples, {placed.ranks} ranks at {calibration.rate}, {calibration.scheduling})"
    )
    if text := uncertainty(calibration):
        print(text)
    if hosts:
        write_calibration(hosts, calibration)
        print(f"stored in {hosts}")
    return 0
