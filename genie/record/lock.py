"""Locks on output folders: one process writes a folder at a time; a lock ends with its process."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from genie.record.errors import RecordError

_WITHOUT_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # for example on NFS folders
_held: dict[Path, int] = {}  # folder -> descriptor that locks it


def lock_folder(path: Path) -> None:
    """Keep other processes out of a folder until `unlock_folders` or the end of this process.

    A process writes one run at a time, so locking a folder releases all others except those that contain it. File
    systems without locks give no protection. Raises RecordError when another process holds the lock.
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
    """Release all locks of this process."""
    while _held:
        os.close(_held.popitem()[1])


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder, removed afterwards.

    If this process is killed, the next process that asks for a folder with this prefix removes it.
    """
    _sweep(prefix)
    made: list[Path] = []
    descriptor = None
    try:  # before the folder is made, because a signal may come at any time
        while True:
            made.append(Path(tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(8)}")
            made[-1].mkdir(mode=0o700)
            with suppress(BlockingIOError, FileNotFoundError):  # another process may remove it before it is locked
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
    """Remove this user's temporary folders that no process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or (descriptor := _locked(folder)) is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """A descriptor that locks a folder; None without support for locks.

    Raises BlockingIOError when another holds it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _WITHOUT_LOCKS:
            return None
        raise
    return descriptor
