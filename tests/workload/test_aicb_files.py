"""Content of AICB's and SimAI's files, and errors that name the line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.workload.aicb.communicators import ListFile, parse_list, read_list
from genie.workload.aicb.layers import Communication, LayerFile, parse_layers, read_layers
from genie.workload.aicb.parallel import Domain, Parallelism
from genie.workload.graph import Op, WorkloadError

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 "
ROWS = [
    "embedding -1 100 ALLREDUCE 400 200 NONE 0 300 NONE 0 10",
    "moe -1 100 ALLTOALL_EP 400 200 ALLGATHER 64 300 REDUCESCATTER_DP_EP 800 10",
    "head -1 1 BROADCAST 16 1 NONE 77 1 ALLGATHER 80 10",
]
COLUMNS = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"
LIST = [
    "[rank0 ~ rank7]",
    COLUMNS,
    "CommType.all_gather,CommGroup.dp_group,4,32,init,None,None,,None,None,None,1",
    "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1",
    "CommType.broadcast,CommGroup.tp_group,2,40,forward_step,None,0,,None,None,None,1",
    "CommType.computation,CommGroup.all,None,((16 2 8) (8 32)),forward,None,None,,None,None,None,1",
    "CommType.computation,CommGroup.all,None,((16 2 8) (8 32)),forward,None,None,,5000,None,None,1",
    "CommType.barrier,CommGroup.all,8,999,forward_step,None,None,,None,None,None,1",
    "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1",
]
DRAWS = settings(max_examples=200, deadline=None, derandomize=True)


def layers(rows: list[str] = ROWS, head: str = HEAD, count: object = None) -> LayerFile:
    number = len(rows) if count is None else count
    return parse_layers("\n".join([head, str(number), *rows]) + "\n", "drawn.txt")


def as_list(lines: list[str]) -> ListFile:
    return parse_list("\n".join(lines) + "\n", "drawn.csv")


def refused(read: object) -> str:
    with pytest.raises(WorkloadError) as error:
        read()  # type: ignore[operator]
    assert "\n" not in str(error.value)
    return str(error.value)


def test_groups_follow_from_the_column_and_the_suffix() -> None:
    file = layers()
    assert file.sizes == {"tensor": 2, "expert": 2, "pipeline": 1, "stages": 1, "accumulated": 1, "ranks": 8}
    assert file.notes == []
    embedding, moe, head = file.layers
    assert embedding.forward.communication == Communication(Op.ALL_REDUCE, Domain.TENSOR, 400)
    assert (embedding.forward.compute_ns, embedding.input_gradient.compute_ns, embedding.update_ns) == (100, 200, 10)
    assert embedding.input_gradient.communication is None
    assert moe.forward.communication == Communication(Op.ALL_TO_ALL, Domain.EXPERT, 400)
    assert moe.input_gradient.communication == Communication(Op.ALL_GATHER, Domain.TENSOR, 64)
    assert moe.weight_gradient.communication == Communication(Op.REDUCE_SCATTER, Domain.EXPERT_DATA, 800)
    assert head.weight_gradient.communication == Communication(Op.ALL_GATHER, Domain.DATA, 80)
    assert head.input_gradient.communication is None, "NONE has no size, whatever stands there"


@pytest.mark.parametrize(
    ("name", "rows", "sizes"),
    [
        ("aicb/simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt", 92, {"tensor": 8}),
        ("aicb/simAI/G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt", 172, {"tensor": 8}),
        ("aicb/simAI/L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt", 12, {"tensor": 1}),
        ("aicb/simAI/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt", 76, {"tensor": 2}),
        ("aicb/simAI/all_reduce.txt", 19, {}),
        ("aicb/simAI/all_to_all.txt", 19, {}),
        (
            "simai/microAllReduce.txt", 2,
            {"tensor": 8, "expert": 1, "pipeline": 1, "stages": 8, "accumulated": 1, "ranks": 8},
        ),
    ],
)  # fmt: skip
def test_shared_workloads(name: str, rows: int, sizes: dict[str, int], shared_data: Path) -> None:
    file = read_layers(shared_data / name)
    assert (len(file.layers), file.sizes, file.notes) == (rows, sizes, [])


def test_a_number_of_rows_that_does_not_fit_is_refused(shared_data: Path) -> None:
    """As upstream's Llama-65B file has it: 839 rows declared, 33 there."""
    path = shared_data / "aicb/simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"
    text = path.read_text().replace("\n92\n", "\n839\n")
    assert refused(lambda: parse_layers(text, "L65B.txt")) == (
        "L65B.txt:2: declares 839 rows and has 92: correct the number, or get the whole file"
    )
    assert refused(lambda: layers(count=2)).startswith("drawn.txt:2: declares 2 rows and has 3:")


@pytest.mark.parametrize(
    ("at", "was", "becomes", "said"),
    [
        (0, "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "DATA", "drawn.txt:1: parallelism 'DATA': must be one of"),
        (0, "ep: 2", "ep: x", "drawn.txt:1: ep 'x': must be a whole number from 1 to 1125899906842624"),
        (0, "ep: 2", "pp: 2", "drawn.txt:1: pp a second time"),
        (0, "ga: 1", "checkpoints: 2 0", "drawn.txt:1: checkpoints 'all_gpus:': must be a whole number"),
        (0, "all_gpus: 8", "checkpoints: 2 0", "drawn.txt:1: checkpoints declares 2 layers and has 1"),
        (0, "all_gpus: 8", "checkpoints: 1 3", "drawn.txt:1: checkpoints has layer 3; there are 0..2"),
        (1, "3", "three", "drawn.txt:2: 'three' where the number of rows must be"),
        (2, " 300 NONE", " NONE", "drawn.txt:3: 11 fields; a row has 12"),
        (2, "ALLREDUCE", "ALLREDUCE_TP", "drawn.txt:3: forward: communication 'ALLREDUCE_TP': must be NONE or one of"),
        (3, "ALLGATHER", "GATHER", "drawn.txt:4: input gradient: communication 'GATHER'"),
        (3, "800", "8e2", "drawn.txt:4: weight gradient's size '8e2': must be a whole number from 0 to 11258999"),
        (3, "800", "9" * 23, f"drawn.txt:4: weight gradient's size '{'9' * 23}': must be a whole number from"),
        (4, " 1 BROADCAST", " -1 BROADCAST", "drawn.txt:5: forward's compute '-1'"),
    ],
)
def test_mistakes_in_a_workload_are_named(at: int, was: str, becomes: str, said: str) -> None:
    lines = [HEAD, "3", *ROWS]
    assert was in lines[at]
    lines[at] = lines[at].replace(was, becomes)
    assert refused(lambda: parse_layers("\n".join(lines), "drawn.txt")).startswith(said)


def test_what_is_not_understood_is_named() -> None:
    file = layers([row.replace(" -1 ", " 7 ", 1) for row in ROWS], f"{HEAD} zero: 3")
    assert file.notes == [
        "line 1: 'zero:' is not understood and changes nothing",
        "line 1: '3' is not understood and changes nothing",
        "dep 7 is not understood and changes nothing, as in SimAI (3 rows)",
    ]
    with_column = [LIST[0], f"{COLUMNS},mood", *(f"{line},good" for line in LIST[2:])]
    assert as_list(with_column).notes == ["line 2: column 'mood' is not understood and changes nothing"]


def test_rows_of_a_list() -> None:
    file = as_list(LIST)
    assert (file.ranks, file.notes) == (8, [])
    assert {domain: members for domain, (members, _) in file.members.items()} == {
        Domain.DATA: 4, Domain.TENSOR: 2, Domain.ALL: 8,
    }  # fmt: skip
    start, step, rest = file.epochs
    assert [row.communication for row in start] == [Communication(Op.ALL_GATHER, Domain.DATA, 32)]
    broadcast, product, measured, barrier = step
    assert broadcast.communication == Communication(Op.BROADCAST, Domain.TENSOR, 40)
    assert (product.compute_ns, product.num_ops) == (-1, 2 * 32 * 8 * 32)
    assert product.tensor_bytes == 2 * (32 * 8 + 8 * 32 + 32 * 32)
    assert measured.compute_ns == 5000
    assert barrier.communication == Communication(Op.BARRIER, Domain.ALL, 0)
    assert rest == []


@pytest.mark.parametrize(
    ("name", "rows"),
    [("G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1", [7, 172]), ("L7B-D1-C01_Llama7B_zero2_mbs1", [292, 14])],
)
def test_shared_lists(name: str, rows: list[int], shared_data: Path) -> None:
    file = read_list(shared_data / f"aicb/physical/{name}.csv")
    assert ([len(epoch) for epoch in file.epochs if epoch], file.ranks, file.notes) == (rows, 128, [])


@pytest.mark.parametrize(
    ("at", "was", "becomes", "said"),
    [
        (0, "rank0 ~ rank7", "pp_stage0: [rank0", "drawn.csv:1: '[pp_stage0: [rank0]': must be [rank0 ~ rankN]"),
        (1, "msg_size", "size", "drawn.csv:2: 0 columns msg_size; a list has one"),
        (2, ",32,", ",32,,", "drawn.csv:3: 13 fields under 12 columns"),
        (2, "all_gather", "gather", "drawn.csv:3: comm_type 'gather': must be all_reduce"),
        (2, "dp_group", "pp_group", "drawn.csv:3: comm_group 'pp_group': must be one of"),
        (2, ",32,", ",-32,", "drawn.csv:3: msg_size '-32': must be a whole number from 0 to 1125899906842624"),
        (2, ",1", ",2", "drawn.csv:3: count '2': must be 1"),
        (
            4,
            "CommGroup.tp_group,2",
            "CommGroup.dp_group,2",
            "drawn.csv:5: comm_group_size 2 of dp groups; line 3 has 4",
        ),
        (5, "(8 32)", "8 32", "drawn.csv:6: msg_size '((16 2 8) 8 32)': must be the shapes of two matrices"),
        (6, "5000", "fast", "drawn.csv:7: _elapsed_time 'fast': must be a whole number"),
    ],
)
def test_mistakes_in_a_list_are_named(at: int, was: str, becomes: str, said: str) -> None:
    lines = list(LIST)
    assert was in lines[at]
    lines[at] = lines[at].replace(was, becomes)
    assert refused(lambda: as_list(lines)).startswith(said)
    assert refused(lambda: as_list(LIST[:2])) == "drawn.csv:2: no rows"


def test_an_empty_file_is_called_so() -> None:
    for text in ("", " \n\n"):
        assert refused(lambda text=text: parse_layers(text, "drawn.txt")).startswith("drawn.txt: is empty: give a")
        assert refused(lambda text=text: as_list([text])).startswith("drawn.csv: is empty: give a list")


@DRAWS
@given(st.randoms(use_true_random=False), st.booleans())
def test_corrupt_files_are_refused_in_one_line(draw: random.Random, is_list: bool) -> None:
    lines = list(LIST) if is_list else [HEAD, "3", *ROWS]
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        match draw.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, draw.choice(lines))
            case 2:
                where = draw.randrange(len(lines[at]) or 1)
                lines[at] = lines[at][:where] + draw.choice("\0\"',:é -9\x1c") + lines[at][where + 1 :]
            case 3:
                words = lines[at].split(" ")
                words[draw.randrange(len(words))] = draw.choice(["-1", "9" * 30, "NONE", "", "٣", "1e9"])
                lines[at] = " ".join(words)
            case _:
                lines = lines[: at + 1]
        lines = lines or [""]
    try:
        parse_list("\n".join(lines), "drawn") if is_list else parse_layers("\n".join(lines), "drawn")
    except WorkloadError as error:
        said = str(error)
    else:
        return
    assert said.startswith("drawn:")
    assert len(said.splitlines()) == 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_groups_of_a_kind_have_every_rank_once(tensor: int, pipeline: int, expert: int, turns: int) -> None:
    parallelism = Parallelism(tensor * pipeline * expert * turns, tensor, pipeline, expert)
    parallelism.check()
    for domain in Domain:
        groups = parallelism.groups(domain)
        assert sorted(rank for group in groups for rank in group.ranks) == list(range(parallelism.ranks))
        assert {len(group.ranks) for group in groups} == {parallelism.members(domain)}
        assert all(group.ranks == tuple(sorted(group.ranks)) for group in groups)
        number = parallelism.group_of(domain)
        assert all(number[rank] == at for at, group in enumerate(groups) for rank in group.ranks)


def test_groups_are_simai_s() -> None:
    """32 ranks as MockNcclGroup has them: tensor in a row, data a stride apart, experts over tensor groups in a row."""
    shape = Parallelism(32, 4, 1, 2)
    assert [group.ranks for group in shape.groups(Domain.TENSOR)[:2]] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert shape.groups(Domain.DATA)[1].ranks == (1, 5, 9, 13, 17, 21, 25, 29)
    assert [group.ranks for group in shape.groups(Domain.EXPERT)[:5]] == [(0, 4), (1, 5), (2, 6), (3, 7), (8, 12)]
    assert [group.ranks for group in shape.groups(Domain.EXPERT_DATA)[:2]] == [(0, 8, 16, 24), (1, 9, 17, 25)]
    assert Parallelism(16, 2, 2, 1).groups(Domain.DATA)[0].ranks == (0, 4, 8, 12)
