"""Shared parts of the benchmarks of the main job: workloads, one validated run, facts of the machine."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from genie.config.hosts import Calibration
from genie.job import job as job_of
from genie.job.calibration import measure
from genie.job.job import hosts_of, load_workload
from genie.job.live_settings import live_settings
from genie.job.options import LiveOptions, TrafficOptions
from genie.job.playing import play_in_both
from genie.live.settings import Faults
from genie.plan.facts import facts_of_build
from genie.record import VALIDATION, Run, prepare_folder
from genie.verdict import Verdict, judge
from genie.workload.pytorch.convert import convert
from genie.workload.pytorch.files import find_device_traces, find_host_traces

ROOT = Path(__file__).resolve().parents[2]


def shared_data() -> Path:
    """Third-party traces (GENIE_SHARED_DATA)."""
    path = Path(os.environ.get("GENIE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not (path / "MANIFEST.md").is_file():
        sys.exit(f"{path}: no shared test data there; set GENIE_SHARED_DATA")
    return path


def dlrm(folder: Path) -> Path:
    """The real DLRM trace, converted into `folder`/dlrm."""
    out = folder / "dlrm"
    if not out.exists():
        for name in ("dlrm_pytorch_et", "dlrm_kineto"):
            with tarfile.open(shared_data() / "param" / f"{name}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        host, device = find_host_traces(folder / "dlrm_pytorch_et"), find_device_traces(folder / "dlrm_kineto")
        convert(host.by_rank, device.by_rank, out, "dlrm")
    return out


UDP_PORT = 4791


class Job:
    """A workload on loopback at a line rate, calibrated once and validated many times."""

    def __init__(
        self, workload: Path, rate: str, scratch: Path, *, dilation: int = 1, algorithm: Sequence[str] = ()
    ) -> None:
        self.traffic = TrafficOptions(str(workload), rate=rate, dilation=dilation, algorithm=tuple(algorithm))
        self.workload = load_workload(self.traffic)
        self.scratch = scratch
        self.calibration: Calibration | None = None

    def calibrate(self) -> Calibration:
        """Measure the host latency, as `genie calibrate` does, for all later runs."""
        hosts = hosts_of(self.traffic, self.workload.world_size, UDP_PORT)
        return self.use(measure(self.traffic, LiveOptions(), hosts, self.scratch / "calibration"))

    def use(self, calibration: Calibration) -> Calibration:
        """Use an earlier calibration."""
        self.calibration = calibration
        return calibration

    def run(self, *, iterations: int, warmup: int, faults: Faults | None = None, seed: int = 1) -> tuple[Run, Run]:
        """Play live, then in the twin from the measured arrivals."""
        out = self.scratch / "run"
        hosts = hosts_of(self.traffic, self.workload.world_size, UDP_PORT)  # ports that are free now
        hosts = replace(hosts, calibration=self.calibration)
        job = job_of.Job(self.traffic, LiveOptions(iterations, warmup), self.workload, hosts, describes_loopback=True)
        settings = live_settings(job, out / "live")
        settings = msgspec.structs.replace(settings, faults=faults or Faults(), seed=seed)
        prepare_folder(out, VALIDATION)
        with contextlib.redirect_stderr(io.StringIO()):
            outcome, runs = play_in_both(job, settings, out)
        if runs is None:
            raise RuntimeError(f"the live run failed: {outcome.problem}")
        return runs

    def validate(self, **options: Any) -> Verdict:
        """One `genie validate`, without its report."""
        return judge(*self.run(**options))


def machine() -> dict[str, Any]:
    """Facts of the machine and the software."""
    return {**facts_of_build(), "started": time.strftime("%Y-%m-%d %H:%M:%S")}


def fresh(path: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
