"""The output folder of a command, and the line of a verdict on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from genie.errors import UsageError
from genie.inputs.printable import printable
from genie.live.launched import launched_by

RUNS, LATEST = Path("runs"), "latest"
COLOURS = {"PASS": "32", "FAIL": "31", "INCONCLUSIVE": "33"}  # SGR: green, red, yellow


@contextmanager
def out_folder(given: Path | None, command: str) -> Iterator[Path]:
    """Yield the folder of -o, or a new one, runs/COMMAND-TIME, to which runs/latest points once it exists.

    Raises UsageError without -o on ranks that a launcher started: each would choose another folder.
    """
    if given is not None:
        yield given
        return
    if launched_by() is not None:
        raise UsageError("-o: is missing: under a launcher all ranks write to one folder; give -o FOLDER")
    began = f"{command}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (began, *(f"{began}-{number}" for number in range(2, 1000)))
    folder = next(RUNS / name for name in names if not (RUNS / name).exists())
    try:
        yield folder
    finally:
        if folder.is_dir():
            point_to(folder)


def point_to(folder: Path) -> None:
    """Make runs/latest a link to a folder beside it; a file or a folder of that name that is not a link stays."""
    link = folder.parent / LATEST
    if link.exists() and not link.is_symlink():
        return
    part = link.with_name(f"{LATEST}.{os.getpid()}.part")
    with suppress(OSError):
        part.symlink_to(folder.name)
        part.replace(link)


def print_verdict(line: str) -> None:
    """Print a verdict's line, with its result in colour on a terminal, unless NO_COLOR is set."""
    line = printable(line)
    word, space, rest = line.partition(" ")
    if word in COLOURS and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        line = f"\x1b[1;{COLOURS[word]}m{word}\x1b[0m{space}{rest}"
    print(line, file=getattr(sys.stdout, "unescaped", sys.stdout))
