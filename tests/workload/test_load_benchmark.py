"""The benchmark of loading runs and reports; its limits are for a million nodes and not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.exclusive, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]


def test_it_runs_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(ROOT / "benchmarks/load_trace.py"), "--nodes", "2000", "--json", str(report)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    traces = json.loads(report.read_text())["traces"]
    assert set(traces) == {"genie", "pytorch", "pytorch, gzip"}
    for result in traces.values():
        assert result["nodes"] == 2000
        assert result["load_s"] > 0
        assert result["memory_bytes"] > 1_000_000
    assert "per million nodes" in done.stdout
