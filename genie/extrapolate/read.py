"""Reading of one GPU's trace in any of its forms."""

from __future__ import annotations

from pathlib import Path

from genie.extrapolate.kineto import read_kineto
from genie.extrapolate.step import TracedStep
from genie.extrapolate.triosim import is_triosim, read_triosim
from genie.workload.graph import WorkloadError


def read_step(path: Path) -> TracedStep:
    """Read a training step: a folder with TrioSim's tables, or a Kineto trace. Raises WorkloadError."""
    if is_triosim(path):
        return read_triosim(path)
    if path.is_dir():
        raise WorkloadError(
            f"{path}: has no trace.csv and tensor.csv: give TrioSim's folder, or a Kineto trace (.json)"
        )
    return read_kineto(path)
