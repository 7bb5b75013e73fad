"""What the scheduler makes a rank wait for a core."""

from __future__ import annotations

from pathlib import Path

SCHEDSTAT = Path("/proc/self/schedstat")  # of the main thread: ns on a core, ns waiting for one, turns


def waited_for_core_ns() -> int:
    """How long this rank could run and had no core, ns since it was started; -1 where the kernel does not count it."""
    try:
        return int(SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return -1
