"""Steps of NCCL's algorithms on one channel, as `algorithms.py` has those of the plain algorithms.

A slice (`nccl_sizes`) is one message, and one step at either end. A member works through its slices in order. It
forwards a slice once the slice before it in the data flow has arrived. It sends the credit for a slice once the slice
one buffer length before is done. So at most one buffer is in flight, and sends need no window of their own.

Where several members share a node, one of them is the node's leader for each channel. It sends and receives all
messages that cross the node's boundary, as with PXN; work inside the node takes no message. `away` is then the distance
of two leaders of one channel, which is the number of members of a node.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.algorithms import RECV, REDUCE, SEND, Row, Steps, steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NOBODY = -1


def ring(
    members: int,
    phases: Sequence[tuple[int, NDArray[np.int64]]],
    loops: int,
    slices: int,
    window: int,
    away: int = 1,
    place: int = 0,
) -> Steps:
    """Loops of rounds of slices around the ring. `phases`: (receives' action, relative block of each round's send).

    Blocks of slice s of loop l begin at (l * slices + s) * members. `place`: of the leader among its node's members.
    """
    sent = np.concatenate([blocks for _, blocks in phases])
    action = np.concatenate([np.full(len(blocks), what) for what, blocks in phases])
    rounds = len(sent)
    count = loops * rounds * slices
    unit = np.arange(count)
    loop, at, part = unit // (rounds * slices), unit // slices % rounds, unit % slices
    base = (loop * slices + part) * members
    # In ring order a node starts with its leader and ends with the member before the next node.
    leaving = (sent[at] + away - 1 - place) % members
    deps = np.full((2 * count, window), -1, np.int64)
    # A forwarded block arrived `away` rounds ago; the node's own block leaves when the previous loop is over.
    source = np.where(at >= away, unit - away * slices, unit - (at + away) * slices - part + slices - 1)
    deps[0::2, 0] = np.where(source >= 0, 2 * source + 1, -1)
    for column in range(window):  # an empty block is done at once: waiting for the whole window keeps receives in order
        back = unit - window - column
        deps[1::2, column] = np.where(back >= 0, 2 * back + 1, -1)
    return Steps(
        _alternate(np.full(count, SEND), action[at]),
        _alternate(np.full(count, away), np.full(count, members - away)),
        _alternate(leaving, (leaving - away) % members),
        _alternate(base, base),
        deps,
    )


def _alternate(even: NDArray[np.int64], odd: NDArray[np.int64]) -> NDArray[np.int64]:
    """(2 n,) from two columns (n,), one of sends and one of receives, in turn."""
    return np.stack((even, odd), axis=1).reshape(-1)


def chain(chunks: int, upstream: int, downstream: int, receive: int, window: int) -> Steps:
    """Chunks come from upstream and go on downstream (NOBODY: an end of the chain)."""
    rows: list[Row] = []
    came: list[int] = []
    for chunk in range(chunks):
        if upstream != NOBODY:
            rows.append((receive, upstream, chunk, came[-window:][:1] if chunk >= window else ()))
            came.append(len(rows) - 1)
        if downstream != NOBODY:
            rows.append((SEND, downstream, chunk, came[-1:]))
    return steps_of(rows)


def tree(chunks: int, up: int, down: Sequence[int], window: int) -> Steps:
    """Chunks collect contributions up the tree, and their sums come down again, both at the same time."""
    rows: list[Row] = []
    came: dict[int, list[int]] = {peer: [] for peer in (up, *down)}

    def receive(action: int, peer: int, chunk: int) -> int:
        rows.append((action, peer, chunk, came[peer][-window:][:1] if chunk >= window else ()))
        came[peer].append(len(rows) - 1)
        return len(rows) - 1

    for chunk in range(chunks):
        whole = [receive(REDUCE, child, chunk) for child in down]
        if up != NOBODY:
            rows.append((SEND, up, chunk, whole))
            whole = [receive(RECV, up, chunk)]
        rows += [(SEND, child, chunk, whole) for child in down]
    return steps_of(rows)


def binary_tree(nodes: int, node: int) -> tuple[int, list[int]]:
    """(parent, children) of a node in the tree in which every other node is a leaf; the root's parent is NOBODY.

    A node's lowest set bit is its height (Sanders, Speck and Träff 2009, two-tree algorithms).
    """
    if node == 0:
        top = 1 << max(nodes - 1, 0).bit_length() >> 1
        return NOBODY, [top] if nodes > 1 else []
    height = node & -node
    up = (node ^ height) | height << 1
    if up >= nodes:
        up = node ^ height
    below = height >> 1
    if not below:
        return up, []
    right = node + below
    while right >= nodes and below:
        below >>= 1
        right = node + below
    return up, [node - (height >> 1), *([right] if below else [])]


def double_binary_tree(nodes: int, node: int, which: int) -> tuple[int, list[int]]:
    """`binary_tree` for `which` 0; else its mirror image for an even number of nodes, or the tree shifted by a node."""
    if which == 0:
        return binary_tree(nodes, node)
    mirrored = nodes % 2 == 0
    up, down = binary_tree(nodes, nodes - 1 - node if mirrored else (node - 1) % nodes)

    def back(other: int) -> int:
        return nodes - 1 - other if mirrored else (other + 1) % nodes

    return (NOBODY if up == NOBODY else back(up)), [back(child) for child in down]


def messages(
    peers: Sequence[Sequence[tuple[int, int, int, int]]], chunks: int, window: int, stride: int, copies: int = 1
) -> Steps:
    """Point-to-point messages in chunks: (send to, its block, receive from, its block), NOBODY: none.

    Messages of one group run side by side. The n-th message of the next group starts when the n-th of this group is
    over. Chunk k's blocks start at k * `stride`. `copies`: number of times that each message is sent, one after the
    other.
    """
    shape = tuple(tuple((to != NOBODY, source != NOBODY) for to, _, source, _ in group) for group in peers)
    steps = message_steps(shape, chunks, window, stride, copies)
    pairs = np.array([pair for group in peers for pair in group], np.int64).reshape(-1, 4)[steps.peer]
    sends = steps.action == SEND
    peer, block = (np.where(sends, pairs[:, out], pairs[:, into]) for out, into in ((0, 2), (1, 3)))
    return replace(steps, peer=peer, block=block, block_base=steps.block_base.copy())


@cache
def message_steps(
    shape: tuple[tuple[tuple[bool, bool], ...], ...], chunks: int, window: int, stride: int, copies: int
) -> Steps:
    """`messages` by which pairs send and which receive: members that send and receive alike differ in peers and blocks.

    In place of a peer there is the number of its pair; blocks are 0.
    """
    rows: list[Row] = []
    bases: list[int] = []
    over: dict[int, list[int]] = {}
    first = 0  # pair of the group
    for group in shape:
        lanes: dict[tuple[int, int], list[int]] = {}
        for chunk in [*range(chunks)] * copies:
            for number, ends in enumerate(group):
                for action, has_end in zip((SEND, RECV), ends, strict=True):
                    if not has_end:
                        continue
                    lane = lanes.setdefault((number, action), [])
                    full = action == RECV and len(lane) >= window
                    rows.append((action, first + number, 0, [lane[-window]] if full else over.get(number, [])))
                    bases.append(chunk * stride)
                    lane.append(len(rows) - 1)
        first += len(group)
        for number in range(len(group)):
            over[number] = [lanes[number, action][-1] for action in (SEND, RECV) if (number, action) in lanes]
    steps = replace(steps_of(rows), block_base=np.array(bases, np.int64))
    for shared in (steps.action, steps.peer, steps.block, steps.block_base, steps.deps):
        shared.setflags(write=False)
    return steps
