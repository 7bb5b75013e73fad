"""AICB's workloads as jobs: the passes in SimAI's order, every rank in groups of its own, sizes by our convention."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from genie.workload.aicb.build import SerialRank
from genie.workload.aicb.convert import Converted, Given, convert_aicb
from genie.workload.aicb.layers import parse_layers
from genie.workload.aicb.parallel import Parallelism
from genie.workload.aicb.passes import play_layers
from genie.workload.graph import Kind, Op, RankGraph, WorkloadError
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.write import save

GPT = "aicb/simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"
LLAMA = "aicb/simAI/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt"
ROWS = [
    "a -1 10 ALLREDUCE 400 20 NONE 0 30 ALLREDUCE 800 5",
    "b -1 11 NONE 0 21 ALLREDUCE 400 31 REDUCESCATTER 800 5",
]


def played(rows: list[str], head: str = "", passes: int = 1) -> list[str]:
    """Nodes of a rank of 2 x 2, each with the nodes that it waits for."""
    text = "\n".join([f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {head}", str(len(rows)), *rows])
    rank = SerialRank(Parallelism(4, 2, 1, 1))
    play_layers(parse_layers(text, "drawn.txt"), rank, passes)
    graph, _ = rank.builder.finish()
    return [
        f"{name_of(graph, row)} < {', '.join(name_of(graph, int(dep)) for dep in deps_of(graph, row))}".removesuffix(
            " < "
        )
        for row in range(len(graph))
    ]


def deps_of(graph: RankGraph, row: int) -> list[int]:
    return graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]].tolist()


def name_of(graph: RankGraph, row: int) -> str:
    if graph.kind[row] == Kind.COMP:
        return f"{graph.name[row]} {graph.duration_ns[row]} ns"
    return f"{graph.name[row]} {Op(int(graph.op[row])).name.lower()} {graph.size_bytes[row]} B"


def test_one_pass_in_simai_s_order() -> None:
    """Times after communications (5 ns) are in the compute that follows."""
    assert played(ROWS) == [
        "a forward 10 ns",
        "a forward all_reduce 400 B < a forward 10 ns",
        "b forward 16 ns < a forward all_reduce 400 B",
        "b input gradient 21 ns < b forward 16 ns",
        "b input gradient all_reduce 400 B < b input gradient 21 ns",
        "b weight gradient 36 ns < b input gradient all_reduce 400 B",
        "b weight gradient reduce_scatter 800 B < b weight gradient 36 ns",
        "a input gradient 20 ns < b weight gradient 36 ns",
        "a weight gradient 30 ns < a input gradient 20 ns",
        "a weight gradient all_reduce 800 B < a weight gradient 30 ns",
    ]


def test_the_next_iteration_waits_for_each_layer_s_own_gradients() -> None:
    second = played(ROWS, passes=2)[10:]
    assert len(second) == 10
    assert second[0] == "a forward 10 ns < a weight gradient 30 ns, a weight gradient all_reduce 800 B"
    assert second[2] == "b forward 16 ns < b weight gradient reduce_scatter 800 B, a forward all_reduce 400 B"


def test_checkpoints_play_forward_passes_again() -> None:
    rows = [f"{name} -1 {at}0 NONE 0 2 NONE 0 3 NONE 0 5" for at, name in enumerate("abcd", 1)]
    nodes = played(rows, "checkpoints: 2 0 2 checkpoint_initiates: 2 1 3")
    assert [node.split(" < ")[0] for node in nodes] == [
        "a forward 10 ns", "b forward 20 ns", "c forward 30 ns", "d forward 40 ns",
        "c forward 30 ns", "d input gradient 2 ns", "d weight gradient 3 ns",
        "c input gradient 2 ns", "c weight gradient 3 ns",
        "a forward 10 ns", "b input gradient 2 ns", "b weight gradient 3 ns",
        "a input gradient 2 ns", "a weight gradient 3 ns",
    ]  # fmt: skip
    with pytest.raises(
        WorkloadError, match=r"^drawn.txt:1: checkpoint_initiates has layer 0, and no checkpoint is before"
    ):
        played(rows, "checkpoints: 1 0 checkpoint_initiates: 1 0")


def collectives(converted: Converted, rank: int = 0) -> Counter[tuple[str, int, int]]:
    """(operation, members, bytes) of a rank's collectives."""
    workload = converted.workload
    graph = workload.ranks[rank]
    found: Counter[tuple[str, int, int]] = Counter()
    for row in (graph.kind == Kind.COLL).nonzero()[0]:
        members = workload.groups[int(graph.group[row])].ranks
        assert rank in members
        found[Op(int(graph.op[row])).name.lower(), len(members), int(graph.size_bytes[row])] += 1
    return found


def test_gpt_13b_on_128_ranks(shared_data: Path, tmp_path: Path) -> None:
    began = time.process_time()
    converted = convert_aicb(shared_data / GPT, Given(ranks=128))
    save(converted.workload, tmp_path)
    assert time.process_time() - began < 10
    assert collectives(converted, 77) == {
        ("all_reduce", 8, 20_971_520): 2 * 80 + 2,  # of two halves of 40 layers, and the embedding's
        ("all_reduce", 8, 3_248_619_520): 1,
        ("all_reduce", 8, 327_680_000): 1,
        ("all_reduce", 8, 8192): 3,
        ("all_reduce", 8, 4): 4,
        ("all_gather", 8, 3_248_619_520 // 8): 1,  # the file has the whole output
        ("broadcast", 8, 16384): 1,
        ("reduce_scatter", 16, 6_497_239_040): 1,
    }
    # Two halves of 40 layers in three passes, the optimizer's, and 100 ns after each communication that is waited for.
    assert converted.compute_ns == (752_000 + 750_000) * 40 * 3 + 14_565_000 + 13_391_000 + 173 * 100
    groups = {group.name: group.ranks for group in converted.workload.groups}
    assert groups["tp9"] == tuple(range(72, 80))
    assert groups["dp5"] == tuple(range(5, 128, 8))
    assert converted.notes == [
        "pipeline parallelism 1, as the file says none (--pipeline-parallel)",
        "expert parallelism 1, as the file says none (--expert-parallel)",
        "33 compute times of 1 ns, which stand for unknown times, left out",
    ]
    assert len(load(tmp_path, ranks=[127]).ranks[127]) == len(converted.workload.ranks[127])


def test_streams(shared_data: Path) -> None:
    """Compute, communication that is waited for, and gradients, each on its own."""
    workload = convert_aicb(shared_data / GPT, Given(ranks=16)).workload
    assert inspect_workload(workload).lines()[-1].split() == ["lint", "nothing", "found"]
    graph = workload.ranks[3]
    assert set(graph.stream[graph.kind == Kind.COMP].tolist()) == {0}
    background = graph.op == Op.REDUCE_SCATTER
    assert set(graph.stream[(graph.kind == Kind.COLL) & ~background].tolist()) == {1}
    assert graph.stream[background].tolist() == [3]


def test_llama_7b_and_what_callers_say(shared_data: Path) -> None:
    converted = convert_aicb(shared_data / LLAMA, Given(ranks=16, tensor=4))
    assert (converted.parallelism.tensor, converted.parallelism.data) == (4, 4)
    assert "--tensor-parallel 4 where the file has 2; its sizes and times stay as they are" in converted.notes
    with pytest.raises(WorkloadError, match="does not say how many ranks there are: give --ranks"):
        convert_aicb(shared_data / LLAMA, Given())
    with pytest.raises(WorkloadError, match="15 ranks are not a multiple of tensor 2 x pipeline 1"):
        convert_aicb(shared_data / LLAMA, Given(ranks=15))
    staged = convert_aicb(shared_data / LLAMA, Given(ranks=16, pipeline=4))
    assert staged.parallelism.data == 2
    assert any(note.startswith("pipeline 4: every stage plays the file's rows at once") for note in staged.notes)


def test_a_microbenchmark_is_of_all_ranks(shared_data: Path) -> None:
    converted = convert_aicb(shared_data / "aicb/simAI/all_to_all.txt", Given(ranks=6))
    assert collectives(converted, 5) == {("all_to_all", 6, 4096 << turn): 1 for turn in range(19)}
    assert len(converted.workload.ranks[0]) == 19


def test_groups_of_one_rank_say_nothing(shared_data: Path) -> None:
    converted = convert_aicb(shared_data / "aicb/simAI/L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt", Given(ranks=4))
    assert collectives(converted) == {("reduce_scatter", 4, 1_889_785_610): 1}
    assert "12 all_gather of tp groups, which have one rank, left out" in converted.notes


def test_lists(shared_data: Path, tmp_path: Path) -> None:
    gpt = convert_aicb(shared_data / "aicb/physical/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv", Given())
    assert (gpt.parallelism.tensor, gpt.parallelism.data) == (8, 16)
    assert collectives(gpt)["all_reduce", 8, 20_971_520] == 162, "as in the workload for SimAI"
    assert collectives(gpt)["all_gather", 16, 3_211_479_040 // 16] == 1
    assert collectives(gpt)["reduce_scatter", 16, 6_422_958_080] == 1
    assert "1 all_reduce of tp groups of no bytes left out" in gpt.notes
    zero = shared_data / "aicb/physical/L7B-D1-C01_Llama7B_zero2_mbs1.csv"
    whole, step = convert_aicb(zero, Given()), convert_aicb(zero, Given(), skip_init=True)
    assert (len(whole.workload.ranks[0]), len(step.workload.ranks[0])) == (292 + 14, 14)
    assert collectives(whole)["barrier", 128, 0] == 1
    save(step.workload, tmp_path)
    assert inspect_workload(load(tmp_path)).lines()[-1].split() == ["lint", "nothing", "found"]
    with pytest.raises(WorkloadError, match=r"csv:3: dp groups of 128; 64 ranks with tensor 1, pipeline 1"):
        convert_aicb(zero, Given(ranks=64))


def test_options_of_the_other_kind_of_file_are_refused(shared_data: Path) -> None:
    with pytest.raises(WorkloadError, match="--skip-init is for lists"):
        convert_aicb(shared_data / GPT, Given(ranks=16), skip_init=True)
    with pytest.raises(WorkloadError, match="--passes 2: a list has its own epochs"):
        convert_aicb(shared_data / "aicb/physical/L7B-D1-C01_Llama7B_zero2_mbs1.csv", Given(), passes=2)


def test_a_matrix_product_waits_for_a_compute_model(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("comm_type,comm_group,msg_size\ncomputation,all,((4 8) (8 2))\nall_reduce,tp_group,64\n")
    graph = convert_aicb(path, Given(ranks=2, tensor=2)).workload.ranks[1]
    assert (graph.duration_ns[0], graph.num_ops[0], graph.tensor_bytes[0]) == (-1, 128, 2 * (32 + 16 + 8))
    assert deps_of(graph, 1) == [0]
