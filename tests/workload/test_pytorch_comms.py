"""Content of each communication in a host trace, in all schemas, and members of the groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytorch_samples import Sample, tensor

from chakra_schemas.attributes import attributes_of
from chakra_schemas.reader import read_trace
from genie.workload.graph import Op, WorkloadError
from genie.workload.load import load
from genie.workload.pytorch.communications import Communication, Role, find_communications, role_of
from genie.workload.pytorch.convert import convert
from genie.workload.pytorch.groups import agree
from genie.workload.pytorch.join import join
from genie.workload.pytorch.trace import read_host_trace

INIT = "## process_group:init ##"


def only(sample: Sample, folder: Path) -> Communication:
    found = [call for call in find_communications(sample.read(folder)[0]) if call.moves_data]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("name", "role", "op"),
    [
        ("allreduce", Role.COLLECTIVE, Op.ALL_REDUCE),
        ("allreduce_coalesced", Role.COLLECTIVE, Op.ALL_REDUCE),
        ("_allgather_base", Role.COLLECTIVE, Op.ALL_GATHER),
        ("all_gather_into_tensor_coalesced", Role.COLLECTIVE, Op.ALL_GATHER),
        ("_reduce_scatter_base", Role.COLLECTIVE, Op.REDUCE_SCATTER),
        ("c10d::reduce_scatter_tensor_coalesced_", Role.COLLECTIVE, Op.REDUCE_SCATTER),
        ("_reduce_oop", Role.COLLECTIVE, Op.REDUCE),
        ("_broadcast_oop", Role.COLLECTIVE, Op.BROADCAST),
        ("all_to_allv", Role.COLLECTIVE, Op.ALL_TO_ALL),
        ("c10d::alltoall_base_", Role.COLLECTIVE, Op.ALL_TO_ALL),
        ("gather", Role.COLLECTIVE, Op.GATHER),
        ("scatter", Role.COLLECTIVE, Op.SCATTER),
        ("barrier", Role.COLLECTIVE, Op.BARRIER),
        ("send", Role.SEND, Op.NONE),
        ("recvAnySource", Role.RECV, Op.NONE),
        ("wait", Role.WAIT, Op.NONE),
        ("coalesced", Role.NOTHING, Op.NONE),
    ],
)
def test_names_of_collectives(name: str, role: Role, op: Op) -> None:
    assert role_of(name) == (role, op)


def test_an_unknown_collective_is_an_error_that_names_it(tmp_path: Path) -> None:
    sample = Sample()
    sample.communication("swizzle", 0, 1, [tensor(4)], [tensor(4)], sequence=1)
    with pytest.raises(WorkloadError, match=r"call 2 \(record_param_comms\): unknown collective 'swizzle'"):
        only(sample, tmp_path)


@pytest.mark.parametrize(
    ("name", "in_elements", "out_elements", "size_bytes"),
    [
        ("allreduce", 256, 256, 1024),
        ("broadcast", 256, 256, 1024),
        ("_allgather_base", 64, 256, 256),
        ("_reduce_scatter_base", 256, 64, 1024),
        ("all_to_all", 256, 256, 1024),
        ("gather", 64, 256, 256),
        ("scatter", 256, 64, 1024),  # on the root
        ("scatter", 0, 64, 1024),  # elsewhere
        ("barrier", 1, 1, 0),
    ],
)
def test_sizes_follow_the_convention(
    tmp_path: Path, name: str, in_elements: int, out_elements: int, size_bytes: int
) -> None:
    sample = Sample()
    sample.communication(name, 0, 1, [tensor(in_elements)], [tensor(out_elements)], 1, rest=(0, 1, 4))
    assert only(sample, tmp_path).size_bytes == size_bytes


def test_splits_count_rows_of_the_first_dimension(tmp_path: Path) -> None:
    sample = Sample()
    splits = ([1, 2, 5, 0], [2, 2, 0, 0])  # rows of 16 elements of 2 bytes
    sample.communication("all_to_allv", 0, 1, [tensor(8 * 16, 2)], [tensor(4 * 16, 2)], 1, splits=splits)
    call = only(sample, tmp_path)
    assert (call.to_each, call.from_each) == ([32, 64, 160, 0], [64, 64, 0, 0])
    assert call.size_bytes == 256


def test_a_barrier_and_the_all_reduce_that_carries_it_out_are_one(tmp_path: Path) -> None:
    sample = Sample()
    barrier = sample.node("record_param_comms", [[], 4, ["0", ""], 0, "barrier", [], []], [])
    values = [[tensor(1)], 5, ["0", ""], 0, "allreduce", [], []]
    sample.node("record_param_comms", values, [[tensor(1)]], parent=barrier)
    assert only(sample, tmp_path).op is Op.BARRIER


def test_root_and_tag_come_from_the_operator_around_the_record(tmp_path: Path) -> None:
    sample = Sample()
    schema = "c10d::broadcast_(Tensor[] tensors, __torch__.ProcessGroup group, int root_rank, int root_tensor) -> Work"
    outer = sample.node("c10d::broadcast_", [[tensor(8)], "<Object>", 3, 0], [], schema)
    values = [[tensor(8)], 5, ["0", ""], 0, "broadcast", [], [], 0, 1, 4]
    sample.node("record_param_comms", values, [[tensor(8)]], parent=outer)
    call = only(sample, tmp_path)
    assert (call.op, call.root, call.size_bytes) == (Op.BROADCAST, 3, 32)


def test_an_operator_without_a_record_tells_by_its_signature(tmp_path: Path) -> None:
    sample = Sample()
    schema = (
        "c10d::alltoall_base_(Tensor output, Tensor input, __torch__.torch.classes.c10d.ProcessGroup process_group, "
        "int[] output_split_sizes, int[] input_split_sizes, int timeout=-1) -> __torch__.torch.classes.c10d.Work"
    )
    values = [tensor(6, device="cpu"), tensor(4, device="cpu"), "<Object>", [2, 4], [1, 3], -1]
    sample.node("c10d::alltoall_base_", values, [], schema)
    call = only(sample, tmp_path)
    assert (call.size_bytes, call.to_each, call.from_each) == (16, [4, 12], [8, 16])
    assert not call.on_device


def pipeline_rank(rank: int) -> Sample:
    """Ranks 2 and 3 of a job, a group of their own: the first sends to the second under tag 7."""
    sample = Sample()
    name, peer_name = ("send", "dst") if rank == 2 else ("recv_", "src")
    schema = f"c10d::{name}(Tensor[] tensors, ProcessGroup group, int {peer_name}, int tag) -> Work"
    outer = sample.node(f"c10d::{name}", [[tensor(32)], "<Object>", 3 - rank, 7], [], schema)
    recorded = name.strip("_")
    values = [[tensor(32)], [1, True], ["9", "pipe"], 3 - rank, recorded, [], [], 2, 1, 2]
    sample.node("record_param_comms", values, [[tensor(32)]], parent=outer)
    return sample


def test_peers_are_ranks_of_the_job(tmp_path: Path) -> None:
    host = {rank: pipeline_rank(rank).write(tmp_path, rank)[0] for rank in (2, 3)}
    report = convert(host, {}, tmp_path / "out", "pipe")
    assert report.groups == {"9": [2, 3]}
    for rank in (2, 3):
        nodes = list(read_trace(tmp_path / "out" / f"pipe.{rank}.et").nodes)
        attributes = attributes_of(nodes[0])
        assert [attributes[key] for key in ("comm_src", "comm_dst", "comm_tag", "comm_size")] == [2, 3, 7, 128]


def test_a_receive_from_any_source_is_an_error(tmp_path: Path) -> None:
    sample = Sample()
    sample.communication("recvAnySource", 0, 1, [tensor(8)], [tensor(8)], 1, peer=-1, rest=(0, 1, 2))
    with pytest.raises(WorkloadError, match="a receive from any source cannot be converted"):
        convert({0: sample.write(tmp_path)[0]}, {}, tmp_path / "out", "job")


def test_arguments_that_make_no_sense_are_one_clear_line(tmp_path: Path) -> None:
    sample = Sample()
    sample.node("record_param_comms", [[tensor(8)], None, ["0", ""], 0, "allreduce", [], []], [])
    with pytest.raises(WorkloadError, match=r"call 2 \(record_param_comms\): its arguments cannot be read"):
        only(sample, tmp_path)


def write_groups(folder: Path, init: dict[int, list[dict[str, Any]]], group: dict[int, str]) -> dict[int, Path]:
    """Host traces of ranks that list `init` and all-reduce once in the group named `group`."""
    paths = {}
    for rank, entries in init.items():
        sample = Sample()
        sample.node(INIT, [json.dumps(entries)], [])
        sample.communication("allreduce", 0, 1, [tensor(8)], [tensor(8)], 1, group=(group[rank], ""))
        paths[rank] = sample.write(folder, rank)[0]
    return paths


def test_an_empty_list_of_ranks_is_everyone_and_one_name_may_be_several_groups(tmp_path: Path) -> None:
    world = {"pg_name": "0", "ranks": [], "group_size": 4}
    pairs = {rank: [world, {"pg_name": "tp", "ranks": [rank & 2, rank & 2 | 1], "group_size": 2}] for rank in range(4)}
    report = convert(write_groups(tmp_path, pairs, dict.fromkeys(range(4), "tp")), {}, tmp_path / "out", "job")
    assert report.groups == {"0": [0, 1, 2, 3], "tp.0": [0, 1], "tp.1": [2, 3]}
    workload = load(tmp_path / "out")
    names = [workload.groups[int(workload.ranks[rank].group[0])].name for rank in range(4)]
    assert names == ["tp.0", "tp.0", "tp.1", "tp.1"]


def test_members_are_rebuilt_where_the_profile_cuts_them(tmp_path: Path) -> None:
    sample = Sample()
    rest = (3, 8, 40)  # first rank, stride, size
    sample.communication("allreduce", 0, 1, [tensor(8)], [tensor(8)], 1, group=("5", "data"), rest=rest)
    sample.events[0]["args"]["Process Group Ranks"] = "[3, 11, 19, ...]"
    host, device = sample.write(tmp_path, rank=11)
    report = convert({11: host}, {11: device}, tmp_path / "out", "job")
    assert report.groups == {"5": list(range(3, 320, 8))}


def test_groups_known_by_address_only(tmp_path: Path) -> None:
    def sample_of(*calls: tuple[int, list[int]]) -> Path:
        sample = Sample()
        for sequence, (address, split) in enumerate(calls):
            values = [[tensor(sum(split))], sequence, address, 0, "all_to_allv", split, split]
            sample.node("record_param_comms", values, [[tensor(sum(split))]])
        return sample.write(tmp_path)[0]

    report = convert({0: sample_of((94594108284448, [1, 2, 3]))}, {}, tmp_path / "out", "job")
    assert report.groups == {"0": [0, 1, 2]}
    with pytest.raises(WorkloadError, match=r"is in backend 22, and no trace says which ranks that is"):
        convert({0: sample_of((11, [1, 2, 3]), (22, [1, 2]))}, {}, tmp_path / "out", "job")


def test_a_rank_outside_the_group_that_it_uses_is_an_error(tmp_path: Path) -> None:
    pair = {"pg_name": "tp", "ranks": [2, 3], "group_size": 2}
    with pytest.raises(WorkloadError, match=r"rank 0 takes part in group 'tp', whose ranks are \[2, 3\]"):
        convert(write_groups(tmp_path, {0: [pair]}, {0: "tp"}), {}, tmp_path / "out", "job")


def test_names_that_agree_are_kept() -> None:
    assert agree({0: {"a": (0, 1)}, 1: {"a": (0, 1), "b": (1,)}})[0] == {"a": (0, 1), "b": (1,)}


def test_ranks_that_disagree_are_reported_with_the_first_difference(tmp_path: Path) -> None:
    host = {}
    for rank, second in ((0, "allreduce"), (1, "broadcast")):
        sample = Sample()
        for sequence, name in enumerate(("allreduce", second)):
            sample.communication(name, 10 * sequence, 1, [tensor(8)], [tensor(8)], sequence, rest=(0, 1, 2))
        host[rank] = sample.write(tmp_path, rank)[0]
    report = convert(host, {}, tmp_path / "out", "job")
    assert report.notes == ["group '0': collective 1 is all_reduce on rank 0, broadcast on rank 1"]


def test_traces_of_different_iterations_do_not_join(tmp_path: Path) -> None:
    sample = Sample()
    sample.communication("allreduce", 0, 1, [tensor(8)], [tensor(8)], 1)
    host, device = sample.read(tmp_path)
    calls = find_communications(host)
    assert len(join(host, calls, device)[0]) == 1
    device.operators *= 2
    with pytest.raises(WorkloadError, match="both traces must be of the same iteration of the same rank"):
        join(host, calls, device)
    device.operators = device.operators[:1]
    device.operators[0].args["Record function id"] = 99
    with pytest.raises(WorkloadError, match="record function id 99 is not in"):
        join(host, calls, device)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a JSON trace"),
        (b"\x1f\x8b\x08\x00cut", "cannot be read"),
        (b"[1, 2]", "expected a PyTorch host execution trace .*this is not one"),
        (b'{"schema": "1.1.0", "nodes": [{"id": 1}]}', "a node of schema 1.1.0 lacks 'parent'"),
    ],
)
def test_a_file_that_is_no_trace_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message) as error:
        read_host_trace(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
