"""Kineto traces without host traces, and jobs made of one rank's trace."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytorch_samples import Sample

from genie.workload.graph import Kind, Op, Workload, WorkloadError
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.pytorch.convert import ConversionReport, convert
from genie.workload.pytorch.device_only import GroupShape, find_device_communications
from genie.workload.pytorch.files import find_device_traces, find_host_traces
from genie.workload.pytorch.kineto import read_device_trace
from genie.workload.pytorch.nodes import DraftNode
from genie.workload.pytorch.timeline import Timeline
from simtwin.api import simulate
from simtwin.fabric.reading import parse_fabric


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """A folder with the host traces and the profiles of 8 ranks, captured together."""
    folder = tmp_path_factory.mktemp("dlrm")
    for name in ("dlrm_kineto", "dlrm_pytorch_et"):
        with tarfile.open(shared_data / "param" / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def converted(device: Path, out: Path, **options: Any) -> tuple[Workload, ConversionReport]:
    report = convert({}, find_device_traces(device).by_rank, out, "workload", **options)
    return load(out), report


def test_a_profile_alone_gives_the_collectives_of_both_traces(dlrm: Path, tmp_path: Path) -> None:
    alone, _ = converted(dlrm / "dlrm_kineto", tmp_path / "alone")
    hosts = find_host_traces(dlrm / "dlrm_pytorch_et").by_rank
    convert(hosts, find_device_traces(dlrm / "dlrm_kineto").by_rank, tmp_path / "both", "workload")
    both = load(tmp_path / "both")
    for rank, graph in alone.ranks.items():
        other = both.ranks[rank]
        for column in ("kind", "op", "size_bytes", "duration_ns", "stream"):
            assert np.array_equal(getattr(graph, column), getattr(other, column)), (rank, column)
        members = [[workload.groups[at].ranks for at in own.group if at >= 0] for workload, own in
                   ((alone, graph), (both, other))]  # fmt: skip
        assert members[0] == members[1]
    assert sum((graph.kind == Kind.COLL).sum() for graph in alone.ranks.values()) == 8 * 8
    fabric = parse_fabric('[topology]\nkind = "single-switch"\nhosts = 8\n[link]\nrate = "100Gb/s"\ndelay = "1us"')
    took = [simulate(fabric, workload, level="analytic").completion_s for workload in (alone, both)]
    assert took[0] == pytest.approx(took[1], rel=0.005)


def errors(workload: Workload) -> list[str]:
    return [found.message for found in inspect_workload(workload).lints if found.severity == "error"]


def replayed_ns(nodes: list[DraftNode]) -> list[int]:
    """Start of each node when it starts after those it depends on; a communication takes its recorded time."""
    starts: list[int] = []
    ends: list[int] = []
    for node in nodes:
        took = node.end_ns - node.start_ns if node.communication is not None else max(node.duration_ns, 0)
        starts.append(max((ends[dependency] for dependency in node.deps), default=0))
        ends.append(starts[-1] + took)
    return [*starts, max(ends)]


@pytest.mark.parametrize(
    ("name", "rank", "world"),
    [("world16_rank0", 0, 16), ("world2_rank1", 1, 2), ("world128_rank0_sampled", 0, 128), ("mi250_rocm6", 0, 1)],
)
def test_a_replay_of_one_rank_takes_the_recorded_time(name: str, rank: int, world: int, shared_data: Path) -> None:
    """From the first kernel of the recording on the busiest stream: before it, a GPU ends the iteration before."""
    device = read_device_trace(shared_data / "hta" / f"{name}.json.gz")
    nodes = Timeline(device).play(find_device_communications(device, rank, world, {}).spans)
    busiest = Counter(node.stream for node in nodes if node.stream >= 0).most_common(1)[0][0]
    first = next(at for at, node in enumerate(nodes) if node.stream == busiest and node.launched_by)
    starts = replayed_ns(nodes)
    recorded = max(node.end_ns for node in nodes) - nodes[first].start_ns
    assert starts[-1] - starts[first] == pytest.approx(recorded, rel=0.04)


def test_streams_tell_the_groups_of_old_profiles_apart(tmp_path: Path, shared_data: Path) -> None:
    """Stream 285 gathers 8192 rows to 65536; stream 363 has all-to-alls alone, stream 84 all-reduces too."""
    trace = shared_data / "hta" / "world16_rank0.json.gz"
    workload, report = converted(trace, tmp_path / "a", replicas=16)
    graph = workload.ranks[11]
    used = Counter(workload.groups[at].ranks for at in graph.group if at >= 0)
    assert used == {tuple(range(8, 16)): 20, tuple(range(16)): 55}
    assert any("stream 285 (10 all_gather, 10 reduce_scatter): groups of 8" in note for note in report.notes)
    assert any("stream 363 (20 all_to_all): the trace does not name the group" in note for note in report.notes)
    gathers = graph.size_bytes[graph.op == Op.ALL_GATHER]
    assert set(gathers.tolist()) == {8192 * 384 * 4, 8192 * 64 * 4}
    workload, report = converted(trace, tmp_path / "b", replicas=32, shapes={363: GroupShape(2, 8)})
    graph = workload.ranks[19]
    assert (19, 27) in {workload.groups[at].ranks for at in graph.group if at >= 0}
    assert not any("stream 363" in note for note in report.notes)
    assert errors(workload) == []


def described(name: str, nelems: int, ranks: list[int], **more: Any) -> dict[str, Any]:
    """Arguments of a record or kernel, as PyTorch 2.4 writes them."""
    return {
        "Collective name": name, "In msg nelems": nelems, "Out msg nelems": nelems, "dtype": "BFloat16",
        "Group size": len(ranks), "Process Group Name": "dp", "Process Group Ranks": json.dumps(ranks),
        "In split size": "[]", "Out split size": "[]", **more,
    }  # fmt: skip


def kernel(sample: Sample, args: dict[str, Any], at: float, stream: int = 7, correlation: int = 1) -> None:
    sample.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)", at, 20, stream, correlation)
    sample.events[-1]["args"] |= args


@pytest.mark.parametrize("of", ["record", "kernel"])
def test_arguments_give_size_and_group(of: str, tmp_path: Path) -> None:
    for rank in range(2):
        sample = Sample()
        args = described("allreduce", 1000, [0, 1])
        if of == "record":
            sample.operator("record_param_comms", 10, 10, **args)
        sample.launch(1, 12, 4)
        kernel(sample, args if of == "kernel" else {}, 20)
        sample.write(tmp_path, rank, world_size=2)
    for path in tmp_path.glob("host_*"):
        path.unlink()
    workload, report = converted(tmp_path, tmp_path / "out")
    graph = workload.ranks[1]
    at = int(np.flatnonzero(graph.kind == Kind.COLL)[0])
    assert (Op(graph.op[at]), int(graph.size_bytes[at]), int(graph.stream[at])) == (Op.ALL_REDUCE, 2000, 7)
    assert workload.groups[int(graph.group[at])].ranks == (0, 1)
    assert report.notes == []


def one(tmp_path: Path, sample: Sample, **distributed: Any) -> Path:
    host, device = sample.write(tmp_path, 0, **distributed)
    host.unlink()
    return device


def ring(sample: Sample, ranks: list[int], ways: str) -> Sample:
    """Messages of rank 0 around a ring: `>` sends to the next member, `<` receives from the one before."""
    for number, way in enumerate(ways, 1):
        end = {"Dst Rank": ranks[1]} if way == ">" else {"Src Rank": ranks[-1]}
        args = described("send" if way == ">" else "recv", 64, ranks, **end)
        sample.operator("record_param_comms", 100 * number, 10, **args)
        sample.launch(number, 100 * number + 2, 4)
        kernel(sample, {}, 100 * number + 20, correlation=number)
    return sample


def test_symmetric_messages_are_replicated(tmp_path: Path) -> None:
    device = one(tmp_path, ring(Sample(), [0, 2, 4], "><"), world_size=6)
    workload, _ = converted(device, tmp_path / "out", replicas=12)
    peers = {rank: graph.peer[graph.peer >= 0].tolist() for rank, graph in workload.ranks.items()}
    assert peers[0] == [2, 4]
    assert peers[9] == [11, 7]
    assert peers[11] == [7, 9]
    assert errors(workload) == []


def collective(ranks: list[int], **distributed: Any) -> Any:
    def write(folder: Path) -> Path:
        sample = Sample()
        sample.operator("record_param_comms", 10, 10, **described("allreduce", 1000, ranks))
        sample.launch(1, 12, 4)
        kernel(sample, {}, 20)
        return one(folder, sample, **distributed)

    return write


def without_kernels(folder: Path) -> Path:
    sample = Sample()
    sample.operator("aten::mm", 10, 10)
    return one(folder, sample, world_size=1)


def without_size(folder: Path) -> Path:
    sample = Sample()
    sample.operator("record_param_comms", 10, 10)
    sample.annotation("nccl:all_reduce", 11, 8)
    sample.launch(1, 12, 4)
    kernel(sample, {}, 20)
    return one(folder, sample, world_size=2)


@pytest.mark.parametrize(
    ("write", "options", "said"),
    [
        (collective([0, 1], world_size=2), {}, "is of a job of 2 ranks, and ranks [1] have no trace"),
        (collective([0, 1], world_size=2), {}, "--replicate 2"),
        (
            collective([0, 1, 2], world_size=6),
            {"replicas": 7},
            "--replicate 7: group dp has 3 ranks: 3 does not divide",
        ),
        (collective([0, 2], world_size=6), {"replicas": 6}, "2 ranks with ranks 2 apart: 4 does not divide 6"),
        (collective([0, 1, 3], world_size=6), {"replicas": 6}, "which are not evenly apart"),
        (collective([0, 1], world_size=2), {"replicas": 0}, "--replicate 0: give 1 to"),
        (collective([0, 1], world_size=2), {"replicas": 2, "shapes": {9: GroupShape(2)}}, "--group 9=...: no communi"),
        (without_size, {"replicas": 2}, "kernel ncclDevKernel_AllReduce_Sum_bf16_RING_LL at 0.010 ms: neither its"),
        (without_kernels, {}, "has no kernels, copies or communications: give the profile of a job on a GPU"),
        (lambda folder: one(folder, ring(Sample(), [0, 1], ">"), world_size=2), {"replicas": 2}, "is not symmetric"),
    ],
)
def test_what_cannot_be_converted_is_refused(write: Any, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    device = write(tmp_path)
    with pytest.raises(WorkloadError) as wrong:
        convert({}, {0: device}, tmp_path / "out", "workload", **options)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert not (tmp_path / "out").exists()


def test_a_replica_is_made_of_one_trace(tmp_path: Path, shared_data: Path) -> None:
    devices = {rank: shared_data / "hta" / f"world128_rank{rank}_sampled.json.gz" for rank in range(2)}
    with pytest.raises(WorkloadError, match=r"traces of ranks \[0, 1\]; give the file of one of them"):
        convert({}, devices, tmp_path / "out", "workload", replicas=128)


def test_a_replica_says_that_it_is_one(tmp_path: Path, shared_data: Path) -> None:
    workload, report = converted(
        shared_data / "hta" / "world128_rank1_sampled.json.gz", tmp_path / "out", replicas=16384
    )
    assert len(workload.ranks) == workload.world_size == 16384
    assert len(list((tmp_path / "out").glob("*.et"))) == 1
    assert report.notes[0].startswith("all 16384 ranks play the trace of rank 1 of a job of 128")


@given(size=st.integers(1, 12), stride=st.integers(1, 12), blocks=st.integers(1, 5), data=st.data())
def test_groups_of_a_shape_divide_the_job(size: int, stride: int, blocks: int, data: st.DataObject) -> None:
    ranks = size * stride * blocks
    groups = {tuple(GroupShape(size, stride).members(rank)) for rank in range(ranks)}
    assert sorted(member for group in groups for member in group) == list(range(ranks))
    rank = data.draw(st.integers(0, ranks - 1))
    assert rank in GroupShape(size, stride).members(rank)
