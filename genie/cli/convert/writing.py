"""Common parts of all `genie convert` commands: reading another tool's file, and writing the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from genie.collectives.msccl.file import MscclError
from genie.errors import UsageError
from genie.record import final_name, refuse_foreign, unwritable
from genie.workload.write import check_folder, refuse_strangers
from simtwin.imports.words import ForeignFileError

T = TypeVar("T")
Out = Annotated[
    Path, typer.Option("-o", "--out", help="Folder for the results. Genie replaces earlier results in this folder.")
]


def quantity(option: str, text: str, parse: Callable[[object], T], advice: str) -> T:
    """Return an option's rate, duration or size. Raises UsageError with its range and an example."""
    try:
        return parse(text)
    except ValueError as wrong:
        raise UsageError(f"{option} {text}: {wrong}; {advice}") from wrong


@contextmanager
def reading(source: Path, what: str = "a text file") -> Iterator[None]:
    """Context for reading another tool's file. Raises UsageError for a file that cannot be used."""
    try:
        yield
    except (ForeignFileError, MscclError) as wrong:
        raise UsageError(str(wrong)) from wrong
    except OSError as wrong:
        raise UsageError(f"{wrong.filename or source}: cannot be read: {wrong.strerror}; give {what}") from wrong


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Context for writing outputs. Raises RecordWriteError with the file, and what to do."""
    try:
        yield
    except OSError as error:
        raise unwritable(error.filename or out, error) from error


def check_traces_folder(out: Path, prefix: str) -> None:
    """Check, before the conversion, that it would replace nothing but an earlier one. Raises WorkloadError."""
    with writing(out):
        refuse_strangers(out, prefix)


def check_experiment_folder(out: Path, prefix: str) -> None:
    """Check the same for a folder with a fabric, its traces and the proposed run. Raises UsageError too."""
    check_folder(out)
    with writing(out):
        names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if strangers := [name for name in names if final_name(name) not in ("traces", "fabric.toml", "run")]:
        raise UsageError(
            f"{out}: holds files that are not an earlier conversion's ({', '.join(strangers[:3])}); choose another -o"
        )
    refuse_foreign(out / "fabric.toml", "fabric")
    check_traces_folder(out / "traces", prefix)
