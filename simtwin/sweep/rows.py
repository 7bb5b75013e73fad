"""Rows of a sweep: what a run gives, and how rows are kept.

`rows.jsonl` is the sweep's memory: a line a run, written in one go when the run has ended. A line without its end, of a
process that was killed, is no row.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import RecordError, hold_folder, remark, unwritable, write_whole
from simtwin.levels import ANALYTIC, PACKET
from simtwin.simulated import Simulated

if TYPE_CHECKING:
    import polars as pl

ROWS_FILE, TABLE_FILE, TEXT_FILE, PAGE_FILE, SWEEP_FILE, RUNS_FOLDER = (
    "rows.jsonl", "sweep.parquet", "sweep.csv", "sweep.html", "sweep.toml", "runs",
)  # fmt: skip
OWN = {ROWS_FILE, TABLE_FILE, TEXT_FILE, PAGE_FILE, SWEEP_FILE, RUNS_FOLDER}
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Column -> whether it is a fraction. A run that failed has none of them but wall_s; empty is what is not known.
RESULTS = {
    "completion_s": True,
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
    """The result columns of a run's row, without `wall_s`; None where the run's level does not know.

    Percentiles are by nearest rank, over the transfers between hosts of all iterations.
    """
    flows, links = run.flow_completion, run.links
    row: dict[str, Any] = {"completion_s": run.completion_s, "flows": len(flows)}
    fct_ns = sorted(flows["fct_ns"].to_list())
    slowdowns = sorted(flows["slowdown"].drop_nulls().to_list())
    row |= {f"fct_{name}_ns": _nearest_rank(fct_ns, share) for name, share in SHARES.items()}
    row |= {f"slowdown_{name}": _nearest_rank(slowdowns, share) for name, share in SHARES.items()}
    if not len(flows):
        remark("nothing went between two hosts: flow completion times and slowdowns are left empty")
    if run.twin.level.name == PACKET:
        row["longest_queue_bytes"] = int(links["longest_queue_bytes"].max() or 0)  # type: ignore[arg-type]
        row |= {name: int(links[name].sum()) for name in ("marked", "trimmed", "pauses")}
        row["dropped"] = run.dropped
    if run.twin.level.name != ANALYTIC:
        row["data_packets"] = int(run.info["data_packets"])
    return row | {"events": int(run.info["events"])}


def _nearest_rank(ascending: Sequence[Any], share: float) -> Any:
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)] if ascending else None


class Rows:
    """The rows that a folder keeps, by the identity of their run. One process at a time has them."""

    def __init__(self, folder: Path) -> None:
        """Make or take the folder and hold it. Raises RecordError when it is another's."""
        self.folder = folder
        try:
            if folder.exists() and not folder.is_dir():
                raise RecordError(f"{folder}: is not a folder; choose another -o")
            folder.mkdir(parents=True, exist_ok=True)
            hold_folder(folder)
            self.kept = read_rows(folder)
            self._file = os.open(folder / ROWS_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            whole = (folder / ROWS_FILE).read_bytes()
            os.ftruncate(self._file, whole.rfind(b"\n") + 1)
        except OSError as error:
            raise unwritable(folder, error) from error

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row for good. Raises RecordWriteError."""
        try:
            line = json.dumps(row).encode() + b"\n"
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def write_tables(self, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> pl.DataFrame:
        """`sweep.parquet` and `sweep.csv`: one row per run that has one, in the order of `runs`.

        `runs`: identity and parameters of each. Raises RecordWriteError.
        """
        kept = read_rows(self.folder)  # a signal may have come between a line and what follows it
        table = table_of([(parameters, kept[name]) for name, parameters in runs if name in kept])
        for name, write in ((TABLE_FILE, table.write_parquet), (TEXT_FILE, table.write_csv)):
            buffer = io.BytesIO()
            write(buffer)
            write_whole(self.folder / name, buffer.getvalue())
        return table


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows that a folder has, the latest of each run. Raises RecordError when it holds something else."""
    if not folder.is_dir():
        return {}
    path = folder / ROWS_FILE
    if not path.exists():
        strangers = [entry.name for entry in sorted(folder.iterdir()) if entry.name not in OWN]
        if strangers:
            raise RecordError(f"{folder}: holds files that are no sweep of Genie's ({strangers[0]}); choose another -o")
        return {}
    rows = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            row = json.loads(line)
            identity, _ = str(row["id"]), str(row["error"])
        except (ValueError, KeyError, TypeError):
            continue  # what a disk that failed has left
        rows[identity] = row
    return rows


def table_of(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> pl.DataFrame:
    """Columns: `run` (from 0), a column a parameter, `id`, results, `error` ("" when there was none)."""
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
    """Numbers where all are, else texts."""
    import polars as pl

    if all(isinstance(value, bool) for value in values) or all(isinstance(value, str) for value in values):
        return pl.Series(key, values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        whole = all(isinstance(value, int) for value in values)
        return pl.Series(key, values, dtype=pl.Int64 if whole else pl.Float64, strict=False)
    return pl.Series(key, [value if isinstance(value, str) else json.dumps(value) for value in values])
