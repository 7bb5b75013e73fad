"""Drawn jobs: the native walker does what the model in plain Python does, and every job ends."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import genie_core
import numpy as np
import pytest
from drawing import drawn
from hypothesis import given
from hypothesis import strategies as st
from walker_draws import Drawn, draw_workload, drawn_workloads
from walker_driver import recv, send, workload_of
from walker_model import ModelWalker, astra_slots, stream_slots
from walker_network import DrawnNetwork

from genie.plan.build import Plan, build_plan
from genie.plan.groups import colours
from genie.plan.lowering import Lowering
from genie.plan.sequence import sequence_numbers
from genie.plan.tags import collective_tag
from genie.workload.graph import Kind, RankGraph, Workload

PS = 1000
CREDIT_HANDLE = (1 << 64) - 1
WHOLE_NODE = 0xFFFFFFFF
DRAWS = drawn(500, 200)


def _plan(drawn: Drawn) -> Plan:
    return build_plan(drawn.workload, slots=drawn.slots, lowering=drawn.lowering)


def _tags(workload: Workload, graph: RankGraph) -> list[int]:
    seq, colour = sequence_numbers(graph), colours(workload.groups)
    return [
        collective_tag(colour[graph.group[row]], int(seq[row])) if graph.kind[row] == Kind.COLL else int(graph.tag[row])
        for row in range(len(graph))
    ]


class _Models:
    """A model beside every native walker: told the same, it must ask for the same."""

    def __init__(self, drawn: Drawn) -> None:
        self.models = []
        for graph in drawn.workload.ranks.values():
            slots = astra_slots(graph) if drawn.slots == "astra" else stream_slots(graph)
            in_ps = RankGraph(**{**vars(graph), "duration_ns": graph.duration_ns * PS})
            tags = _tags(drawn.workload, graph)
            self.models.append(ModelWalker(drawn.workload, in_ps, slots, tags, drawn.lowering, [0] * len(graph)))

    def begun(self, rank: int, now: int, operations: list[Any]) -> None:
        self.models[rank].begin(now)
        self._compare(rank, operations)

    def advanced(self, rank: int, now: int, completions: list[Any], operations: list[Any]) -> None:
        model = self.models[rank]
        for kind, *values in completions:
            if kind == "arrived":
                model.arrived(values[0], values[1], values[2], now)
                continue
            node, step = values[0] >> 32, values[0] & WHOLE_NODE
            if kind == "timer":
                model.timer(node, now, values[1])
            elif values[0] != CREDIT_HANDLE:
                model.sent(node, None if step == WHOLE_NODE else step, now)
        self._compare(rank, operations)

    def _compare(self, rank: int, operations: list[Any]) -> None:
        asked = self.models[rank].operations
        assert _by_lane(operations) == _by_lane([_with_handle(it) for it in asked]), f"rank {rank}"
        asked.clear()


def _with_handle(operation: Any) -> Any:
    if operation[0] == "timer":
        return ("timer", operation[1] << 32 | WHOLE_NODE, operation[2])
    _, node, step, *rest = operation
    handle = CREDIT_HANDLE if node is None else node << 32 | (WHOLE_NODE if step is None else step)
    return ("send", handle, *rest)


def _by_lane(operations: list[Any]) -> dict[Any, list[Any]]:
    """Timers in any order, messages in the order of their peer and tag."""
    lanes: dict[Any, list[Any]] = defaultdict(list)
    for operation in operations:
        lanes["timers" if operation[0] == "timer" else operation[2:4]].append(operation)
    lanes["timers"].sort()
    return dict(lanes)


def _check_times(model: ModelWalker, walker: genie_core.Walker) -> None:
    nodes = walker.records()["nodes"]
    for name in ("ready", "start", "end", "overshoot"):
        assert nodes[f"{name}_ps"].tolist() == [getattr(record, name) for record in model.record], name


@DRAWS
@given(drawn_workloads(), st.integers(0, 2**32), st.sampled_from([0, 3, 20_000]), st.integers(1, 4))
def test_native_walkers_do_what_the_model_does(drawn: Drawn, seed: int, late_ps: int, batch: int) -> None:
    models = _Models(drawn)
    network = DrawnNetwork(_plan(drawn).native, seed, late_ps=late_ps, batch=batch, watchers=[models])
    network.run()
    for model, walker in zip(models.models, network.walkers, strict=True):
        assert walker.error == ""
        assert walker.done, walker.waiting()
        assert model.done
        _check_times(model, walker)


@DRAWS
@given(drawn_workloads(ranks_max=9, events_max=60), st.integers(0, 2**32), st.integers(-1, 8))
def test_every_job_ends_whatever_the_order_of_delivery(drawn: Drawn, seed: int, slow_rank: int) -> None:
    """One rank, when drawn, is told of anything only when nobody else can go on."""
    network = DrawnNetwork(_plan(drawn).native, seed, slow_rank=slow_rank)
    network.run()
    assert [walker.error for walker in network.walkers] == [""] * len(network.walkers)
    assert [walker.waiting() for walker in network.walkers if not walker.done] == []


@pytest.mark.parametrize("slots", ["astra", "streams"])
def test_both_ends_record_the_same_transfers(slots: Any) -> None:
    workload = draw_workload(5, slots, 6, 200)
    network = DrawnNetwork(build_plan(workload, slots=slots, lowering=Lowering(2)).native, 11)
    network.run()
    sent, received = defaultdict(int), defaultdict(int)
    for rank, walker in enumerate(network.walkers):
        records = walker.records()
        for peer, messages, size in _columns(records["sends"], "peer", "messages", "size_bytes"):
            sent[rank, peer] += messages << 40 | size
        for peer, messages, size in _columns(records["receives"], "peer", "messages", "size_bytes"):
            received[peer, rank] += messages << 40 | size
    assert sent == received
    moved = {pair: packed & (1 << 40) - 1 for pair, packed in sent.items()}
    assert {pair: size for pair, size in moved.items() if size} == {k: v for k, v in network.bytes_sent.items() if v}


def _columns(records: dict[str, np.ndarray], *names: str) -> Any:
    return zip(*(records[name].tolist() for name in names), strict=True)


class _Count:
    """Messages posted, clear-to-sends included."""

    def __init__(self) -> None:
        self.messages = 0

    def begun(self, rank: int, now: int, operations: list[Any]) -> None:
        self.messages += sum(operation[0] == "send" for operation in operations)

    def advanced(self, rank: int, now: int, completions: list[Any], operations: list[Any]) -> None:
        self.begun(rank, now, operations)


def test_walking_alone_does_as_much_as_walking_in_any_other_order() -> None:
    workload = draw_workload(21, "streams", 5, 300)
    plan = build_plan(workload, slots="streams", lowering=Lowering(2, True))
    result = genie_core.walk_alone(plan.native)
    count = _Count()
    DrawnNetwork(plan.native, 1, watchers=[count]).run()
    assert result["problems"] == []
    assert result["messages"] == count.messages > 1000
    assert result["end_ps"] > 0


def test_walking_alone_says_what_a_job_waits_for() -> None:
    workload = workload_of([[recv(1, 8, tag=3)], [send(0, 8, tag=4)]])
    assert genie_core.walk_alone(build_plan(workload).native)["problems"] == [
        "rank 0, node row 0: receive of 8 bytes from rank 1, tag 3"
    ]
