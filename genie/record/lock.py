"""Folders that one process writes at a time: a lock on the folder itself, which ends with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from genie.record.errors import RecordError

_WITHOUT_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # on folders of NFS, for example
_held: dict[Path, int] = {}  # folder -> descriptor that locks it


def lock_folder(path: Path) -> None:
    """Keep other processes out of a folder, until `unlock_folders` or the end of this process.

    A process writes one run at a time: with the next folder it lets go of those that are not around it. Where the file
    system has no locks, nobody is kept out. Raises RecordError when another process has the folder.
    """
    path = path.resolve()
    for other in [other for other in _held if other not in path.parents]:
        os.close(_held.pop(other))
    try:
        descriptor = _locked(path)
    except BlockingIOError as error:
        raise RecordError(
            f"{path}: another genie writes to it: wait until it has ended, or choose another -o"
        ) from error
    if descriptor is not None:
        _held[path] = descriptor


def unlock_folders() -> None:
    """All that this process holds."""
    while _held:
        os.close(_held.popitem()[1])


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is removed afterwards: should this process be killed, by the next one that wants such a folder."""
    _sweep(prefix)
    made: list[Path] = []
    descriptor = None
    try:  # at once, as a signal may come at any time
        while True:
            made.append(Path(tempfile.mkdtemp(prefix=prefix)))
            with suppress(BlockingIOError, FileNotFoundError):  # swept before it was locked
                descriptor = _locked(made[-1])
                if made[-1].is_dir():
                    break
        yield made[-1]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _sweep(prefix: str) -> None:
    """Remove this user's temporary folders that nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or (descriptor := _locked(folder)) is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """A descriptor that locks a folder; None where there are no locks. Raises BlockingIOError when another has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _WITHOUT_LOCKS:
            return None
        raise
    return descriptor
