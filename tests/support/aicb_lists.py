"""AICB's lists of communications beside the jobs that `genie generate` makes, and the reason of each difference.

Sizes are in bytes, by Genie's conventions: an all-gather has the size of one rank's input.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Traffic = Counter[tuple[str, str, int]]  # (operation, group, bytes) -> count in a step
OPERATIONS = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "BROADCAST": "broadcast",
}  # fmt: skip
GROUPS = {"tp_group": "tp", "dp_group": "dp"}

INPUT = "input tokens: Genie leaves out the loading of data"
LOSS = "mean loss, for the log: left out"
EMPTY = "nothing is reduced: no sequence parallelism"
NORM = "gradient's norm: over all ranks, as with Megatron's distributed optimizer"
UNGATED = "AICB's MLP has no gate; it has biases, positions and one table for embedding and head"
NORMS = "AICB: two tables for embedding and head, no biases, no norms"
POSITIONS = "AICB: 2,048 learned positions, which Llama does not have, and no norms"
UNPADDED = "AICB: four norms a layer in place of two, and none after the last layer"
LAYERNORM = "AICB: all-reduce of all parameters, called layernorm; the rows below gather and reduce them"
TABLE = "AICB: the whole embedding's gradient; with one pipeline stage there are no copies to add"
AGAIN = "AICB: no second gather of inputs for weights' gradients, no head, no embedding's backward pass"
HEAD = "AICB: no input gradient of the head"
EMBEDDING = "the embedding's backward pass gathers with sequence parallelism"
REPLICATED = "norms and biases that all tensor-parallel ranks have; AICB: see layernorm"
BACKWARD = "AICB: no backward all-reduces (SimAI issue 292), no head; embedding of another size"
TRIPLE = "three times an activation; Megatron's embedding reduces one, and nothing backward"
PLACEHOLDER = "AICB: 1 byte for all ranks together, a placeholder"
OVERFLOW = "check for overflow: left out"
PERSISTENT = "DeepSpeed keeps norms on all ranks, and gathers them after the step; AICB gathers them in both passes too"
PADDING = "six pieces, each padded"
BUCKETS = "DeepSpeed's buckets of a billion elements; Genie's are layers"


@dataclass(frozen=True)
class Difference:
    """A row of the table: the numbers of a collective in AICB's list and in Genie's job."""

    op: str
    group: str
    size_bytes: int
    aicb: int
    genie: int
    reason: str


@dataclass(frozen=True)
class List:
    """A list of AICB, the job, and all differences. `by_total`: bytes of gathers and reductions are compared in sum."""

    file: str
    model: str
    options: str  # of genie generate
    differences: tuple[Difference, ...]
    changes: tuple[tuple[str, int], ...] = ()  # keys of config.json in which AICB's model differs
    by_total: bool = False


def _same_end(*, physical: bool) -> tuple[Difference, ...]:
    if physical:
        return (
            Difference("broadcast", "tp", 40, 1, 0, INPUT),
            Difference("broadcast", "tp", 17408, 1, 0, INPUT),
            Difference("all_reduce", "dp", 4, 1, 0, LOSS),
            Difference("all_reduce", "tp", 0, 1, 0, EMPTY),
            Difference("all_reduce", "tp", 4, 1, 0, NORM),
            Difference("all_reduce", "world", 4, 0, 1, NORM),
        )
    return (
        Difference("broadcast", "tp", 16384, 1, 0, INPUT),
        Difference("all_reduce", "tp", 4, 4, 0, NORM),
        Difference("all_reduce", "world", 4, 0, 1, NORM),
    )


def _parameters(members: int, aicb: int, genie: int, reason: str) -> tuple[Difference, ...]:
    """Parameters of a rank: reduced with 4 bytes each, gathered with 2."""
    return (
        Difference("reduce_scatter", "dp", 4 * aicb, 1, 0, reason),
        Difference("reduce_scatter", "dp", 4 * genie, 0, 1, reason),
        Difference("all_gather", "dp", 2 * aicb // members, 1, 0, reason),
        Difference("all_gather", "dp", 2 * genie // members, 0, 1, reason),
    )


H13, H7, H175 = 5120, 4096, 12288
# Parameters of a rank, as AICB counts them and as they are.
GPT_13B = 40 * (12 * H13**2 // 8 + 3 * H13 // 8 + H13 + 4 * H13 // 8 + H13 + 4 * H13) + (32000 // 8 + 2048 + 2) * H13
GPT_13B_AICB = 40 * 12 * H13**2 // 8 + (2 * 32000 // 8 + 2048) * H13
LLAMA_7B = 32 * (4 * H7**2 + 3 * H7 * 11008) // 2 + (2 * 32000 // 2 + 65) * H7
LLAMA_7B_UNGATED = (
    32 * ((4 * H7**2 + 2 * H7 * 11008) // 2 + 3 * H7 // 2 + H7 + 11008 // 2 + H7 + 4 * H7)
    + (32000 // 2 + 2048 + 2) * H7
)  # fmt: skip
LLAMA_7B_AICB = 32 * (4 * H7**2 + 3 * H7 * 11008) // 2 + (2 * 32000 // 2 + 2048) * H7
LAYER_175B = 12 * H175**2 // 8 + 3 * H175 // 8 + H175 + 4 * H175 // 8 + H175
GPT_175B = 12 * (LAYER_175B + 4 * H175) + (32000 // 8 + 2048 + 2) * H175
GPT_175B_AICB = 12 * (LAYER_175B + 8 * H175) + (32000 // 8 + 2048) * H175

LISTS = (
    List(
        "physical/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv",
        "gpt3-13b",
        "--gpus 128 --tp 8 --no-sequence-parallel --sequence 2048 --vocabulary-multiple 128",
        _same_end(physical=True),
        (("vocab_size", 32000),),
    ),
    List(
        "physical/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv",
        "llama2-7b",
        "--gpus 128 --tp 2 --no-sequence-parallel --sequence 2048",
        (*_same_end(physical=True), *_parameters(64, LLAMA_7B_UNGATED, LLAMA_7B, UNGATED)),
    ),
    List(
        "simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt",
        "gpt3-13b",
        "--gpus 128 --tp 8 --no-sequence-parallel --sequence 2048",
        (
            *_same_end(physical=False),
            Difference("all_reduce", "tp", 2 * GPT_13B_AICB, 1, 0, LAYERNORM),
            *_parameters(16, GPT_13B_AICB, GPT_13B, NORMS),
            Difference("all_reduce", "tp", 2 * 32000 * H13, 1, 0, TABLE),
        ),
        (("vocab_size", 32000),),
    ),
    List(
        "simAI/G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt",
        "gpt3-13b",
        "--gpus 128 --tp 8 --sequence 2048",
        (
            *_same_end(physical=False),
            Difference("all_reduce", "tp", 2 * GPT_13B_AICB, 1, 0, LAYERNORM),
            *_parameters(16, GPT_13B_AICB, GPT_13B, NORMS),
            Difference("all_reduce", "tp", 2 * 32000 * H13, 1, 0, TABLE),
            Difference("all_gather", "tp", 2 * 2048 * H13 // 8, 160, 243, AGAIN),
            Difference("reduce_scatter", "tp", 2 * 2048 * H13, 160, 161, HEAD),
            Difference("all_reduce", "tp", 2 * 2048 * H13, 2, 1, EMBEDDING),
            Difference("all_reduce", "tp", 4 * (40 * 6 + 2) * H13, 0, 1, REPLICATED),
        ),
        (("vocab_size", 32000),),
    ),
    List(
        "simAI/G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt",
        "gpt3-175b",
        "--layers 12 --gpus 128 --tp 8 --no-sequence-parallel --sequence 2048",
        (
            Difference("all_reduce", "world", 4, 0, 1, NORM),
            Difference("all_reduce", "tp", 2 * GPT_175B_AICB, 1, 0, LAYERNORM),
            Difference("reduce_scatter", "dp", 4 * GPT_175B_AICB, 1, 0, UNPADDED),
            Difference("reduce_scatter", "dp", 4 * GPT_175B, 0, 1, UNPADDED),
            Difference("all_gather", "dp", 0, 1, 0, PLACEHOLDER),
            Difference("all_gather", "dp", 2 * GPT_175B // 16, 0, 1, PLACEHOLDER),
            Difference("all_reduce", "tp", 2 * 32000 * H175, 1, 0, TABLE),
            Difference("all_reduce", "tp", 2 * 2048 * H175, 24, 50, BACKWARD),
            Difference("all_reduce", "tp", 3 * 2 * 2048 * H175, 2, 0, TRIPLE),
        ),
        (("vocab_size", 32000),),
    ),
    List(
        "simAI/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt",
        "llama2-7b",
        "--gpus 128 --tp 2 --no-sequence-parallel --sequence 2048",
        (
            *_same_end(physical=False),
            Difference("all_reduce", "tp", 2 * LLAMA_7B_AICB, 1, 0, LAYERNORM),
            *_parameters(64, LLAMA_7B_AICB, LLAMA_7B, POSITIONS),
            Difference("all_reduce", "tp", 2 * 32000 * H7, 1, 0, TABLE),
        ),
    ),
    List(
        "physical/L7B-D1-C01_Llama7B_zero2_mbs1.csv",
        "llama2-7b",
        "--gpus 128 --zero 2 --bf16-gradients --sequence 2048",
        (
            Difference("gradients", "dp", 13_476_831_232, 7, 33, BUCKETS),
            Difference("parameters", "dp", 105_287_748, 6, 0, PADDING),
            Difference("parameters", "dp", 105_287_744, 0, 1, PADDING),
            Difference("all_reduce", "dp", 1, 1, 0, OVERFLOW),
            Difference("all_reduce", "world", 4, 0, 1, NORM),
        ),
        by_total=True,
    ),
    List(
        "physical/L7B-D1-C02_Llama7B_zero3_mbs1.csv",
        "llama2-7b",
        "--gpus 128 --zero 3 --bf16-gradients --sequence 2048",
        (
            Difference("gradients", "dp", 13_476_831_232, 7, 33, BUCKETS),
            Difference("parameters", "dp", 2 * 105_287_744, 582, 66, "AICB gathers each matrix; Genie each layer"),
            Difference("all_gather", "dp", 65 * 64, 65, 0, PERSISTENT),
            Difference("all_reduce", "dp", 1, 1, 0, OVERFLOW),
            Difference("all_reduce", "dp", 8, 1, 0, NORM),
            Difference("all_reduce", "world", 4, 0, 1, NORM),
        ),
        by_total=True,
    ),
)  # fmt: skip


def read(path: Path, members: dict[str, int], *, by_total: bool) -> Traffic:
    """Return the step of a list. `members`: of the groups tp and dp."""
    rows = _physical(path) if path.suffix == ".csv" else _simai(path)
    found: Traffic = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for op, group, size_bytes, stage in rows:
        if op == "all_gather":
            size_bytes //= members[group]
        what = op
        if by_total and size_bytes > 8:
            what = "gradients" if op in ("all_reduce", "reduce_scatter") else "parameters"
            if op == "all_gather" and stage == "step.allgather_fn":
                what = op
            sums[what, group] += size_bytes
            found[what, group, -1] += 1
        else:
            found[what, group, size_bytes] += 1
    return with_sums(found, sums)


def with_sums(found: Traffic, sums: Counter[tuple[str, str]]) -> Traffic:
    """Return the traffic with the sums in place of sizes of -1."""
    return Counter({(op, group, sums[op, group] if size == -1 else size): n for (op, group, size), n in found.items()})


def _physical(path: Path) -> list[tuple[str, str, int, str]]:
    """Rows between the first end of an epoch, which is the set-up, and the last."""
    found, epochs = [], 0
    for row in csv.reader(path.read_text().splitlines()[2:]):
        op = row[0].removeprefix("CommType.")
        if op == "epoch_end":
            epochs += 1
        elif epochs:
            found.append((op, GROUPS[row[1].removeprefix("CommGroup.")], int(row[3]), row[4]))
    return found


def _simai(path: Path) -> list[tuple[str, str, int, str]]:
    """Rows of layers: a name, a number, and for three passes a compute time, an operation and a size."""
    found = []
    for line in path.read_text().splitlines()[2:]:
        words = line.split()
        group = "dp" if words[0].startswith("grad_") else "tp"
        for at in (3, 6, 9):
            if words[at] != "NONE":
                found.append((OPERATIONS[words[at]], group, int(words[at + 1]), words[0]))
    return found
