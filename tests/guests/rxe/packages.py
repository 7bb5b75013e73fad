"""Genie's wheel and what it imports, in a folder that guests can put on PYTHONPATH."""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import py_compile
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from rxe.failure import RigError
from rxe.image import cache_folder

PROJECT = Path(__file__).resolve().parents[3]
GUEST_PYTHON = (3, 11)  # Debian 12's: compiled packages must be for it
# The guests have Debian's NumPy; mpirun is for the host.
LEFT_OUT = {"numpy", "mpi4py", "mpich"}
COLLECTED = ".genie-packages"  # in a folder that may be replaced
COMMANDS = "bin"  # folder of the wheel's commands, for the guests' PATH
COMMAND = """#!/usr/bin/python3 -P
import sys
from {module} import {function}
sys.exit({function}())
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout with the running Python's tools; what was compiled before is kept in the cache.

    Raises:
        RigError: it cannot be built.
    """
    build = cache_folder() / "wheel-build"
    argv = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation"]
    argv += ["-C", f"build-dir={build}", "-w", str(folder), str(PROJECT)]
    headers = Path(sys.prefix) / "headers"
    finder = [str(PROJECT / ".ci" / "python-headers"), "--environment", str(headers)]
    prefix = subprocess.run(finder, capture_output=True, text=True, check=True).stdout.split()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [*prefix, *argv], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("genie_fabric-*.whl"))
    if done.returncode or not wheels:
        raise RigError(f"pip wheel ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return wheels[-1]


def collect(folder: Path, wheel: Path) -> None:
    """Fill a folder with the wheel and with the packages that it needs, as this Python's environment has them.

    Raises:
        RigError: this Python is not the guests', or the environment lacks a package.
    """
    if sys.version_info[:2] != GUEST_PYTHON:
        raise RigError(f"packages for guests: this is Python {sys.version.split()[0]}, theirs is 3.11")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COLLECTED).write_text("Made by the rig, and made anew by its next packages command.\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        distribution = importlib.metadata.PathDistribution(folder / Path(metadata).parent)
        needed = distribution.requires or []
        _add_commands(distribution, folder / COMMANDS)
    for name in sorted(_closure(needed)):
        _copy(importlib.metadata.distribution(name), folder)
    # Here, once: an emulated processor takes seconds for it at every start.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, stripdir=str(folder), invalidation_mode=mode)


def _add_commands(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """The commands that pip would make when it installs the wheel."""
    folder.mkdir(exist_ok=True)
    for entry in distribution.entry_points.select(group="console_scripts"):
        command = folder / entry.name
        command.write_text(COMMAND.format(module=entry.module, function=entry.attr))
        command.chmod(0o755)


def _closure(requirements: list[str]) -> set[str]:
    """Names of all packages that these require, in turn, without those of extras and of other systems."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        line = waiting.pop()
        name = re.split(r"[^\w.-]", line)[0].lower().replace("_", "-")
        if ";" in line or name in found or name in LEFT_OUT:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise RigError(f"packages for guests: {name} is not installed for {sys.executable}") from None
        found.add(name)
        waiting += distribution.requires or []
    return found


def _copy(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    for name in distribution.files or []:
        source = Path(str(distribution.locate_file(name)))
        outside = name.parts[0] == ".."  # commands
        if not outside and source.suffix != ".pyc" and source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)
