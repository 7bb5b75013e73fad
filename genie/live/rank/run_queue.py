"""Time that a rank waits for a core in the scheduler's run queue."""

from __future__ import annotations

from pathlib import Path

SCHEDSTAT = Path("/proc/self/schedstat")  # of the main thread: ns on a core, ns waiting for one, time slices


def waited_for_core_ns() -> int:
    """Return how long this rank was runnable without a core, ns since its start; -1 if the kernel does not say."""
    try:
        return int(SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return -1
