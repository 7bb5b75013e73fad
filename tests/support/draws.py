"""Collectives drawn for the tests of this room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from genie.collectives import ALGORITHMS

CASES = [(op, algorithm) for op, known in ALGORITHMS.items() for algorithm in known]


@dataclass(frozen=True)
class Drawn:
    op: str
    algorithm: str
    members: int
    size_bytes: int
    channels: int
    root: int
    credit: bool
    splits: NDArray[np.int64] | None = None
    local: int = 1  # members of a node

    def arguments(self) -> tuple[str, str, int, int, int, int, bool, NDArray[np.int64] | None, int]:
        """As `check` and `lower_all` take them."""
        return (
            self.op,
            self.algorithm,
            self.members,
            self.size_bytes,
            self.channels,
            self.root,
            self.credit,
            self.splits,
            self.local,
        )


def sizes(members: int) -> st.SearchStrategy[int]:
    """None, one, fewer than members, odd, aligned, large."""
    return st.one_of(
        st.sampled_from([0, 1, 3, 4]),
        st.integers(0, members),
        st.integers(0, 8 * members),
        st.integers(0, 1 << 20),
        st.integers(0, 1 << 50),
    )


@st.composite
def collectives(draw: st.DrawFn, members_max: int = 17, channels_max: int = 8) -> Drawn:
    op, algorithm = draw(st.sampled_from(CASES))
    members = draw(st.integers(1, members_max))
    channels = draw(st.integers(1, channels_max))
    root = draw(st.integers(0, members - 1))
    credit = draw(st.booleans())
    size = 0 if op == "barrier" else draw(sizes(members))
    splits = None
    if op == "all_to_all" and draw(st.booleans()):
        generator = np.random.default_rng(draw(st.integers(0, 2**32)))
        splits = generator.integers(0, draw(st.sampled_from([2, 9, 10**6])), (members, members))
        splits *= generator.integers(0, 2, (members, members))
    local = draw(st.sampled_from([each for each in range(1, members + 1) if members % each == 0]))
    return Drawn(op, algorithm, members, size, channels, root, credit, splits, local)
