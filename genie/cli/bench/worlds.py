"""The two places in which a bench plays its workloads, each as a run: the network, by mpirun, and the twin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import msgspec

from genie.bench.baseline import MTU, SETTINGS
from genie.bench.nccl_json import Device
from genie.cli.bench.runs import BenchSite, run_ranks, save_trace
from genie.cli.simulation.progress import Progress
from genie.config.congestion import plain
from genie.errors import UsageError
from genie.invocation import detail, note
from genie.job.job import rate_from
from genie.job.levels import check_level
from genie.job.live_settings import live_settings
from genie.live.launch.launcher import LaunchError, refuse_running
from genie.live.settings import RunSettings
from genie.record import LIVE, TWIN, RecordError, Run, open_run, prepare_folder
from genie.workload.graph import Workload
from simtwin.fabric.schema import Host
from simtwin.play.run import attachment, simulate_to_folder
from simtwin.play.watching import Watch


class World(Protocol):
    """A place in which workloads are played: the network or the twin."""

    def devices(self) -> list[Device]:
        """The place of each rank."""

    def facts(self) -> dict[str, Any]:
        """The facts that benches of one job share; None for those that only a run can tell."""

    def notes(self) -> list[str]:
        """Lines about the world for the head of a table."""

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Play a workload into a run folder of that name. `what`: the workload in words."""


class LiveWorld:
    """The network."""

    def __init__(
        self, bench_site: BenchSite, folder: Path, *, mtu_bytes: int = 0, limit_s: float | None = None
    ) -> None:
        self._site, self._folder = bench_site, folder
        self._mtu_bytes, self._limit_s = mtu_bytes, limit_s

    def announce(self, name: str) -> None:
        """Refuse unusable options before a table begins; with --verbose, print the command that starts the ranks."""
        if self._site.job.written is not None:
            self._site.job.twin()  # refuses a fabric that does not fit
        detail(" ".join(self._site.command(self._settings_of(name))))

    def devices(self) -> list[Device]:
        """The place of each rank: in a namespace of this machine, the host of the fabric that it stands for."""
        counted: Counter[str] = Counter()
        devices = []
        for place, transport in zip(self._site.hosts.places, self._site.job.transports, strict=True):
            host = place.port if place.host == "localhost" and place.port else place.host
            where = place.device or place.address
            devices.append(Device(place.rank, host, counted[host], where, f"{transport} {where}"))
            counted[host] += 1
        return devices

    def facts(self) -> dict[str, Any]:
        """The settings of the ranks, the lowering, and the fabric; without a file, ranks find the MTU themselves."""
        settings = self._settings_of("facts")
        every = msgspec.to_builtins(settings)
        written = self._site.job.written
        return {
            **{key: every[key] for key in SETTINGS},
            MTU: settings.mtu or None,
            **_spray_of(settings.spray),
            "lowering": settings.lowering.facts(),
            "fabric": "" if written is None else written.name,
        }

    def notes(self) -> list[str]:
        """Return no lines: a table without them was measured."""
        return []

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Play on the network. Raises LaunchError when the run fails for another reason than wrong bytes."""
        settings = self._settings_of(name, workload)
        refuse_running(settings.out_path)
        prepare_folder(settings.out_path, LIVE)
        save_trace(workload, Path(settings.workload))
        try:
            run_ranks(settings, self._site.command(settings), what, self._limit_s)
        except LaunchError:
            if not _found_wrong(settings, workload):
                raise
        return open_run(settings.out_path)

    def _settings_of(self, name: str, workload: Workload | None = None) -> RunSettings:
        workload = workload or Workload(name, self._site.hosts.ranks, [], {})
        job = self._site.job.of(workload, str(self._folder / f"{name}.trace"))
        settings = live_settings(job, self._folder / name)
        return msgspec.structs.replace(settings, mtu=self._mtu_bytes or settings.mtu)


def _spray_of(spray: int) -> dict[str, int]:
    """Return the fact of a sprayed bench; benches from before sprayed ones have none."""
    return {} if spray == 1 else {"spray": spray}


def _found_wrong(settings: RunSettings, workload: Workload) -> bool:
    """Whether a run failed only because of wrong payload: it was played to its end on all ranks."""
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
        self._job, self._folder, self._level = bench_site.job, folder, level
        self._lab = bench_site.job.traffic.fabric if bench_site.site.written is not None else None
        job = self._job
        if job.written is None and (job.traffic.rate is None or rate_from(job.traffic.rate) == 0):
            raise UsageError("--simulate: a loopback without a rate takes no time: give --rate, or --fabric FILE")
        fabric = job.fabric
        if mtu_bytes:
            transport = msgspec.structs.replace(fabric.transport, mtu=mtu_bytes)
            fabric = msgspec.structs.replace(fabric, transport=transport)
        job.check_rate()
        self._twin = job.twin(threads=threads, level=level, fabric=fabric)

    def facts(self) -> dict[str, Any]:
        """The settings of the twin's connections, the lowering, the level and the fabric."""
        fabric = self._twin.fabric
        return {
            "queue_pairs": fabric.transport.queue_pairs or 1,
            "split": fabric.transport.split or False,
            **_spray_of(fabric.spray),
            MTU: fabric.transport.mtu,
            "congestion": plain(fabric.control),
            "lowering": self._job.lowering.facts(),
            **self._twin.level.facts(),
            "fabric": fabric.name,
            "rate": self._job.traffic.rate or "",
        }

    def warn(self) -> None:
        """Warn where the hosts' latency is not known, or was measured at another rate."""
        if self._job.hosts.calibration is None and self._twin.fabric.host == Host() and self._twin.fabric.nic is None:
            lab = self._lab
            how = f"genie lab up {lab}, then genie calibrate --lab {lab}" if lab else "genie calibrate --hosts"
            note(f"no calibrated host latency given: the twin's hosts cost nothing ({how})")
        else:
            self._job.warn_of_calibration()

    def devices(self) -> list[Device]:
        """The place of each rank: its host, NIC and link in the fabric."""
        counted: Counter[str] = Counter()
        devices = []
        for rank, host in enumerate(self._twin.host_of_rank):
            on = attachment(self._twin.network, rank, int(host))
            devices.append(Device(rank, on["host"], counted[on["host"]], on["nic"], f"twin {on['link']}"))
            counted[on["host"]] += 1
        return devices

    def notes(self) -> list[str]:
        """The simulation's level, seed and fabric, and the hosts' latency where it was measured."""
        file = self._job.traffic.fabric
        where = f"fabric {self._twin.fabric.name}" + (f" ({file})" if file else "")
        notes = [f"Simulated by the twin: level {self._level}, seed {self._job.traffic.seed}, {where}"]
        if (found := self._job.hosts.calibration) is not None:
            spread = f"spread {found.packet_latency_spread_ns / 1000:.1f} us"
            notes.append(f"Hosts cost {found.packet_latency_ns / 1000:.1f} us a packet, as calibrated ({spread})")
        return notes

    def play(self, workload: Workload, name: str, what: str) -> Run:
        """Play in the twin. Raises SimulationError when ranks wait for messages that never come."""
        out = self._folder / f"{name}-twin"
        prepare_folder(out, TWIN)
        job = self._job.of(workload, str(self._folder / f"{name}.trace"))
        with Progress() as progress:
            return simulate_to_folder(
                self._twin,
                workload,
                out,
                workload_path=job.traffic.workload,
                lowering=job.lowering,
                watch=Watch(progress),
                nccl_variables=job.nccl_variables(),
            )
