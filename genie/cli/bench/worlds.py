"""Where a bench plays its workloads: on the network, started by mpirun, or in the twin. Each is a run of its own."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from genie.bench.nccl_json import Device
from genie.cli.bench.runs import BenchSite, run_ranks, save_trace
from genie.cli.watching import Progress
from genie.job.levels import check_level
from genie.job.resolve import (
    UsageError,
    check_rate,
    fabric_of,
    line_rates,
    rate_from,
    settings_of,
    transports_of,
    twin_of,
    twin_variables,
    warn_of_calibration,
)
from genie.job.wire import lowering_of
from genie.live.launch.launcher import LaunchError, refuse_running
from genie.live.settings import RunSettings
from genie.record import LIVE, TWIN, RecordError, Run, open_run, prepare_folder
from genie.workload.graph import Workload
from simtwin.play.run import attachment, simulate_to_folder
from simtwin.play.watching import Watch


class World(Protocol):
    """One of the two worlds."""

    def devices(self) -> list[Device]:
        """Where each rank is."""

    def notes(self) -> list[str]:
        """What a table's head says of the world."""

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Play it into a run folder of that name. `what`: what it is, in words."""


class LiveWorld:
    """The network."""

    def __init__(
        self,
        bench_site: BenchSite,
        folder: Path,
        *,
        spin: bool | None = None,
        mtu_bytes: int = 0,
        limit_s: float | None = None,
    ) -> None:
        self._stage, self._folder = bench_site, folder
        self._spin, self._mtu_bytes, self._limit_s = spin, mtu_bytes, limit_s

    def announce(self, name: str) -> None:
        """Print the command; what is wrong with the options is said before a table begins."""
        bench_site = self._stage
        if bench_site.fabric is not None:
            twin_of(
                bench_site.fabric, bench_site.play, bench_site.hosts.ranks, bench_site.hosts
            )  # one that does not fit is refused
        line = bench_site.command(self._settings_of(name))
        print("genie: " + " ".join(line), file=sys.stderr, flush=True)

    def devices(self) -> list[Device]:
        """A rank in a namespace of this machine is at the host of the fabric that stands for it."""
        transports = transports_of(self._stage.live, self._stage.hosts)
        counted: Counter[str] = Counter()
        devices = []
        for place, transport in zip(self._stage.hosts.places, transports, strict=True):
            host = place.port if place.host == "localhost" and place.port else place.host
            where = place.device or place.address
            devices.append(Device(place.rank, host, counted[host], where, f"{transport} {where}"))
            counted[host] += 1
        return devices

    def notes(self) -> list[str]:
        """None: a table that says nothing else was measured."""
        return []

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Raises LaunchError when the run did not end well, but for bytes that are wrong."""
        settings = self._settings_of(name, workload)
        refuse_running(settings.out_path)
        prepare_folder(settings.out_path, LIVE)
        save_trace(workload, Path(settings.workload))
        try:
            run_ranks(settings, self._stage.command(settings), what, self._limit_s)
        except LaunchError:
            if not _found_wrong(settings, workload):
                raise
        return open_run(settings.out_path)

    def _settings_of(self, name: str, workload: Workload | None = None) -> RunSettings:
        bench_site = self._stage
        play = replace(bench_site.play, workload=str(self._folder / f"{name}.trace"))
        workload = workload or Workload(name, bench_site.hosts.ranks, [], {})
        settings = settings_of(
            play, bench_site.live, self._folder / name, workload, bench_site.hosts, bench_site.fabric
        )
        return msgspec.structs.replace(settings, spin=self._spin, mtu=self._mtu_bytes or settings.mtu)


def _found_wrong(settings: RunSettings, workload: Workload) -> bool:
    """Whether a run failed for its payload alone: it was played to its end on all ranks."""
    try:
        run = open_run(settings.out_path)
    except RecordError:
        return False
    nodes = sum(map(len, workload.ranks.values()))
    played = run.timeline.height == nodes and bool((run.timeline["end_ns"] >= 0).all())
    return played and any(each and each.get("wrong_bytes") for each in run.counters["ranks"])


class TwinWorld:
    """The simulated network."""

    def __init__(
        self, bench_site: BenchSite, folder: Path, *, level: str = "packet", threads: int = 1, mtu_bytes: int = 0
    ) -> None:
        check_level(level)
        self._stage, self._folder, self._level, self._threads = bench_site, folder, level, threads
        play, ranks, fabric = bench_site.play, bench_site.hosts.ranks, bench_site.fabric
        if fabric is None:
            if play.rate is None or rate_from(play.rate) == 0:
                raise UsageError("--simulate: a loopback without a rate takes no time: give --rate, or --fabric FILE")
            fabric = fabric_of(play, ranks, bench_site.hosts)
        if mtu_bytes:
            transport = msgspec.structs.replace(fabric.transport, mtu=mtu_bytes)
            fabric = msgspec.structs.replace(fabric, transport=transport)
        self._rates = line_rates(play, fabric, bench_site.hosts, ranks)
        check_rate(play, self._rates)
        self._twin = twin_of(fabric, play, ranks, bench_site.hosts, threads, level)

    def warn(self) -> None:
        """Say what the twin assumes of the hosts."""
        if self._stage.hosts.calibration is None:
            lab = self._stage.play.as_built and self._stage.play.fabric
            how = f"genie lab up {lab}, then genie calibrate --lab {lab}" if lab else "genie calibrate --hosts"
            print(f"genie: no calibrated host latency given: the twin's hosts cost nothing ({how})", file=sys.stderr)
        else:
            warn_of_calibration(self._stage.play, self._stage.hosts, self._rates)

    def devices(self) -> list[Device]:
        """The fabric's hosts."""
        counted: Counter[str] = Counter()
        devices = []
        for rank, host in enumerate(self._twin.host_of_rank):
            on = attachment(self._twin.network, rank, int(host))
            devices.append(Device(rank, on["host"], counted[on["host"]], on["nic"], f"twin {on['link']}"))
            counted[on["host"]] += 1
        return devices

    def notes(self) -> list[str]:
        """How it was simulated, and what the hosts cost in it where that was measured."""
        where = f"fabric {self._twin.fabric.name}" + (
            f" ({self._stage.play.fabric})" if self._stage.play.fabric else ""
        )
        notes = [f"Simulated by the twin: level {self._level}, seed {self._stage.play.seed}, {where}"]
        if (found := self._stage.hosts.calibration) is not None:
            spread = f"spread {found.packet_latency_spread_ns / 1000:.1f} us"
            notes.append(f"Hosts cost {found.packet_latency_ns / 1000:.1f} us a packet, as calibrated ({spread})")
        return notes

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Raises SimulationError when ranks wait for what never comes."""
        out = self._folder / f"{name}-twin"
        prepare_folder(out, TWIN)
        lowering = lowering_of(self._stage.play)
        with Progress() as progress:
            return simulate_to_folder(
                self._twin,
                workload,
                out,
                workload_path=str(self._folder / f"{name}.trace"),
                lowering=lowering,
                watch=Watch(progress),
                nccl_variables=twin_variables(self._stage.play, lowering, workload, self._stage.hosts),
            )
