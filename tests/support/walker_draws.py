"""Workloads drawn for the walker: graphs of every kind of node that cannot deadlock."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from walker_driver import Node, workload_of

from genie.collectives import ALGORITHMS
from genie.plan.build import Slots
from genie.plan.lowering import Lowering
from genie.workload.graph import Kind, Op, Workload

COLLECTIVES = [op for op in Op if op is not Op.NONE]
STREAMS_MAX = 3
ORDERED, UNORDERED = 0, 1  # tags: messages of drawn sizes one after the other, or of one size, sent in any order


@dataclass(frozen=True)
class Drawn:
    workload: Workload
    slots: Slots
    lowering: Lowering


@dataclass
class _Ranks:
    """Nodes of every rank in an order that all ranks agree on: each one depends on earlier ones only.

    A collective holds its slot until other ranks have done their part, so it also waits for the nodes that need that
    slot first. With one order on all ranks there is no deadlock.
    """

    draw: np.random.Generator
    slots: Slots
    nodes: list[list[Node]]
    in_slot: dict[tuple[object, ...], set[int]] = field(default_factory=lambda: defaultdict(set))
    last: dict[tuple[object, ...], int] = field(default_factory=dict)  # (rank, kind, peer, tag) -> its last row

    def add(self, rank: int, kind: Kind, **values: object) -> None:
        draw, row = self.draw, len(self.nodes[rank])
        stream = int(draw.integers(-1, STREAMS_MAX))
        deps = set(draw.integers(0, row, draw.integers(0, 3)).tolist()) if row else set()
        slot = (rank, stream if self.slots == "streams" else -1)
        if kind == Kind.COLL:
            deps |= self.in_slot.pop(slot, set())
        if kind not in (Kind.RECV, Kind.META):
            self.in_slot[slot].add(row)
        if kind == Kind.RECV or (kind == Kind.SEND and values["tag"] == ORDERED):
            chain = (rank, kind, values["peer"], values["tag"])
            deps |= {self.last[chain]} if chain in self.last else set()
            self.last[chain] = row
        self.nodes[rank].append(Node(kind, tuple(sorted(deps)), stream=stream, **values))  # type: ignore[arg-type]


def draw_workload(seed: int, slots: Slots, ranks: int, events: int) -> Workload:
    """Collectives of drawn groups, messages, sleeps and metadata, in a drawn order."""
    draw = np.random.default_rng(seed)
    groups = [tuple(range(ranks))]
    for _ in range(int(draw.integers(0, 3))):
        groups.append(tuple(sorted(draw.choice(ranks, int(draw.integers(1, ranks + 1)), replace=False).tolist())))
    made = _Ranks(draw, slots, [[] for _ in range(ranks)])
    splits: list[tuple[int, int, tuple[list[int], list[int]]]] = []
    for _ in range(events):
        what = draw.random()
        if what < 0.4:
            _collective(made, groups, splits)
        elif what < 0.65 and ranks > 1:
            source, target = draw.choice(ranks, 2, replace=False).tolist()
            tag = int(draw.choice([ORDERED, UNORDERED]))
            size = _size(draw) if tag == ORDERED else 100 * source + target
            made.add(source, Kind.SEND, peer=target, size_bytes=size, tag=tag)
            made.add(target, Kind.RECV, peer=source, size_bytes=size, tag=tag)
        else:
            kind = [Kind.COMP, Kind.MEM, Kind.META][int(draw.integers(0, 3))]
            duration = 0 if kind == Kind.META else int(draw.choice([0, 1, 7, 50]))
            made.add(int(draw.integers(0, ranks)), kind, duration_ns=duration, on_cpu=bool(draw.random() < 0.3))
    workload = workload_of(made.nodes, groups)
    for rank, row, (to_each, from_each) in splits:
        workload.ranks[rank].splits[row] = (np.array(to_each), np.array(from_each))
    return workload


def _size(draw: np.random.Generator) -> int:
    return int(draw.choice([0, 1, 3, 4, 64, int(draw.integers(0, 200)), int(draw.integers(0, 1 << 20))]))


def _collective(
    made: _Ranks, groups: list[tuple[int, ...]], splits: list[tuple[int, int, tuple[list[int], list[int]]]]
) -> None:
    draw = made.draw
    group = int(draw.integers(0, len(groups)))
    members = groups[group]
    op = COLLECTIVES[int(draw.integers(0, len(COLLECTIVES)))]
    size = -1 if op is Op.BARRIER else _size(draw)
    uneven = draw.integers(0, 40, (len(members), len(members))) if op is Op.ALL_TO_ALL and draw.random() < 0.5 else None
    for position, rank in enumerate(members):
        if uneven is not None:
            splits.append((rank, len(made.nodes[rank]), (uneven[position].tolist(), uneven[:, position].tolist())))
        made.add(rank, Kind.COLL, op=op, group=group, size_bytes=size)


@st.composite
def drawn_workloads(draw: st.DrawFn, ranks_max: int = 6, events_max: int = 24) -> Drawn:
    slots: Slots = draw(st.sampled_from(["astra", "streams"]))
    ranks, events = draw(st.integers(1, ranks_max)), draw(st.integers(1, events_max))
    workload = draw_workload(draw(st.integers(0, 2**32)), slots, ranks, events)
    algorithms = {op: draw(st.sampled_from(known)) for op, known in ALGORITHMS.items() if draw(st.booleans())}
    return Drawn(workload, slots, Lowering(draw(st.integers(1, 3)), draw(st.booleans()), algorithms))
