"""Nodes for launches, streams, waits and threads, on profiles of a few events."""

from __future__ import annotations

from pathlib import Path

import pytest
from chakra_protobuf.et_def_pb2 import NodeType
from pytorch_samples import BACKWARD, MAIN, WORKER, Sample, find, reaches, tensor

COMPUTE, SIDE, NCCL = 7, 20, 30


def test_host_time_is_cut_at_launches(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::mm", 0, 30)
    sample.launch(1, 10, 5)
    sample.kernel("mm", 12, 100, COMPUTE, 1)  # starts while the launch still runs
    sample.operator("aten::add", 40, 20)
    sample.launch(2, 45, 5)
    sample.kernel("add", 112, 7, COMPUTE, 2)
    nodes, notes = sample.timeline(tmp_path)
    assert [(node.name, node.on_cpu, node.duration_ns, node.deps) for node in nodes] == [
        ("aten::mm", True, 12_000, []),
        ("mm", False, 100_000, [0]),
        ("aten::add", True, 38_000, [0]),
        ("add", False, 7_000, [1, 2]),
        ("aten::add", True, 10_000, [2]),
    ]
    assert (nodes[1].stream, nodes[1].launched_by) == (COMPUTE, "aten::mm")
    assert notes == []


def test_times_may_be_fractions_of_a_microsecond(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::mm", 4376055921753.121, 20.5)
    sample.launch(1, 4376055921755.125, 2.25)
    sample.kernel("mm", 4376055921758.5, 1.375, COMPUTE, 1)
    nodes, _ = sample.timeline(tmp_path)
    assert [node.duration_ns for node in nodes] == [pytest.approx(4254, abs=1), 1375, pytest.approx(16246, abs=1)]


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"])
def test_what_the_host_waits_for_is_not_its_own_time(tmp_path: Path, call: str) -> None:
    sample = Sample()
    sample.operator("aten::item", 0, 200)
    sample.launch(1, 10, 5)
    sample.kernel("long", 15, 135, COMPUTE, 1)
    sample.call(call, 20, 140, 9)  # returns at 160, 10 µs after the kernel has ended
    nodes, _ = sample.timeline(tmp_path)
    host = [node for node in nodes if node.on_cpu]
    assert [node.duration_ns for node in host] == [15_000, 5_000, 50_000]
    assert find(nodes, "long") in host[2].deps


def test_a_synchronization_with_nothing_under_way_adds_nothing(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::item", 0, 200)
    sample.launch(1, 10, 5)
    sample.kernel("short", 15, 5, COMPUTE, 1)
    sample.call("cudaEventSynchronize", 100, 2, 9)
    nodes, _ = sample.timeline(tmp_path)
    assert [node.duration_ns for node in nodes if node.on_cpu] == [15_000, 185_000]
    assert not any(find(nodes, "short") in node.deps for node in nodes)


@pytest.mark.parametrize(("memory", "blocks"), [("Pageable", True), ("Pinned", False)])
def test_a_copy_to_pageable_memory_holds_the_host(tmp_path: Path, memory: str, blocks: bool) -> None:
    sample = Sample()
    sample.operator("aten::item", 0, 300)
    sample.launch(1, 10, 5)
    sample.kernel("long", 20, 150, COMPUTE, 1)
    sample.call("cudaMemcpyAsync", 30, 145, 2)
    sample.copy(f"Memcpy DtoH (Device -> {memory})", 171, 2, COMPUTE, 2, 4096)
    nodes, _ = sample.timeline(tmp_path)
    copy = find(nodes, f"Memcpy DtoH (Device -> {memory})")
    assert (nodes[copy].type, nodes[copy].tensor_bytes) == (NodeType.MEM_STORE_NODE, 4096)
    assert (copy in nodes[-1].deps) is blocks


def two_streams(side_end: float) -> Sample:
    """A copy on SIDE, then a wait for an event, then a kernel on COMPUTE at 60."""
    sample = Sample()
    sample.operator("aten::x", 0, 100)
    sample.call("cudaMemcpyAsync", 5, 2, 1)
    sample.copy("Memcpy HtoD (Pinned -> Device)", 10, side_end - 10, SIDE, 1, 64)
    sample.call("cudaStreamWaitEvent", 20, 1, 2)
    sample.launch(3, 40, 5)
    sample.kernel("after", 60, 5, COMPUTE, 3)
    return sample


def test_a_wait_for_an_unknown_event_is_for_what_other_streams_had(tmp_path: Path) -> None:
    nodes, _ = two_streams(side_end=58).timeline(tmp_path)
    assert find(nodes, "Memcpy HtoD (Pinned -> Device)") in nodes[find(nodes, "after")].deps


def test_recorded_times_can_contradict_such_a_wait(tmp_path: Path) -> None:
    nodes, _ = two_streams(side_end=70).timeline(tmp_path)
    assert find(nodes, "Memcpy HtoD (Pinned -> Device)") not in nodes[find(nodes, "after")].deps


def test_a_wait_for_a_known_event_is_for_what_came_before_the_event(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::x", 0, 100)
    for correlation, name in ((1, "first"), (3, "second")):
        sample.launch(correlation, 10 * correlation, 2)
        sample.kernel(name, 10 * correlation + 3, 4, SIDE, correlation)
    sample.call("cudaEventRecord", 20, 1, 2)
    sample.call("cudaStreamWaitEvent", 50, 1, 4)
    sample.synchronization(4, stream=COMPUTE, wait_on_stream=SIDE, wait_on_cuda_event_record_corr_id=2)
    sample.launch(5, 60, 2)
    sample.kernel("after", 65, 4, COMPUTE, 5)
    nodes, _ = sample.timeline(tmp_path)
    on_device = [dep for dep in nodes[find(nodes, "after")].deps if not nodes[dep].on_cpu]
    assert on_device == [find(nodes, "first")]


def test_backward_pass_on_a_thread_of_its_own(tmp_path: Path) -> None:
    sample = Sample()
    sample.annotation("ProfilerStep#3", 0, 200)
    sample.operator("aten::sum", 0, 20)
    sample.annotation("## backward ##", 25, 100)
    sample.operator("autograd::engine::evaluate_function: MmBackward0", 30, 80, BACKWARD)
    sample.launch(1, 40, 5, BACKWARD)
    sample.kernel("gradient", 46, 10, COMPUTE, 1)
    sample.operator("aten::add_", 150, 20)
    sample.call("cudaDeviceSynchronize", 300, 50, 9)  # the profiler's, after the step
    nodes, _ = sample.timeline(tmp_path)
    assert [(node.name, node.on_cpu, node.duration_ns) for node in nodes] == [
        ("## backward ##", True, 30_000),
        ("autograd::engine::evaluate_function: MmBackward0", True, 15_000),
        ("gradient", False, 10_000),
        ("autograd::engine::evaluate_function: MmBackward0", True, 65_000),
        ("host", True, 90_000),
    ]
    assert [node.deps for node in nodes] == [[], [0], [1], [1], [3, 0]]
    assert sum(node.duration_ns for node in nodes if node.on_cpu) == 200_000, "no time twice, none lost"


def test_a_collective_waits_for_its_stream_and_is_waited_for_by_name(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::mm", 0, 20)
    sample.launch(1, 5, 5)
    sample.kernel("produce", 12, 20, COMPUTE, 1)
    sample.communication("allreduce", 30, 20, [tensor(256)], [tensor(256)], sequence=5)
    sample.call("cudaStreamWaitEvent", 31, 1, 2)
    sample.launch(3, 35, 5)
    sample.kernel("ncclKernel_AllReduce", 41, 5000, NCCL, 3)
    sample.operator("aten::relu", 55, 10)
    sample.launch(4, 56, 4)
    sample.kernel("beside", 62, 10, COMPUTE, 4)
    sample.communication("wait", 70, 3, [], [], sequence=5)
    sample.call("cudaStreamWaitEvent", 71, 1, 5)
    sample.operator("aten::sgd", 80, 10)
    sample.launch(6, 81, 4)
    sample.kernel("consume", 5042, 10, COMPUTE, 6)
    nodes, _ = sample.timeline(tmp_path)
    collective = find(nodes, "allreduce")
    assert (nodes[collective].duration_ns, nodes[collective].stream) == (0, NCCL)
    assert find(nodes, "produce") in nodes[collective].deps
    assert not reaches(nodes, find(nodes, "beside"), collective)
    assert collective in nodes[find(nodes, "consume")].deps
    assert "ncclKernel_AllReduce" not in [node.name for node in nodes]


def test_a_group_of_calls_is_carried_by_one_kernel(tmp_path: Path) -> None:
    sample = Sample()
    sample.communication("send", 10, 5, [tensor(16)], [tensor(16)], sequence=1, peer=1)
    sample.communication("recv", 20, 5, [tensor(16)], [tensor(16)], sequence=2, peer=1)
    sample.operator("aten::end_group", 30, 20)
    sample.launch(1, 35, 5)
    sample.kernel("ncclDevKernel_SendRecv", 41, 50, NCCL, 1)
    nodes, notes = sample.timeline(tmp_path)
    assert [node.name for node in nodes if node.communication] == ["send", "recv"]
    assert {node.stream for node in nodes if node.communication} == {NCCL}
    assert not reaches(nodes, find(nodes, "recv"), find(nodes, "send")), "they go at the same time"
    assert notes == []


def test_a_collective_of_one_rank_has_no_kernel(tmp_path: Path) -> None:
    sample = Sample()
    sample.communication("allreduce", 10, 5, [tensor(16)], [tensor(16)], sequence=1)
    sample.operator("aten::mm", 30, 20)
    sample.launch(1, 35, 5)
    sample.kernel("mm", 41, 50, COMPUTE, 1)
    nodes, _ = sample.timeline(tmp_path)
    assert nodes[find(nodes, "allreduce")].stream == -1


def test_operators_of_the_host_without_what_they_wait_for(tmp_path: Path) -> None:
    sample = Sample()
    on_cpu = [tensor(1024, device="cpu")]
    sample.operator("aten::mm", 0, 40)
    sample.operator("aten::resolve_conj", 5, 10)  # within: its time counts once
    sample.communication("_allgather_base", 50, 9, on_cpu, [tensor(4096, device="cpu")], sequence=1)
    sample.annotation("gloo:all_gather", 55, 300, WORKER)
    sample.operator("aten::relu", 60, 30)
    sample.communication("wait", 100, 260, [], [], sequence=1)
    sample.operator("aten::add", 365, 35)
    nodes, notes = sample.timeline(tmp_path)
    assert [(node.name, node.duration_ns, node.deps) for node in nodes] == [
        ("aten::mm", 40_000, []),
        ("record_param_comms", 10_000, [0]),  # up to the call
        ("_allgather_base", 0, [1]),
        ("aten::relu", 31_000, [1]),
        ("record_param_comms", 10_000, [3]),  # up to the wait
        ("aten::add", 40_000, [2, 4]),
    ]
    assert notes == []


def test_waits_that_gloo_does_not_record_are_inferred(tmp_path: Path) -> None:
    sample = Sample()
    schema = "c10d::allreduce_(Tensor[] tensors, ProcessGroup group, int timeout) -> Tensor[]"
    sample.operator("AllReduce", 0, 400)
    sample.operator("aten::mm", 0, 40)
    sample.operator("c10d::allreduce_", 50, 10)
    sample.node("c10d::allreduce_", [[tensor(64, device="cpu")], "<Object>", -1], [], schema)
    sample.annotation("gloo:all_reduce", 55, 300, WORKER)
    sample.operator("aten::add", 360, 40)
    nodes, notes = sample.timeline(tmp_path)
    collective = find(nodes, "allreduce")
    after = [node for node in nodes if collective in node.deps]
    assert [(node.name, node.duration_ns) for node in after] == [("AllReduce", 45_000)], "from 355 on"
    assert notes == ["waits for gloo's collectives inferred from silence: the trace records none"]


def test_kernels_from_before_the_profile_keep_their_place_in_the_stream(tmp_path: Path) -> None:
    sample = Sample()
    sample.operator("aten::mm", 0, 40, MAIN)
    sample.kernel("earlier", 1, 10, COMPUTE, 77)
    sample.launch(1, 5, 5)
    sample.kernel("mm", 12, 10, COMPUTE, 1)
    nodes, _ = sample.timeline(tmp_path)
    assert nodes[find(nodes, "earlier")].deps == []
    assert find(nodes, "earlier") in nodes[find(nodes, "mm")].deps
