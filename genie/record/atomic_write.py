"""Atomic writing of files, and the error for a file that cannot be written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genie.record.errors import RecordWriteError

_PART = re.compile(r"\.[0-9]+\.part$")  # suffix of a file that a process is writing
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable(path: Path | str, error: OSError) -> RecordWriteError:
    """The error for a file that cannot be written: its path, the cause and advice."""
    advice = "free some space or choose another -o" if error.errno in _FULL else "choose another -o"
    return RecordWriteError(f"{path}: cannot be written: {error.strerror or error}; {advice}")


def is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a link into /dev or /proc, which cannot be replaced."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file beside its place, then rename it: a failure leaves the earlier file as it was.

    Devices, pipes and links into /dev or /proc are written in place. Raises RecordWriteError.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        if is_special(path):
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))  # target of a link
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
    """A path beside a file; it replaces the file at the end and is removed on failure."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def final_name(name: str) -> str:
    """Strip the `.PID.part` suffix of an unfinished write."""
    return _PART.sub("", name)
