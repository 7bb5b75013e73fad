"""Memory for messages whose contents are checked: each queue pair cycles through slots of its own.

A device reports a message once all of it has arrived, and checks nothing itself. So a message must stay in place until
it has been checked. With n slots at most n - 1 receives are posted, and each is posted anew only after a check. The
slot that is left may hold part of a message for which there is no receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genie.live.verbs.pattern import phase
from genie.live.verbs.queues import share_of

WANTED_BYTES = 64 << 20  # for all slots of a rank, unless SLOTS_MIN per queue pair need more
SLOTS_MIN = 4
SLOT_ALIGNMENT_BYTES = 64
FREE_SHARE = 2  # one part in so many of the machine's free memory may be taken


@dataclass(frozen=True)
class Layout:
    """The slots of a rank, at the front of its memory."""

    peers: int  # the number of other ranks
    queue_pairs: int  # per connection
    slots: int  # per queue pair
    slot_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.peers * self.queue_pairs * self.slots * self.slot_bytes

    def place(self, peer: int, which: int) -> int:
        """Return the offset of a queue pair's first slot; `peer` counts the other ranks from 0."""
        return (peer * self.queue_pairs + which) * self.slots * self.slot_bytes


def lay_out(message_bytes: int, peers: int, queue_pairs: int, split: bool, receives: int) -> Layout:
    """Return slots for messages of up to `message_bytes`, with `receives` posted ahead if memory allows."""
    largest = share_of(message_bytes, queue_pairs) if split else message_bytes
    slot_bytes = -(-max(largest, 1) // SLOT_ALIGNMENT_BYTES) * SLOT_ALIGNMENT_BYTES
    affordable = WANTED_BYTES // (max(peers * queue_pairs, 1) * slot_bytes)
    return Layout(peers, queue_pairs, min(receives + 1, max(affordable, SLOTS_MIN)), slot_bytes)


def too_much(layout: Layout, meminfo: Path = Path("/proc/meminfo")) -> str:
    """Return why the slots would take too much memory, which the device locks; "" when they would not."""
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    free_bytes = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    if free_bytes is None or layout.size_bytes <= free_bytes // FREE_SHARE:
        return ""
    return (
        f"--verify takes {layout.size_bytes >> 20} MiB for what {layout.peers} ranks send, and {free_bytes >> 20} MiB "
        "are free: give more --channels or fewer --queue-pairs, or leave --verify out"
    )


class Checker:
    """Compares received messages with what was sent."""

    def __init__(self, layout: Layout, rank: int, memory: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
        """`memory`: begins with the slots. `source`: the memory that all ranks send from."""
        self._layout, self._rank, self._memory, self._source = layout, rank, memory, source
        self._messages: dict[tuple[int, int], int] = {}
        self.verified_bytes = self.wrong_bytes = 0

    def check(self, rank: int, which: int, size_bytes: int) -> None:
        """Check the next message of `rank` on a queue pair, all of which has arrived."""
        number = self._messages.get((rank, which), 0)
        self._messages[rank, which] = number + 1
        if size_bytes > self._layout.slot_bytes:
            self.wrong_bytes += size_bytes
            return
        begin = self._layout.place(place_of(rank, self._rank), which)
        begin += number % self._layout.slots * self._layout.slot_bytes
        start = phase(rank, self._rank, which, number)
        found = self._memory[begin : begin + size_bytes]
        self.verified_bytes += size_bytes
        self.wrong_bytes += int(np.count_nonzero(found != self._source[start : start + size_bytes]))


def place_of(rank: int, own: int) -> int:
    """Return a rank's index among the other ranks."""
    return rank - (rank > own)


def places_for(layout: Layout, own: int, ranks: Sequence[int], base: int) -> list[list[int]]:
    """Return, by rank, then by queue pair, the address of the first slot; [] for the own rank."""
    return [
        [] if rank == own else [base + layout.place(place_of(rank, own), which) for which in range(layout.queue_pairs)]
        for rank in ranks
    ]
