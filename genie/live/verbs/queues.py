"""Messages as work requests on the queue pairs between two ranks, and completions as messages again.

Message m from a sender to a receiver, counted from 0, goes on queue pair m modulo their number. When split, a piece of
each message goes on each queue pair. As in NCCL, pieces are multiples of 128 bytes except the last. A queue pair keeps
its order, so the receiver knows which message each arrival belongs to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

PIECE_ALIGNMENT_BYTES = 128


@dataclass(slots=True)
class Message:
    """An outgoing message. `pieces`: the number of its unacknowledged pieces."""

    handle: int
    peer: int
    tag: int
    size_bytes: int
    pieces: int


class Piece(NamedTuple):
    """The part of a message that one work request sends, and its offset in the source memory."""

    message: Message
    offset_bytes: int
    size_bytes: int
    source_bytes: int = 0


class WorkRequest(NamedTuple):
    """A piece on a queue pair. `sequence`: index among the queue pair's work requests, from 0."""

    sequence: int
    piece: Piece
    signaled: bool


class Arrival(NamedTuple):
    """A message or piece that has arrived in full; times in ps."""

    tag: int
    size_bytes: int
    first_ps: int
    time_ps: int


def share_of(size_bytes: int, queue_pairs: int) -> int:
    """Return the largest piece of a message that is split."""
    share = -(-size_bytes // queue_pairs)
    return -(-share // PIECE_ALIGNMENT_BYTES) * PIECE_ALIGNMENT_BYTES


def pieces_of(message: Message, number: int, queue_pairs: int, split: bool) -> list[tuple[int, Piece]]:
    """Return queue pair and piece of each work request of a sender's message `number` to a receiver."""
    if not split or queue_pairs == 1:
        return [(number % queue_pairs, Piece(message, 0, message.size_bytes))]
    share = share_of(message.size_bytes, queue_pairs)
    pieces = []
    for which in range(queue_pairs):
        offset = min(which * share, message.size_bytes)
        # Also when the piece is empty: the receiver expects one piece of each message on each queue pair.
        pieces.append((which, Piece(message, offset, min(share, message.size_bytes - offset), offset)))
    return pieces


class SendQueue:
    """The send side of one queue pair. Only some work requests are signaled: their completion implies all before."""

    def __init__(self, depth: int, signal_every: int) -> None:
        self._depth = depth
        self._signal_every = signal_every
        self._unsignaled = 0
        self._next = 0
        self._waiting: deque[Piece] = deque()
        self._posted: deque[tuple[int, Message]] = deque()

    def add(self, piece: Piece) -> None:
        self._waiting.append(piece)

    @property
    def outstanding(self) -> int:
        """Work requests that are posted and not known to be complete."""
        return len(self._posted)

    def take(self, limit: int) -> list[WorkRequest]:
        """Return the work requests to post now as one list; the last of it is signaled."""
        count = min(limit, len(self._waiting), self._depth - len(self._posted))
        taken = []
        for at in range(count):
            piece = self._waiting.popleft()
            self._unsignaled += 1
            signaled = at == count - 1 or self._unsignaled == self._signal_every
            if signaled:
                self._unsignaled = 0
            taken.append(WorkRequest(self._next, piece, signaled))
            self._posted.append((self._next, piece.message))
            self._next += 1
        return taken

    def completed(self, sequence: int) -> list[Message]:
        """Return the messages that are complete with the work request `sequence` and all before it."""
        done = []
        while self._posted and self._posted[0][0] <= sequence:
            message = self._posted.popleft()[1]
            message.pieces -= 1
            if message.pieces == 0:
                done.append(message)
        return done


class Inbound:
    """Reassembles messages from one peer in the peer's order, whichever queue pair is ahead."""

    def __init__(self, queue_pairs: int, split: bool) -> None:
        self._split = split and queue_pairs > 1
        self._arrived: list[deque[Arrival]] = [deque() for _ in range(queue_pairs)]
        self._next = 0  # queue pair of the next message

    def arrived(self, which: int, arrival: Arrival) -> list[Arrival]:
        """Add a piece that arrived on queue pair `which`; return the messages that can be delivered now.

        Raise ValueError when pieces do not match: sender and receiver distribute messages differently.
        """
        self._arrived[which].append(arrival)
        ready = []
        if self._split:
            while all(self._arrived):
                ready.append(_joined([queue.popleft() for queue in self._arrived]))
            return ready
        while self._arrived[self._next]:
            ready.append(self._arrived[self._next].popleft())
            self._next = (self._next + 1) % len(self._arrived)
        return ready


def _joined(pieces: list[Arrival]) -> Arrival:
    if any(piece.tag != pieces[0].tag for piece in pieces):
        raise ValueError(f"pieces of one message have the tags {sorted({piece.tag for piece in pieces})}")
    return Arrival(
        pieces[0].tag,
        sum(piece.size_bytes for piece in pieces),
        min(piece.first_ps for piece in pieces),
        max(piece.time_ps for piece in pieces),
    )
