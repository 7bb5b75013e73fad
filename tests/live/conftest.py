"""Live runs are started by the helpers of tests/cli, from traces as tests/workload writes them."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("cli", "workload"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / room))
