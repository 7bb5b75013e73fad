"""Obstacles to verbs in one line; the distribution's pyverbs is used where it fits this Python."""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from genie.live.verbs.diagnose import Machine, look, missing, problem
from genie.live.verbs.library import LibraryMissingError, _package

pytestmark = pytest.mark.live

READY = Machine("6.1.0", True, ("mlx5_0",), ("/dev/infiniband/uverbs0",), (), "", -1)


def test_nothing_is_missing() -> None:
    assert problem(READY, 1 << 30) == ""


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (replace(READY, devices=(), modules=False), "no RDMA device, and the kernel 6.1.0 has no RDMA modules"),
        (replace(READY, devices=()), "rdma link add rxe0 type rxe netdev INTERFACE"),
        (replace(READY, user_access=()), "no /dev/infiniband/uverbs* (modprobe ib_uverbs)"),
        (replace(READY, unusable=READY.user_access), "no access to /dev/infiniband/uverbs0 (join the group rdma)"),
        (replace(READY, library="pyverbs is not installed (apt install python3-pyverbs)"), "python3-pyverbs"),
        (replace(READY, memlock_bytes=65536), "only 64 KiB of memory may be locked and 1048576 are needed (ulimit -l"),
    ],
)
def test_each_cause_is_named_with_what_to_do(machine: Machine, says: str) -> None:
    line = problem(machine, 1 << 30)
    assert says in line
    assert line.startswith("verbs cannot be used here: ")
    assert line.endswith("; --transport softroce works without")
    assert "\n" not in line
    assert len(missing(machine, 1 << 30)) == 1


def test_several_causes_are_one_line() -> None:
    machine = replace(READY, devices=(), modules=False, library="pyverbs is not installed", memlock_bytes=1024)
    assert problem(machine, 4096).count("; ") == 3


def test_this_machine_can_be_looked_at() -> None:
    found = look()
    assert found.release
    assert bool(found.devices) == any(Path("/sys/class/infiniband").glob("*"))


@pytest.mark.parametrize(
    ("suffix", "fits"), [(importlib.machinery.EXTENSION_SUFFIXES[0], True), (".cpython-27.so", False)]
)
def test_the_package_of_the_distribution(tmp_path: Path, suffix: str, fits: bool) -> None:
    """Only that package is taken, not the folder, which holds others that would shadow ours."""
    package = tmp_path / "pyverbs"
    package.mkdir()
    (package / "__init__.py").write_text("here = True\n")
    (package / f"device{suffix}").write_bytes(b"")
    (package / "pd.py").write_text("found = 42\n")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('not this one')\n")
    code = f"""
import pathlib, sys
from genie.live.verbs import library
try:
    module = library._package(pathlib.Path({str(tmp_path)!r}))
except library.LibraryMissingError as error:
    print(error)
    sys.exit(7)
import importlib
assert module.here and importlib.import_module("pyverbs.pd").found == 42
assert {str(tmp_path)!r} not in sys.path
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if fits else 7), ended.stderr
    if not fits:
        assert "is built for another Python (cpython-27.so)" in ended.stdout


def test_no_package_at_all(tmp_path: Path) -> None:
    if "pyverbs" in sys.modules or importlib.machinery.PathFinder.find_spec("pyverbs"):
        pytest.skip("this Python has pyverbs")
    with pytest.raises(LibraryMissingError, match=r"not installed \(apt install python3-pyverbs\)"):
        _package(tmp_path)
