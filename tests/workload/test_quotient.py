"""Inspection of a workload of classes by one rank a class, against that of all of its ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from genie.compute.operators import Timed
from genie.generate.degrees import Degrees
from genie.generate.routing import routing_of
from genie.generate.shipped import find_model
from genie.generate.step import Step
from genie.generate.training import Training
from genie.workload.classes import Classes, RankViews
from genie.workload.graph import Kind, Workload
from genie.workload.inspect import inspect_workload
from genie.workload.quotient import quotient


def made(model: str, degrees: Degrees, layers: int, micro_batches: int, **more: object) -> Workload:
    found = find_model(model)
    experts = found.experts and replace(found.experts, first_layer=min(1, found.experts.first_layer))
    found = replace(found, layers=layers, experts=experts)
    if "zipf" in more:
        more = {"routing": routing_of(f"zipf:{more['zipf']}", 1, experts.count if experts else 0)}
    training = Training(found, degrees, sequence=512, micro_batches=micro_batches, **more)  # type: ignore[arg-type]
    return Step(training, lambda operator: Timed(1000 + operator.flops // 10**6, "drawn")).workload("job")


def plain_workload(workload: Workload) -> Workload:
    """The same workload, whose ranks have graphs of their own."""
    return replace(workload, ranks=dict(workload.ranks))


def classes_of(workload: Workload) -> Classes:
    assert isinstance(workload.ranks, RankViews)
    return workload.ranks.classes


JOBS = {
    "pipeline": ("llama3-8b", Degrees(32, tensor=2, context=2, pipeline=4), 4, 8, {}),
    "interleaved": ("llama3-8b", Degrees(16, tensor=2, pipeline=4, virtual=2), 8, 8, {}),
    "dualpipe-v": ("llama3-8b", Degrees(8, pipeline=4, virtual=2), 8, 8, {"schedule": "dualpipe-v"}),
    "two stages": ("llama3-8b", Degrees(4, pipeline=2, virtual=2), 8, 4, {}),
    "experts": ("mixtral-8x7b", Degrees(32, pipeline=2, expert=8), 4, 4, {}),
    "sharded": ("llama3-8b", Degrees(16, tensor=2), 2, 1, {"sharding": "fsdp"}),
}


@pytest.fixture(params=JOBS, ids=str)
def job(request: pytest.FixtureRequest) -> Workload:
    model, degrees, layers, micro_batches, more = JOBS[request.param]
    return made(model, degrees, layers, micro_batches, **more)


def test_an_inspection_by_classes_is_that_of_all_ranks(job: Workload) -> None:
    small = quotient(job)
    assert small is not None
    assert len(small.ranks) == len(classes_of(job).templates) < job.world_size
    by_classes, of_all = (inspect_workload(each).to_dict() for each in (job, plain_workload(job)))
    assert by_classes["lints"] == []
    for found in (by_classes, of_all):  # of paths that are equally long, another one may be taken
        found["critical_path"] = found["critical_path"]["length_ns"]
    assert by_classes == of_all


def test_what_is_wrong_in_a_class_is_said_as_of_its_ranks(job: Workload) -> None:
    """A collective or message of one template has another size."""
    classes = classes_of(job)
    for kind in (Kind.COLL, Kind.SEND):
        template = classes.templates[-1]
        rows = np.flatnonzero(template.kind == kind)
        if not len(rows) or (kind is Kind.COLL and len(classes.templates) == 1):
            continue
        size_bytes = template.size_bytes.copy()
        size_bytes[rows[0]] += 1
        templates = (*classes.templates[:-1], replace(template, size_bytes=size_bytes))
        wrong = replace(job, ranks=replace(classes, templates=templates).view())
        found, expected = inspect_workload(wrong), inspect_workload(plain_workload(wrong))
        assert found.lints == expected.lints
        if kind is Kind.SEND:
            assert not found.ok


def test_ranks_of_a_class_that_differ_have_no_quotient(job: Workload) -> None:
    """One rank's peer or group is another one's."""
    classes = classes_of(job)
    for name in ("peer_of", "group_of"):
        table = getattr(classes, name).copy()
        if not table.size:
            continue
        for column in range(table.shape[1]):
            values = np.unique(table[:, column][table[:, column] >= 0])
            if len(values) < 2:
                continue
            place = int(np.flatnonzero(table[:, column] == values[0])[0])
            swapped = table.copy()
            swapped[place, column] = values[-1]
            wrong = replace(job, ranks=replace(classes, **{name: swapped}).view())
            if quotient(wrong) is not None:  # no node uses the column, or the peer is of another queue
                assert inspect_workload(wrong).lints == inspect_workload(plain_workload(wrong)).lints


def test_splits_are_checked_on_all_ranks() -> None:
    skewed = made("mixtral-8x7b", Degrees(16, expert=8), 2, 1, zipf=1.0)
    assert quotient(skewed) is None
    assert inspect_workload(skewed).ok
