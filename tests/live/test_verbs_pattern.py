"""What verbs ranks send is what softroce ranks expect, byte by byte (the rxe rig proves it on the wire)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from genie.live.verbs.pattern import PATTERN_BYTES, PHASE_BYTES, mixed, pattern, phase


def test_the_pattern_repeats_and_is_the_mixer_of_each_place() -> None:
    found = pattern(3 * PATTERN_BYTES + 5)
    assert [mixed(place + 1) & 0xFF for place in range(0, PATTERN_BYTES, 97)] == found[:PATTERN_BYTES:97].tolist()
    assert np.array_equal(found[PATTERN_BYTES : 2 * PATTERN_BYTES], found[:PATTERN_BYTES])
    assert len(found) == 3 * PATTERN_BYTES + 5


@given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, 127), st.integers(0, 2**32 - 1))
def test_a_message_begins_within_the_pattern(source: int, target: int, queue_pair: int, message: int) -> None:
    start = phase(source, target, queue_pair, message)
    assert 0 <= start < PATTERN_BYTES
    assert start % PHASE_BYTES == 0


def test_messages_differ() -> None:
    starts = {phase(0, 1, queue_pair, message) for queue_pair in range(4) for message in range(200)}
    assert len(starts) > 500  # of 800 drawn from 1,024
