"""The limits of collectives as a JSON file in the run folder of a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import LIMITS, LIMITS_FILE, marked_json, replace_own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simtwin.report.collectives import CollectiveRow


def write_limits(folder: Path, rows: Sequence[CollectiveRow]) -> None:
    """Write limits.json: a row for each operation, group and size. Raises RecordError, RecordWriteError."""
    text = marked_json(LIMITS, {"collectives": [_fields(row) for row in rows]})
    replace_own(folder / LIMITS_FILE, text, LIMITS)


def _fields(row: CollectiveRow) -> dict[str, Any]:
    limit = row.limit
    return {
        "op": row.op,
        "group": row.group,
        "members": row.members,
        "size_bytes": row.size_bytes,
        "count": row.count,
        "time_ns": round(row.time_ns),
        "limit": None if limit is None else limit.name or None,
        "waiting_ns": None if limit is None else round(limit.waiting_ns),
        "wire_ns": None if limit is None else round(limit.wire_ns),
        "server_links_ns": None if limit is None else round(limit.links_ns),
        "gpu_steps_ns": None if limit is None else round(limit.steps_ns),
    }
