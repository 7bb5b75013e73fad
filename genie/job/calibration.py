"""The measurement of a calibration: small exchanges on the hosts, and in the twin from the same arrivals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from genie.config.hosts import Calibration, Hosts
from genie.config.source_ports import PAIR, PINNED
from genie.config.units import format_rate
from genie.errors import UsageError
from genie.invocation import note
from genie.job.job import Job, latency_in_words, rate_from
from genie.job.live_settings import settings_on
from genie.job.options import LiveOptions, TrafficOptions
from genie.job.site import ExecutionSite
from genie.live.launch.calibrate import ITERATIONS, UNIT_NS, WARMUP, calibration_of, exchanges, samples_ns, spans
from genie.live.launch.launcher import LaunchError, launch, mpirun_line, refuse_running, remote_hosts
from genie.record import CALIBRATION, launch_mark, open_run, prepare_folder
from genie.workload.write import save
from simtwin.fabric.reading import loopback_fabric, with_host_latency
from simtwin.fabric.schema import Fabric
from simtwin.play.twin import arrivals_of


def calibrated(site: ExecutionSite, hosts: Hosts, out: Path) -> Hosts:
    """Measure the latency of hosts without a calibration; return the hosts with it. Raises LaunchError."""
    note("no calibrated host latency given: measuring it first")
    found = measured_on(site, hosts, out)
    note(latency_in_words(found))
    return replace(hosts, calibration=found)


def measured_on(site: ExecutionSite, hosts: Hosts, out: Path) -> Calibration:
    """Measure the latency of a packet on the hosts of a command, without the faults of its lab. Raises LaunchError."""
    wrapper = site.wrapper(hosts.ranks)
    with site.without_faults():
        found = measure(site.traffic, site.live, hosts, out, written=site.fabric_as_written(), wrapper=wrapper)
    site.keep(found)
    return found


def measure(
    traffic: TrafficOptions,
    live: LiveOptions,
    hosts: Hosts,
    out: Path,
    *,
    written: Fabric | None = None,
    wrapper: Sequence[str] = (),
) -> Calibration:
    """Run the exchanges on the hosts and in the twin. Raises LaunchError when the live run fails.

    `traffic` and `live`: their transport options hold here too. `written`: the fabric, None for loopback. `wrapper`:
    the words before each rank's command.
    """
    if hosts.ranks < 2:
        raise UsageError("calibration needs at least 2 ranks")
    workload = exchanges(hosts.ranks)
    refuse_running(out)
    prepare_folder(out, CALIBRATION)
    folder = out / "exchanges"  # in a folder that all hosts see
    # One message per hop, whatever messages the job has: the twin below plays the same ones.
    own_traffic = TrafficOptions(
        str(folder),
        hosts=traffic.hosts,
        fabric=traffic.fabric,
        rate=traffic.rate,
        dilation=traffic.dilation,
        algorithm=("all_gather=ring",),
        seed=traffic.seed,
        queue_pairs=traffic.queue_pairs,
        split=traffic.split,
        spray=1,  # the twin of the exchanges does not know which paths packets take
        congestion=traffic.congestion,
    )
    # Faults and paths are the job's. Its transport, ports and way of waiting are those that are measured.
    chosen = PAIR if live.source_ports == PINNED else live.source_ports
    own_live = replace(
        live, iterations=ITERATIONS, warmup=WARMUP, faults=None, trace_paths=None, source_ports=chosen, verify=False
    )
    job = Job(own_traffic, own_live, workload, hosts, written)
    try:
        save(workload, folder, "exchanges")
        rate_bps = 0 if traffic.rate is None else rate_from(traffic.rate)
        fabric = loopback_fabric(hosts.ranks, rate_bps) if written is None else written
        settings = settings_on(job, out, fabric)
        settings = msgspec.structs.replace(settings, schema=launch_mark(CALIBRATION))
        outcome = launch(settings, mpirun_line(settings, remote_hosts(hosts), wrapper=wrapper))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome.code != 0:
        raise LaunchError(f"the calibration run failed: {outcome.failure}", outcome.code, outcome.places)
    run = open_run(out)
    arrivals = {k: v for k, v in arrivals_of(workload, run.timeline).items() if k >= WARMUP}
    answers = []
    for latency_ns in (0, UNIT_NS):
        twin = job.twin(fabric=with_host_latency(fabric, latency_ns, 0))
        answers.append(spans(twin.play(workload, iterations=sorted(arrivals), arrivals_ns=arrivals).timeline))
    samples = samples_ns(spans(run.timeline), *answers)
    scheduling = ",".join(run.info["scheduling"])
    rate = format_rate(settings.rate_bps)
    return calibration_of(np.asarray(samples), rate, traffic.dilation, scheduling, run.info["commit"])
