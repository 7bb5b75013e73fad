"""The twin's benchmark plays its packets, and says how it was built."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "case", "hosts", "flows", "data_packets", "data_packets_per_s", "events_per_s", "ns_per_hop", "rss_mb", "setup_s"
}  # fmt: skip


def test_millions_of_data_packets(tmp_path: Path) -> None:
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
    assert f"build: {report['build_flags']}" in finished.stdout
