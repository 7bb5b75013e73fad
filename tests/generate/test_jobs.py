"""Generated jobs: both ends agree, and the bytes of each rank are those of closed forms."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.compute.operators import Timed
from genie.errors import UsageError
from genie.generate.degrees import Degrees, Domain, Grid
from genie.generate.mixture import ranks_of_a_token
from genie.generate.routing import Routing, apportioned
from genie.generate.shipped import find_model
from genie.generate.step import Step
from genie.generate.training import Training
from genie.workload.classes import RankViews
from genie.workload.graph import Kind, Op, RankGraph, Workload
from genie.workload.inspect import inspect_workload


def step_of(name: str, degrees: Degrees, layers: int = 8, **more: Any) -> Step:
    model = find_model(name)
    experts = model.experts and replace(model.experts, first_layer=min(1, model.experts.first_layer))
    model = replace(model, layers=layers, experts=experts)
    return Step(
        Training(model, degrees, **{"sequence": 512, **more}),
        lambda operator: Timed(1000 + operator.flops // 10**6, "drawn"),
    )


def bytes_of(graph: RankGraph, workload: Workload) -> dict[tuple[str, str], int]:
    """(operation, kind of group) -> bytes in a step, by the names of groups without their numbers."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in np.flatnonzero(graph.kind == Kind.COLL):
        group = workload.groups[int(graph.group[row])].name.rstrip("0123456789")
        found[Op(int(graph.op[row])).name.lower(), group] += int(graph.size_bytes[row])
    for row in np.flatnonzero(graph.kind == Kind.SEND):
        found["send", "stages"] += int(graph.size_bytes[row])
    return dict(found)


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("pipeline", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [4, 8])
def test_bytes_of_a_dense_job_are_those_of_the_closed_forms(tensor: int, pipeline: int, micro_batches: int) -> None:
    """Llama 3 8B with 8 layers, sequence parallel, distributed optimizer, two replicas."""
    b, s, h, heads, key_values, d, f, vocabulary = 1, 512, 4096, 32, 8, 128, 14336, 128256
    ranks, m = 2 * tensor * pipeline, micro_batches
    step = step_of("llama3-8b", Degrees(ranks, tensor=tensor, pipeline=pipeline), micro_batches=m)
    workload = step.workload("dense")
    own = 8 // pipeline
    layer = (h * (heads + 2 * key_values) * d + heads * d * h + 3 * h * f) // tensor + 2 * h
    table = vocabulary // tensor * h
    for stage in range(pipeline):
        is_first, is_last = stage == 0, stage == pipeline - 1
        a = 2 * b * s * h
        parameters = own * layer + table * (is_first + is_last) + h * is_last
        expected = {("all_reduce", "world"): 4}
        if ranks > tensor * pipeline:
            expected |= {("reduce_scatter", "dp"): 4 * parameters, ("all_gather", "dp"): 2 * parameters // 2}
        if tensor > 1:
            expected[("all_gather", "tp")] = m * (6 * own + is_first + 2 * is_last) * a // tensor
            expected[("reduce_scatter", "tp")] = m * (4 * own + is_first + is_last) * a
            expected[("all_reduce", "tp")] = 3 * m * is_last * 4 * b * s + 4 * (2 * h * own + h * is_last)
        if pipeline > 1:
            expected[("send", "stages")] = m * ((not is_last) + (not is_first)) * a // tensor
        graph = workload.ranks[stage * ranks // pipeline]
        assert bytes_of(graph, workload) == expected, f"stage {stage}"


def test_bytes_without_sequence_parallelism() -> None:
    step = step_of("llama3-8b", Degrees(4, tensor=4), micro_batches=3, sequence_parallel=False, sharding="none")
    workload = step.workload("plain")
    a = 2 * 512 * 4096
    # Two all-reduces a layer and pass, one of the embedding, one of the logits' input, three of the loss, one norm.
    assert bytes_of(workload.ranks[0], workload) == {
        ("all_reduce", "tp"): 3 * ((4 * 8 + 2) * a + 3 * 4 * 512),
        ("all_reduce", "mp"): 4,
    }


def test_bytes_of_a_job_with_experts() -> None:
    """Mixtral with 8 layers on 8 ranks, experts over 4, all-to-all."""
    m, t, k, h, experts, width = 2, 512, 2, 4096, 8, 14336
    step = step_of("mixtral-8x7b", Degrees(8, expert=4), micro_batches=m)
    workload = step.workload("experts")
    found = bytes_of(workload.ranks[3], workload)
    assert found["all_to_all", "ep"] == m * 8 * (4 * 2 * t * k * h + 2 * 4 * t * k)
    assert found["all_gather", "tokens"] == m * 8 * 8 * experts
    expert_parameters = 8 * experts // 4 * 3 * h * width
    assert found["reduce_scatter", "edp"] == 4 * expert_parameters
    assert found["all_gather", "edp"] == 2 * expert_parameters // 2


@pytest.mark.parametrize(("exchange", "expected"), [("all-gather", 2), ("ring", 0), ("ulysses", 0)])
def test_bytes_of_context_parallelism(exchange: str, expected: int) -> None:
    """Keys and values of 8 heads of 128: gathered forward and backward; or sent round; or exchanged."""
    step = step_of("llama3-8b", Degrees(4, context=4), context_exchange=exchange)
    workload = step.workload("context")
    found = bytes_of(workload.ranks[0], workload)
    own = 4 * 128 * 8 * 128  # 4 b (s / c) w
    assert found.get(("all_gather", "cp"), 0) == expected * 8 * own
    if exchange == "ring":
        assert found["send", "stages"] == 8 * own * (3 + 3 + 3)  # forward; backward with gradients
    if exchange == "ulysses":
        query = 2 * 128 * 32 * 128
        assert found["all_to_all", "cp"] == 8 * 2 * (2 * query + own)


def test_gpt_13b_over_8_has_the_bytes_of_aicb_s_list() -> None:
    """AICB's GPT 13B, tensor 8: 1,605,739,520 parameters a rank, reduced as 4 and gathered as 2 bytes each."""
    model = replace(find_model("gpt3-13b"), vocabulary=32768)
    step = Step(Training(model, Degrees(16, tensor=8), sequence=2048), lambda _: Timed(1, "drawn"))
    workload = step.workload("gpt")
    found = bytes_of(workload.ranks[0], workload)
    assert found["reduce_scatter", "dp"] == 6_422_958_080
    assert found["all_gather", "dp"] == 3_211_479_040 // 2  # one rank's input of two


@pytest.mark.parametrize(
    "routing", [Routing(1.2, 3), Routing(layers=((1, 2, 3, 4, 5, 6, 7, 8), (1, 0, 0, 0, 0, 0, 0, 0)))]
)
def test_skewed_tokens_arrive_as_they_are_sent_and_cost_compute(routing: Routing) -> None:
    step = step_of("mixtral-8x7b", Degrees(16, expert=4, pipeline=2), layers=4, micro_batches=4, routing=routing)
    workload = step.workload("skewed")
    assert isinstance(workload.ranks, RankViews)
    assert len(workload.ranks.classes.templates) == 2 * 4
    assert inspect_workload(workload).lints == []
    copies = 512 * 2 * 4096 * 2
    graphs = [workload.ranks[rank] for rank in range(4)]
    dispatches = [
        [row for row, name in enumerate(graph.name) if name == "dispatch" and graph.kind[row] == Kind.COLL]
        for graph in graphs
    ]
    for rows in zip(*dispatches, strict=True):
        sent = [graph.splits[row][0] for graph, row in zip(graphs, rows, strict=True)]
        assert {int(each.sum()) for each in sent} == {copies}
        for place, (graph, row) in enumerate(zip(graphs, rows, strict=True)):
            assert graph.splits[row][1].tolist() == [int(each[place]) for each in sent]
    compute = [int(graph.num_ops[graph.kind == Kind.COMP].sum()) for graph in graphs]
    assert len(set(compute)) > 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40), st.integers(1, 5000), st.integers(1, 40))
def test_apportioned_numbers_add_up_and_keep_their_limit(weights: list[float], most: int, per_token: int) -> None:
    if not any(weights):
        weights = [1.0] * len(weights)
    total = most * min(per_token, len(weights))
    found = apportioned(np.array(weights), total, most)
    assert found.sum() == total
    assert found.min() >= 0
    assert found.max() <= most


def test_expected_ranks_of_a_token_are_the_published_ones() -> None:
    assert ranks_of_a_token(256, 8, 8) == pytest.approx(5.29, abs=0.005)
    assert ranks_of_a_token(256, 8, 32) == pytest.approx(7.27, abs=0.03)


def test_a_job_has_a_class_for_each_stage_and_views_of_ranks() -> None:
    workload = step_of("llama3-8b", Degrees(64, tensor=4, pipeline=4), micro_batches=8).workload("classes")
    assert isinstance(workload.ranks, RankViews)
    assert len(workload.ranks.classes.templates) == 4
    one, other = workload.ranks[0], workload.ranks[5]
    assert one.duration_ns is other.duration_ns
    assert {workload.groups[group].name for group in set(one.group.tolist()) - {-1}} == {"tp0", "dp0", "world0"}
    assert {workload.groups[group].name for group in set(other.group.tolist()) - {-1}} == {"tp1", "dp1", "world0"}


@pytest.mark.parametrize("domain", list(Domain))
def test_groups_of_a_kind_share_no_rank_and_have_their_size(domain: Domain) -> None:
    degrees = Degrees(96, tensor=2, context=2, pipeline=3, expert=4, expert_tensor=2, shard=4)
    members, number = Grid(degrees).groups_of(domain)
    assert {len(group) for group in members} == {degrees.members(domain)}
    every = sorted(rank for group in members for rank in group)
    assert len(set(every)) == len(every)
    assert all(list(group) == sorted(group) for group in members)
    assert all(number[rank] == at for at, group in enumerate(members) for rank in group)


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"ranks": 12, "tensor": 8}, "--gpus 12 is not a multiple of 8 (--tp 8 x --cp 1 x --pp 1)"),
        ({"ranks": 16, "pipeline": 2, "expert": 16}, "a stage has 8 ranks (--gpus 16 / --pp 2)"),
        ({"ranks": 8, "virtual": 2}, "--vp 2: needs a pipeline"),
        ({"ranks": 8, "shard": 3}, "--hsdp 3: is not a divisor of the 8 ranks"),
        ({"ranks": 0}, "--gpus 0"),
    ],
)
def test_degrees_that_do_not_multiply_out_name_both_numbers(degrees: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError) as wrong:
        Degrees(**degrees)
    assert said in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "degrees", "more", "said"),
    [
        ("llama3-8b", {"ranks": 3, "tensor": 3}, {}, "--tp 3 does not divide 32 attention heads"),
        ("llama3-8b", {"ranks": 8, "expert": 8}, {}, "llama3-8b has no experts"),
        ("mixtral-8x7b", {"ranks": 3, "expert": 3}, {}, "--ep 3 does not divide 8 experts"),
        ("llama3-8b", {"ranks": 16, "pipeline": 16}, {"micro_batches": 16}, "has 8 layers, fewer than the 16 chunks"),
        ("llama3-8b", {"ranks": 2, "tensor": 2}, {"sequence": 511}, "511 tokens of a micro-batch"),
        ("llama3-8b", {"ranks": 2, "context": 2}, {"sequence": 510}, "--sequence 510 is not a multiple of 4"),
        ("llama3-8b", {"ranks": 4, "pipeline": 4, "virtual": 2}, {"micro_batches": 6}, "needs a multiple of --pp 4"),
        ("llama3-8b", {"ranks": 4, "pipeline": 4}, {"schedule": "zigzag"}, "--schedule zigzag: give a CSV file"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    name: str, degrees: dict[str, int], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        step_of(name, Degrees(**degrees), **more)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)
