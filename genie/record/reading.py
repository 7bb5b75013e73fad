"""Reading run folders. All checks for missing, damaged or impossible data are here; errors name file and place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, Struct

from genie.inputs.content import ContentError, read_bytes
from genie.inputs.native_messages import without_native_messages
from genie.record.contents import PATHS_FILE, RUN_FILES, SERIES_FILE
from genie.record.display import headline_of, links_figure, timeline_figure, title_of
from genie.record.errors import RecordError
from genie.record.marks import SCHEMA_VERSION

if TYPE_CHECKING:
    import polars as pl

    from genie.figures import Figure


JSON_MAX_BYTES = 256 << 20
WORLDS = ("live", "twin")
RENAMED = {"remarks": "warnings"}  # old name → new name of fields in older run folders
RANKS_MAX = 1 << 20
TIME_MAX_NS = 1 << 53  # 104 days, so that sums and differences are exact in doubles
SIZE_MAX_BYTES = 1 << 60
COUNT_MAX = 1 << 62
# Columns compress well, but distinct rows do not: a table with more rows than this is not from a run.
ROWS_FREE, ROWS_PER_BYTE = 1 << 20, 64

# Columns that may be null. Integers are from 0 to COUNT_MAX unless a limit below says otherwise.
_NULL = {
    "timeline": {"op", "group", "seq"},
    "transfers": {"group", "seq"},
    "paths": {"probe_ns"},
    "series": {
        "queue_bytes", "longest_queue_bytes", "sent_bytes", "utilisation", "marked", "pauses", "paused_ns", "dropped",
        "rate_bps",
    },
}  # fmt: skip
_RANKS = ("rank", "src", "dst")
_SIZES = ("size_bytes", "queue_bytes", "longest_queue_bytes", "sent_bytes")
_FREE = ("node_id",)  # any 64-bit number

Rank = Annotated[int, Meta(ge=0, lt=RANKS_MAX)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Time = Annotated[int, Meta(ge=-TIME_MAX_NS, le=TIME_MAX_NS)]
Share = Annotated[float, Meta(ge=-1e18, le=1e18)]


class _Settings(Struct):
    mtu: Count = 0
    verify: bool = False


class _Paths(Struct):
    changed: bool = False


class _Skip(Struct):
    estimates: dict[str, Any] | None = None


class _Host(Struct):
    rank: Rank
    host: str | None = None
    nic: str | None = None
    link: str | None = None
    switch: str | None = None


class _BandPlay(Struct):
    compute_scale: Share
    ends_ns: list[Time]


class _Info(Struct):
    """Fields of run.json that other modules read; all are optional."""

    world: str = ""
    level: str = ""
    complete: bool = True
    problem: str | None = None
    recorded_at: str = ""
    commit: str | None = ""
    workload: str | None = ""
    fabric: str | None = ""
    ranks: Rank = 0
    warnings: list[str] = []
    load_balancing: str | None = None
    iterations: Count = 0
    warmup: Count = 0
    seed: int = 0
    dilation: Annotated[int, Meta(ge=1, le=10**9)] = 1
    follow: bool = False
    follows: str | None = None
    error_bound: Share | None = 0.0
    skip: _Skip | None = None
    lowering: dict[str, Any] | None = None
    algorithms: dict[str, Count] | None = None
    nccl_choices: list[dict[str, Any]] = []
    nccl_variables: list[dict[str, Any]] = []
    hosts: list[_Host] | None = None
    paths: _Paths | None = None
    settings: _Settings | None = None
    clock_bound_ns: Time | list[Time | None] | dict[str, Time] | None = None
    scheduling: list[str] = []
    stopped_iteration: Count | None = None
    stopped_at_ns: Time | None = None
    series_interval_ns: Annotated[int, Meta(ge=1, le=TIME_MAX_NS)] | None = None
    series_cut: Any = None
    band: list[_BandPlay] | None = None
    events: Count = 0
    data_packets: Count = 0
    wall_s: Share = 0.0


class _Device(Struct):
    host: str
    device: str
    counters: dict[str, Annotated[int, Meta(ge=-COUNT_MAX, le=COUNT_MAX)]]


class _CounterWarning(Struct):
    host: str
    device: str
    counter: str
    severity: int
    grew: Share
    text: str = ""


class _Link(Struct):
    link: str
    tier: str | None = None
    rate_bps: Count = 0  # 0: unlimited, or not recorded
    packets: Count = 0
    size_bytes: Count = 0
    dropped: Count = 0
    dropped_bytes: Count = 0
    marked: Count = 0
    trimmed: Count = 0
    replays: Count = 0
    pauses: Count = 0
    paused_ps: Count = 0
    queue_bytes: Count = 0
    longest_queue_bytes: Count = 0


class _Counters(Struct):
    """Fields of counters.json that other modules read; all are optional."""

    ranks: list[dict[str, Annotated[int, Meta(ge=-COUNT_MAX, le=COUNT_MAX)]] | None] | None = None
    devices: list[_Device] | None = None
    warnings: list[_CounterWarning] | None = None
    links: list[_Link] | None = None
    dropped: Count = 0
    crossed: dict[str, list[Annotated[str, Meta(pattern="^[0-9]{1,7}->[0-9]{1,7}$")]]] | None = None


@dataclass
class Run:
    """A run folder in memory. Tables are polars frames with the columns in `genie/record/schemas.py`.

    path: of the folder.
    info: the object in run.json.
    timeline: one row per node that was played; times in ns from the iteration's common origin.
    transfers: one row per iteration, sender's node and receiver; sizes in bytes, times in ns.
    counters: the object in counters.json.
    paths: one row per link of the path of each queue pair; None where paths are not known.
    """

    path: Path
    info: dict[str, Any]
    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]
    paths: pl.DataFrame | None = None

    def __repr__(self) -> str:
        return f"<Run {str(self.path)!r}: {title_of(self)}>"

    def _repr_html_(self) -> str:
        return headline_of(self)

    def timeline_figure(self, iteration: int | None = None) -> Figure:
        """Draw the time of each rank in one iteration: computing, waiting, collectives and messages.

        iteration: number of the iteration, from 0; None: the first after warm-up.
        Raises RecordError for an iteration that was not recorded.
        """
        return timeline_figure(self, iteration)

    def links_figure(self, count: int = 8) -> Figure:
        """Draw the utilisation of the busiest links, as shares of what their rates can send (0 to 100 %).

        count: number of links, 1 to 200.
        Raises RecordError for another count, and for live runs, which do not count the bytes of links.
        """
        return links_figure(self, count)

    @cached_property
    def series(self) -> pl.DataFrame | None:
        """Samples over time, read on first use because there may be millions of rows; None without any.

        Raises RecordError.
        """
        from genie.record.schemas import SERIES_SCHEMA

        path = self.path / SERIES_FILE
        return _read_table(path, SERIES_SCHEMA) if path.is_file() else None


def open_run(path: Path) -> Run:
    """Read a run folder. Raises RecordError that names missing, damaged or impossible data."""
    from genie.record.schemas import PATHS_SCHEMA, TIMELINE_SCHEMA, TRANSFERS_SCHEMA

    if not path.exists():
        raise RecordError(f"{path}: does not exist; give a folder of genie validate, run or simulate")
    for name in RUN_FILES:
        if not (path / name).is_file():
            raise RecordError(f"{path}: is not a run folder, {name} is missing; give the -o of genie run or simulate")
    info = read_object(path / "run.json", _Info)
    if info.get("world") not in WORLDS:
        raise RecordError(f"{path / 'run.json'}: is of no live run and no simulation; make the run again")
    return Run(
        path,
        info,
        _read_table(path / "timeline.parquet", TIMELINE_SCHEMA),
        _read_table(path / "transfers.parquet", TRANSFERS_SCHEMA),
        read_object(path / "counters.json", _Counters),
        _read_table(path / PATHS_FILE, PATHS_SCHEMA) if (path / PATHS_FILE).is_file() else None,
    )


def read_object(path: Path, kind: type[Struct] | None = None) -> dict[str, Any]:
    """Read a JSON object; the fields that `kind` declares must have their types. Raises RecordError."""
    try:
        value = json.loads(read_bytes(path, JSON_MAX_BYTES), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError, ContentError) as error:
        raise RecordError(f"{path}: cannot be read: {_one_line(error)}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: is not a JSON object; make the run again")
    for old, new in RENAMED.items():
        if old in value and new not in value:
            value[new] = value.pop(old)
    if kind is not None:
        try:
            msgspec.convert(value, kind)
        except (ValueError, RecursionError) as error:  # msgspec also refuses lone surrogates
            raise RecordError(f"{path}: is damaged: {_one_line(error)}; make the run again") from error
    return _readable(path, value)


def _readable(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    """The object without its mark. Raises RecordError for the mark of a later version."""
    mark = value.pop("schema", "")
    found = re.fullmatch(r"genie\.[a-z-]+\.([0-9]{1,9})", str(mark))
    if isinstance(mark, str) and mark and not found:
        raise RecordError(f"{path}: has the schema {mark[:40]!r}, which is none of Genie's; make the run again")
    if found and int(found[1]) > SCHEMA_VERSION:
        raise RecordError(f"{path}: was written by a later Genie (schema {found[1]}): read it with that version")
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _read_table(path: Path, schema: pl.Schema) -> pl.DataFrame:
    import polars as pl

    try:
        with without_native_messages():  # polars may panic on a damaged table and print messages
            size_bytes, rows = path.stat().st_size, _rows_of(path)
            if rows > ROWS_FREE + ROWS_PER_BYTE * size_bytes:
                raise RecordError(f"{path}: claims {rows} rows in {size_bytes} bytes: it is damaged")
            table = pl.read_parquet(path)
    except RecordError:
        raise
    except pl.exceptions.PanicException as error:
        raise RecordError(f"{path}: cannot be read: it is damaged, or not a table; make the run again") from error
    except (OSError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise RecordError(f"{path}: cannot be read: {_one_line(error)}") from error
    missing = [column for column in schema if column not in table.columns]
    if missing:
        raise RecordError(f"{path}: has no column {', '.join(missing)}")
    for column, wanted in schema.items():
        if table.schema[column] != wanted:
            raise RecordError(f"{path}: column {column} is {table.schema[column]}, must be {wanted}")
    _check_values(path, table)
    return table


def _rows_of(path: Path) -> int:
    import polars as pl

    return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def _check_values(path: Path, table: pl.DataFrame) -> None:
    """Raises RecordError for the first column with a value that no run has."""
    import polars as pl

    kind = path.name.partition(".")[0]
    for column in table.columns:
        values = table[column]
        if column not in _NULL[kind] and values.null_count():
            raise RecordError(f"{path}: column {column} has no value in row {values.is_null().arg_max()}")
        if values.dtype == pl.Float64:
            if not values.drop_nulls().is_finite().all():
                raise RecordError(f"{path}: column {column} has a value that is not a number")
        elif values.dtype.is_integer() and column not in _FREE and values.drop_nulls().len():
            low, high = _limits(column)
            for found in (values.min(), values.max()):
                if not low <= int(found) <= high:  # type: ignore[arg-type]
                    raise RecordError(f"{path}: column {column} has the value {found!r}; it is from {low} to {high}")
    if kind == "timeline":
        collectives = table.filter(pl.col("kind") == "coll")
        for column in ("op", "group", "seq"):
            if collectives[column].null_count():
                raise RecordError(f"{path}: a collective has no {column}")


def _limits(column: str) -> tuple[int, int]:
    if column in _RANKS:
        return 0, RANKS_MAX - 1
    if column.endswith("_ns"):
        return -TIME_MAX_NS, TIME_MAX_NS
    if column in _SIZES:
        return -1, SIZE_MAX_BYTES
    return -1 if column == "seq" else 0, COUNT_MAX


def _one_line(error: BaseException) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())[:300]
