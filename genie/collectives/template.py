"""Templates: the data structure that every collective algorithm produces and both worlds expand.

A template has the steps of one member of a group, without sizes. A step sends or receives one block with one peer, once
the steps that it depends on are done. Block sizes are in a table per collective instance (`block_sizes`), so that equal
collectives of any size share one template.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Action(IntEnum):
    """A step's action on its block."""

    SEND = 0  # send the block's current content to the peer
    RECV = 1  # receive; the content replaces the block
    REDUCE = 2  # receive; the content is reduced into the block


@dataclass(frozen=True, eq=False)
class Timing:
    """Times that the GPUs of a collective take, in ps. Both worlds wait for them.

    start_ps: from the collective's start until its first step. A send that is ready first takes its channel for
    `work_ps_per_kib`, one send after another. It leaves `delay_ps` and `delay_ps_per_kib` later, in the order of its
    channel. A receive is done `delay_ps` after its message came. Times per KiB are for each 1,024 bytes of a send.
    """

    start_ps: int
    delay_ps: NDArray[np.int64]  # (steps,)
    delay_ps_per_kib: NDArray[np.int64]  # (steps,)
    work_ps_per_kib: NDArray[np.int64]  # (steps,)


@dataclass(frozen=True)
class Bundle:
    """Rows of a size table whose blocks travel together in one message.

    Row `first + q` has the blocks `source + (q + i * stride) % members`, for i in [0, count).
    """

    first: int
    source: int
    stride: int
    count: int

    def blocks(self, row: int, members: int) -> tuple[int, ...]:
        """Blocks of a row in [first, first + members)."""
        return tuple(self.source + (row - self.first + i * self.stride) % members for i in range(self.count))


@dataclass(frozen=True, eq=False)
class Template:
    """Steps of one member. Symmetric algorithms return one object for all members (`relative`).

    Peer and block of step s, for the member at `position` of a group of `members`:
        relative:  peer = (position + peer[s]) % members, block = block_base[s] + (position + block[s]) % members
        otherwise: peer = peer[s],                        block = block_base[s] + block[s]
    The k-th send to a peer on a channel is received by that peer's k-th receive from the sender on that channel,
    in step order. Receives from one peer on one channel complete in step order, so step order must agree with
    the dependencies. Sends to one peer on one channel become ready in step order under every timing, and so do
    receives (`check` proves it). A player handles completions in the order in which they happen. It starts steps
    that become ready together in step order, early arrivals included.
    """

    algorithm: str
    members: int
    channels: int
    relative: bool
    blocks: int  # rows of the size table
    parts: int  # repetitions of the operation's own rows: over channels, and over loops and slices
    action: NDArray[np.uint8]  # (steps,) Action
    peer: NDArray[np.int32]  # (steps,)
    block_base: NDArray[np.int32]  # (steps,)
    block: NDArray[np.int32]  # (steps,)
    channel: NDArray[np.uint8]  # (steps,)
    credit: NDArray[np.uint8]  # 1: a send waits for its receiver's credit (clear-to-send); set at both ends
    dep_start: NDArray[np.int32]  # (steps + 1,) CSR over `deps`
    deps: NDArray[np.int32]  # earlier steps of this template that must be done first
    timing: Timing | None = None  # None: GPUs take no time
    empty_messages: bool = False  # send blocks of 0 bytes too (barrier); otherwise both ends skip them
    bundles: tuple[Bundle, ...] = ()  # the last `members` rows of the size table for each

    def __len__(self) -> int:
        return len(self.action)

    @property
    def own_blocks(self) -> int:
        """Number of blocks without bundles."""
        return self.blocks - self.members * len(self.bundles)
