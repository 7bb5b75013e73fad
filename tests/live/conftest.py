"""Helpers of other rooms: how tests/cli starts live runs, tests/workload writes traces, tests/rxe judges captures."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("cli", "workload", "rxe"):
    sys.path.append(str(Path(__file__).resolve().parent.parent / room))
