"""What a bench of a collective is asked for; every field means what nccl-tests' flag of its name means there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Average(IntEnum):
    """Which of the ranks' times is the time of the table (-a)."""

    RANK_0 = 0
    MEAN = 1
    LEAST = 2
    MOST = 3


class Blocking(IntEnum):
    """What stands between operations (-z)."""

    NONE = 0  # each rank goes on when its own part has ended
    BARRIER = 1  # all ranks meet after each operation, and that counts
    WAIT = 2  # operations that -m puts together go one after another, without a barrier
    UNTIMED_BARRIER = 3  # all ranks meet after each iteration, and that does not count


@dataclass(frozen=True)
class Asked:
    """What was asked for, as the table's head and the JSON say it."""

    ranks: int
    minimum_bytes: int
    maximum_bytes: int
    step_factor: int | None  # of the two steps one is None
    step_bytes: int | None
    warmup: int
    iterations: int
    check: int
    aggregated: int = 1  # operations that start together in each iteration
    cycles: int = 1  # how often all sizes are measured
    average: Average = Average.MEAN
    blocking: Blocking = Blocking.NONE
    per_iteration: bool = False  # print what iterations took
    skipped: int = 0  # iterations that this leaves out
    percentiles: bool = False  # print what messages took
    timestamps: bool = False

    @property
    def sizes_bytes(self) -> list[int]:
        """From the smallest to the largest."""
        sizes, size = [], self.minimum_bytes
        while size <= self.maximum_bytes:
            sizes.append(size)
            size = size * self.step_factor if self.step_factor else size + (self.step_bytes or 0)
        return sizes
