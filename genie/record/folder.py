"""Run folders: preparing and writing them. `contents` lists their files; `reading` reads them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record.atomic_write import is_special, unwritable, write_atomically
from genie.record.contents import CONTENTS, PATHS_FILE, SERIES_FILE, WORDS, strangers
from genie.record.errors import RecordError, RecordWriteError
from genie.record.lock import lock_folder
from genie.record.marks import kind_of, mark, marked_json, marked_text

if TYPE_CHECKING:
    import polars as pl


def prepare_folder(path: Path, kind: str) -> None:
    """Make `path` an empty folder of a kind (`contents`), replacing an earlier one of that kind, and lock it.

    Only files that Genie wrote there for this kind of folder are deleted; each is recognised by its mark.

    Raises:
        RecordError: the folder contains other files, or another process writes to it.
        RecordWriteError: the folder cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise RecordError(f"{path}: is not a folder; choose another -o")
        path.mkdir(parents=True, exist_ok=True)
        lock_folder(path)
        if found := strangers(path, kind):
            names = ", ".join(str(entry.relative_to(path)) for entry in found[:3])
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            raise RecordError(
                f"{path}: holds files that are not an earlier {WORDS[kind]} of Genie's ({names}{more}); "
                "move or remove them, or choose another -o"
            )
        for name in CONTENTS[kind].folders:
            if (path / name).is_dir():
                lock_folder(path / name)  # no other process writes there
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


def refuse_foreign(path: Path, kind: str) -> None:
    """Raise RecordError if `path` exists and is not a file that Genie wrote with a mark of this kind."""
    if (path.exists() or path.is_symlink()) and kind_of(path) != kind:
        raise RecordError(f"{path}: is not a file that Genie wrote there; move it, or choose another output")


def replace_own(path: Path, data: bytes | str, kind: str) -> None:
    """Write a file with a mark of its kind, replacing an earlier one of that kind only.

    Special files such as /dev/stdout are written in place. Raises RecordError if there is any other file,
    RecordWriteError when it cannot be written.
    """
    if not is_special(path):
        refuse_foreign(path, kind)
    write_atomically(path, data)


def refuse_inputs_in(out: Path, inputs: Iterable[tuple[str, Path]]) -> None:
    """Raise RecordError when an input, given as (its name in an error, its path), lies in the output folder."""
    folder = out.resolve()
    for name, path in inputs:
        place = path.resolve()
        if place == folder or folder in place.parents:
            raise RecordError(f"{name} {path}: lies in -o {out}, which the results replace; choose another -o")


def write_run(
    path: Path,
    info: dict[str, Any],
    timeline: pl.DataFrame,
    transfers: pl.DataFrame,
    counters: dict[str, Any],
    paths: pl.DataFrame | None = None,
    series: pl.DataFrame | None = None,
    fabric: str | None = None,
    kind: str | None = None,
) -> None:
    """Write a run folder, `run.json` last, so that a folder with a `run.json` is complete.

    Without room for all files none is left. `kind`: of the folder; the default is the world that `info` names. Raises
    RecordWriteError.
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
        write_atomically(path / name, data)
        written.append(path / name)

    try:
        path.mkdir(parents=True, exist_ok=True)
        if fabric is not None:  # first: its mark identifies an unfinished table beside it
            put("fabric.toml", marked_text("fabric", fabric))
        for name, (table, schema) in tables.items():
            if table is not None:
                put(name, _parquet(table, schema, name.partition(".")[0]))
        put("counters.json", marked_json("counters", counters))
        put("run.json", marked_json(kind or info["world"], info))
    except RecordWriteError:
        for file in written:
            file.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise unwritable(path, error) from error


def _parquet(table: pl.DataFrame, schema: pl.Schema, kind: str) -> bytes:
    """The table as bytes of a file with its mark. Python's error on a full disk is clearer than the writer's."""
    buffer = io.BytesIO()
    table.select(list(schema)).cast(schema).write_parquet(buffer, metadata={"schema": mark(kind)})
    return buffer.getvalue()
