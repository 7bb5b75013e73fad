"""Places of checked messages: none shares a byte with another, and memory that is not there is not taken."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from genie.live.verbs.pattern import PATTERN_BYTES, pattern, phase
from genie.live.verbs.places import SLOTS_MIN, WANTED_BYTES, Checker, Layout, lay_out, place_of, places_for, too_much
from genie.live.verbs.queues import Message, pieces_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("message_bytes", [1, 64, 4097, 1 << 20, 1 << 26])
@pytest.mark.parametrize(("queue_pairs", "split"), [(1, False), (4, False), (4, True), (128, True)])
def test_places_hold_every_piece_and_lie_side_by_side(message_bytes: int, queue_pairs: int, split: bool) -> None:
    layout = lay_out(message_bytes, 7, queue_pairs, split, 512)
    for size in (message_bytes, max(message_bytes // 2, 1)):
        pieces = pieces_of(Message(0, 0, 0, size, 1), 3, queue_pairs, split)
        assert max(piece.size_bytes for _, piece in pieces) <= layout.slot_bytes
    assert SLOTS_MIN <= layout.slots <= 513
    assert layout.size_bytes <= max(WANTED_BYTES, SLOTS_MIN * 7 * queue_pairs * layout.slot_bytes)
    addresses = [at for of_rank in places_for(layout, 3, range(8), 1000) for at in of_rank]
    assert len(addresses) == 7 * queue_pairs
    assert addresses[0] == 1000
    assert {after - before for before, after in pairwise(addresses)} == {layout.slots * layout.slot_bytes}
    assert addresses[-1] + layout.slots * layout.slot_bytes == 1000 + layout.size_bytes


def test_receives_limit_places() -> None:
    assert lay_out(64, 1, 1, False, 8).slots == 9


def test_ranks_are_numbered_without_the_own_one() -> None:
    assert [place_of(rank, 2) for rank in (0, 1, 3, 4)] == [0, 1, 2, 3]


def test_messages_are_looked_for_in_turn() -> None:
    layout = Layout(peers=2, queue_pairs=2, slots=4, slot_bytes=128)
    source = pattern(PATTERN_BYTES + 128)
    memory = np.zeros(layout.size_bytes, np.uint8)
    checker = Checker(layout, 1, memory, source)
    for number in range(9):
        begin = layout.place(1, 1) + number % 4 * 128  # rank 2 is the second of the others
        memory[begin : begin + 100] = source[phase(2, 1, 1, number) :][:100]
        checker.check(2, 1, 100)
    assert (checker.verified_bytes, checker.wrong_bytes) == (900, 0)
    checker.check(2, 1, 100)  # the tenth has not come
    assert checker.wrong_bytes > 50
    before = checker.wrong_bytes
    checker.check(0, 0, 129)  # more than fits
    assert checker.wrong_bytes == before + 129


def test_what_is_not_free_is_not_taken(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       1000 kB\nMemAvailable:    8192 kB\n")
    assert too_much(Layout(1, 1, 4, 1 << 20), meminfo) == ""
    assert too_much(Layout(1, 1, 5, 1 << 20), meminfo) == (
        "--verify takes 5 MiB for what 1 ranks send, and 8 MiB are free: give more --channels or fewer --queue-pairs, "
        "or leave --verify out"
    )
    assert too_much(Layout(1, 1, 5, 1 << 20), tmp_path / "none") == ""
