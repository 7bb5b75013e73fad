"""Buckets of gradients as PyTorch's DistributedDataParallel makes them (reducer.cpp).

Buckets hold parameters in the order in which their gradients become ready. A bucket ends with the parameter by which it
reaches its limit: 1 MiB for the first one, 25 MiB for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_BYTES = 1 << 20
LIMIT_BYTES = 25 << 20


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together. `ready`: place of the operator that computes the last of them."""

    size_bytes: int
    ready: int


def buckets_of(gradients: Iterable[tuple[int, int]], limit_bytes: int = LIMIT_BYTES) -> list[Bucket]:
    """Return the buckets. gradients: place of the computing operator and bytes, in the order of becoming ready."""
    found: list[Bucket] = []
    size_bytes, ready = 0, -1
    for place, gradient_bytes in gradients:
        size_bytes, ready = size_bytes + gradient_bytes, max(ready, place)
        if size_bytes >= (limit_bytes if found else min(FIRST_BYTES, limit_bytes)):
            found.append(Bucket(size_bytes, ready))
            size_bytes, ready = 0, -1
    if size_bytes:
        found.append(Bucket(size_bytes, ready))
    return found
