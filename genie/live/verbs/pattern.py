"""What messages carry where receivers check it: the same bytes as softroce's (native/live/verify_pattern.hpp)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genie import _core

PATTERN_BYTES, PHASE_BYTES = _core.PATTERN_BYTES, _core.PHASE_BYTES


def pattern(size_bytes: int) -> NDArray[np.uint8]:
    """The first bytes of the source memory, which repeats itself after PATTERN_BYTES."""
    return _core.pattern(size_bytes)


def phase(source: int, target: int, queue_pair: int, message: int) -> int:
    """Where the `message`-th message of a connection's queue pair begins, each counted from 0."""
    return _core.pattern_phase(source, target, queue_pair, message)
