"""How a calibration is made: the rings on the hosts, and the twin's answer to the same arrivals."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from genie.config.hosts import Calibration, Hosts
from genie.config.units import format_rate
from genie.job.resolve import Live, Play, UsageError, rate_of, settings_of, twin_of
from genie.job.site import ExecutionSite
from genie.live.launch.calibrate import ITERATIONS, UNIT_NS, WARMUP, calibration_of, rings, samples_ns, spans
from genie.live.launch.launcher import LaunchError, launch, mpirun_line, refuse_running, remote_hosts
from genie.record import CALIBRATION, launch_mark, open_run, prepare_folder
from genie.workload.write import save
from simtwin.fabric.reading import load_fabric, loopback_fabric, with_host_latency
from simtwin.play.twin import arrivals_of


def calibrated(site: ExecutionSite, hosts: Hosts, out: Path) -> Hosts:
    """The hosts with a latency measured now, because nothing says theirs. Raises LaunchError."""
    print("genie: no calibrated host latency given: measuring it first", file=sys.stderr, flush=True)
    found = measured_on(site, hosts, out)
    print(
        f"genie: packet latency {found.packet_latency_ns / 1000:.1f} us "
        f"(spread {found.packet_latency_spread_ns / 1000:.1f} us, {found.samples} samples)",
        file=sys.stderr,
        flush=True,
    )
    return replace(hosts, calibration=found)


def measured_on(site: ExecutionSite, hosts: Hosts, out: Path) -> Calibration:
    """What a packet costs on the hosts of a command, without the faults of its lab. Raises LaunchError."""
    wrapper = site.wrapper(hosts.ranks)
    with site.without_faults():
        found = measure(site.play, hosts, out, site.live.udp_port, offload=site.live.offload, wrapper=wrapper)
    site.keep(found)
    return found


def measure(
    play: Play, hosts: Hosts, out: Path, udp_port: int, *, offload: bool = True, wrapper: Sequence[str] = ()
) -> Calibration:
    """Run the rings on the hosts and in the twin. Raises LaunchError when the live run fails.

    `wrapper`: what is put before each rank's command.
    """
    if hosts.ranks < 2:
        raise UsageError("calibration needs at least 2 ranks")
    workload = rings(hosts.ranks)
    refuse_running(out)
    prepare_folder(out, CALIBRATION)
    folder = out / "rings"  # where all hosts see it
    try:
        save(workload, folder, "rings")
        fabric = (
            play.as_built or load_fabric(play.fabric)
            if play.fabric
            else loopback_fabric(hosts.ranks, rate_of(play, None, hosts, hosts.ranks))
        )
        # One message a hop, whatever the job's own are made of: the twin below plays such ones.
        play = Play(
            str(folder), hosts=play.hosts, fabric=play.fabric, rate=play.rate, dilation=play.dilation,
            algorithm=("all_gather=ring",), seed=play.seed, queue_pairs=play.queue_pairs, split=play.split,
            congestion=play.congestion, as_built=play.as_built,
        )  # fmt: skip
        live = Live(ITERATIONS, WARMUP, offload=offload, udp_port=udp_port)
        settings = settings_of(play, live, out, workload, hosts, fabric)
        settings = msgspec.structs.replace(settings, schema=launch_mark(CALIBRATION))
        outcome = launch(settings, mpirun_line(settings, remote_hosts(hosts), wrapper=wrapper))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome.code != 0:
        raise LaunchError(f"the calibration run failed: {outcome.problem}", outcome.code)
    run = open_run(out)
    arrivals = {k: v for k, v in arrivals_of(workload, run.timeline).items() if k >= WARMUP}
    answers = []
    for latency_ns in (0, UNIT_NS):
        twin = twin_of(with_host_latency(fabric, latency_ns, 0), play, hosts.ranks, hosts)
        answers.append(spans(twin.play(workload, iterations=sorted(arrivals), arrivals_ns=arrivals).timeline))
    samples = samples_ns(spans(run.timeline), *answers)
    scheduling = ",".join(run.info["scheduling"])
    rate = format_rate(settings.rate_bps)
    return calibration_of(np.asarray(samples), rate, play.dilation, scheduling, run.info["commit"])
