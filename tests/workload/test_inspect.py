"""Statistics and findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_files import COMP, RECV, SEND, node, trace

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.inspect import Inspection, Traffic, inspect_workload
from genie.workload.load import load
from genie.workload.synthetic import chain, collective, point_to_point


def codes(inspection: Inspection) -> list[str]:
    return [finding.code for finding in inspection.lints]


def message_of(inspection: Inspection, code: str) -> str:
    [finding] = [finding for finding in inspection.lints if finding.code == code]
    assert "\n" not in finding.message
    assert any(finding.message in line for line in inspection.lines())
    return finding.message


def built(*ranks: RankBuilder, groups: tuple[Group, ...] = ()) -> Workload:
    world = Group("0", tuple(range(len(ranks))))
    graphs = {builder.rank: builder.finish()[0] for builder in ranks}
    return Workload("built", len(ranks), [world, *groups], graphs)


# Statistics


def test_counts_bytes_and_durations() -> None:
    inspection = inspect_workload(collective(Op.ALL_REDUCE, 4, 1000, count=3, compute_ns=500))
    assert inspection.ok
    assert inspection.lints == []
    assert inspection.nodes == {"comp": 12, "coll": 12}
    assert inspection.dependencies == 4 * 5
    assert inspection.traffic == [Traffic("all_reduce", "0", 4, 3, 12_000)]
    [durations] = inspection.durations
    assert (durations.kind, durations.count, durations.total_ns, durations.unknown) == ("comp", 12, 6000, 0)
    assert (durations.median_ns, durations.max_ns) == (500, 500)
    assert (durations.rank_min_ns, durations.rank_max_ns) == (1500, 1500)
    assert inspection.critical_path.length_ns == 1500
    assert inspection.critical_path.nodes == {"comp": 3, "coll": 3}
    assert inspection.critical_path.duration_ns == {"comp": 1500, "coll": 0}


def test_plain_data_and_text() -> None:
    inspection = inspect_workload(point_to_point(1, 0, 64, count=2))
    data = json.loads(json.dumps(inspection.to_dict()))
    assert data["ok"] is True
    assert data["nodes"] == {"send": 2, "recv": 2}
    assert data["traffic"][0] == {"op": "send", "group": None, "members": 1, "count": 2, "size_bytes": 128}
    assert any("2 messages, 128 B" in line for line in inspection.lines())
    assert inspection.lines()[-1].endswith("nothing found")


def test_an_empty_workload() -> None:
    inspection = inspect_workload(built(RankBuilder(0), RankBuilder(1)))
    assert inspection.ok
    assert inspection.nodes == {}
    assert inspection.critical_path.length_ns == 0
    assert inspection.lines()


def test_critical_path_through_all_ranks() -> None:
    """Rank 0 computes 5, sends; rank 1 receives and computes 7; both meet; rank 0 computes 1."""
    first, second = RankBuilder(0), RankBuilder(1)
    first.add(1, "a", Kind.COMP, duration_ns=5)
    first.add(2, "s", Kind.SEND, [1], size_bytes=1, peer=1)
    first.add(3, "c", Kind.COLL, [2], size_bytes=1, op=Op.ALL_REDUCE, group=0)
    first.add(4, "z", Kind.COMP, [3], duration_ns=1)
    second.add(1, "own", Kind.COMP, duration_ns=3)
    second.add(2, "r", Kind.RECV, size_bytes=1, peer=0)
    second.add(3, "b", Kind.COMP, [1, 2], duration_ns=7)
    second.add(4, "c", Kind.COLL, [3], size_bytes=1, op=Op.ALL_REDUCE, group=0)
    path = inspect_workload(built(first, second)).critical_path
    assert path.across_ranks
    assert path.length_ns == 5 + 7 + 1
    assert path.nodes == {"comp": 3, "send": 1, "recv": 1, "coll": 1}
    assert path.duration_ns == {"comp": 13, "send": 0, "recv": 0, "coll": 0}


def test_critical_path_of_a_diamond(tmp_path: Path) -> None:
    times = {5: 10, 3: 20, 9: 30, 7: 5}
    deps = {3: (5,), 9: (5,), 7: (3, 9)}
    nodes = [node(number, COMP, deps.get(number, ()), duration_ns=time) for number, time in times.items()]
    path = inspect_workload(load(trace(tmp_path, nodes))).critical_path
    assert path.length_ns == 45
    assert path.nodes == {"comp": 3}


def test_custom_ring(shared_data: Path) -> None:
    inspection = inspect_workload(load(shared_data / "astra-sim/custom_ring_allreduce_8npus_1MB"))
    assert inspection.ok
    assert inspection.lints == []
    assert inspection.nodes == {"comp": 56, "send": 112, "recv": 112}
    assert inspection.traffic == [
        Traffic("send", None, 8, 112, 8 * 1_835_008),
        Traffic("recv", None, 8, 112, 8 * 1_835_008),
    ]
    assert inspection.critical_path.length_ns == 7 * 7000


@pytest.mark.parametrize("ranks", [4, 8, 16])
@pytest.mark.parametrize("op", ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"])
def test_microbenchmarks(op: str, ranks: int, shared_data: Path) -> None:
    inspection = inspect_workload(load(shared_data / f"astra-sim/microbenchmarks/{op}/{ranks}npus_1MB"))
    assert inspection.lints == []
    assert inspection.traffic == [Traffic(op, "0", ranks, 1, ranks << 20)]


@pytest.mark.parametrize("name", ["dense8", "fsdp8", "moe8"])
def test_stage_generated(name: str, shared_data: Path) -> None:
    inspection = inspect_workload(load(shared_data / "stage-generated" / name))
    assert inspection.ok
    assert codes(inspection) == ["no-duration"]
    assert inspection.critical_path.across_ranks


# Findings


def test_a_cycle() -> None:
    builder = RankBuilder(0)
    builder.add(1, "a", Kind.COMP, [2])
    builder.add(2, "b", Kind.COMP, [1])
    builder.add(3, "c", Kind.COMP, [2])
    inspection = inspect_workload(built(builder))
    assert not inspection.ok
    assert "rank 0: a cycle of 2 nodes: node 1 (a) waits for 2 (b) waits for 1" in message_of(inspection, "cycle")
    assert inspection.critical_path.nodes == {}


def test_dangling_dependencies_are_counted(tmp_path: Path) -> None:
    inspection = inspect_workload(load(trace(tmp_path, [node(1, duration_ns=1, deps=(8, 9))])))
    assert inspection.ok
    assert message_of(inspection, "dangling").startswith("2 dependencies on nodes that are not in the files")
    assert sum("not in the files" in line for line in inspection.lines()) == 1


def test_sends_without_receives_first_in_first_out(tmp_path: Path) -> None:
    sends = [node(number, SEND, comm_dst=1, comm_size=8, comm_tag=number % 2) for number in range(6)]
    receives = [node(number, RECV, comm_src=0, comm_size=8, comm_tag=1) for number in range(4)]
    inspection = inspect_workload(load(trace(tmp_path, sends, receives)))
    found = [finding for finding in inspection.lints if finding.code == "unmatched"]
    assert [finding.count for finding in found] == [3, 1]
    assert found[0].message == "3 sends without a receive: rank 0 node 0 (n0) to rank 1, tag 0"
    assert found[1].message == "1 receives without a send: rank 1 node 3 (n3) from rank 0, tag 1"


def test_a_tag_of_another_pair_does_not_match(tmp_path: Path) -> None:
    sends = [node(1, SEND, comm_dst=1, comm_size=8)]
    inspection = inspect_workload(load(trace(tmp_path, sends, [node(1, RECV, comm_src=2, comm_size=8)], [])))
    assert codes(inspection) == ["unmatched", "unmatched"]


def test_ends_that_disagree_on_the_size(tmp_path: Path) -> None:
    sends = [node(number, SEND, comm_dst=1, comm_size=8) for number in range(3)]
    receives = [node(number, RECV, comm_src=0, comm_size=8 + number // 2) for number in range(3)]
    message = message_of(inspect_workload(load(trace(tmp_path, sends, receives))), "size-mismatch")
    assert message.endswith("rank 0 node 2 (n2) sends 8 B, rank 1 node 2 (n2) receives 9 B")


def test_messages_to_ranks_that_are_not_loaded_are_not_judged(tmp_path: Path) -> None:
    trace(tmp_path, [node(1, SEND, comm_dst=1, comm_size=8)], [])
    assert inspect_workload(load(tmp_path, ranks=[0])).ok
    assert not inspect_workload(load(tmp_path)).ok


def test_the_first_difference_of_a_sequence_is_named() -> None:
    workload = collective(Op.ALL_REDUCE, 4, 100, count=5)
    workload.ranks[2].size_bytes[3] = 50
    workload.ranks[3].op[2] = Op.ALL_GATHER
    inspection = inspect_workload(workload)
    assert message_of(inspection, "sequence") == (
        "group '0': ranks disagree on its collective 2: ranks 0, 1, 2 have all_reduce (100 B); "
        "rank 3 has all_gather (100 B)"
    )
    assert not inspection.critical_path.across_ranks


def test_a_member_that_has_fewer_collectives() -> None:
    ranks = [RankBuilder(rank) for rank in range(3)]
    for rank, builder in enumerate(ranks):
        for seq in range(2 - rank):
            builder.add(seq, "c", Kind.COLL, size_bytes=8, op=Op.ALL_REDUCE, group=0)
    assert message_of(inspect_workload(built(*ranks)), "sequence") == (
        "group '0': ranks disagree on its collective 0: ranks 0, 1 have all_reduce (8 B); rank 2 has nothing"
    )


def test_roots_that_differ() -> None:
    workload = collective(Op.BROADCAST, 2, 100)
    workload.ranks[1].root[0] = 1
    assert "rank 0 has broadcast (100 B, root at position 0); rank 1 has" in message_of(
        inspect_workload(workload), "sequence"
    )


def uneven(sent: list[list[int]], received: list[list[int]]) -> Workload:
    builders = [RankBuilder(rank) for rank in range(len(sent))]
    for rank, builder in enumerate(builders):
        splits = (sent[rank], received[rank])
        builder.add(1, "a2a", Kind.COLL, size_bytes=sum(sent[rank]), op=Op.ALL_TO_ALL, group=0, splits=splits)
    return built(*builders)


def test_uneven_collectives_may_differ_in_size() -> None:
    assert inspect_workload(uneven([[1, 2], [3, 4]], [[1, 3], [2, 4]])).lints == []


def test_splits_that_contradict_each_other() -> None:
    inspection = inspect_workload(uneven([[1, 2], [3, 4]], [[1, 5], [2, 4]]))
    assert message_of(inspection, "splits") == (
        "group '0': collective 0: rank 1 sends 3 B to rank 0, which receives 5 B"
    )


def test_splits_on_some_ranks_only() -> None:
    workload = uneven([[1, 2], [2, 1]], [[1, 2], [2, 1]])
    workload.ranks[1].splits.clear()
    assert "rank 0 has all_to_all (uneven, 3 B); rank 1 has all_to_all (3 B)" in message_of(
        inspect_workload(workload), "sequence"
    )


def test_collectives_and_messages_without_a_size() -> None:
    workload = collective(Op.ALL_REDUCE, 2, 100, count=2)
    for graph in workload.ranks.values():
        graph.size_bytes[1] = -1
    message = message_of(inspect_workload(workload), "no-size")
    assert message == "2 collectives or messages without a size, the first is rank 0 node 1 (all_reduce 1)"
    assert inspect_workload(collective(Op.BARRIER, 2, 0)).ok


def test_compute_without_a_duration_is_a_warning(tmp_path: Path) -> None:
    inspection = inspect_workload(load(trace(tmp_path, [node(1), node(2, duration_ns=1)])))
    assert inspection.ok
    assert message_of(inspection, "no-duration").startswith("1 compute nodes without a duration")


def test_collectives_in_opposite_order_are_a_deadlock() -> None:
    """Each group's sequence is the same on both ranks, and still nobody can go on."""
    pairs = (Group("a", (0, 1)), Group("b", (0, 1)))
    first, second = RankBuilder(0), RankBuilder(1)
    for builder, order in ((first, (1, 2)), (second, (2, 1))):
        for seq, group in enumerate(order):
            name = pairs[group - 1].name
            builder.add(
                seq, name, Kind.COLL, range(seq), size_bytes=8, op=Op.ALL_REDUCE, group=group
            )  # fmt: skip
    inspection = inspect_workload(built(first, second, groups=pairs))
    message = message_of(inspection, "deadlock")
    assert not inspection.ok
    for part in ("rank 0 node 0 (a)", "rank 1 node 1 (a)", "rank 1 node 0 (b)", "rank 0 node 1 (b)"):
        assert part in message


def test_receives_in_a_circle_are_a_deadlock() -> None:
    ranks = [RankBuilder(rank) for rank in range(3)]
    for rank, builder in enumerate(ranks):
        builder.add(1, "r", Kind.RECV, size_bytes=8, peer=(rank - 1) % 3)
        builder.add(2, "s", Kind.SEND, [1], size_bytes=8, peer=(rank + 1) % 3)
    message = message_of(inspect_workload(built(*ranks)), "deadlock")
    assert message.count(" waits for ") == 6


def test_sends_first_are_no_deadlock() -> None:
    ranks = [RankBuilder(rank) for rank in range(3)]
    for rank, builder in enumerate(ranks):
        builder.add(1, "s", Kind.SEND, size_bytes=8, peer=(rank + 1) % 3)
        builder.add(2, "r", Kind.RECV, [1], size_bytes=8, peer=(rank - 1) % 3)
    assert inspect_workload(built(*ranks)).lints == []


def test_many_groups_alike_share_a_line() -> None:
    pairs = tuple(Group(f"g{index}", (2 * index, 2 * index + 1)) for index in range(6))
    ranks = [RankBuilder(rank) for rank in range(12)]
    for rank, builder in enumerate(ranks):
        builder.add(1, "c", Kind.COLL, size_bytes=8, op=Op.ALL_REDUCE, group=1 + rank // 2)
    inspection = inspect_workload(built(*ranks, groups=pairs))
    assert len(inspection.traffic) == 6
    [line] = [line for line in inspection.lines() if "all_reduce" in line]
    assert "1 all_reduce in each of 6 groups ('g0', 'g1', 'g2', 'g3', ...) of 2 ranks, 96 B in total" in line


def test_chain_is_clean() -> None:
    workload = chain(1000, ranks=2)
    inspection = inspect_workload(workload)
    assert inspection.lints == []
    graph = workload.ranks[0]
    assert inspection.critical_path.length_ns == int(graph.duration_ns.sum())
