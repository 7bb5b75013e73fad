"""The trace that the project ships: what examples/transformer/README.md says of it is so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from genie.workload.graph import Kind, Op, RankGraph, Workload
from genie.workload.inspect import inspect_workload
from genie.workload.load import load

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "transformer"
SIZE_LIMIT_BYTES = 2_000_000


@pytest.fixture(scope="module")
def workload() -> Workload:
    return load(FOLDER / "transformer")


def test_trace_is_small() -> None:
    files = [*FOLDER.glob("transformer.*.et.gz"), FOLDER / "transformer.json"]
    assert len(files) == 9
    assert sum(path.stat().st_size for path in files) < SIZE_LIMIT_BYTES


def test_groups_are_data_parallel_times_tensor_parallel(workload: Workload) -> None:
    expected = {tuple(range(8)), (0, 2, 4, 6), (1, 3, 5, 7), (0, 1), (2, 3), (4, 5), (6, 7)}
    assert {group.ranks for group in workload.groups} == expected


def test_collectives_are_those_of_the_table(workload: Workload) -> None:
    expected = Counter(
        {
            (Op.ALL_GATHER, 4, 98_816): 8,
            (Op.ALL_GATHER, 4, 139_520): 1,
            (Op.REDUCE_SCATTER, 4, 395_264): 4,
            (Op.REDUCE_SCATTER, 4, 558_080): 1,
            (Op.ALL_REDUCE, 2, 262_144): 16,
            (Op.ALL_REDUCE, 8, 8): 1,
        }
    )
    for graph in workload.ranks.values():
        rows = np.flatnonzero(graph.kind == Kind.COLL)
        found = Counter(
            (Op(graph.op[row]), len(workload.groups[graph.group[row]].ranks), int(graph.size_bytes[row]))
            for row in rows
        )
        assert found == expected


def test_nothing_for_the_lint_to_find(workload: Workload) -> None:
    assert inspect_workload(workload).lints == []
    assert workload.notes == []


def test_every_computation_has_a_duration(workload: Workload) -> None:
    totals_ms = []
    for graph in workload.ranks.values():
        durations_ns = graph.duration_ns[graph.kind == Kind.COMP]
        assert durations_ns.min() >= 0
        totals_ms.append(durations_ns.sum() / 1e6)
    # Ranks have equal shares of the work, so turn-taking must have made their times nearly equal.
    assert max(totals_ms) < 1.25 * min(totals_ms)


def test_gathers_of_the_backward_pass_overlap_with_compute(workload: Workload) -> None:
    overlapped = [count_overlapped(graph) for graph in workload.ranks.values()]
    # One for each of the 4 layers; those of the forward pass are needed at once.
    assert overlapped == [4] * 8


def count_overlapped(graph: RankGraph) -> int:
    """All-gathers that a rank does 1 ms of compute or more before it needs them."""
    count = 0
    for row in np.flatnonzero(graph.op == Op.ALL_GATHER):
        needed_by = next(
            user
            for user in range(row + 1, len(graph))
            if row in graph.deps[graph.dep_start[user] : graph.dep_start[user + 1]]
        )
        meanwhile = slice(row + 1, needed_by)
        compute = graph.duration_ns[meanwhile][graph.kind[meanwhile] == Kind.COMP]
        count += int(compute.sum() >= 1_000_000)
    return count
