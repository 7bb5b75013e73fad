"""The walker's benchmark runs, and a million steps take less than a second of processor time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exclusive

ROOT = Path(__file__).resolve().parents[2]


def test_a_million_steps_in_under_a_second(tmp_path: Path) -> None:
    out = tmp_path / "steps.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "walker_steps.py"), "--json", str(out)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    report = json.loads(out.read_text())
    assert report["met"]
    assert all(row["steps"] > 900_000 for row in report["rows"])
    assert "Release" in report["build_flags"]
