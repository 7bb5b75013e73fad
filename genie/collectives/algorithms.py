"""Collective algorithms, each as the steps of one member on one channel.

A function here takes the group's size and returns `Steps`. Where members differ, it also takes the member's position
and the root. `lower` repeats the steps over channels. Members are identified by position, not by rank. A symmetric
algorithm gives peers and blocks relative to the position, in [0, members); the others give them directly.

Dependencies are exactly those of the algorithm's data flow. A send never waits for the acknowledgement of an earlier
send, except in the pairwise exchange, which is defined by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from genie.collectives.template import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SEND, RECV, REDUCE = int(Action.SEND), int(Action.RECV), int(Action.REDUCE)

# Receives for which a member has sent credits ahead of the data, where a chain of steps allows more. NCCL keeps 8
# steps, about 4 slices, in flight on a channel.
CREDIT_WINDOW = 4

# Parts of a buffer in a chain: with 4 per member, filling and draining the pipeline takes a quarter of the transfer's
# time. The limit keeps templates of large groups small.
CHAIN_PARTS_PER_MEMBER = 4
CHAIN_PARTS_MAX = 256

# Algorithms in which a send copies its block when it starts, as an eager protocol does. The block may change before the
# send is acknowledged. Eager messages need no credit, so these steps never carry one.
EAGER = frozenset({"recursive_doubling"})


Row: TypeAlias = "tuple[int, int, int, Sequence[int]]"  # (action, peer, block, deps) of one step
Run: TypeAlias = "tuple[int, int, int]"  # blocks of one message: (base, stride, count)


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Times of GPUs for the steps of one member, as in `Timing`."""

    delay_ps: NDArray[np.int64]  # (steps,)
    delay_ps_per_kib: NDArray[np.int64]  # (steps,)
    work_ps_per_kib: NDArray[np.int64]  # (steps,)


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of one member on one channel; columns as in `Template`."""

    action: NDArray[np.int64]  # (steps,)
    peer: NDArray[np.int64]  # (steps,)
    block: NDArray[np.int64]  # (steps,)
    block_base: NDArray[np.int64]  # (steps,)
    deps: NDArray[np.int64]  # (steps, width) padded with -1
    times: StepTimes | None = None  # of GPUs; None: they take none
    # Blocks that travel together. The bases of run k are the channel's own blocks, and k times the members after them.
    runs: tuple[Run, ...] = ()


def steps_of(rows: Sequence[Row]) -> Steps:
    width = max((len(deps) for *_, deps in rows), default=0)
    columns = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3)
    deps = np.full((len(rows), width), -1, np.int64)
    for step, row in enumerate(rows):
        deps[step, : len(row[3])] = row[3]
    return Steps(columns[:, 0], columns[:, 1], columns[:, 2], np.zeros(len(rows), np.int64), deps)


def _exchange(
    receive: NDArray[np.int64] | int,
    peers: tuple[NDArray[np.int64] | int, NDArray[np.int64] | int],
    blocks: tuple[NDArray[np.int64], NDArray[np.int64]],
    bases: tuple[int, int] = (0, 0),
    width: int = 2,
) -> Steps:
    """Rounds of one send (step 2k) and one receive (step 2k + 1), without dependencies; pairs are (send, receive)."""
    rounds = len(blocks[0])
    columns = []
    for pair in ((SEND, receive), peers, blocks, bases):
        column = np.empty(2 * rounds, np.int64)
        column[0::2], column[1::2] = pair
        columns.append(column)
    return Steps(columns[0], columns[1], columns[2], columns[3], np.full((2 * rounds, width), -1, np.int64))


def _ring(members: int, receive: NDArray[np.int64] | int, sent: NDArray[np.int64], credit: bool) -> Steps:
    """Rounds around the ring: each received block is the next one sent. `sent`: (rounds,) relative blocks."""
    steps = _exchange(receive, (1, members - 1), (sent % members, (sent - 1) % members), width=CREDIT_WINDOW)
    rounds = np.arange(len(sent))
    steps.deps[2::2, 0] = 2 * rounds[1:] - 1
    if credit:
        for column, back in enumerate(_window()):
            steps.deps[2 * back + 1 :: 2, column] = 2 * rounds[:-back] + 1
    return steps


def _window() -> range:
    """Distances, in receives, to those that must be done before a receive's credit is sent.

    The receive one window back would be enough if every block had bytes. A receive of an empty block is done as soon as
    it is ready, regardless of earlier receives. Waiting for the whole window keeps the credits in step order even then.
    """
    return range(CREDIT_WINDOW, 2 * CREDIT_WINDOW)


def ring_reduce_scatter(members: int, credit: bool) -> Steps:
    """Block p - 1 starts at p and collects a contribution at each hop; block p ends at p."""
    return _ring(members, REDUCE, -1 - np.arange(members - 1), credit)


def ring_all_gather(members: int, credit: bool) -> Steps:
    """Each member's block goes around the ring; every hop keeps a copy."""
    return _ring(members, RECV, -np.arange(members - 1), credit)


def ring_all_reduce(members: int, credit: bool) -> Steps:
    """Reduce-scatter, then all-gather, on one chain."""
    receive = np.repeat((REDUCE, RECV), members - 1)
    return _ring(members, receive, np.concatenate((-1 - np.arange(members - 1), -np.arange(members - 1))), credit)


def direct_reduce_scatter(members: int, credit: bool) -> Steps:
    """Each block goes directly to the member that keeps it, nearest first."""
    away = np.arange(1, members)
    return _exchange(REDUCE, (away, members - away), (away, 0 * away))


def direct_all_gather(members: int, credit: bool) -> Steps:
    """The own block goes directly to every other member, nearest first."""
    away = np.arange(1, members)
    return _exchange(RECV, (away, members - away), (0 * away, members - away))


def direct_all_to_all(members: int, credit: bool) -> Steps:
    """All messages at the same time, in rotated order so that no member is the first target of all.

    Blocks [0, members) go to each member, blocks [members, 2 members) come from each.
    """
    away = np.arange(1, members)
    return _exchange(RECV, (away, members - away), (away, members - away), (0, members))


def pairwise_all_to_all(members: int, credit: bool) -> Steps:
    """One exchange at a time: round k sends to p + k and receives from p - k once round k - 1 is over."""
    steps = direct_all_to_all(members, credit)
    before = np.repeat(2 * np.arange(members - 2), 2)
    steps.deps[2:, 0], steps.deps[2:, 1] = before, before + 1
    return steps


def dissemination_barrier(members: int, credit: bool) -> Steps:
    """Round k tells p + 2^k of all members known to p (Hensgen, Finkel and Manber 1988)."""
    rows: list[Row] = []
    heard: list[int] = []
    while (away := 1 << len(heard)) < members:
        rows.append((SEND, away, 0, tuple(heard)))
        rows.append((RECV, members - away, 0, ()))
        heard.append(len(rows) - 1)
    return steps_of(rows)


def doubling_all_reduce(members: int, position: int, root: int, credit: bool) -> Steps:
    """Recursive doubling on the whole buffer (Thakur, Rabenseifner and Gropp 2005, section 4.4).

    If the group's size is not a power of two, the even ones among the first 2r members first add their buffer to their
    neighbour's. They get the result back at the end.

    Eager: a round's contribution is reduced into the buffer that the round sends, without waiting for the send's
    acknowledgement. Send and receive of a round become ready together, and the send, the lower step, starts first.
    """
    core = 1 << (members.bit_length() - 1)
    rest = members - core
    if position < 2 * rest and position % 2 == 0:
        return steps_of([(SEND, position + 1, 0, ()), (RECV, position + 1, 0, ())])
    folded = position < 2 * rest
    rows: list[Row] = [(REDUCE, position - 1, 0, ())] if folded else []
    place = position // 2 if folded else position - rest
    for bit in range(core.bit_length() - 1):
        other = place ^ (1 << bit)
        peer = 2 * other + 1 if other < rest else other + rest
        reduced = (len(rows) - 1,) if rows else ()
        rows += [(SEND, peer, 0, reduced), (REDUCE, peer, 0, reduced)]
    if folded:
        rows.append((SEND, position - 1, 0, (len(rows) - 1,)))
    return steps_of(rows)


def _binomial(members: int, position: int, root: int) -> tuple[int, list[int]]:
    """Parent (-1: the root) and children, nearest first, in the binomial tree over positions from the root on."""
    place = (position - root) % members
    reach = place & -place if place else 1 << (members - 1).bit_length()
    parent = (place - reach + root) % members if place else -1
    away = [1 << bit for bit in range(reach.bit_length() - 1)]
    return parent, [(place + far + root) % members for far in away if place + far < members]


def binomial_broadcast(members: int, position: int, root: int, credit: bool) -> Steps:
    """Down the tree, to the child with the largest subtree first."""
    parent, children = _binomial(members, position, root)
    rows: list[Row] = [] if parent < 0 else [(RECV, parent, 0, ())]
    received = () if parent < 0 else (0,)
    return steps_of(rows + [(SEND, child, 0, received) for child in reversed(children)])


def binomial_reduce(members: int, position: int, root: int, credit: bool) -> Steps:
    """Up the tree, from the child with the smallest subtree first."""
    parent, children = _binomial(members, position, root)
    rows: list[Row] = [(REDUCE, child, 0, ()) for child in children]
    return steps_of(rows if parent < 0 else [*rows, (SEND, parent, 0, range(len(children)))])


def chain_parts(members: int) -> int:
    """Number of parts of the buffer that follow one another along a chain."""
    return min(CHAIN_PARTS_PER_MEMBER * members, CHAIN_PARTS_MAX)


def _chain(members: int, upstream: int, downstream: int, receive: int, credit: bool) -> Steps:
    """Receive each part from upstream and pass it on downstream; -1: the member is at this end of the chain."""
    both = upstream >= 0 and downstream >= 0
    stride = 2 if both else 1
    rows: list[Row] = []
    for part in range(chain_parts(members)):
        if upstream >= 0:
            cleared = [len(rows) - stride * back for back in _window() if back <= part] if credit else ()
            rows.append((receive, upstream, part, cleared))
        if downstream >= 0:
            rows.append((SEND, downstream, part, (len(rows) - 1,) if both else ()))
    return steps_of(rows)


def ring_broadcast(members: int, position: int, root: int, credit: bool) -> Steps:
    """Parts of the buffer follow one another around the ring, from the root to the member before it."""
    upstream = -1 if position == root else (position - 1) % members
    downstream = -1 if (position + 1) % members == root else (position + 1) % members
    return _chain(members, upstream, downstream, RECV, credit)


def ring_reduce(members: int, position: int, root: int, credit: bool) -> Steps:
    """Parts of the buffer collect contributions around the ring, from the member after the root to the root."""
    upstream = -1 if position == (root + 1) % members else (position - 1) % members
    downstream = -1 if position == root else (position + 1) % members
    return _chain(members, upstream, downstream, REDUCE, credit)


def direct_gather(members: int, position: int, root: int, credit: bool) -> Steps:
    """Each block goes directly to the root; block j is member j's."""
    if position != root:
        return steps_of([(SEND, root, position, ())])
    others = [(root + away) % members for away in range(1, members)]
    return steps_of([(RECV, other, other, ()) for other in others])


def direct_scatter(members: int, position: int, root: int, credit: bool) -> Steps:
    """Each block comes directly from the root; block j is for member j."""
    if position != root:
        return steps_of([(RECV, root, position, ())])
    others = [(root + away) % members for away in range(1, members)]
    return steps_of([(SEND, other, other, ()) for other in others])


def no_steps() -> Steps:
    """No steps, for the only member of a group."""
    return steps_of([])
