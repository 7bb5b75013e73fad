"""Small run folders written out by hand, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from genie.record import Run
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA

NODE = {
    "rank": 0, "node_id": 1, "name": "n", "kind": "coll", "op": "all_reduce", "group": "g", "seq": 0,
    "size_bytes": 1000, "ready_ns": 0, "start_ns": 0, "end_ns": 0, "overshoot_ns": 0, "iteration": 0,
}  # fmt: skip
TRANSFER = {
    "iteration": 0, "src": 0, "dst": 1, "node_id": 1, "group": "g", "seq": 0, "size_bytes": 1000, "messages": 1,
    "post_ns": 0, "first_ns": 10, "last_ns": 20, "acked_ns": 30, "busy_ns": 30, "retransmits": 0, "path": "49152",
}  # fmt: skip


def run_of(world: str, nodes: list[dict[str, Any]], transfers: list[dict[str, Any]] | None = None, **info: Any) -> Run:
    """A run whose rows are the defaults above with what each dict overrides."""
    timeline = pl.DataFrame([NODE | node for node in nodes], schema=TIMELINE_SCHEMA)
    moved = pl.DataFrame([TRANSFER | row for row in transfers or []], schema=TRANSFERS_SCHEMA)
    return Run(Path(world), {"world": world, "warmup": 0, **info}, timeline, moved, {})
