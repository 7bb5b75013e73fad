"""Files that are there whole or not at all, and the line for what the machine cannot write."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genie.record.errors import RecordWriteError

_PART = re.compile(r"\.[0-9]+\.part$")  # behind a file's name while a process writes it
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable(path: Path | str, error: OSError) -> RecordWriteError:
    """What was to be written, why the machine cannot, and what to do."""
    advice = "free some space or choose another -o" if error.errno in _FULL else "choose another -o"
    return RecordWriteError(f"{path}: cannot be written: {error.strerror or error}; {advice}")


def is_special(path: Path) -> bool:
    """A terminal, a pipe or another device, or a link into /dev or /proc: nothing there can be replaced."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file beside its place, then put it there: a failure leaves what was there before.

    What is no file, or a link into /dev or /proc, is written as it is. Raises RecordWriteError.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        if is_special(path):
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))  # what a link leads to
        part = place.with_name(f"{place.name}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            if place.exists():
                part.chmod(place.stat().st_mode & 0o7777)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A place beside a file for what takes its place at the end, or is removed when writing fails."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def final_name(name: str) -> str:
    """What a file that a killed process has left half written was to be called; any other's own name."""
    return _PART.sub("", name)
