"""Contents of messages that receivers check: the same bytes as softroce's (native/live/verify_pattern.hpp)."""

from __future__ import annotations

import genie_core
import numpy as np
from numpy.typing import NDArray

PATTERN_BYTES, PHASE_BYTES = genie_core.PATTERN_BYTES, genie_core.PHASE_BYTES


def pattern(size_bytes: int) -> NDArray[np.uint8]:
    """Return the first bytes of the source memory, which repeats itself after PATTERN_BYTES."""
    return genie_core.pattern(size_bytes)


def phase(source: int, target: int, queue_pair: int, message: int) -> int:
    """Return the offset in the pattern of a queue pair's `message`-th message, each counted from 0."""
    return genie_core.pattern_phase(source, target, queue_pair, message)
