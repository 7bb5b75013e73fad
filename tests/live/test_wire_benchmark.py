"""Refusals of the benchmark of softroce beside raw UDP, before it measures; CI judges its figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.exclusive, pytest.mark.extended]

WIRE = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "wire.py"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--rounds", "0"), "argument --rounds: 0: give 1 or more"),
        (("--rounds", "-3"), "argument --rounds: -3: give 1 or more"),
        (("--gate", "0.5"), "argument --gate: 0.5: give 1 or more"),
        (("--json", "."), "argument --json: . is a folder: give a file's name in a folder that is there"),
        (
            ("--json", "none/x.json"),
            "argument --json: none/x.json has no folder none to lie in: give a file's name in a folder that is there",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(tmp_path: Path, words: tuple[str, str], line: str) -> None:
    argv = [sys.executable, str(WIRE), *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"wire.py: error: {line}"
