"""How this process was started: by a user, or as a rank by a launcher. Light enough for every start of a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Variables by which launchers tell a process its rank; the first that is set counts.
MPI_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
SLURM_SPECIAL_STEPS = 0xFFFF_FFFA  # slurm.h: from here on the interactive step, the batch script, ...
TORCHRUN_VARIABLES, SLURM_VARIABLES = ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")


def launched_by(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return `mpi` or `tcp` when this process is a rank that a launcher started, None when a user started it.

    MASTER_ADDR is set on purpose, so it takes precedence over variables that MPI's launchers set by themselves.
    """
    if tcp_variables(environment) is not None:
        return "tcp"
    if any(name in environment for name in MPI_RANK_VARIABLES):
        return "mpi"
    if _is_slurm_step(environment) and environment.get("SLURM_NTASKS", "1") != "1":
        return "mpi"
    return None


def _is_slurm_step(environment: Mapping[str, str]) -> bool:
    """Return whether srun started this process: a batch script and a shell of salloc have a SLURM_PROCID too."""
    step = environment.get("SLURM_STEP_ID", "")
    return "SLURM_PROCID" in environment and step.isdecimal() and int(step) < SLURM_SPECIAL_STEPS


def tcp_variables(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the names of the variables that hold rank and size for a TCP rendezvous; None without one."""
    if "MASTER_ADDR" not in environment:
        return None
    if "RANK" in environment:
        return TORCHRUN_VARIABLES
    return SLURM_VARIABLES if _is_slurm_step(environment) else None


def expected_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank that the launcher gave this process, before any rendezvous; None when it does not say."""
    tcp = tcp_variables(environment)
    names = tcp[:1] if tcp else (*MPI_RANK_VARIABLES, TORCHRUN_VARIABLES[0], SLURM_VARIABLES[0])
    for name in names:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return None


def speaks() -> bool:
    """Return whether this process reports errors in the options: one rank does it, as all see the same options."""
    return launched_by() is None or expected_rank() in (None, 0)
