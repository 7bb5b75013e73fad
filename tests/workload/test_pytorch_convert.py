"""Conversion of real PyTorch traces, seen from what was written: 8 ranks of DLRM, and traces of one rank."""

from __future__ import annotations

import json
import tarfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from chakra_schemas.attributes import attributes_of
from chakra_schemas.reader import read_trace
from genie.workload.graph import Kind, Op, RankGraph, Workload, WorkloadError
from genie.workload.load import load
from genie.workload.pytorch.convert import ConversionReport, convert
from genie.workload.pytorch.files import find_device_traces, find_host_traces
from genie.workload.pytorch.kineto import read_device_trace

RANKS = range(8)
ALL_TO_ALL_BYTES = [24576, 192, 1536, 13568, 24576]
ALL_REDUCE_BYTES = [1576964, 448, 907840]
# Elements of 4 bytes that each rank sends to ranks 0 to 7 in the fourth all-to-all: 384, 896, ... bytes.
UNEVEN_ELEMENTS = [96, 224, 288, 1664, 592, 96, 192, 240]


@dataclass
class Dlrm:
    host: dict[int, Path]
    device: dict[int, Path]
    folder: Path
    report: ConversionReport
    workload: Workload


@pytest.fixture(scope="module")
def dlrm(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Dlrm:
    raw = tmp_path_factory.mktemp("dlrm_raw")
    for name in ("dlrm_pytorch_et", "dlrm_kineto"):
        with tarfile.open(shared_data / "param" / f"{name}.tar.gz") as archive:
            archive.extractall(raw, filter="data")
    folder = tmp_path_factory.mktemp("dlrm")
    host = find_host_traces(raw / "dlrm_pytorch_et").by_rank
    device = find_device_traces(raw / "dlrm_kineto").by_rank
    report = convert(host, device, folder, "dlrm")
    return Dlrm(host, device, folder, report, load(folder))


def collectives(graph: RankGraph) -> list[tuple[Op, int]]:
    return [(Op(int(graph.op[row])), int(graph.size_bytes[row])) for row in np.flatnonzero(graph.kind == Kind.COLL)]


def recorded_device_ops(path: Path) -> list[dict]:  # type: ignore[type-arg]
    categories = ("kernel", "gpu_memcpy", "gpu_memset")
    return [event for event in json.loads(path.read_bytes())["traceEvents"] if event.get("cat") in categories]


def test_every_rank_plays_the_same_collectives_in_one_group(dlrm: Dlrm) -> None:
    assert sorted(dlrm.workload.ranks) == list(RANKS)
    assert dlrm.report.notes == []
    assert dlrm.report.groups == {"0": list(RANKS)}
    first = collectives(dlrm.workload.ranks[0])
    assert [size for op, size in first if op is Op.ALL_TO_ALL] == ALL_TO_ALL_BYTES
    assert [size for op, size in first if op is Op.ALL_REDUCE] == ALL_REDUCE_BYTES
    assert len(first) == 8
    for rank in RANKS:
        assert collectives(dlrm.workload.ranks[rank]) == first
        assert dlrm.report.ranks[rank].communication_bytes == sum(ALL_TO_ALL_BYTES + ALL_REDUCE_BYTES)


def test_what_a_rank_sends_in_an_all_to_all_is_what_the_other_receives(dlrm: Dlrm) -> None:
    graphs = dlrm.workload.ranks
    rows = {rank: np.flatnonzero(graphs[rank].op == Op.ALL_TO_ALL) for rank in RANKS}
    for rank in RANKS:
        assert list(graphs[rank].splits) == [rows[rank][3]], "the fourth is uneven, and no other"
        to_each, from_each = graphs[rank].splits[rows[rank][3]]
        assert to_each.tolist() == [4 * elements for elements in UNEVEN_ELEMENTS]
        assert to_each.sum() == graphs[rank].size_bytes[rows[rank][3]]
        for peer in RANKS:
            assert from_each[peer] == graphs[peer].splits[rows[peer][3]][0][rank]


def test_compute_time_is_that_of_the_kernels_that_are_not_communication(dlrm: Dlrm) -> None:
    for rank, graph in dlrm.workload.ranks.items():
        kernels = [op for op in recorded_device_ops(dlrm.device[rank]) if op["cat"] == "kernel"]
        expected_ns = 1000 * sum(op["dur"] for op in kernels if "nccl" not in op["name"])
        on_device = (graph.kind == Kind.COMP) & ~graph.on_cpu
        assert graph.duration_ns[on_device].sum() == expected_ns
        assert dlrm.report.ranks[rank].device_compute_ns == expected_ns
        assert on_device.sum() == len(kernels) - 8, "every kernel but those of the eight collectives"
    assert dlrm.report.ranks[0].device_compute_ns == 1_034_000


def test_copies_and_sets_are_nodes_of_their_own(dlrm: Dlrm) -> None:
    for rank, graph in dlrm.workload.ranks.items():
        recorded = [op for op in recorded_device_ops(dlrm.device[rank]) if op["cat"] != "kernel"]
        rows = graph.kind == Kind.MEM
        assert rows.sum() == len(recorded)
        assert graph.duration_ns[rows].sum() == 1000 * sum(op["dur"] for op in recorded)
        assert graph.tensor_bytes[rows].sum() == sum(op["args"]["bytes"] for op in recorded)
    assert dlrm.report.ranks[0].memory_ns == 19_000


def test_collectives_carry_no_time_of_one_rank(dlrm: Dlrm) -> None:
    for rank in RANKS:
        for node in read_trace(dlrm.folder / f"dlrm.{rank}.et").nodes:
            if "pg_name" in attributes_of(node):
                assert node.duration_micros == 0
                assert "duration_ns" not in attributes_of(node)


def test_nodes_of_a_stream_follow_one_another(dlrm: Dlrm) -> None:
    for graph in dlrm.workload.ranks.values():
        last: dict[int, int] = {}
        for row in np.flatnonzero(graph.stream >= 0).tolist():
            stream = int(graph.stream[row])
            if stream in last:
                assert last[stream] in graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
            last[stream] = row
        assert len(last) == 4, "compute, copies, input distribution and NCCL"


def replay(dlrm: Dlrm, offset_ns: dict[int, int]) -> dict[int, list[int]]:
    """Start of every node when collectives take no time once all ranks are there; `offset_ns`: when ranks begin."""
    graphs = dlrm.workload.ranks
    start_ns: dict[int, list[int]] = {rank: [] for rank in graphs}
    end_ns: dict[int, list[int]] = {rank: [] for rank in graphs}
    ready: dict[int, dict[int, int]] = defaultdict(dict)  # by number of the collective and rank
    played = dict.fromkeys(graphs, 0)
    # Rows are in the order of the recording, and no row depends on a later one, so rounds of "as far as it goes" end.
    while any(len(end_ns[rank]) < len(graph) for rank, graph in graphs.items()):
        before = sum(map(len, end_ns.values()))
        for rank, graph in graphs.items():
            while (row := len(end_ns[rank])) < len(graph):
                deps = graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
                time_ns = max([end_ns[rank][dep] for dep in deps], default=offset_ns[rank])
                if graph.kind[row] == Kind.COLL:
                    number = played[rank]
                    ready[number][rank] = time_ns
                    if len(ready[number]) < len(graphs):
                        break
                    played[rank] += 1
                    end_ns[rank].append(max(ready[number].values()))
                else:
                    end_ns[rank].append(time_ns + int(graph.duration_ns[row]))
                start_ns[rank].append(time_ns)
        assert sum(map(len, end_ns.values())) > before, "stuck"
    return start_ns


def test_a_replay_on_an_ideal_network_has_the_recorded_span(dlrm: Dlrm) -> None:
    """The network's part of this iteration is small, so the host's and the device's work must make up its length."""
    traces = {rank: read_device_trace(path) for rank, path in dlrm.device.items()}
    first_ns = min(trace.origin_ns for trace in traces.values())
    offset_ns = {rank: trace.origin_ns - first_ns for rank, trace in traces.items()}
    start_ns = replay(dlrm, offset_ns)
    for rank, graph in dlrm.workload.ranks.items():
        nodes = list(read_trace(dlrm.folder / f"dlrm.{rank}.et").nodes)
        span_ns = dlrm.report.ranks[rank].span_ns
        end_ns = max(start_ns[rank][row] + max(int(graph.duration_ns[row]), 0) for row in range(len(graph)))
        assert end_ns - offset_ns[rank] == pytest.approx(span_ns, rel=0.01)
        for row, node in enumerate(nodes):
            if graph.stream[row] >= 0 and graph.kind[row] != Kind.COLL and "launched_by" not in attributes_of(node):
                continue  # launched before the recording began: it starts at once
            recorded_ns = node.start_time_micros * 1000
            assert abs(start_ns[rank][row] - offset_ns[rank] - recorded_ns) < 0.02 * span_ns, node.name


def test_conversion_twice_gives_the_same_bytes(dlrm: Dlrm, tmp_path: Path) -> None:
    report = convert(dlrm.host, dlrm.device, tmp_path, "dlrm")
    assert [path.name for path in report.files] == [*(f"dlrm.{rank}.et" for rank in RANKS), "dlrm.json"]
    for path in report.files:
        assert path.read_bytes() == (dlrm.folder / path.name).read_bytes()


def test_a_conversion_replaces_an_earlier_one_of_its_prefix(dlrm: Dlrm, tmp_path: Path) -> None:
    convert({0: dlrm.host[0], 1: dlrm.host[1]}, {0: dlrm.device[0], 1: dlrm.device[1]}, tmp_path, "dlrm")
    for name in ("dlrm.0.json", "other.0.et"):
        (tmp_path / name).write_bytes(b"old")
    convert({0: dlrm.host[0]}, {0: dlrm.device[0]}, tmp_path, "dlrm", compress=True)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["dlrm.0.et.gz", "dlrm.0.json", "dlrm.json", "other.0.et"]


@pytest.mark.parametrize("name", ["dlrm.0.et", "dlrm.9.et.gz", "dlrm.json"])
def test_traces_of_another_tool_are_not_replaced(dlrm: Dlrm, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(WorkloadError, match="is not a file that Genie wrote there"):
        convert({0: dlrm.host[0]}, {0: dlrm.device[0]}, tmp_path, "dlrm")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"mine"}


def test_traces_of_different_ranks_are_refused(dlrm: Dlrm, tmp_path: Path) -> None:
    swapped = dlrm.device | {0: dlrm.device[1], 1: dlrm.device[0]}
    with pytest.raises(WorkloadError, match="is of rank 1, but was given as the trace of rank 0"):
        convert(dlrm.host, swapped, tmp_path, "dlrm")
    with pytest.raises(WorkloadError, match=r"ranks \[3\] have no device trace"):
        convert(dlrm.host, {rank: path for rank, path in dlrm.device.items() if rank != 3}, tmp_path, "dlrm")
    with pytest.raises(WorkloadError, match=r"expected a PyTorch profiler trace .*, this is a host execution trace"):
        convert({0: dlrm.host[0]}, {0: dlrm.host[0]}, tmp_path, "dlrm")
    with pytest.raises(WorkloadError, match=r"expected a PyTorch host execution trace .*, this is a profiler trace"):
        convert({0: dlrm.device[0]}, {}, tmp_path, "dlrm")
    assert not list(tmp_path.iterdir())


def test_resnet_of_schema_1_1_0_without_a_profile(shared_data: Path, tmp_path: Path) -> None:
    host = find_host_traces(shared_data / "param" / "1.1.0-chakra.0.0.4").by_rank
    report = convert(host, {}, tmp_path, "resnet")
    summary = report.ranks[0]
    assert summary.collectives == {"all_reduce": 15, "broadcast": 6}
    assert report.groups == {"0": [0, 1]}
    assert summary.unknown_durations == summary.nodes - 21 > 1000
    graph = load(tmp_path, allow_cycles=False, ranks=[0]).ranks[0]
    sizes = [size for op, size in collectives(graph) if op is Op.ALL_REDUCE]
    assert sizes == 3 * [8196000, 31502336, 26255360, 26550272, 9724160], "the gradients of ResNet-50, three times"
    assert sum(sizes[:5]) == 4 * 25_557_032, "its parameters"
    assert {size for op, size in collectives(graph) if op is Op.BROADCAST} == {212480, 424}


def test_mlcommons_of_schema_1_0_2_without_a_profile(shared_data: Path, tmp_path: Path) -> None:
    with tarfile.open(shared_data / "mlcommons-chakra" / "1.0.2-chakra.0.0.4.tgz") as archive:
        archive.extractall(tmp_path / "raw", filter="data")
    report = convert(find_host_traces(tmp_path / "raw").by_rank, {}, tmp_path / "out", "gather")
    assert report.ranks[0].collectives == {"all_gather": 10}
    assert report.ranks[0].communication_bytes == 40
    assert report.groups == {"0": [0, 1]}


def test_vgg13_with_its_profile(shared_data: Path, tmp_path: Path) -> None:
    host = {0: shared_data / "triosim" / "graph_vgg13-iter41.json"}
    device = {0: shared_data / "triosim" / "profiler_vgg13-iter41.json"}
    summary = convert(host, device, tmp_path, "vgg13").ranks[0]
    kinds = Counter(op["cat"] for op in recorded_device_ops(device[0]))
    graph = load(tmp_path).ranks[0]
    assert ((graph.kind == Kind.COMP) & ~graph.on_cpu).sum() == kinds["kernel"] == 292
    assert (graph.kind == Kind.MEM).sum() == kinds["gpu_memset"] == 33
    kernels_ns = 1000 * sum(op["dur"] for op in recorded_device_ops(device[0]) if op["cat"] == "kernel")
    assert summary.device_compute_ns == kernels_ns
    # One GPU, no network: the longest path must be the iteration.
    end_ns = np.zeros(len(graph), np.int64)
    for row in range(len(graph)):
        deps = graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
        end_ns[row] = (end_ns[deps].max() if len(deps) else 0) + graph.duration_ns[row]
    assert end_ns.max() == pytest.approx(summary.span_ns, rel=0.01)
