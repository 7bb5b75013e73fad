"""Writing run folders: `run.json`, two tables, `counters.json`, and the files that some runs have besides."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record.errors import RecordError, RecordWriteError
from genie.record.hold import hold_folder
from genie.record.reading import PATHS_FILE, RUN_FILES, SERIES_FILE
from genie.record.whole import unwritable, whole_name, write_whole

if TYPE_CHECKING:
    import polars as pl


OWN_FILES = {
    *RUN_FILES, PATHS_FILE, SERIES_FILE, "verdict.json", "report.html", "timeline.pftrace",
    "launch.json", "mpirun.log", "fabric.toml", "lab.json",
}  # fmt: skip
OWN_FOLDERS = {"live", "twin", "calibration"}  # run folders of their own
OWN_PARTS = {  # folders that are there while ranks run, and the names in them
    "parts": ("*-*.npz", "*.pid", "*.reserve", "*.facts.json", "*.failed.json", "mpirun.log"),
    "rings": ("rings.*",),
}


def prepare_folder(path: Path) -> None:
    """Make `path` an empty folder, replacing an earlier run in it but never anything else, and hold it.

    Raises RecordError when it holds files that Genie did not write, or when another process writes to it;
    RecordWriteError when it cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise RecordError(f"{path}: is not a folder; choose another -o")
        path.mkdir(parents=True, exist_ok=True)
        hold_folder(path)
        if strangers := _strangers(path):
            names = ", ".join(str(stranger.relative_to(path)) for stranger in strangers[:3])
            raise RecordError(f"{path}: holds files that are no run of Genie's ({names}); choose another -o")
        for name in OWN_FOLDERS:
            if (path / name).is_dir():
                hold_folder(path / name)  # nobody writes there either
        for entry in path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        probe = path / "run.json"
        probe.write_text("{}\n")
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error) from error


def _strangers(folder: Path) -> list[Path]:
    """What is in a run folder that Genie did not write; links are never followed."""
    found = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and entry.name in OWN_FOLDERS:
            found += _strangers(entry)
        elif is_folder and entry.name in OWN_PARTS:
            patterns = OWN_PARTS[entry.name]
            found += [part for part in sorted(entry.iterdir()) if not _is_part(part, patterns)]
        elif not (entry.is_file() and whole_name(entry.name) in OWN_FILES):
            found.append(entry)
    return found


def _is_part(path: Path, patterns: tuple[str, ...]) -> bool:
    return path.is_file() and any(path.match(pattern) for pattern in patterns)


def write_run(
    path: Path,
    info: dict[str, Any],
    timeline: pl.DataFrame,
    transfers: pl.DataFrame,
    counters: dict[str, Any],
    paths: pl.DataFrame | None = None,
    series: pl.DataFrame | None = None,
    fabric: str | None = None,
) -> None:
    """Write a run folder; `run.json` last, so that a folder that has one is complete. Without room for all of it
    nothing of it is left. Raises RecordWriteError.
    """
    from genie.record.schemas import PATHS_SCHEMA, SERIES_SCHEMA, TIMELINE_SCHEMA, TRANSFERS_SCHEMA

    tables = {
        "timeline.parquet": (timeline, TIMELINE_SCHEMA),
        "transfers.parquet": (transfers, TRANSFERS_SCHEMA),
        PATHS_FILE: (paths, PATHS_SCHEMA),
        SERIES_FILE: (series, SERIES_SCHEMA),
    }
    written: list[Path] = []

    def put(name: str, data: bytes | str) -> None:
        write_whole(path / name, data)
        written.append(path / name)

    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, (table, schema) in tables.items():
            if table is not None:
                put(name, _parquet(table, schema))
        put("counters.json", json.dumps(counters, indent=1) + "\n")
        if fabric is not None:
            put("fabric.toml", fabric)
        put("run.json", json.dumps(info, indent=1) + "\n")
    except RecordWriteError:
        for file in written:
            file.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise unwritable(path, error) from error


def _parquet(table: pl.DataFrame, schema: pl.Schema) -> bytes:
    """The table as a file's bytes: of a full disk Python says more than the writer does."""
    buffer = io.BytesIO()
    table.select(list(schema)).cast(schema).write_parquet(buffer)
    return buffer.getvalue()
