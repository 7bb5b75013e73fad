"""Shared-memory segments of MPICH between a node's ranks: their names stay when ranks are killed while joining."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from genie.live.rendezvous.meeting import SEGMENT

ORPHAN_S = 0.05
FIRST_NAMESPACE = "pid:[4026531836]"  # linux/proc_ns.h: its /proc shows the processes of all namespaces


class Segments:
    """The segments of one launch: those that its processes were seen to map.

    Processes of another PID namespace may share /dev/shm without being visible in this /proc: a segment without a
    visible user may be theirs. The first namespace shows all processes, so there each new segment without a user is an
    orphan.
    """

    def __init__(self) -> None:
        self._began = time.time()
        self._ours: set[str] = set()
        self._all_visible = _namespace() == FIRST_NAMESPACE

    def note(self, pids: Iterable[int]) -> None:
        """Remember the segments that these processes of the launch have mapped."""
        unknown = self._new() - self._ours
        for pid in pids if unknown else ():
            self._ours |= _mapped(unknown, Path(f"/proc/{pid}/maps"))

    def remove(self) -> None:
        """Remove the names that ended processes have left."""
        orphans = self._orphans()
        if orphans:
            time.sleep(ORPHAN_S)  # so that a segment that another job is just opening is in use by then
            for name in orphans & self._orphans():
                Path(name).unlink(missing_ok=True)

    def _orphans(self) -> set[str]:
        found = self._new() if self._all_visible else self._new() & self._ours
        for maps in Path("/proc").glob("[0-9]*/maps") if found else ():
            found -= _mapped(found, maps)
        return found

    def _new(self) -> set[str]:
        """Return this user's segments that are newer than this launch."""
        found: set[str] = set()
        for path in Path(SEGMENT).parent.glob(f"{Path(SEGMENT).name}*"):
            with suppress(OSError):
                stat = path.stat()
                if stat.st_uid == os.geteuid() and stat.st_ctime >= self._began:
                    found.add(str(path))
        return found


def _mapped(names: set[str], maps: Path) -> set[str]:
    """Return those of the names that a process has mapped."""
    with suppress(OSError):
        text = maps.read_text(errors="replace")
        return {name for name in names if name in text}
    return set()


def _namespace() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""
