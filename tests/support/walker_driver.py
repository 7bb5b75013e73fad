"""Makes small plans and drives their walkers from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import genie_core

from genie.plan.build import Slots, build_plan
from genie.plan.lowering import Lowering
from genie.plan.tags import collective_tag
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload

PS = 1000  # picoseconds in a nanosecond
CREDIT = 1 << 31


@dataclass(frozen=True)
class Node:
    """One node of a rank; its id is its place in the rank's list."""

    kind: Kind
    deps: tuple[int, ...] = ()
    duration_ns: int = 0
    size_bytes: int = -1
    peer: int = -1
    tag: int = 0
    op: Op = Op.NONE
    group: int = -1
    stream: int = -1
    on_cpu: bool = False


def comp(duration_ns: int, *deps: int, stream: int = -1, on_cpu: bool = False) -> Node:
    return Node(Kind.COMP, deps, duration_ns=duration_ns, stream=stream, on_cpu=on_cpu)


def mem(duration_ns: int, *deps: int, stream: int = -1) -> Node:
    return Node(Kind.MEM, deps, duration_ns=duration_ns, stream=stream)


def meta(*deps: int) -> Node:
    return Node(Kind.META, deps)


def send(peer: int, size_bytes: int, *deps: int, tag: int = 0, stream: int = -1) -> Node:
    return Node(Kind.SEND, deps, size_bytes=size_bytes, peer=peer, tag=tag, stream=stream)


def recv(peer: int, size_bytes: int, *deps: int, tag: int = 0) -> Node:
    return Node(Kind.RECV, deps, size_bytes=size_bytes, peer=peer, tag=tag)


def coll(op: Op, size_bytes: int, *deps: int, group: int = 0, stream: int = -1) -> Node:
    return Node(Kind.COLL, deps, size_bytes=size_bytes, op=op, group=group, stream=stream)


def workload_of(ranks: Sequence[Sequence[Node]], groups: Sequence[Sequence[int]] = ()) -> Workload:
    """Rank r has the nodes `ranks[r]`; without `groups` there is one of all ranks."""
    members = groups or [range(len(ranks))]
    named = [Group(str(number), tuple(group)) for number, group in enumerate(members)]
    workload = Workload("test", len(ranks), named, {})
    for rank, nodes in enumerate(ranks):
        builder = RankBuilder(rank)
        for number, node in enumerate(nodes):
            values = dict(vars(node))
            builder.add(number, f"node {number}", values.pop("kind"), values.pop("deps"), **values)
        workload.ranks[rank], dangling = builder.finish()
        assert dangling == 0
    return workload


class Driver:
    """One rank's walker with its clock. `posted`: (peer, tag, size_bytes) in order, with their handles."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        ranks: int = 4,
        slots: Slots = "astra",
        lowering: Lowering | None = None,
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        """Rank 0 has `nodes`; the others have none, the caller plays them."""
        others: list[list[Node]] = [[] for _ in range(ranks - 1)]
        self.workload = workload_of([list(nodes), *others], groups)
        self.plan = build_plan(self.workload, slots=slots, lowering=lowering)
        self.walker = genie_core.Walker(self.plan.native, 0)
        self.timers: dict[int, int] = {}  # node -> when, in ns
        self.posted: list[tuple[int, int, int]] = []
        self.handles: list[int] = []
        self._take(self.walker.begin(0))

    def _take(self, operations: list[Any]) -> None:
        for operation in operations:
            if operation[0] == "timer":
                self.timers[operation[1] >> 32] = operation[2] // PS
            else:
                self.posted.append(operation[2:])
                self.handles.append(operation[1])

    def new(self) -> list[tuple[int, int, int]]:
        """Return the operations posted since the last call."""
        out, self.posted = self.posted, []
        return out

    def wake(self, node: int, now_ns: int | None = None) -> None:
        """The node's timer is handled, at the time it is due unless `now_ns` says later."""
        due = self.timers.pop(node)
        now = due if now_ns is None else now_ns
        self._take(self.walker.advance(now * PS, [("timer", node << 32 | 0xFFFFFFFF, due * PS)]))

    def sent(self, which: int, now_ns: int, retransmits: int = 0) -> None:
        """The `which`-th message posted has been acknowledged."""
        self._take(self.walker.advance(now_ns * PS, [("sent", self.handles[which], now_ns * PS, retransmits)]))

    def arrive(self, peer: int, tag: int, size_bytes: int, now_ns: int, first_ns: int | None = None) -> None:
        first = now_ns if first_ns is None else first_ns
        self._take(self.walker.advance(now_ns * PS, [("arrived", peer, tag, size_bytes, first * PS, now_ns * PS)]))

    def times(self, what: str) -> list[int]:
        """Return one time of every node, in ns: its `what`, one of ready, start, end and overshoot; -1: not yet."""
        return [value // PS if value >= 0 else -1 for value in self.walker.records()["nodes"][f"{what}_ps"].tolist()]


def tag_of(seq: int = 0, channel: int = 0, colour: int = 0) -> int:
    """Tag of a collective's channel."""
    return collective_tag(colour, seq) + channel
