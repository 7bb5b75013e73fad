"""Live runs are started by the helpers of tests/cli, traces written by those of tests/workload."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("cli", "workload"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / room))
