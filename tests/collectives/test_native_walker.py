"""The native walker expands templates as the proof assumes: in step order on every lane, whatever the network does."""

from __future__ import annotations

import random
from collections import defaultdict, deque

import genie_core
import numpy as np
import pytest
from drawing import drawn
from draws import Drawn, collectives
from hypothesis import given
from hypothesis import strategies as st

from genie.collectives import Template
from genie.collectives.check import bytes_sent, lower_all
from genie.collectives.meaning import expand

TAG = 64
CREDIT = 1 << 31
COMP, COLL = 1, 5
DRAWS = drawn(600, 200)


def _plan(templates: list[Template], sizes: list[np.ndarray]) -> genie_core.Plan:
    """Every rank sleeps, then takes part in one collective of all ranks."""
    plan = genie_core.Plan()
    members = len(templates)
    numbers: dict[int, int] = {}
    for it in templates:
        if id(it) not in numbers:
            columns = (it.action, it.peer, it.block_base, it.block, it.channel, it.credit, it.dep_start, it.deps)
            numbers[id(it)] = plan.add_template(it.members, it.relative, it.empty_messages, *columns)
    starts = np.concatenate(([0], np.cumsum([len(table) for table in sizes])))
    plan.set_pools(np.concatenate(sizes), np.array([0, members]), np.arange(members, dtype=np.int32))
    table = plan.add_table(
        kind=np.array([COMP, COLL], np.uint8),
        slot=np.array([-1, -1], np.int32),
        duration_ps=np.array([1, 0]),
        release_ps=np.array([0, 0]),
        size_bytes=np.array([0, 0]),
        tag=np.array([0, TAG], np.uint32),
        binding=np.array([-1, 0], np.int32),
        dep_start=np.array([0, 0, 1], np.int32),
        deps=np.array([0], np.int32),
    )
    for rank, template in enumerate(templates):
        plan.add_rank(
            rank,
            table,
            template_id=np.array([numbers[id(template)]], np.int32),
            sizes_start=np.array([starts[rank]]),
            group=np.array([0], np.int32),
            position=np.array([rank], np.int32),
            peer=np.array([-1], np.int32),
            tag_bits=np.array([0], np.uint32),
        )
    return plan


class _Network:
    """Delivers in order per pair of ranks, as a reliable connection does; all else is drawn."""

    def __init__(self, plan: genie_core.Plan, members: int, seed: int, late: int) -> None:
        self.walkers = [genie_core.Walker(plan, rank) for rank in range(members)]
        self.draw = random.Random(seed)
        self.late = late  # this rank starts when nothing else can happen; -1: none
        self.wire: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        self.events: list[tuple[object, ...]] = []
        self.posted: dict[tuple[int, int, int], list[int]] = defaultdict(list)  # (source, target, channel) -> steps
        self.bytes_sent = [0] * members
        self.now = 0
        for rank, walker in enumerate(self.walkers):
            self._take(rank, walker.begin(0))

    def _take(self, rank: int, operations: list[tuple[object, ...]]) -> None:
        for kind, handle, *rest in operations:
            if kind == "timer":
                self.events.append(("timer", rank, handle))
                continue
            peer, tag, size = rest
            self.wire[rank, peer].append((tag, size))
            self.events += [("arrived", rank, peer), ("sent", rank, handle)]
            if not tag & CREDIT:
                self.posted[rank, peer, tag - TAG].append(handle & 0xFFFFFFFF)
                self.bytes_sent[rank] += size

    def run(self) -> None:
        while self.events:
            free = [at for at, event in enumerate(self.events) if event[:2] != ("timer", self.late)]
            kind, rank, what = self.events.pop(self.draw.choice(free) if free else 0)
            self.now += 1
            if kind == "arrived":
                tag, size = self.wire[rank, what].popleft()
                completion = ("arrived", rank, tag, size, self.now, self.now)
                self._take(what, self.walkers[what].advance(self.now, [completion]))
            else:
                self._take(rank, self.walkers[rank].advance(self.now, [(kind, what, self.now, 0)]))


def _play(drawn: Drawn, seed: int, late: int) -> None:
    templates, sizes = lower_all(*drawn.arguments())
    network = _Network(_plan(templates, sizes), drawn.members, seed, late)
    network.run()
    lanes = defaultdict(list)
    for steps in expand(templates, sizes):
        for step in steps:
            if step.sends and step.message:
                lanes[tuple(step.lane)].append(step.number)
    assert [walker.error for walker in network.walkers] == [""] * drawn.members
    assert dict(network.posted) == dict(lanes), "sends leave in step order"
    assert [walker.waiting() for walker in network.walkers] == [[]] * drawn.members
    assert all(walker.done for walker in network.walkers)
    for position, table in enumerate(sizes if drawn.members > 1 else []):
        share = table[: templates[0].own_blocks].reshape(templates[0].channels, -1).sum(axis=0).tolist()
        arguments = (drawn.op, drawn.algorithm, drawn.members, position, drawn.size_bytes, share, drawn.root)
        assert network.bytes_sent[position] == bytes_sent(*arguments, drawn.local)


@DRAWS
@given(collectives(members_max=9, channels_max=3), st.integers(0, 2**32), st.integers(-1, 8))
def test_drawn_timings(drawn: Drawn, seed: int, late: int) -> None:
    _play(drawn, seed, late)


@pytest.mark.parametrize("late", [0, 3])
def test_a_late_member_of_a_ring_sends_in_step_order(late: int) -> None:
    """All its receives have arrived before it starts, and the blocks differ in size."""
    _play(Drawn("all_reduce", "ring", 5, 4 * 7 + 1, 1, 0, False), 1, late)
