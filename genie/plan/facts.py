"""Facts that every run records: versions, commit, machine, build."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import genie_core

PACKAGES = ("genie-fabric", "numpy", "polars", "mpi4py", "mpich", "protobuf")


@cache
def commit() -> str | None:
    """Commit of the checkout that this code runs from; None for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def facts_of_build() -> dict[str, Any]:
    """Versions of all parts, machine and time."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": {"python": platform.python_version(), **versions},
        "native": genie_core.build_flags,
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }
