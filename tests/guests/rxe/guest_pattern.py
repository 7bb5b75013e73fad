"""Bytes that follow from a seed and their place: guests and host make the same without sending them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pattern(seed: int, size_bytes: int, start: int = 0) -> NDArray[np.uint8]:
    """Bytes `start` to `start + size_bytes` of the endless pattern of a seed: uint8, (size_bytes,).

    Neighbours, the same place in other packets and other seeds differ (the mixing steps of splitmix64).
    """
    with np.errstate(over="ignore"):
        mixed = np.arange(start, start + size_bytes, dtype=np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed >> np.uint64(56), dtype=np.uint8)
