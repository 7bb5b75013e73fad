"""What the benchmarks of the main job share: workloads, one validated run, machine facts."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from genie.cli.calibrating import measure
from genie.cli.compare import play_in_both
from genie.config.hosts import Calibration, Hosts
from genie.job.resolve import Live, Play, hosts_of, load_workload, settings_of
from genie.live.settings import Faults
from genie.plan.facts import facts_of_build
from genie.record import VALIDATION, Run, prepare_folder
from genie.verdict import Verdict, judge
from genie.workload.pytorch.convert import convert
from genie.workload.pytorch.files import find_device_traces, find_host_traces
from simtwin.fabric.reading import loopback_fabric, with_host_latency

ROOT = Path(__file__).resolve().parent.parent


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


class Job:
    """A workload on loopback at a line rate, calibrated once, that can be validated again and again."""

    def __init__(
        self, workload: Path, rate: str, scratch: Path, *, dilation: int = 1, algorithm: Sequence[str] = ()
    ) -> None:
        self.play = Play(str(workload), rate=rate, dilation=dilation, algorithm=tuple(algorithm))
        self.workload = load_workload(self.play)
        self.scratch = scratch
        self.hosts: Hosts = hosts_of(self.play, self.workload.world_size, 4791)
        rate_bps = settings_of(self.play, Live(), scratch, self.workload, self.hosts, None).rate_bps
        self.fabric = loopback_fabric(self.workload.world_size, rate_bps)

    def calibrate(self) -> Calibration:
        """Measure the host latency, as `genie calibrate` does; used by every later run as it is."""
        return self.use(measure(self.play, self.hosts, self.scratch / "calibration", 4791))

    def use(self, calibration: Calibration) -> Calibration:
        """Take a calibration that was measured before."""
        self.fabric = with_host_latency(self.fabric, calibration.packet_latency_ns, calibration.message_latency_ns)
        return calibration

    def run(self, *, iterations: int, warmup: int, faults: Faults | None = None, seed: int = 1) -> tuple[Run, Run]:
        """Play live, then in the twin from the measured arrivals."""
        out = self.scratch / "run"
        live = Live(iterations, warmup)
        self.hosts = hosts_of(self.play, self.workload.world_size, live.udp_port)  # a block that is free now
        settings = settings_of(self.play, live, out / "live", self.workload, self.hosts, self.fabric)
        settings = msgspec.structs.replace(settings, faults=faults or Faults(), seed=seed)
        prepare_folder(out, VALIDATION)
        with contextlib.redirect_stderr(io.StringIO()):
            outcome, runs = play_in_both(self.play, settings, self.hosts, self.fabric, self.workload, out)
        if runs is None:
            raise RuntimeError(f"the live run failed: {outcome.problem}")
        return runs

    def validate(self, **options: Any) -> Verdict:
        """One `genie validate`, without its report."""
        return judge(*self.run(**options))


def machine() -> dict[str, Any]:
    """Where and with what the figures were obtained."""
    return {**facts_of_build(), "started": time.strftime("%Y-%m-%d %H:%M:%S")}


def fresh(path: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


if __name__ == "__main__":
    print(f"{__doc__}\nNo benchmark by itself: run accuracy.py, detection.py or truth.py.")
