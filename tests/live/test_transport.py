"""Both ends of a connection draw the numbers that its directions begin with, and give each other none."""

from __future__ import annotations

from genie.live.transport import first_psn

RANKS = 24


def test_first_psns_differ_by_direction_and_seed_and_fit_the_header() -> None:
    drawn = {
        (seed, sender, receiver): first_psn(seed, sender, receiver)
        for seed in (1, 2)
        for sender in range(RANKS)
        for receiver in range(RANKS)
    }
    assert len(set(drawn.values())) == len(drawn)
    assert all(0 <= psn < 1 << 24 for psn in drawn.values())
    assert max(drawn.values()) > 1 << 23
    assert drawn == {key: first_psn(*key) for key in drawn}
