"""Splitting buffers over members and channels."""

from __future__ import annotations

import numpy as np
import pytest
from draws import CASES, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.collectives import LoweringError, block_sizes, lower
from genie.collectives.sizes import ELEMENT_BYTES, split

FAST = settings(max_examples=500, deadline=None, derandomize=True)


@FAST
@given(sizes(64), st.integers(1, 100))
def test_parts_are_whole_elements_that_differ_by_one(size_bytes: int, parts: int) -> None:
    found = split(size_bytes, parts)
    assert found.shape == (parts,)
    assert found.sum() == size_bytes
    assert found.min() >= 0
    assert found.max() - found.min() <= ELEMENT_BYTES
    assert np.count_nonzero(found % ELEMENT_BYTES) == (size_bytes % ELEMENT_BYTES != 0)


def test_split_of_several_buffers_is_that_of_each() -> None:
    buffers = np.array([0, 1, 7, 4096, 4099])
    assert (split(buffers, 3) == [split(size, 3) for size in buffers]).all()


@FAST
@given(st.sampled_from(CASES), st.integers(1, 17), st.integers(1, 8), sizes(17))
def test_a_table_has_a_row_for_every_block(case: tuple[str, str], members: int, channels: int, size_bytes: int) -> None:
    table = block_sizes(*case, members, members - 1, size_bytes, channels)
    assert table.dtype == np.int64
    assert table.shape == (lower(*case, members, members - 1, channels).blocks,)


def test_a_divisible_buffer_is_split_evenly() -> None:
    assert block_sizes("all_reduce", "ring", 8, 0, 1 << 20, 4).tolist() == [(1 << 20) // 32] * 32
    assert block_sizes("reduce_scatter", "ring", 8, 3, 1 << 20).tolist() == [1 << 17] * 8
    assert block_sizes("all_gather", "ring", 8, 3, 1 << 20).tolist() == [1 << 20] * 8
    assert block_sizes("scatter", "direct", 4, 3, 4096).tolist() == [1024] * 4
    assert block_sizes("all_to_all", "pairwise", 4, 2, 4096).tolist() == [1024] * 8
    assert block_sizes("barrier", "dissemination", 4, 0, 0, 8).tolist() == [0] * 4


def test_uneven_splits_are_the_rows_of_the_table() -> None:
    """The fourth all-to-all of the 8-rank DLRM trace sends these elements."""
    to = np.array([384, 896, 1152, 6656, 2368, 384, 768, 960]) * 4
    table = block_sizes("all_to_all", "pairwise", 8, 1, 0, 2, splits=(to, np.full(8, to[1])))
    channels = table.reshape(2, 16)
    assert (channels.sum(axis=0) == [*to, *[to[1]] * 8]).all()
    assert (np.abs(channels[0] - channels[1]) <= ELEMENT_BYTES).all()


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (([1, 2], [1, 2, 3]), "2 split sizes to 3 members"),
        (([1, 2, 3], [1, 2, 3, 4]), "4 split sizes from 3 members"),
        (([1, -2, 3], [1, 2, 3]), "a split size to a member is -2"),
    ],
)
def test_wrong_splits_are_named(splits: tuple[list[int], list[int]], words: str) -> None:
    with pytest.raises(LoweringError, match=words):
        block_sizes("all_to_all", "pairwise", 3, 0, 0, splits=splits)


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(LoweringError, match="all_reduce: size -1 B"):
        block_sizes("all_reduce", "ring", 3, 0, -1)
    with pytest.raises(LoweringError, match="for all_to_all only"):
        block_sizes("all_reduce", "ring", 3, 0, 9, splits=([1, 2, 3], [1, 2, 3]))
