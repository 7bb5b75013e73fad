"""Files that are there whole or not at all, and the line for what the machine cannot write."""

from __future__ import annotations

import errno
from pathlib import Path

from genie.record.errors import RecordWriteError

PART = ".part"  # behind a file's name while it is written
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable(path: Path | str, error: OSError) -> RecordWriteError:
    """What was to be written, why the machine cannot, and what to do."""
    advice = "free some space or choose another -o" if error.errno in _FULL else "choose another -o"
    return RecordWriteError(f"{path}: cannot be written: {error.strerror or error}; {advice}")


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file beside its place, then put it there: a failure leaves what was there before.

    Devices and pipes are written as they are. Raises RecordWriteError.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        place = path.resolve()  # what a link leads to
        part = place.with_name(place.name + PART)
        try:
            part.write_bytes(content)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error
