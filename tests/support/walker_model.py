"""The walker as its documentation says it, in plain Python: what the native one is held against.

Nothing is kept up to date here: what may start, and when it was ready, is looked up afresh from the definitions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from genie.collectives import block_sizes, choose, lower
from genie.plan.lowering import Lowering
from genie.workload.graph import Kind, Op, RankGraph, Workload

CREDIT = 1 << 31
SLEEPS = (Kind.META, Kind.COMP, Kind.MEM)


@dataclass
class Step:
    """One step of a collective that has started."""

    node: int
    number: int
    sends: bool
    peer: int
    tag: int
    size_bytes: int
    credit: bool
    waits_for: set[int]
    message: bool  # a block of no bytes is not a message, but in a barrier
    ready: bool = False
    arrived: bool = False


@dataclass
class Record:
    ready: int = -1
    start: int = -1
    end: int = -1
    overshoot: int = 0


@dataclass
class Waiter:
    """A receive that has been asked for: a node, or a step of a collective."""

    node: int
    step: Step | None
    size_bytes: int


@dataclass
class ModelWalker:
    """`operations` fills with ("timer", node, at) and ("send", node, step, peer, tag, size_bytes)."""

    workload: Workload
    graph: RankGraph
    slot: list[int]
    tag: list[int]  # of every node, channel 0
    lowering: Lowering
    release: list[int]
    record: list[Record] = field(default_factory=list)
    steps: dict[int, list[Step]] = field(default_factory=dict)
    finished: list[Step] = field(default_factory=list)
    waiters: dict[tuple[int, int], list[Waiter]] = field(default_factory=lambda: defaultdict(list))
    early: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    credits: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    uncleared: dict[tuple[int, int], list[Step]] = field(default_factory=lambda: defaultdict(list))
    slot_end: dict[int, int] = field(default_factory=dict)  # slot -> when its last node ended
    released: set[int] = field(default_factory=set)
    operations: list[Any] = field(default_factory=list)
    begun: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self.record = [Record() for _ in range(len(self.graph))]

    # Calls of the driver

    def begin(self, now: int) -> None:
        self.begun = self.now = now
        self._run()

    def timer(self, node: int, now: int, due: int) -> None:
        self.now = now
        if self.record[node].start >= 0:
            self.record[node].overshoot = now - due
            self._end(node, due)
        self._run()

    def sent(self, node: int, step: int | None, now: int) -> None:
        self.now = now
        if step is None:
            self._end(node, now)
        else:
            self.finished.append(self.steps[node][step])
        self._run()

    def arrived(self, peer: int, tag: int, size_bytes: int, now: int) -> None:
        self.now = now
        if tag & CREDIT:
            self.credits[peer, tag & ~CREDIT] += 1
            self._clear((peer, tag & ~CREDIT))
        else:
            self.early[peer, tag].append(size_bytes)
            self._match((peer, tag))
        self._run()

    @property
    def done(self) -> bool:
        return all(record.end >= 0 for record in self.record)

    # Nodes

    def _deps(self, node: int) -> list[int]:
        return self.graph.deps[self.graph.dep_start[node] : self.graph.dep_start[node + 1]].tolist()

    def _become_ready(self) -> None:
        for node, record in enumerate(self.record):
            if record.ready >= 0 or any(self.record[dep].end < 0 for dep in self._deps(node)):
                continue
            if self.release[node] > self.now:
                if node not in self.released:
                    self.released.add(node)
                    self.operations.append(("timer", node, self.release[node]))
                continue
            record.ready = max([self.begun, self.release[node], *(self.record[dep].end for dep in self._deps(node))])

    def _run(self) -> None:
        while True:
            self._become_ready()
            if self.finished:
                self._finish(self.finished.pop(0))
                continue
            held = {self.slot[node] for node, it in enumerate(self.record) if it.start >= 0 > it.end}
            may = [
                node
                for node, it in enumerate(self.record)
                if it.ready >= 0 > it.start and (self.slot[node] < 0 or self.slot[node] not in held)
            ]
            if not may:
                return
            self._start(min(may))

    def _start(self, node: int) -> None:
        kind, record = Kind(self.graph.kind[node]), self.record[node]
        if kind in SLEEPS:
            record.start = max(record.ready, self.slot_end.get(self.slot[node], 0))
            duration = 0 if kind == Kind.META else int(self.graph.duration_ns[node])
            if duration:
                self.operations.append(("timer", node, record.start + duration))
            else:
                self._end(node, record.start)
            return
        record.start = self.now
        peer, size = int(self.graph.peer[node]), int(self.graph.size_bytes[node])
        if kind == Kind.SEND:
            self.operations.append(("send", node, None, peer, self.tag[node], size))
        elif kind == Kind.RECV:
            self.waiters[peer, self.tag[node]].append(Waiter(node, None, size))
            self._match((peer, self.tag[node]))
        else:
            self._start_collective(node)

    def _end(self, node: int, when: int) -> None:
        self.record[node].end = when
        if self.slot[node] >= 0:
            self.slot_end[self.slot[node]] = when

    # Collectives

    def _expand(self, node: int) -> list[Step]:
        members = self.workload.groups[self.graph.group[node]].ranks
        op, position, root = Op(self.graph.op[node]).name.lower(), members.index(self.graph.rank), self.graph.root[node]
        size, splits = max(int(self.graph.size_bytes[node]), 0), self.graph.splits.get(node)
        algorithm = choose(op, len(members), size, self.lowering.algorithms.get(op))
        where = (op, algorithm, len(members), position)
        it = lower(*where, self.lowering.channels, int(root), self.lowering.credit)
        table = block_sizes(*where, size, self.lowering.channels, int(root), splits)
        steps = []
        for number in range(len(it)):
            peer, block = int(it.peer[number]), int(it.block[number])
            if it.relative:
                peer, block = (position + peer) % len(members), (position + block) % len(members)
            size_bytes = int(table[it.block_base[number] + block])
            steps.append(
                Step(
                    node=node,
                    number=number,
                    sends=it.action[number] == 0,
                    peer=members[peer],
                    tag=self.tag[node] + int(it.channel[number]),
                    size_bytes=size_bytes,
                    credit=bool(it.credit[number]),
                    waits_for=set(it.deps[it.dep_start[number] : it.dep_start[number + 1]].tolist()),
                    message=size_bytes > 0 or it.empty_messages,
                )
            )
        return steps

    def _start_collective(self, node: int) -> None:
        steps = self.steps[node] = self._expand(node)
        if not steps:
            self._end(node, self.now)
        for step in steps:
            if not step.waits_for:
                self._step_ready(step)
        lanes = {}
        for step in steps:
            if step.message and not step.sends:
                lanes[step.peer, step.tag] = None
                self.waiters[step.peer, step.tag].append(Waiter(node, step, step.size_bytes))
        for lane in lanes:
            self._match(lane)

    def _step_ready(self, step: Step) -> None:
        step.ready = True
        if not step.message:
            self.finished.append(step)
        elif step.sends and step.credit:
            self.uncleared[step.peer, step.tag].append(step)
            self._clear((step.peer, step.tag))
        elif step.sends:
            self._post(step)
        else:
            if step.credit:
                self.operations.append(("send", None, None, step.peer, step.tag | CREDIT, 64))
            if step.arrived:
                self.finished.append(step)

    def _clear(self, lane: tuple[int, int]) -> None:
        while self.credits[lane] and self.uncleared[lane]:
            self.credits[lane] -= 1
            self._post(self.uncleared[lane].pop(0))

    def _post(self, step: Step) -> None:
        self.operations.append(("send", step.node, step.number, step.peer, step.tag, step.size_bytes))

    def _match(self, lane: tuple[int, int]) -> None:
        while self.early[lane] and self.waiters[lane]:
            size_bytes, waiter = self.early[lane].pop(0), self.waiters[lane].pop(0)
            assert size_bytes == waiter.size_bytes
            if waiter.step is None:
                self._end(waiter.node, self.now)
                continue
            waiter.step.arrived = True
            if waiter.step.ready:
                self.finished.append(waiter.step)

    def _finish(self, step: Step) -> None:
        steps = self.steps[step.node]
        step.waits_for = {-1}  # over
        for later in steps:
            if step.number in later.waits_for:
                later.waits_for.discard(step.number)
                if not later.waits_for:
                    self._step_ready(later)
        if all(it.waits_for == {-1} for it in steps):
            self._end(step.node, self.now)


def astra_slots(graph: RankGraph) -> list[int]:
    """One for the host's compute, one for compute, one for communication; receives and metadata: none (-1)."""
    slots = []
    for kind, on_cpu in zip(graph.kind, graph.on_cpu, strict=True):
        slots.append({Kind.META: -1, Kind.RECV: -1, Kind.COMP: 0 if on_cpu else 1}.get(Kind(kind), 2))
    return slots


def stream_slots(graph: RankGraph) -> list[int]:
    """One for each stream; as `astra_slots` for nodes without one."""
    slots = astra_slots(graph)
    return [
        3 + int(stream) if slot >= 0 and stream >= 0 else slot
        for slot, stream in zip(slots, np.asarray(graph.stream), strict=True)
    ]
