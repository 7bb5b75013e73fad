"""The limits of collectives as a JSON file in the run folder of a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from genie.record import LIMITS, LIMITS_FILE, marked_json, read_object, replace_own
from genie.record.reading import Count, Time
from simtwin.report.limits import Limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simtwin.report.collectives import CollectiveRow


class _Collectives(Struct):
    op: str
    group: str
    members: Count
    size_bytes: Count
    count: Count
    limit: Literal["waiting", "wire", "NVLink", "server links", "GPU steps"] | None
    waiting_ns: Time | None
    wire_ns: Time | None
    server_links_ns: Time | None
    gpu_steps_ns: Time | None


class _File(Struct):
    collectives: list[_Collectives]


def write_limits(folder: Path, rows: Sequence[CollectiveRow]) -> None:
    """Write limits.json: a row for each operation, group and size. Raises RecordError, RecordWriteError."""
    text = marked_json(LIMITS, {"collectives": [_fields(row) for row in rows]})
    replace_own(folder / LIMITS_FILE, text, LIMITS)


def with_recorded_limits(folder: Path, rows: Sequence[CollectiveRow]) -> list[CollectiveRow]:
    """Return the rows with the limits of limits.json, as far as the run folder has them. Raises RecordError."""
    path = folder / LIMITS_FILE
    if not path.is_file():
        return list(rows)
    recorded = {_key(it): _limit(it) for it in read_object(path, _File)["collectives"]}
    return [replace(row, limit=recorded.get(_key(_fields(row)))) for row in rows]


def _key(fields: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(fields[name] for name in ("op", "group", "members", "size_bytes", "count"))


def _limit(fields: dict[str, Any]) -> Limit | None:
    parts = [fields[name] for name in ("waiting_ns", "wire_ns", "server_links_ns", "gpu_steps_ns")]
    return None if None in parts else Limit(fields["limit"] or "", *parts)


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
