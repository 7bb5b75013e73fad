"""Templates from the steps of channels, with the words (one-byte messages) between members of one node.

The leader of a channel (`nccl_steps`) sends and receives all messages that cross its node's boundary. It starts when
all members of its node have started, and neither sends nor gives credits before. Messages that it forwards then never
overtake the node's own, and no sum leaves without a member's part. At the end it notifies the members. Words of one
byte do both; no other messages are sent inside a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from genie.collectives.algorithms import RECV, SEND, Row, Steps, StepTimes, steps_of
from genie.collectives.lower import column
from genie.collectives.nccl.tuning import NO_COSTS, Costs
from genie.collectives.template import Template, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WORD_BYTES = 1


@dataclass(frozen=True)
class Member:
    """A member's position in its group and in its node."""

    members: int
    position: int
    local: int = 1  # number of members of each node

    @property
    def nodes(self) -> int:
        """Number of nodes of the group."""
        return self.members // self.local

    @property
    def node(self) -> int:
        """Index of the member's node, in the group's order."""
        return self.position // self.local

    @property
    def place(self) -> int:
        """Position in the node."""
        return self.position % self.local


def with_words(
    algorithm: str,
    at: Member,
    pieces: Sequence[tuple[int, Steps]],
    channels: int,
    blocks: tuple[int, int],
    *,
    relative: bool,
    costs: Costs = NO_COSTS,
) -> Template:
    """The template of `pieces`, (channel, steps) that the member leads, with the words of its node.

    `blocks`: (number of blocks, number of parts) of the pieces. The blocks of words come after them. The last words
    take the time in which data comes to the node's other members.
    """
    if at.local == 1 or at.members == 1:
        return template_of(algorithm, at.members, pieces, [], blocks, relative=relative, costs=costs)
    # With a single node no message crosses: its first member receives and answers all words.
    leaders = range(min(channels, at.local) if at.nodes > 1 else 1)
    others = [place for place in range(at.local) if place != at.place]
    is_leader = at.place in leaders

    def peer(place: int) -> int:
        return (place - at.place) % at.members if relative else at.node * at.local + place

    begun: list[Row] = [(SEND, peer(leader), 0, ()) for leader in leaders if leader != at.place]
    heard = range(len(begun), len(begun) + len(others)) if is_leader else range(0)
    begun += [(RECV, peer(other), 0, ()) for other in others] if is_leader else []
    done: list[Row] = [(SEND, peer(other), 0, ()) for other in others] if is_leader else []
    ends = range(len(done))
    done += [(RECV, peer(leader), 0, ()) for leader in leaders if leader != at.place]
    words = [steps_of(begun), with_delay(steps_of(done), costs.finish_ps)]
    for steps in words:
        steps.block_base[:] = blocks[0]
    first, last = (0, -1), (len(pieces) + 1, -1)
    # (piece, step) after (piece, step); piece 0 has the words before, the last piece the words after.
    edges = []
    for number, (_, steps) in enumerate(pieces, 1):
        free = np.flatnonzero((steps.deps < 0).all(axis=1))
        edges += [((number, int(step)), (first[0], hears)) for step in free for hears in heard]
        edges += [((last[0], end), (number, over)) for end in ends for over in _last_of_each_peer(steps)]
    if not pieces:
        edges += [((last[0], end), (first[0], hears)) for end in ends for hears in heard]
    spoken = blocks[0] + (at.members if relative else 1), blocks[1]
    everything = [(0, words[0]), *pieces, (0, words[1])]
    return template_of(
        algorithm, at.members, everything, edges, spoken, relative=relative, before=1, after=1, costs=costs
    )


def with_delay(steps: Steps, delay_ps: int) -> Steps:
    """The steps with sends that leave so much later than they are ready."""
    if not delay_ps:
        return steps
    none = np.zeros(len(steps.action), np.int64)
    return replace(steps, times=StepTimes(np.where(steps.action == SEND, delay_ps, 0), none, none))


def _last_of_each_peer(steps: Steps) -> list[int]:
    """The last receive from each peer; for a member that only sends, the last send to each."""
    own = np.flatnonzero(steps.action != SEND)
    if not len(own):
        own = np.arange(len(steps.action))
    return sorted({int(steps.peer[step]): int(step) for step in own}.values())


# (step that waits, step that it waits for), as (piece, step); or arrays of as many steps of one piece each.
Edge: TypeAlias = "tuple[tuple[int, int | NDArray[np.int64]], tuple[int, int | NDArray[np.int64]]]"


def template_of(
    algorithm: str,
    members: int,
    pieces: Sequence[tuple[int, Steps]],
    edges: Sequence[Edge],
    blocks: tuple[int, int],
    *,
    relative: bool,
    before: int = 0,
    after: int = 0,
    costs: Costs = NO_COSTS,
) -> Template:
    """One template from (channel, steps) of several pieces, taking their steps in turn.

    `blocks`: (number of blocks, number of parts). The first `before` pieces and the last `after` are words. They come
    before and after all other pieces, without credits.
    """
    sizes = [len(steps.action) for _, steps in pieces]
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    piece = np.repeat(np.arange(len(pieces)), sizes)
    phase = np.where(piece < before, -1, np.where(piece >= len(pieces) - after, 1, 0))
    order = np.concatenate([np.arange(size) for size in sizes] or [np.zeros(0, np.int64)])
    turn = np.lexsort((piece, order, phase))
    place = np.empty(len(turn), np.int64)  # of each step in the template
    place[turn] = np.arange(len(turn))

    def gathered(name: str) -> NDArray[np.int64]:
        columns = [getattr(steps, name) for _, steps in pieces]
        return np.concatenate([*columns, np.zeros(0, np.int64)])[turn].astype(np.int64)

    def timed(name: str) -> NDArray[np.int64]:
        columns = [
            np.zeros(len(steps.action), np.int64) if steps.times is None else getattr(steps.times, name)
            for _, steps in pieces
        ]
        return column(np.concatenate([*columns, np.zeros(0, np.int64)])[turn], np.int64)

    has_times = costs.start_ps or any(steps.times is not None for _, steps in pieces)
    names = ("delay_ps", "delay_ps_per_kib", "work_ps_per_kib")
    timing = Timing(costs.start_ps, *map(timed, names)) if has_times else None
    waits, awaited = [], []
    for number, (_, steps) in enumerate(pieces):
        step, which = np.nonzero(steps.deps >= 0)
        waits.append(place[starts[number] + step])
        awaited.append(place[starts[number] + steps.deps[step, which]])
    for (one, step_of_one), (other, step_of_other) in edges:
        waits.append(np.atleast_1d(place[starts[one] + step_of_one]))
        awaited.append(np.atleast_1d(place[starts[other] + step_of_other]))
    waiting = np.concatenate([*waits, np.zeros(0, np.int64)]).astype(np.int64)
    needed = np.concatenate([*awaited, np.zeros(0, np.int64)]).astype(np.int64)
    sort = np.lexsort((needed, waiting))
    count = np.bincount(waiting, minlength=len(turn)) if len(turn) else np.zeros(0, np.int64)
    channel = np.repeat([number for number, _ in pieces] or [0], sizes or [0])[turn]
    return Template(
        algorithm=algorithm,
        members=members,
        channels=int(channel.max(initial=0)) + 1,
        relative=relative,
        blocks=blocks[0],
        parts=blocks[1],
        action=column(gathered("action"), np.uint8),
        peer=column(gathered("peer") % members, np.int32),
        block_base=column(gathered("block_base"), np.int32),
        block=column(gathered("block"), np.int32),
        channel=column(channel, np.uint8),
        credit=column((phase[turn] == 0).astype(np.int64), np.uint8),
        dep_start=column(np.concatenate(([0], np.cumsum(count))), np.int32),
        deps=column(needed[sort], np.int32),
        timing=timing,
    )
