"""Generated jobs beside AICB's lists of communications: equal to the byte but for the differences in the table."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from aicb_lists import LISTS, List, Traffic, read, with_sums

from genie.compute.operators import Timed
from genie.generate.degrees import Degrees
from genie.generate.shipped import find_model
from genie.generate.step import Step
from genie.generate.training import Training
from genie.workload.graph import Kind, Op

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compare-with-aicb.md"
NOT_COMPARED = "simAI/L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt"
LLAMA_65B_HIDDEN = 8192


def step_of(own: List) -> Step:
    """The job that `genie generate` makes with these options."""
    words = shlex.split(own.options)
    given = {word: words[at + 1 : at + 2] for at, word in enumerate(words) if word.startswith("--")}

    def number(option: str, otherwise: int) -> int:
        return int(given[option][0]) if option in given else otherwise

    model = find_model(own.model)
    for key, size in own.changes:
        assert key == "vocab_size"
        model = replace(model, vocabulary=size)
    zero = number("--zero", 1)
    training = Training(
        replace(model, layers=number("--layers", model.layers)),
        Degrees(number("--gpus", 1), tensor=number("--tp", 1)),
        sequence=number("--sequence", 1),
        sequence_parallel="--no-sequence-parallel" not in given,
        sharding=("none", "zero1", "zero2", "zero3")[zero],
        gradient_bytes=2 if "--bf16-gradients" in given else 4,
        vocabulary_multiple=number("--vocabulary-multiple", 1),
    )
    return Step(training, lambda _: Timed(1, "drawn"))


def generated(own: List) -> Traffic:
    workload = step_of(own).workload("aicb")
    graph = workload.ranks[0]
    found: Traffic = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for row in np.flatnonzero(graph.kind == Kind.COLL):
        op = Op(int(graph.op[row])).name.lower()
        group = workload.groups[int(graph.group[row])].name.rstrip("0123456789")
        size_bytes = int(graph.size_bytes[row])
        if own.by_total and size_bytes > 4:
            op, group = "gradients" if op == "reduce_scatter" else "parameters", "dp"
            sums[op, group] += size_bytes
            found[op, group, -1] += 1
        elif (op, group) == ("reduce_scatter", "dp"):  # AICB's lists for Megatron have one bucket
            sums[op, group] += size_bytes
            found[op, group, -1] = 1
        else:
            found[op, group, size_bytes] += 1
    return with_sums(found, sums)


@pytest.mark.parametrize("own", LISTS, ids=lambda own: Path(own.file).stem)
def test_a_list_differs_from_the_generated_job_as_the_table_says(shared_data: Path, own: List) -> None:
    words = shlex.split(own.options)
    tensor = int(words[words.index("--tp") + 1]) if "--tp" in words else 1
    theirs = read(shared_data / "aicb" / own.file, {"tp": tensor, "dp": 128 // tensor}, by_total=own.by_total)
    ours = generated(own)
    differ = {key: (theirs[key], ours[key]) for key in theirs.keys() | ours.keys() if theirs[key] != ours[key]}
    assert differ == {(row.op, row.group, row.size_bytes): (row.aicb, row.genie) for row in own.differences}
    assert sum(min(theirs[key], ours[key]) for key in theirs) >= (0 if own.by_total else 3)


def test_the_list_of_llama_65b_has_sizes_of_no_model(shared_data: Path) -> None:
    """No size is a number of hidden states, and 12 rows stand for 80 layers: nothing to compare."""
    found = read(shared_data / "aicb" / NOT_COMPARED, {"tp": 1, "dp": 1}, by_total=False)
    assert len(found) == 4
    assert all(size % LLAMA_65B_HIDDEN for _, _, size in found)


def test_every_list_is_compared_or_named(shared_data: Path) -> None:
    data = shared_data / "aicb"
    there = {str(path.relative_to(data)) for path in data.glob("*/*") if "all_" not in path.name}
    assert there == {own.file for own in LISTS} | {NOT_COMPARED}


def written() -> tuple[list[str], list[str]]:
    """The page's lines about lists, and its table's."""
    lists, reasons = [], list(dict.fromkeys(row.reason for own in LISTS for row in own.differences))
    rows = ["| list | collective | group | bytes | AICB | Genie | reason |", "|---|---|---|---|---|---|---|"]
    for number, own in enumerate(LISTS, start=1):
        model = own.model + "".join(f" with {key} {value}" for key, value in own.changes)
        lists += [f"{number}  {own.file}", f"   {model} {own.options}"]
        for row in own.differences:
            reason = ascii_lowercase[reasons.index(row.reason)]
            cells = (number, row.op, row.group, f"{row.size_bytes:,}", row.aicb, row.genie, reason)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    rows += ["| reason | |", "|---|---|", *(f"| {ascii_lowercase[at]} | {text} |" for at, text in enumerate(reasons))]
    return lists, rows


def test_the_page_has_the_lists_and_the_table() -> None:
    lists, rows = written()
    page = PAGE.read_text()
    assert "\n".join(lists) in page, "\n".join(lists)
    assert [line for line in page.splitlines() if line.startswith("|")] == rows, "\n".join(rows)
