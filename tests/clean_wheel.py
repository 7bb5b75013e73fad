"""Genie's wheel as a user gets it: built in a new environment from what is in git."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Build isolation has an environment of its own, and no variable of the checkout may leak into it.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GENIE", "VIRTUAL"))}


@dataclass(frozen=True)
class CleanWheel:
    """The wheel, the new environment in which it was built but not installed, and the sources."""

    wheel: Path
    environment: Path
    sources: Path


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_sources(folder: Path) -> Path:
    """Copy the files in git, so that no untracked file of the checkout can help the build."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def build_clean_wheel(folder: Path) -> CleanWheel:
    """Build the wheel once per folder, in the first test process that asks. It takes about a minute on two cores.

    Where GENIE_WHEEL names a wheel that was built from what is in git, it is that one.
    """
    folder.mkdir(exist_ok=True)
    environment, wheels, sources = folder / "venv", folder / "wheels", folder / "source"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(wheels.glob("*.whl")):
            run([sys.executable, "-m", "venv", environment], copy_sources(sources))
            if given := os.environ.get("GENIE_WHEEL"):
                wheels.mkdir()
                shutil.copy(given, wheels)
            else:
                _build(environment, wheels, sources)
    (wheel,) = wheels.glob("*.whl")
    return CleanWheel(wheel, environment, sources)


def _build(environment: Path, wheels: Path, sources: Path) -> None:
    headers = (ROOT / ".venv" / "headers").resolve()
    prefix = run([ROOT / ".ci" / "python-headers", "--environment", headers], sources).split()
    pip: list[str | Path] = [environment / "bin" / "python", "-m", "pip"]
    # At low priority: another process of the tests plays in real time.
    run(["nice", *prefix, *pip, "wheel", "-qq", "--no-deps", "-w", wheels, sources], sources)
