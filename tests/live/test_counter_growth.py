"""By how much counters have grown: wraps, and counters that were set back."""

from __future__ import annotations

import pytest

from genie.live.counters.growth import grown, growth

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("before", "after", "grew"),
    [
        (0, 0, 0),
        (5, 17, 12),
        (2**32 - 10, 5, 15),  # wrapped in 32 bits
        (2**33, 2**33 + 1, 1),
        (2**48 - 1, 3, 4),
        (2**64 - 1, 1, 2),
        (2**64 - 1, 2**64 - 1, 0),
        (1000, 7, 7),  # set back: less than half a turn would be too much
        (2**40, 9, 9),
    ],
)
def test_growth(before: int, after: int, grew: int) -> None:
    assert growth(before, after) == grew


def test_a_counter_that_was_not_there_before_is_left_out() -> None:
    assert grown({"a": 1, "gone": 4}, {"a": 3, "came": 9}) == {"a": 2}
