"""Commands are run by the helpers of tests/cli."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("cli", "verdict", "workload"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / room))
