"""Where checked messages arrive: each queue pair has places of its own, which its messages take in turn.

A device says that a message is there once it is all there, and checks nothing itself. So a message must stay as it is
until it has been looked at: with n places no more than n - 1 receives are posted, and each anew only after a look. The
message for which there is no receive may be there in part, in the place that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genie.live.verbs.pattern import phase
from genie.live.verbs.queues import share_of

WANTED_BYTES = 64 << 20  # for all places of a rank, unless SLOTS_MIN of each need more
SLOTS_MIN = 4
SLOT_ALIGNMENT_BYTES = 64
FREE_SHARE = 2  # of the machine's free memory, one part in so many may be taken


@dataclass(frozen=True)
class Layout:
    """The places of a rank, from the front of its memory on."""

    peers: int  # the other ranks
    queue_pairs: int  # of each connection
    slots: int  # of each queue pair
    slot_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.peers * self.queue_pairs * self.slots * self.slot_bytes

    def place(self, peer: int, which: int) -> int:
        """Where the first slot of a queue pair begins; `peer` counts the others from 0."""
        return (peer * self.queue_pairs + which) * self.slots * self.slot_bytes


def lay_out(message_bytes: int, peers: int, queue_pairs: int, split: bool, receives: int) -> Layout:
    """Places for messages of at most `message_bytes`, of which `receives` are taken ahead if memory allows."""
    largest = share_of(message_bytes, queue_pairs) if split else message_bytes
    slot_bytes = -(-max(largest, 1) // SLOT_ALIGNMENT_BYTES) * SLOT_ALIGNMENT_BYTES
    affordable = WANTED_BYTES // (max(peers * queue_pairs, 1) * slot_bytes)
    return Layout(peers, queue_pairs, min(receives + 1, max(affordable, SLOTS_MIN)), slot_bytes)


def too_much(layout: Layout, meminfo: Path = Path("/proc/meminfo")) -> str:
    """A phrase when the places would take too much of the machine's memory, which a device holds; "" when not."""
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    free_bytes = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    if free_bytes is None or layout.size_bytes <= free_bytes // FREE_SHARE:
        return ""
    return (
        f"--verify takes {layout.size_bytes >> 20} MiB for what {layout.peers} ranks send, and {free_bytes >> 20} MiB "
        "are free: give more --channels or fewer --queue-pairs, or leave --verify out"
    )


class Checker:
    """Compares what has arrived with what was sent."""

    def __init__(self, layout: Layout, rank: int, memory: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
        """`memory`: with the places in front. `source`: what all ranks send from."""
        self._layout, self._rank, self._memory, self._source = layout, rank, memory, source
        self._messages: dict[tuple[int, int], int] = {}
        self.verified_bytes = self.wrong_bytes = 0

    def check(self, rank: int, which: int, size_bytes: int) -> None:
        """Look at the next message of `rank` on a queue pair, which is all there."""
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
    """A rank's number among the others."""
    return rank - (rank > own)


def places_for(layout: Layout, own: int, ranks: Sequence[int], base: int) -> list[list[int]]:
    """By rank, then by queue pair: the address of the first place; none for the own rank."""
    return [
        [] if rank == own else [base + layout.place(place_of(rank, own), which) for which in range(layout.queue_pairs)]
        for rank in ranks
    ]
