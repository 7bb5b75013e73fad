"""What messages carry where receivers check it: the same bytes as softroce's (native/live/verify_pattern.hpp)."""

from __future__ import annotations

import genie_core
import numpy as np
from numpy.typing import NDArray

PATTERN_BYTES, PHASE_BYTES = genie_core.PATTERN_BYTES, genie_core.PHASE_BYTES


def pattern(size_bytes: int) -> NDArray[np.uint8]:
    """The first bytes of the source memory, which repeats itself after PATTERN_BYTES."""
    return genie_core.pattern(size_bytes)


def phase(source: int, target: int, queue_pair: int, message: int) -> int:
    """Where the `message`-th message of a connection's queue pair begins, each counted from 0."""
    return genie_core.pattern_phase(source, target, queue_pair, message)
