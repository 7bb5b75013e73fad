"""Parameters of a bench of a collective; each field means the same as nccl-tests' flag of its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Average(IntEnum):
    """Choice of the ranks' times that the table shows (-a)."""

    RANK_0 = 0
    MEAN = 1
    LEAST = 2
    MOST = 3


class Blocking(IntEnum):
    """Separation of operations (-z)."""

    NONE = 0  # each rank goes on when its own part has ended
    BARRIER = 1  # a barrier after each operation, which counts
    WAIT = 2  # operations that -m groups run one after another, without a barrier
    UNTIMED_BARRIER = 3  # a barrier after each iteration, which does not count


@dataclass(frozen=True)
class Asked:
    """The parameters, as the table's head and the JSON show them."""

    ranks: int
    minimum_bytes: int
    maximum_bytes: int
    step_factor: int | None  # one of the two steps is None
    step_bytes: int | None
    warmup: int
    iterations: int
    check: int
    aggregated: int = 1  # operations that start together in each iteration
    cycles: int = 1  # number of times that all sizes are measured
    average: Average = Average.MEAN
    blocking: Blocking = Blocking.NONE
    per_iteration: bool = False  # print the times of iterations
    skipped: int = 0  # iterations left out of these times
    percentiles: bool = False  # print the times of messages
    timestamps: bool = False

    @property
    def sizes_bytes(self) -> list[int]:
        """Sizes from the smallest to the largest."""
        sizes, size = [], self.minimum_bytes
        while size <= self.maximum_bytes:
            sizes.append(size)
            size = size * self.step_factor if self.step_factor else size + (self.step_bytes or 0)
        return sizes
