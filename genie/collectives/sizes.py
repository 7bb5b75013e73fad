"""Block sizes of a collective: a buffer is split over blocks, and blocks over channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ELEMENT_BYTES = 4  # parts of a buffer start at multiples of this, if it has enough elements


def split(size_bytes: ArrayLike, parts: int) -> NDArray[np.int64]:
    """Sizes of `parts` consecutive parts of each buffer, first parts larger.

    `size_bytes`: (...) buffers; returns (..., parts). Parts are whole elements and differ by at most one; one of them
    also has the odd bytes of the buffer. The result depends only on the arguments, so both ends of a message agree.
    """
    elements, odd = np.divmod(np.asarray(size_bytes, np.int64)[..., None], ELEMENT_BYTES)
    each, larger = np.divmod(elements, parts)
    part = np.arange(parts)
    return ELEMENT_BYTES * (each + (part < larger)) + np.where(part == larger, odd, 0)


def table(op: str, blocks: int, members: int, position: int, size_bytes: int) -> NDArray[np.int64]:
    """Sizes of one collective's blocks before they are split over channels: (blocks,)."""
    if op == "barrier":
        return np.zeros(blocks, np.int64)
    if op in ("all_gather", "gather"):
        return np.full(blocks, size_bytes, np.int64)
    if op == "all_to_all":
        shares = split(size_bytes, members)
        return np.concatenate((shares, np.full(members, shares[position])))
    return split(size_bytes, blocks)


def split_table(members: int, splits: tuple[ArrayLike, ArrayLike]) -> NDArray[np.int64]:
    """`table` of an all-to-all-v: (2 * members,) from (bytes to each member, bytes from each member).

    Raises ValueError unless each list has one size per member and none is negative.
    """
    sizes = [np.asarray(part, np.int64) for part in splits]
    for name, part in zip(("to", "from"), sizes, strict=True):
        if part.shape != (members,):
            raise ValueError(f"all_to_all: {part.size} split sizes {name} {members} members; give one per member")
        if (part < 0).any():
            raise ValueError(f"all_to_all: a split size {name} a member is {part.min()}; sizes must not be negative")
    return np.concatenate(sizes)
