"""Traces are written by the helpers of tests/workload."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("workload",):
    sys.path.append(str(Path(__file__).resolve().parent.parent / room))
