"""The roofline, and nodes whose duration nobody knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_files import COMP, MEM, META, load_one, node

from genie.workload.compute import Roofline, fill_durations, parse_compute
from genie.workload.graph import Kind, WorkloadError
from genie.workload.inspect import inspect_workload
from genie.workload.load import load


def test_parse() -> None:
    assert parse_compute("roofline:312,2039") == Roofline(312e12, 2039e9)
    assert parse_compute("roofline:0.5,1e2") == Roofline(0.5e12, 100e9)


@pytest.mark.parametrize(
    "text",
    ["", "roofline", "roofline:", "roofline:1", "roofline:1,2,3", "roofline:0,1", "roofline:1,-1", "roofline:nan,1",
     "roofline:inf,1", "roofline:a,b", "constant:1,2"],
)  # fmt: skip
def test_what_is_no_model(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"expected roofline:TFLOPS,GBPS"):
        parse_compute(text)


def test_the_slower_of_arithmetic_and_memory() -> None:
    model = parse_compute("roofline:1,10")  # 1000 operations and 10 bytes per ns
    num_ops = np.array([5000, 5000, 5000, -1, -1, 0, 1499], dtype=np.int64)
    tensor_bytes = np.array([10, 100, -1, 70, -1, 0, 0], dtype=np.int64)
    assert model.duration_ns(num_ops, tensor_bytes).tolist() == [5, 10, 5, 7, -1, 0, 1]


def test_is_the_roofline_of_the_reference() -> None:
    """num_ops / min(bandwidth · operational intensity, peak)."""
    rng = np.random.default_rng(3)
    num_ops, tensor_bytes = rng.integers(1, 10**13, 1000), rng.integers(1, 10**11, 1000)
    model = parse_compute("roofline:312,2039")
    flops_per_s = np.minimum(2039e9 * (num_ops / tensor_bytes), 312e12)
    np.testing.assert_allclose(model.duration_ns(num_ops, tensor_bytes), num_ops / flops_per_s * 1e9, atol=0.51)


def test_numbers_beyond_all_measure_stay_positive() -> None:
    huge = np.array([2**63 - 1], dtype=np.int64)
    assert parse_compute("roofline:1e-9,1e-9").duration_ns(huge, huge)[0] > 0


def test_only_what_is_missing_is_filled(tmp_path: Path) -> None:
    nodes = [
        node(1, COMP, num_ops=2000, duration_micros=9),
        node(2, COMP, num_ops=2000),
        node(3, MEM, tensor_size=50),
        node(4, META),
    ]
    workload = load_one(tmp_path, *nodes)
    assert fill_durations(workload, parse_compute("roofline:1,10")) == 2
    assert workload.ranks[0].duration_ns.tolist() == [9000, 2, 5, 0]
    assert workload.ranks[0].origin == ["", "roofline", "roofline", ""]
    (durations, _) = inspect_workload(workload).durations
    assert durations.origins == {"roofline": 1}
    assert fill_durations(workload, None) == 0


def test_without_a_model_the_nodes_are_counted_and_named(tmp_path: Path) -> None:
    workload = load_one(tmp_path, *(node(number, COMP, num_ops=1) for number in range(5)))
    with pytest.raises(WorkloadError, match=r"5 compute nodes have no duration: rank 0 node 0 \(n0\), .*--compute"):
        fill_durations(workload, None)


def test_nodes_that_no_model_can_time(tmp_path: Path) -> None:
    workload = load_one(tmp_path, node(1, COMP), node(2, COMP, num_ops=1000))
    with pytest.raises(WorkloadError, match=r"1 compute nodes have neither .*: rank 0 node 1 \(n1\)$"):
        fill_durations(workload, parse_compute("roofline:1,10"))


@pytest.mark.parametrize("name", ["dense8", "fsdp8", "moe8"])
def test_stage_generated(name: str, shared_data: Path) -> None:
    workload = load(shared_data / "stage-generated" / name)
    compute = sum(int(np.count_nonzero(graph.kind == Kind.COMP)) for graph in workload.ranks.values())
    with pytest.raises(WorkloadError, match=f"{compute} compute nodes have no duration"):
        fill_durations(workload, None)
    assert fill_durations(workload, parse_compute("roofline:312,2039")) == compute
    assert all((graph.duration_ns >= 0).all() for graph in workload.ranks.values())
