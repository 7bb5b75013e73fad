"""Tags: what a receiver finds its receive by must never mean two things at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from genie.plan.tags import (
    CHANNELS_MAX,
    COLLECTIVE,
    COLOURS_MAX,
    POINT_TO_POINT_TAG_MAX,
    SEQUENCE_MODULUS,
    collective_tag,
)

CREDIT = 1 << 31  # native/walker/plan.hpp
FIELDS = st.tuples(
    st.integers(0, COLOURS_MAX - 1), st.integers(0, SEQUENCE_MODULUS - 1), st.integers(0, CHANNELS_MAX - 1)
)


@settings(max_examples=500, derandomize=True)
@given(FIELDS, FIELDS)
def test_a_tag_tells_colour_number_and_channel_apart(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    tags = [collective_tag(colour, seq) + channel for colour, seq, channel in (one, other)]
    assert (tags[0] == tags[1]) == (one == other)


@settings(max_examples=200, derandomize=True)
@given(FIELDS)
def test_collectives_messages_and_clears_have_ranges_of_their_own(fields: tuple[int, int, int]) -> None:
    tag = collective_tag(fields[0], fields[1]) + fields[2]
    assert POINT_TO_POINT_TAG_MAX < tag < CREDIT
    assert tag & COLLECTIVE
    assert not POINT_TO_POINT_TAG_MAX & COLLECTIVE


def test_the_number_wraps_within_its_own_field() -> None:
    assert collective_tag(3, SEQUENCE_MODULUS + 5) == collective_tag(3, 5)
    assert collective_tag(3, SEQUENCE_MODULUS - 1) != collective_tag(4, 0)
    assert collective_tag(COLOURS_MAX - 1, SEQUENCE_MODULUS - 1) + CHANNELS_MAX - 1 == CREDIT - 1
