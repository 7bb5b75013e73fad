"""Bandwidths of collectives by the convention of nccl-tests.

Sizes are those of traces: the size of an all-gather is that of one rank's part.
"""

from __future__ import annotations


def bus_bytes(op: str, size_bytes: int, members: int) -> float:
    """Return the bytes that count for bus bandwidth."""
    share = (members - 1) / members
    factor = {
        "all_reduce": 2 * share,
        "all_gather": members * share,
        "gather": members * share,
        "reduce_scatter": share,
        "scatter": share,
        "all_to_all": share,
    }
    return size_bytes * factor.get(op, 1.0)


def algorithm_bytes(op: str, size_bytes: int, members: int) -> float:
    """Return the bytes that count for algorithm bandwidth: the whole of a gathered result."""
    return size_bytes * (members if op in ("all_gather", "gather") else 1.0)
