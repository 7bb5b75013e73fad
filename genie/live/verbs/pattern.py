"""What messages carry where receivers check it: the same bytes as softroce's (native/live/engine.cpp).

The source memory repeats a pattern of 64 KiB; where in it a message begins follows from who sends it to whom.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PATTERN_BYTES, PHASE_BYTES = 1 << 16, 64
_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64's


def mixed(value: int) -> int:
    """64 bits, scattered."""
    value &= _MASK
    value = (value ^ value >> 30) * _FIRST & _MASK
    value = (value ^ value >> 27) * _SECOND & _MASK
    return value ^ value >> 31


def pattern(size_bytes: int) -> NDArray[np.uint8]:
    """The first bytes of the source memory."""
    value = np.arange(1, PATTERN_BYTES + 1, dtype=np.uint64)
    value = (value ^ value >> np.uint64(30)) * np.uint64(_FIRST)
    value = (value ^ value >> np.uint64(27)) * np.uint64(_SECOND)
    value ^= value >> np.uint64(31)
    return np.resize(value.astype(np.uint8), size_bytes)


def phase(source: int, target: int, queue_pair: int, message: int) -> int:
    """Where the `message`-th message of a connection's queue pair begins, each counted from 0."""
    return (
        mixed(mixed((source << 32 | target) + 1) + (queue_pair << 32 | message))
        % (PATTERN_BYTES // PHASE_BYTES)
        * PHASE_BYTES
    )
