"""MSCCL's algorithms as traces: the messages that another converter makes of the same file, and nothing for lint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from genie.collectives.msccl.algorithm import load_msccl
from genie.plan.build import MESSAGE_MAX_BYTES, build_plan
from genie.plan.lowering import Lowering
from genie.plan.msccl_trace import SLOTS, msccl_workload
from genie.workload.graph import Kind, Op, RankGraph, Workload, WorkloadError
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.synthetic import collective

RING = "astra-sim/custom_ring_allreduce_8npus_1MB"
FILES = ["msccl/ndv4/a2a2ll.xml", "msccl/ndv4/ag-1k-512k.xml", "msccl/ndv4/r48ll.xml", f"{RING}/custom_allreduce.xml"]
MIB = 1 << 20


def messages(workload: Workload) -> Counter[tuple[int, int, int]]:
    """(from, to, bytes) of every send; those of receives must be the same."""
    found: dict[Kind, Counter[tuple[int, int, int]]] = {Kind.SEND: Counter(), Kind.RECV: Counter()}
    for rank, graph in workload.ranks.items():
        for kind, counts in found.items():
            for row in (graph.kind == kind).nonzero()[0]:
                ends = (rank, int(graph.peer[row]))
                counts[(*(ends if kind is Kind.SEND else ends[::-1]), int(graph.size_bytes[row]))] += 1
    assert found[Kind.SEND] == found[Kind.RECV]
    return found[Kind.SEND]


def kinds(graph: RankGraph) -> dict[str, int]:
    return {kind.name: int((graph.kind == kind).sum()) for kind in (Kind.SEND, Kind.RECV, Kind.COMP)}


def test_the_ring_is_what_astra_sim_makes_of_it(shared_data: Path) -> None:
    theirs = load(shared_data / RING)
    ours = msccl_workload(load_msccl(str(shared_data / FILES[-1])), MIB, reduction_ns=7000)
    assert messages(ours) == messages(theirs)
    assert messages(ours).total() == 112
    for rank in range(8):
        assert kinds(ours.ranks[rank]) == kinds(theirs.ranks[rank]) == {"SEND": 14, "RECV": 14, "COMP": 7}
        sent = ours.ranks[rank].size_bytes[ours.ranks[rank].kind == Kind.SEND]
        assert int(sent.sum()) == 1_835_008
        reductions = ours.ranks[rank].duration_ns[ours.ranks[rank].kind == Kind.COMP]
        assert set(reductions.tolist()) == {7000}


@pytest.mark.parametrize("name", FILES)
def test_traces_are_sound(name: str, shared_data: Path) -> None:
    workload = msccl_workload(load_msccl(str(shared_data / name)), MIB)
    inspection = inspect_workload(workload)
    assert inspection.lines()[-1].split() == ["lint", "nothing", "found"]
    for graph in workload.ranks.values():
        assert kinds(graph)["COMP"] == 0
        sends = graph.kind == Kind.SEND
        by_stream = Counter(graph.stream[sends].tolist())
        assert max(by_stream.values()) <= -(-int(sends.sum()) // SLOTS), (
            "sends of a thread block are under way together"
        )


def test_a_size_must_fall_into_chunks(shared_data: Path) -> None:
    algorithm = load_msccl(str(shared_data / "msccl/ndv4/ag-1k-512k.xml"))
    assert messages(msccl_workload(algorithm, 2)).keys() == {(a, b, 1) for a in range(8) for b in range(8) if a != b}
    with pytest.raises(WorkloadError, match=r"^3 B: must be a multiple of 2, the chunks of .*ag-1k-512k.xml$"):
        msccl_workload(algorithm, 3)
    largest = 2 * MESSAGE_MAX_BYTES
    assert messages(msccl_workload(algorithm, largest)).keys() >= {(0, 1, MESSAGE_MAX_BYTES)}
    with pytest.raises(WorkloadError, match=rf"are more than a message has, 2147483647 B: give {largest} B or less$"):
        msccl_workload(algorithm, largest + 2)


def test_a_plan_takes_the_file_where_it_fits(shared_data: Path) -> None:
    path = str(shared_data / FILES[2])
    lowering = Lowering(algorithms={"all_reduce": f"msccl:{path}", "all_gather": "ring"})
    assert lowering.msccl_files == {"all_reduce": path}
    names = {}
    for size_bytes in (MIB, MIB + 4):
        plan = build_plan(collective(Op.ALL_REDUCE, 8, size_bytes), lowering=lowering)
        names[size_bytes] = plan.algorithms
    assert names == {MIB: {"all_reduce msccl:allreduce_ring_4channelsperring": 8}, MIB + 4: {"all_reduce ring": 8}}
    with pytest.raises(WorkloadError, match="is for 8 members, and all_reduce-4x1048576 has groups of 4 only"):
        build_plan(collective(Op.ALL_REDUCE, 4, MIB), lowering=lowering)
