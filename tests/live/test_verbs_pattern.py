"""Verbs ranks send the bytes that softroce ranks expect (the rxe rig proves it on the wire)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.live.verbs.pattern import PATTERN_BYTES, PHASE_BYTES, pattern, phase

pytestmark = pytest.mark.live


def test_bytes_and_places_are_the_same_in_every_version() -> None:
    """Ranks of one job must agree on them."""
    digest = hashlib.sha256(pattern(PATTERN_BYTES).tobytes()).hexdigest()
    assert digest == "737176ece9de5f360af2c91a7ec8a78edbce8fad9e68d649ce9c32099c90ecc4"
    assert pattern(8).tolist() == [229, 138, 240, 20, 220, 108, 20, 232]
    messages = [(0, 1, 0, 0), (1, 0, 0, 0), (2, 1, 1, 7), (65535, 3, 127, 2**32 - 1)]
    assert [phase(*message) for message in messages] == [43520, 16576, 42944, 42688]


def test_the_pattern_repeats() -> None:
    found = pattern(3 * PATTERN_BYTES + 5)
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
