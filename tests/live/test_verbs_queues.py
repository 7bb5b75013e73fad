"""Messages over several queue pairs and back, with few signals, whatever queue pair is ahead."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.live.verbs.queues import Arrival, Inbound, Message, Piece, SendQueue, pieces_of

pytestmark = pytest.mark.live


def message(size_bytes: int, handle: int = 0, pieces: int = 1, tag: int = 7) -> Message:
    return Message(handle, 1, tag, size_bytes, pieces)


@given(st.integers(0, 1 << 31), st.integers(1, 128))
def test_pieces_cover_a_message_once(size_bytes: int, queue_pairs: int) -> None:
    pieces = pieces_of(message(size_bytes), 5, queue_pairs, True)
    assert [which for which, _ in pieces] == (list(range(queue_pairs)) if queue_pairs > 1 else [0])
    end = 0
    for _, piece in pieces:
        assert piece.offset_bytes == end
        end += piece.size_bytes
    assert end == size_bytes
    full = [piece.size_bytes for _, piece in pieces if piece.offset_bytes + piece.size_bytes < size_bytes]
    assert all(size % 128 == 0 for size in full) or queue_pairs == 1


def test_pieces_as_nccl_has_them() -> None:
    # 1000 bytes over 3: a third is 334, which makes 384 in whole 128s.
    sizes = [piece.size_bytes for _, piece in pieces_of(message(1000), 0, 3, True)]
    assert sizes == [384, 384, 232]
    assert [piece.size_bytes for _, piece in pieces_of(message(100), 0, 3, True)] == [100, 0, 0]


def test_messages_take_queue_pairs_in_turn() -> None:
    assert [pieces_of(message(9), number, 3, False)[0][0] for number in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_lists_end_with_a_signal_and_have_one_every_so_often() -> None:
    queue = SendQueue(depth=64, signal_every=4)
    for _ in range(10):
        queue.add(Piece(message(1), 0, 1))
    taken = queue.take(32)
    assert [request.sequence for request in taken if request.signaled] == [3, 7, 9]
    assert queue.take(32) == []


def test_a_full_queue_waits_for_completions() -> None:
    queue = SendQueue(depth=3, signal_every=16)
    sent = [message(1, handle) for handle in range(5)]
    for each in sent:
        queue.add(Piece(each, 0, 1))
    assert [request.sequence for request in queue.take(32)] == [0, 1, 2]
    assert queue.take(32) == []
    assert [done.handle for done in queue.completed(2)] == [0, 1, 2]
    assert [request.sequence for request in queue.take(32)] == [3, 4]
    assert queue.outstanding == 2


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(1, 12), st.integers(1, 20), st.integers(1, 8))
def test_every_message_completes_once_and_in_order(bursts: list[int], depth: int, every: int, limit: int) -> None:
    """Only what is signaled completes, as a device does it; nothing is left over."""
    queue, done, handle = SendQueue(depth, every), [], 0
    for burst in [*bursts, 0]:
        for _ in range(burst):
            queue.add(Piece(message(1, handle), 0, 1))
            handle += 1
        while taken := queue.take(limit):
            assert queue.outstanding <= depth
            for request in taken:
                if request.signaled:
                    done += [each.handle for each in queue.completed(request.sequence)]
    assert done == list(range(handle))
    assert queue.outstanding == 0


@pytest.mark.parametrize("split", [False, True])
@given(seed=st.integers(0, 1 << 32), queue_pairs=st.integers(1, 5), count=st.integers(0, 25))
def test_a_receiver_puts_messages_together_in_order(seed: int, queue_pairs: int, count: int, split: bool) -> None:
    """Queue pairs keep their own order and no other."""
    draw = random.Random(seed)
    sizes = [draw.choice([0, 1, 128, 1000, 65536]) for _ in range(count)]
    lines: list[list[Arrival]] = [[] for _ in range(queue_pairs)]
    for number, size in enumerate(sizes):
        for which, piece in pieces_of(message(size, tag=number), number, queue_pairs, split):
            lines[which].append(Arrival(number, piece.size_bytes, 0, 0))
    inbound, got, time = Inbound(queue_pairs, split), [], 0
    while any(lines):
        which = draw.choice([which for which, line in enumerate(lines) if line])
        time += 1
        arrival = lines[which].pop(0)._replace(first_ps=time, time_ps=time)
        got += inbound.arrived(which, arrival)
    assert [(arrival.tag, arrival.size_bytes) for arrival in got] == list(enumerate(sizes))
    assert all(arrival.first_ps <= arrival.time_ps <= time for arrival in got)


def test_ends_that_disagree_are_found_out() -> None:
    inbound = Inbound(2, split=True)
    assert inbound.arrived(0, Arrival(1, 10, 0, 0)) == []
    with pytest.raises(ValueError, match=r"tags \[1, 2\]"):
        inbound.arrived(1, Arrival(2, 10, 0, 0))
