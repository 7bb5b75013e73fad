"""The twin's benchmark runs, and a ring all-reduce is played at half a million data packets a second or more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exclusive

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "case", "hosts", "flows", "data_packets", "data_packets_per_s", "events_per_s", "ns_per_hop", "rss_mb", "setup_s"
}  # fmt: skip


def test_half_a_million_data_packets_a_second(tmp_path: Path) -> None:
    out = tmp_path / "packets.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "twin_packets.py"), "--quick", "--json", str(out)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.stderr == ""
    report = json.loads(out.read_text())
    rows = {row["case"]: row for row in report["rows"]}
    assert len(rows) == 3
    assert all(set(row) >= COLUMNS for row in rows.values())
    for name in ("ring all-reduce, 1 switch", "all-to-all, leaf-spine"):
        assert rows[name]["data_packets"] > 1_000_000
        assert rows[name]["data_packets_per_s"] >= 500_000, finished.stdout
    assert f"build: {report['build_flags']}" in finished.stdout
