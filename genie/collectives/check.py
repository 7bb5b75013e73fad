"""Proof that a set of templates, one per member, does its operation under every timing.

The steps of all members form one graph of events. A step becomes ready when its dependencies are done. A send starts
once it is ready and its credit is there. A receive is done when it is ready, its message has been sent and the receives
before it on its lane are done. If the graph has no cycle, no deadlock is possible. If the graph orders every two
accesses to a block of which one writes, all timings move the same contents. Playing one timing then shows the result of
all. `player` tests this argument with random and adversarial timings.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.algorithms import EAGER
from genie.collectives.lower import block_sizes, lower
from genie.collectives.meaning import CheckError, Content, Lane, Meaning, Step, check_sizes, expand, sent_content
from genie.collectives.template import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from genie.collectives.template import Template


@dataclass(frozen=True)
class Traffic:
    """Traffic of a proven set of templates, per member."""

    bytes_sent: list[int]
    messages_sent: list[int]


def check(
    op: str,
    algorithm: str,
    members: int,
    size_bytes: int,
    channels: int = 1,
    root: int = 0,
    credit: bool = False,
    splits: NDArray[np.int64] | None = None,
    local: int = 1,
) -> Traffic:
    """Lower a collective for all members and prove it. `splits`: (members, members) bytes from i to j.

    Raises CheckError with the first problem.
    """
    templates, sizes = lower_all(op, algorithm, members, size_bytes, channels, root, credit, splits, local)
    meaning = meaning_of(op, templates, root)
    check_sizes(meaning, sizes, size_bytes, splits)
    traffic = prove(meaning, templates, sizes, eager=algorithm in EAGER)
    for position, table in enumerate(sizes):
        own = table[: meaning.channels * meaning.rows]
        share = own.reshape(meaning.channels, meaning.rows).sum(axis=0).tolist()
        wanted = bytes_sent(op, algorithm, members, position, size_bytes, share, root, local)
        if members > 1 and traffic.bytes_sent[position] != wanted:
            raise CheckError(f"member {position} sends {traffic.bytes_sent[position]} B; {algorithm} sends {wanted} B")
    return traffic


def lower_all(
    op: str,
    algorithm: str,
    members: int,
    size_bytes: int,
    channels: int = 1,
    root: int = 0,
    credit: bool = False,
    splits: NDArray[np.int64] | None = None,
    local: int = 1,
) -> tuple[list[Template], list[NDArray[np.int64]]]:
    """Templates and size tables of all members. `splits`: (members, members) bytes from i to j."""
    templates = [lower(op, algorithm, members, at, channels, root, credit, local) for at in range(members)]
    sizes = []
    for at in range(members):
        own = None if splits is None else (splits[at], splits[:, at])
        sizes.append(block_sizes(op, algorithm, members, at, size_bytes, channels, root, own, local))
    return templates, sizes


def meaning_of(op: str, templates: Sequence[Template], root: int = 0) -> Meaning:
    """Meaning of the operation on the blocks of these templates."""
    parts = templates[0].parts
    return Meaning(op, len(templates), templates[0].own_blocks // parts, parts, root)


def bytes_sent(
    op: str,
    algorithm: str,
    members: int,
    position: int,
    size_bytes: int,
    share: Sequence[int],
    root: int = 0,
    local: int = 1,
) -> int:
    """Closed form of the bytes that a member sends. `share`: its blocks' bytes, summed over channels."""
    place = (position - root) % members
    match op, algorithm:
        case "all_reduce", "ring":  # (n - 1)/n of the buffer, twice
            return 2 * size_bytes - share[position] - share[(position + 1) % members]
        case "all_reduce", "hierarchical":  # inside all slices but one, twice; between its slice as in a ring
            nodes, (node, at) = members // local, divmod(position, local)
            slices = [sum(share[it * nodes : (it + 1) * nodes]) for it in range(local)]
            between = 2 * slices[at] - share[at * nodes + node] - share[at * nodes + (node + 1) % nodes]
            return 2 * size_bytes - slices[at] - slices[(at + 1) % local] + between
        case "all_reduce", "recursive_doubling":
            core = 1 << (members.bit_length() - 1)
            folded = position < 2 * (members - core)
            return size_bytes * (1 if folded and position % 2 == 0 else core.bit_length() - 1 + folded)
        case "reduce_scatter", _:
            return size_bytes - share[position]
        case "all_gather", _:
            return size_bytes * (members - 1)
        case "all_to_all", _:
            return sum(share[:members]) - share[position]
        case "broadcast", "binomial":
            reach = place & -place if place else members
            return size_bytes * sum(1 for bit in range(members.bit_length()) if 1 << bit < min(reach, members - place))
        case "broadcast", "ring":
            return size_bytes * (place != members - 1)
        case ("reduce", _) | ("gather", _):
            return size_bytes * (place != 0)
        case "scatter", _:
            return size_bytes - share[root] if place == 0 else 0
        case "barrier", _:
            return 0
    raise CheckError(f"{op} {algorithm}: no closed form of its traffic")


def prove(
    meaning: Meaning, templates: Sequence[Template], sizes: Sequence[NDArray[np.int64]], eager: bool = False
) -> Traffic:
    """Traffic of the templates. Raises CheckError unless they do `meaning` under every timing.

    `eager`: a send copies its block when it starts. Otherwise no step may write to the block before the send is
    acknowledged or received.
    """
    events = prove_steps(meaning, expand(templates, sizes), sizes, eager)
    if meaning.op == "barrier":
        _check_starts(events, meaning.op)
    sent = [[step for step in steps if step.sends and step.message] for steps in events.members]
    return Traffic([sum(step.size_bytes for step in steps) for steps in sent], [len(steps) for steps in sent])


def prove_steps(
    meaning: Meaning | None,
    members: list[list[Step]],
    sizes: Sequence[NDArray[np.int64]],
    eager: bool,
    in_order: bool = True,
) -> _Events:
    """`prove` for the steps of all members, some of which may be inside a member (`Step.source`).

    Without a meaning, it proves that no step deadlocks, overtakes another or races. `in_order`: steps that become ready
    together start in step order. Raises CheckError.
    """
    events = _ordered_events(members, eager, in_order)
    _check_races(events)
    if meaning is not None:
        _replay(meaning, events, sizes)
    return events


def prove_order(op: str, templates: Sequence[Template], sizes: Sequence[NDArray[np.int64]], root: int = 0) -> None:
    """Prove the order of templates whose data moves between some members only (NCCL's nodes of several members).

    No step deadlocks, and no message overtakes another of its lane. No member finishes before all members whose data it
    ends with have started. Raises CheckError.
    """
    _check_starts(_ordered_events(expand(templates, sizes), eager=False), op, root)


def _ordered_events(members: list[list[Step]], eager: bool, in_order: bool = True) -> _Events:
    events = _Events(members, eager, in_order)
    events.sort()
    for lane, (sends, receives) in events.lanes.items():
        for steps in (sends, receives):
            events.check_lane_order(lane, steps)
    return events


class _Events:
    """The graph of events. Each step has `ready`, `started` (a send's start, a receive's readiness) and `done`.

    `before[event]` is the set, as bits, of what has happened before the event (or with it) under every timing. The bits
    are steps that are done, then members that have started, then, if eager, sends that have started. Events of step i
    are 3 i, 3 i + 1, 3 i + 2.
    """

    def __init__(self, members: list[list[Step]], eager: bool, in_order: bool) -> None:
        self.members = members
        self.eager = eager
        self.in_order = in_order
        self.steps = [step for steps in members for step in steps]
        self.first = np.concatenate(([0], np.cumsum([len(steps) for steps in members]))).tolist()
        self.lanes = _match(members)
        self.partner: dict[int, int] = {}  # send <-> receive, by step index
        self.before = [0] * (3 * len(self.steps))
        self.order: list[int] = []

    def index(self, step: Step) -> int:
        return int(self.first[step.position]) + step.number

    def deps(self, index: int) -> Iterable[int]:
        step = self.steps[index]
        return (self.first[step.position] + dep for dep in step.deps)

    def _edges(self) -> list[list[int]]:
        """Predecessors of every event."""
        edges: list[list[int]] = []
        for index, step in enumerate(self.steps):
            before = [3 * (self.first[step.position] + send) + 1 for send in step.after_sends]
            edges += [[3 * dep + 2 for dep in self.deps(index)], [3 * index, *before], [3 * index + 1]]
        for sends, receives in self.lanes.values():
            previous = -1
            for send, receive in zip(map(self.index, sends), map(self.index, receives), strict=True):
                self.partner[send], self.partner[receive] = receive, send
                edges[3 * receive + 2].append(3 * send + 1)
                if previous >= 0:
                    edges[3 * receive + 2].append(3 * previous + 2)
                if self.steps[send].credit:
                    edges[3 * send + 1].append(3 * receive)
                previous = receive
        if self.eager and self.in_order:
            self._add_eager_edges(edges)
        return edges

    def _add_eager_edges(self, edges: list[list[int]]) -> None:
        """Add the order of steps that become ready together: a member starts them in step order, a send before a later
        write.
        """
        by_block: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            for block in step.blocks:
                if step.sends:
                    by_block[step.position, block].append(index)
                    continue
                for send in by_block[step.position, block]:
                    if set(self.steps[send].deps) <= set(step.deps) and not self.steps[send].credit:
                        edges[3 * index + 2].append(3 * send + 1)

    def sort(self) -> None:
        """Fill `order` and `before`. Raises CheckError if an event waits for itself."""
        edges = self._edges()
        waits = [len(found) for found in edges]
        after: list[list[int]] = [[] for _ in edges]
        for event, found in enumerate(edges):
            for earlier in found:
                after[earlier].append(event)
        self.order = [event for event, left in enumerate(waits) if left == 0]
        for event in self.order:
            index, phase = divmod(event, 3)
            known = 0 if edges[event] else 1 << (len(self.steps) + self.steps[index].position)
            for earlier in edges[event]:
                known |= self.before[earlier]
            if phase == 2:
                known |= 1 << index
            elif phase == 1 and self.eager and self.steps[index].sends:
                known |= 1 << (len(self.steps) + len(self.members) + index)
            self.before[event] = known
            for later in after[event]:
                waits[later] -= 1
                if waits[later] == 0:
                    self.order.append(later)
        if len(self.order) < len(edges):
            stuck = next(event for event, left in enumerate(waits) if left)
            raise CheckError(f"deadlock: {self.steps[stuck // 3]} waits for itself")

    def done_before(self, index: int, event: int) -> bool:
        """Whether step `index` is done before the event."""
        return bool(self.before[event] >> index & 1)

    def read_before(self, send: int, event: int) -> bool:
        """Whether send `send` no longer needs its block at the event."""
        if self.eager:
            return self.done_before(len(self.steps) + len(self.members) + send, event)
        return self.done_before(send, event) or self.done_before(self.partner[send], event)

    def check_lane_order(self, lane: Lane, steps: list[Step]) -> None:
        """Raise CheckError unless the steps of a lane become ready in step order: then the k-th send meets the k-th
        receive.
        """
        for earlier, later in pairwise(steps):
            ready = 3 * self.index(later)
            if not all(self.done_before(dep, ready) for dep in self.deps(self.index(earlier))):
                raise CheckError(f"lane {lane}: {later} may become ready before {earlier}")


def _match(members: list[list[Step]]) -> dict[Lane, tuple[list[Step], list[Step]]]:
    """Sends and receives of every lane, in step order. Raises CheckError if they do not match."""
    lanes: dict[Lane, tuple[list[Step], list[Step]]] = defaultdict(lambda: ([], []))
    for step in (step for steps in members for step in steps if step.message):
        lanes[step.lane][0 if step.sends else 1].append(step)
    for lane, (sends, receives) in lanes.items():
        if len(sends) != len(receives):
            raise CheckError(f"lane {lane}: {len(sends)} sends and {len(receives)} receives")
        for send, receive in zip(sends, receives, strict=True):
            if send.size_bytes != receive.size_bytes:
                raise CheckError(f"{send} has {send.size_bytes} B, its {receive} expects {receive.size_bytes} B")
            if send.credit != receive.credit or send.credit != sends[0].credit:
                raise CheckError(f"{send} and {receive}: a lane carries credits on both ends of all steps, or on none")
    return lanes


def _check_races(events: _Events) -> None:
    """Raise CheckError unless accesses to a block, one of which writes, are ordered; two reductions commute."""
    accesses: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for index, step in enumerate(events.steps):
        if step.source >= 0:
            accesses[step.position, step.source].append((index, Action.SEND))
        if (step.message or step.source >= 0) and step.size_bytes:
            for block in step.blocks:
                accesses[step.position, block].append((index, step.action))
    for found in accesses.values():
        for at, (one, action) in enumerate(found):
            for other, later_action in found[at + 1 :]:
                commute = action == later_action and action != Action.RECV
                if not (commute or _ordered(events, one, other) or _ordered(events, other, one)):
                    raise CheckError(f"race: {events.steps[one]} and {events.steps[other]} in either order")


def _ordered(events: _Events, one: int, other: int) -> bool:
    """Whether step `one` no longer needs the block when `other` accesses it."""
    touches = 3 * other + (1 if events.steps[other].sends else 2)
    return events.read_before(one, touches) if events.steps[one].sends else events.done_before(one, touches)


def _check_starts(events: _Events, op: str, root: int = 0) -> None:
    """Check that no member finishes before all members have started whose data it ends with (in a barrier: all
    members).
    """
    everyone = range(len(events.members))
    for position, steps in enumerate(events.members):
        if op in ("broadcast", "scatter"):
            needed: Iterable[int] = (root,)
        else:
            needed = everyone if op not in ("reduce", "gather") or position == root else ()
        known = 0
        for step in steps:
            known |= events.before[3 * events.index(step) + 2]
        for other in needed:
            if other != position and not known >> (len(events.steps) + other) & 1:
                raise CheckError(f"{op}: member {position} is through although member {other} may not have started")


def _replay(meaning: Meaning, events: _Events, sizes: Sequence[NDArray[np.int64]]) -> None:
    """Play the steps in the order found and compare the members' final blocks with the meaning."""
    blocks = [meaning.before(position) for position in range(meaning.members)]
    flying: dict[int, list[Content]] = {}
    for event in events.order:
        index, phase = divmod(event, 3)
        step = events.steps[index]
        mine = blocks[step.position]
        if step.source >= 0 and phase == 2:
            inside = mine[step.source]
            if inside is None:
                raise CheckError(f"{step}: takes block {step.source}, which has nothing yet")
            mine[step.block] = meaning.receive(step, mine[step.block], inside)
        if not step.message:
            continue
        if step.sends and phase == 1:
            flying[index] = sent_content(step, mine)
        elif not step.sends and phase == 2:
            for block, content in zip(step.blocks, flying.pop(events.partner[index]), strict=True):
                mine[block] = meaning.receive(step, mine[block], content)
    for position, table in enumerate(sizes):
        meaning.compare(position, blocks[position], table)
