"""Drawn jobs: both ends of all traffic agree, and each rank's bytes are those of closed forms."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from closed_forms import ClosedForms

from genie.compute.operators import Timed
from genie.errors import UsageError
from genie.generate.degrees import Degrees
from genie.generate.routing import Routing
from genie.generate.shipped import find_model, shipped
from genie.generate.step import Step
from genie.generate.training import DISPATCHES, EXCHANGES, RECOMPUTES, Training
from genie.workload.graph import Kind, Op, RankGraph, Workload
from genie.workload.inspect import inspect_workload

JOBS, BATCHES = 200, 8
DRAWS_MAX = 2 * JOBS  # some of what is drawn cannot be, and is refused


def drawn(number: int) -> Training:
    """A job with everything drawn. Raises UsageError for one that cannot be."""
    draw = random.Random(f"jobs/{number}")
    model = find_model(draw.choice(list(shipped())))
    experts = model.experts and replace(model.experts, first_layer=min(1, model.experts.first_layer))
    model = replace(model, layers=draw.choice([3, 4, 8]), experts=experts)
    pipeline = draw.choice([1, 1, 2, 4])
    schedule = draw.choice(["", "", "zero-bubble", "dualpipe-v", "gpipe"]) if pipeline > 1 else ""
    virtual = 1 if pipeline == 1 else 2 if schedule == "dualpipe-v" else draw.choice([1, 2])
    degrees = Degrees(
        draw.choice([8, 8, 16, 32]),
        tensor=draw.choice([1, 2, 4]),
        context=draw.choice([1, 1, 2, 4]),
        pipeline=pipeline,
        virtual=virtual,
        expert=draw.choice([1, 2, 4, 8]) if experts else 1,
        expert_tensor=draw.choice([1, 1, 2]) if experts else 1,
    )
    sharding = draw.choice(["none", "zero1", "zero1", "zero2", "fsdp", "fsdp" if pipeline > 1 else "zero3"])
    if sharding in ("zero3", "fsdp") and draw.random() < 0.5:
        degrees = replace(degrees, shard=draw.choice([2, 4]))
    training = Training(
        model,
        degrees,
        sequence=draw.choice([512, 1024]),
        micro_batch=draw.choice([1, 2]),
        micro_batches=draw.choice([4, 8] if pipeline > 1 else [1, 2]),
        schedule=schedule,
        sequence_parallel=draw.random() < 0.7,
        sharding=sharding,
        recompute=draw.choice(RECOMPUTES),
        context_exchange=draw.choice(EXCHANGES),
        dispatch=draw.choice(DISPATCHES),
        fp8=draw.random() < 0.3,
        gradient_bytes=draw.choice([2, 4]),
        overlap_gradients=draw.random() < 0.7,
        vocabulary_multiple=draw.choice([1, 128]),
    )
    if experts and draw.random() < 0.4 and _can_route(training):
        training = replace(training, routing=Routing(layers=_shares(draw, experts.count)))
    return training


def _can_route(training: Training) -> bool:
    """Whether shares of 1 and 3 give whole tokens; and `--routing` is for all-to-alls between whole experts."""
    experts = training.model.experts
    assert experts is not None
    is_for = training.dispatch == "all-to-all" and training.degrees.expert_tensor == 1
    return is_for and training.own_tokens * experts.per_token % (2 * experts.count) == 0


def _shares(draw: random.Random, experts: int) -> tuple[tuple[int, ...], ...]:
    """Two rows of shares, 1 or 3 each and 2 in the mean, so that whole tokens follow without rounding."""
    rows = []
    for _ in range(2):
        row = [1, 3] * (experts // 2)
        draw.shuffle(row)
        rows.append(tuple(row))
    return tuple(rows)


def sent_to(training: Training) -> list[list[int]]:
    """Tokens that a rank sends to each expert-parallel rank, by layer with experts; []: evenly."""
    experts, routing, members = training.model.experts, training.routing, training.degrees.expert
    if routing is None or experts is None or members == 1:
        return []
    tokens = training.micro_batch * training.sequence // training.degrees.context
    if training.sequence_parallel:
        tokens //= training.degrees.tensor
    own = experts.count // members
    each = tokens * experts.per_token // (2 * experts.count)
    return [[each * int(sum(row[at * own : (at + 1) * own])) for at in range(members)] for row in routing.layers]


@cache
def jobs() -> tuple[tuple[int, Training], ...]:
    """The first 200 draws that can be."""
    found: list[tuple[int, Training]] = []
    for number in range(DRAWS_MAX):
        try:
            training = drawn(number)
            Step(training, lambda _: Timed(1, "drawn"))
        except UsageError:
            continue
        found.append((number, training))
    assert len(found) >= JOBS
    return tuple(found[:JOBS])


def bytes_of(graph: RankGraph, workload: Workload) -> dict[tuple[str, str], int]:
    """(operation, kind of group) -> bytes in a step, by the names of groups without their numbers."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in np.flatnonzero(graph.kind == Kind.COLL):
        group = workload.groups[int(graph.group[row])].name.rstrip("0123456789")
        found[Op(int(graph.op[row])).name.lower(), group] += int(graph.size_bytes[row])
    for row in np.flatnonzero(graph.kind == Kind.SEND):
        found["send", ""] += int(graph.size_bytes[row])
    return dict(found)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_traffic_of_drawn_jobs_matches_and_has_the_bytes_of_the_closed_forms(batch: int) -> None:
    for number, training in jobs()[batch * JOBS // BATCHES : (batch + 1) * JOBS // BATCHES]:
        workload = Step(training, lambda _: Timed(1000, "drawn")).workload("drawn")
        workload = replace(workload, ranks=dict(workload.ranks.items()))
        found = [finding.message for finding in inspect_workload(workload).lints]
        assert found == [], f"drawn({number}): {training}"
        forms = ClosedForms(training, sent_to(training))
        degrees = training.degrees
        stage = degrees.ranks // degrees.pipeline
        for rank in range(degrees.pipeline):
            for place in range(degrees.expert if forms.sent_to else 1):
                graph = workload.ranks[rank * stage + place]
                assert bytes_of(graph, workload) == forms.bytes_of(rank, place), f"drawn({number}), {rank}: {training}"


def test_the_drawn_jobs_have_all_that_can_be_combined() -> None:
    seen: Counter[str] = Counter()
    for _, training in jobs():
        model, degrees = training.model, training.degrees
        seen.update([training.sharding, f"recompute {training.recompute}", f"schedule {training.schedule}"])
        seen.update({model.norm, "latent" if model.attention.latent else "grouped"})
        seen["tied over stages"] += model.tied and degrees.pipeline > 1 and training.schedule != "dualpipe-v"
        seen["tied in a V"] += model.tied and training.schedule == "dualpipe-v"
        seen["prediction"] += model.prediction_layers > 0
        seen["sequence parallel"] += training.sequence_parallel and degrees.tensor > 1
        seen["tensor parallel alone"] += not training.sequence_parallel and degrees.tensor > 1
        seen[f"context {training.context_exchange}"] += degrees.context > 1
        if model.experts:
            seen[training.dispatch] += degrees.expert > 1
            seen[f"{training.dispatch} etp"] += degrees.expert_tensor > 1
            seen["routed"] += training.routing is not None and degrees.expert > 1
        seen["virtual"] += degrees.virtual > 1
        seen["hybrid shards"] += degrees.shard > 0
    wanted = [
        "none", "zero1", "zero2", "zero3", "fsdp", "hybrid shards", "recompute none", "recompute selective",
        "recompute full", "schedule gpipe", "schedule zero-bubble", "schedule dualpipe-v", "virtual", "rms", "layer",
        "latent", "grouped", "tied over stages", "tied in a V", "prediction", "sequence parallel",
        "tensor parallel alone",
        *(f"context {each}" for each in EXCHANGES), *DISPATCHES, *(f"{each} etp" for each in DISPATCHES), "routed",
    ]  # fmt: skip
    assert [name for name in wanted if seen[name] < 2] == []
