"""Rows of a sweep: the results of its runs, and the files that keep them.

`rows.jsonl` keeps the sweep's progress: a line a run, written in one call when the run has ended. A line without its
end, from a killed process, is ignored.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import RecordError, final_name, kind_of, lock_folder, mark, unwritable, warn, write_atomically
from simtwin.play.simulated import Simulated
from simtwin.sweep.communication import BUS_BANDWIDTHS, communication_of

if TYPE_CHECKING:
    import polars as pl

ROWS_FILE, TABLE_FILE, TEXT_FILE, PAGE_FILE, SWEEP_FILE, RUNS_FOLDER = (
    "rows.jsonl", "sweep.parquet", "sweep.csv", "sweep.html", "sweep.toml", "runs",
)  # fmt: skip
FORMULA_STARTS = "=+-@\t\r"
NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
ROWS_KIND, WROTE = "sweep", "wrote"  # WROTE: in a line of rows.jsonl, digests of files in the sweep's folder
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
NO_FLOWS = "level analytic plays no messages: the number of flows, their times and slowdowns are left empty"
# Column -> whether it is a fraction. A failed run has only wall_s; an unknown value is empty.
RESULTS = {
    "completion_s": True,
    "exposed_s": True,
    **dict.fromkeys(BUS_BANDWIDTHS.values(), True),
    "flows": False,
    **{f"fct_{name}_ns": False for name in SHARES},
    **{f"slowdown_{name}": True for name in SHARES},
    "longest_queue_bytes": False,
    "marked": False,
    "trimmed": False,
    "pauses": False,
    "dropped": False,
    "data_packets": False,
    "events": False,
    "wall_s": True,
}


def results_of(run: Simulated) -> dict[str, Any]:
    """Return the result columns of a run's row, without `wall_s`; None for values unknown at the run's level.

    Percentiles are by nearest rank, over the transfers between hosts of all iterations.
    """
    links, plays_messages = run.links, run.twin.level.plays_messages
    row: dict[str, Any] = {"completion_s": run.completion_s, **communication_of(run)}
    fct_ns: list[int] = []
    slowdowns: list[float] = []
    if plays_messages:
        flows = run.flow_completion
        fct_ns, slowdowns = sorted(flows["fct_ns"].to_list()), sorted(flows["slowdown"].drop_nulls().to_list())
        if not fct_ns:
            warn("no data was sent between two hosts: flow completion times and slowdowns are left empty")
    else:
        warn(NO_FLOWS)
    row["flows"] = len(fct_ns) if plays_messages else None
    row |= {f"fct_{name}_ns": _nearest_rank(fct_ns, share) for name, share in SHARES.items()}
    row |= {f"slowdown_{name}": _nearest_rank(slowdowns, share) for name, share in SHARES.items()}
    if run.twin.level.has_packets:
        row["longest_queue_bytes"] = int(links["longest_queue_bytes"].max() or 0)  # type: ignore[arg-type]
        row |= {name: int(links[name].sum()) for name in ("marked", "trimmed", "pauses")}
        row["dropped"] = run.dropped
    if plays_messages:
        row["data_packets"] = int(run.info["data_packets"])
    return row | {"events": int(run.info["events"])}


def _nearest_rank(ascending: Sequence[Any], share: float) -> Any:
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)] if ascending else None


class Rows:
    """The rows in a folder, by the identity of their run. One process at a time holds the folder."""

    def __init__(self, folder: Path) -> None:
        """Create or open the folder and lock it. Raises RecordError when the folder belongs to something else."""
        self.folder = folder
        try:
            if folder.exists() and not folder.is_dir():
                raise RecordError(f"{folder}: is not a folder; choose another -o")
            folder.mkdir(parents=True, exist_ok=True)
            lock_folder(folder)
            self.kept = read_rows(folder)
            if not (folder / ROWS_FILE).exists():
                write_atomically(folder / ROWS_FILE, json.dumps({"schema": mark(ROWS_KIND)}) + "\n")
            self._file = os.open(folder / ROWS_FILE, os.O_RDWR | os.O_APPEND)
            whole = (folder / ROWS_FILE).read_bytes()
            os.ftruncate(self._file, whole.rfind(b"\n") + 1)
            self._digests = _digests(whole)
        except OSError as error:
            raise unwritable(folder, error) from error

    def add(self, row: dict[str, Any]) -> None:
        """Append a row and flush it to disk. Raises RecordWriteError."""
        self._append(row)

    def write_beside(self, name: str, data: bytes | str) -> None:
        """Write a file in the sweep's folder, after its digest, by which it is recognised later as Genie's.

        Raises RecordError where another file has its name, and RecordWriteError.
        """
        content = data.encode() if isinstance(data, str) else data
        path = self.folder / name
        if (path.exists() or path.is_symlink()) and not self._is_own(path):
            raise RecordError(f"{path}: is not a file that Genie wrote there; move it, or choose another -o")
        digest = hashlib.sha256(content).hexdigest()
        if (name, digest) not in self._digests:
            self._digests.add((name, digest))
            self._append({WROTE: {name: digest}})
        write_atomically(path, content)

    def _is_own(self, path: Path) -> bool:
        if path.is_symlink() or not path.is_file():
            return False
        return (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) in self._digests

    def _append(self, row: dict[str, Any]) -> None:
        try:
            line = json.dumps(row).encode() + b"\n"
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def write_tables(self, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> pl.DataFrame:
        """Write `sweep.parquet` and `sweep.csv`: one row per run that has one, in the order of `runs`.

        `runs`: identity and parameters of each. Raises RecordWriteError.
        """
        kept = read_rows(self.folder)  # a signal may have come between a row's line and the next step
        table = table_of([(parameters, kept[name]) for name, parameters in runs if name in kept])
        for name, write in ((TABLE_FILE, table.write_parquet), (TEXT_FILE, neutral(table).write_csv)):
            buffer = io.BytesIO()
            write(buffer)
            self.write_beside(name, buffer.getvalue())
        return table


def neutral(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table for a spreadsheet: texts that would be read as formulas start with an apostrophe.

    Numbers stay numbers, also as texts such as "-5".
    """
    import polars as pl

    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    table = table.with_columns(pl.Series(name, [_neutral(text) for text in table[name]], pl.String) for name in texts)
    return table.rename({name: _neutral(name) or name for name in table.columns})


def _neutral(text: str | None) -> str | None:
    return f"'{text}" if text and text[0] in FORMULA_STARTS and not NUMBER.fullmatch(text) else text


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the rows in a folder, the latest of each run. Raises RecordError when it holds something else."""
    if not folder.is_dir():
        return {}
    path = folder / ROWS_FILE
    if not path.exists():
        strangers = [entry.name for entry in sorted(folder.iterdir()) if final_name(entry.name) != ROWS_FILE]
        if strangers:
            raise RecordError(
                f"{folder}: holds files other than a sweep of Genie's ({strangers[0]}); choose another -o"
            )
        return {}
    if kind_of(path) != ROWS_KIND:
        raise RecordError(f"{path}: is not a file that Genie wrote; choose another -o")
    rows = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            row = json.loads(line)
            identity, _ = str(row["id"]), str(row["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # damaged by a failed disk
        if all(_is_result(row.get(name)) for name in RESULTS):
            rows[identity] = row
    return rows


def _digests(lines: bytes) -> set[tuple[str, str]]:
    """Return name and digest of every file that was written beside the rows."""
    found: set[tuple[str, str]] = set()
    for line in lines.splitlines():
        with suppress(ValueError, AttributeError, TypeError, RecursionError):
            found.update(json.loads(line).get(WROTE, {}).items())
    return found


def _is_result(value: object) -> bool:
    return value is None or isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)


def table_of(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> pl.DataFrame:
    """Return a table with columns `run` (from 0), one a parameter, `id`, results, and `error` ("" for none)."""
    import polars as pl

    columns: dict[str, pl.Series] = {"run": pl.Series(range(len(rows)), dtype=pl.Int64)}
    for key in rows[0][0] if rows else ():
        columns[key] = _parameter(key, [parameters[key] for parameters, _ in rows])
    columns["id"] = pl.Series([row["id"] for _, row in rows], dtype=pl.String)
    for name, is_fraction in RESULTS.items():
        kind = pl.Float64 if is_fraction else pl.Int64
        columns[name] = pl.Series([row.get(name) for _, row in rows], dtype=kind)
    columns["error"] = pl.Series([row["error"] for _, row in rows], dtype=pl.String)
    return pl.DataFrame(columns)


def _parameter(key: str, values: list[Any]) -> pl.Series:
    """Return a column of numbers where all values are, else of texts."""
    import polars as pl

    if all(isinstance(value, bool) for value in values) or all(isinstance(value, str) for value in values):
        return pl.Series(key, values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        whole = all(isinstance(value, int) for value in values)
        return pl.Series(key, values, dtype=pl.Int64 if whole else pl.Float64, strict=False)
    return pl.Series(key, [value if isinstance(value, str) else json.dumps(value) for value in values])
