"""Files that are there whole or not at all, and the line for what the machine cannot write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from genie.record.errors import RecordWriteError

PART = ".part"  # behind a file's name while it is written
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable(path: Path | str, error: OSError) -> RecordWriteError:
    """What was to be written, why the machine cannot, and what to do."""
    advice = "free some space or choose another -o" if error.errno in _FULL else "choose another -o"
    return RecordWriteError(f"{path}: cannot be written: {error.strerror or error}; {advice}")


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file beside its place, then put it there: a failure leaves what was there before.

    What is no file, or a link into /dev or /proc, is written as it is. Raises RecordWriteError.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        if path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc")):
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))  # what a link leads to
        with NamedTemporaryFile(dir=place.parent, prefix=f"{place.name}.", suffix=PART, delete=False) as file:
            part = Path(file.name)
        try:
            part.write_bytes(content)
            part.chmod(place.stat().st_mode & 0o7777 if place.exists() else 0o666 & ~_umask())
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def _umask() -> int:
    os.umask(umask := os.umask(0))
    return umask
