"""Recordings as workloads: families of groups, ranks that stand for others, dependencies, and what is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import genie_core
import numpy as np
import pytest

from genie.capture.script import Recording, read
from genie.capture.workload import _reduced, capture, operator_of, other_sizes
from genie.compute.operators import Operator, Timed
from genie.errors import UsageError
from genie.plan.build import build_plan
from genie.workload.graph import Kind, Op, Workload
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.write import save

WORLD = 8
COMPUTE = {"name": "aten.mul", "stream": 0, "flops": 0, "bytes": 100}


def groups(rank: int, *meshes: tuple[str, list[list[int]]]) -> list[dict[str, Any]]:
    """The groups of a job as a rank sees them: names of those that it is in."""
    made = [{"name": "0", "ranks": list(range(WORLD)), "description": "world"}]
    for name, members in meshes:
        made += [
            {"name": f"{name}/{at}" if rank in own else "", "ranks": own, "description": f"mesh_{name}"}
            for at, own in enumerate(members)
        ]
    return made


PAIRS = ("tp", [[2 * at, 2 * at + 1] for at in range(4)])
EVEN_ODD = ("dp", [[0, 2, 4, 6], [1, 3, 5, 7]])
STAGES = ("pp", [[at, at + 4] for at in range(4)])


def recording(rank: int, nodes: list[dict[str, Any]], *meshes: tuple[str, list[list[int]]]) -> Recording:
    return Recording(rank, "2.13.0", groups(rank, *meshes), nodes)


def data_and_tensor(rank: int, bytes_of_compute: int = 100) -> Recording:
    """A product, an all-reduce of the pair beside a gather over four, and one that waits for both."""
    nodes: list[dict[str, Any]] = [
        {**COMPUTE, "bytes": bytes_of_compute, "after": []},
        {"op": "all_reduce", "group": f"tp/{rank // 2}", "size": 64, "root": 0, "from": 0, "after": [0]},
        {"op": "all_gather", "group": f"dp/{rank % 2}", "size": 16, "root": 0, "from": 0, "after": [0]},
        {**COMPUTE, "after": [0, 1, 2]},
    ]
    return recording(rank, nodes, PAIRS, EVEN_ODD)


def price(operator: Operator) -> Timed:
    return Timed(1000 + operator.moved_bytes, "drawn")


def lint_of(workload: Workload) -> list[str]:
    return [each.message for each in inspect_workload(workload).lints if each.severity == "error"]


def test_one_rank_stands_for_all_of_its_place() -> None:
    workload = capture([data_and_tensor(0)], [data_and_tensor(7)], WORLD, "job", price)
    assert [group.name for group in workload.groups] == ["world", *(f"tp{at}" for at in range(4)), "dp0", "dp1"]
    for rank, graph in workload.ranks.items():
        used = [workload.groups[int(number)].ranks for number in graph.group if number >= 0]
        assert used == [(rank // 2 * 2, rank // 2 * 2 + 1), tuple(range(rank % 2, 8, 2))]
        assert graph.duration_ns[graph.kind == Kind.COMP].tolist() == [1100, 1100]
    assert lint_of(workload) == []
    assert genie_core.walk_alone(build_plan(workload).native)["problems"] == []


def test_it_is_read_back_from_its_files(tmp_path: Path) -> None:
    workload = capture([data_and_tensor(0)], [], WORLD, "job", price)
    save(workload, tmp_path, "job")
    again = load(tmp_path)
    for rank, graph in workload.ranks.items():
        assert again.ranks[rank].size_bytes.tolist() == graph.size_bytes.tolist()
        members = [again.groups[int(number)].ranks for number in again.ranks[rank].group if number >= 0]
        assert members == [workload.groups[int(number)].ranks for number in graph.group if number >= 0]


def stage(rank: int) -> Recording:
    """A stage of two: the first sends and gets a gradient, the second receives and returns it."""
    other = rank + 4 if rank < 4 else rank - 4
    out = {"op": "send", "group": f"pp/{rank % 4}", "size": 32, "peer": other, "tag": 0, "from": 0}
    back = {"op": "recv", "group": f"pp/{rank % 4}", "size": 32, "peer": other, "tag": 0, "from": 0}
    first, second = (out, back) if rank < 4 else (back, out)
    nodes = [{**COMPUTE, "after": []}, {**first, "after": [0]}, {**second, "after": [0, 1]}]
    return recording(rank, nodes, STAGES)


def test_stages_of_a_pipeline_are_classes_with_peers_by_position() -> None:
    workload = capture([stage(0), stage(4)], [stage(3)], WORLD, "pipeline", price)
    for rank, graph in workload.ranks.items():
        messages = (graph.kind == Kind.SEND) | (graph.kind == Kind.RECV)
        assert graph.peer[messages].tolist() == [(rank + 4) % 8] * 2
    assert lint_of(workload) == []
    assert genie_core.walk_alone(build_plan(workload).native)["problems"] == []


def test_a_rank_that_none_stands_for_is_named() -> None:
    with pytest.raises(UsageError, match="no rank that is captured stands for rank 4: add it to --ranks"):
        capture([stage(0)], [], WORLD, "pipeline", price)


def test_ranks_that_differ_are_named_with_the_first_difference() -> None:
    other = data_and_tensor(7)
    other.nodes[1]["size"] = 65
    with pytest.raises(UsageError, match=r"ranks 0 and 7 differ: node 1 is all_reduce of 64 B and all_reduce of 65 B"):
        capture([data_and_tensor(0)], [other], WORLD, "job", price)
    other = data_and_tensor(7)
    other.nodes.pop()
    with pytest.raises(UsageError, match="they have 4 and 3 nodes"):
        capture([data_and_tensor(0)], [other], WORLD, "job", price)


def test_uneven_shards_differ_in_sizes_of_operators_only() -> None:
    first, other = data_and_tensor(0), data_and_tensor(7, bytes_of_compute=50)
    capture([first], [other], WORLD, "job", price)
    assert other_sizes(first, other) == (1, 0.25)


def test_a_group_that_no_call_made_is_refused() -> None:
    wrong = data_and_tensor(0)
    wrong.nodes[1]["group"] = "99"
    with pytest.raises(UsageError, match="rank 0: group '99' was made by no call"):
        capture([wrong], [], WORLD, "job", price)


def test_dependencies_without_those_that_follow_keep_all_orders() -> None:
    draw = random.Random(1)
    after = [sorted({draw.randrange(at) for _ in range(draw.randrange(6))}) if at else [] for at in range(80)]
    reduced = _reduced(after)

    def closure(edges: list[list[int]]) -> list[set[int]]:
        found: list[set[int]] = []
        for own in edges:
            found.append(set(own).union(*(found[each] for each in own)))
        return found

    assert closure(after) == closure(reduced)
    assert sum(map(len, reduced)) < sum(map(len, after))


def test_operators_with_shapes_are_products_and_attention() -> None:
    product = operator_of({**COMPUTE, "flops": 48, "kind": "gemm", "shape": [2, 3, 4], "dtype": "bfloat16"})
    assert (product.kind, product.shape, product.flops, product.dtype) == ("gemm", (2, 3, 4), 48, "bf16")
    assert operator_of({**COMPUTE}).kind == "memory"


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', "not json"])
def test_a_file_that_is_no_recording(text: str) -> None:
    with pytest.raises(UsageError, match=r"rank\.jsonl: "):
        read(text, "rank.jsonl")


def test_splits_become_those_of_the_graph() -> None:
    nodes = [
        {
            "op": "all_to_all", "group": "tp/0", "size": 30, "root": 0, "from": 0, "after": [],
            "splits": [[10, 20], [10, 20]],
        }
    ]  # fmt: skip
    workload = capture([recording(0, nodes, PAIRS)], [], WORLD, "job", price)
    sent, received = workload.ranks[0].splits[0]
    assert workload.ranks[0].op[0] == Op.ALL_TO_ALL
    assert np.array_equal(sent, [10, 20])
    assert np.array_equal(received, [10, 20])


# The command


def refused(*words: str) -> str:
    """The only line on stderr of a command that ends with 2."""
    line = [sys.executable, "-m", "genie", "capture", *words]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2, ended.stderr
    (said,) = ended.stderr.strip().splitlines()
    return said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--world", "8", "--", "absent.py"], "absent.py: there is no such script"),
        (["--world", "8", "--python", "/absent/python", "--", __file__], "--python /absent/python: there is no such"),
        (["--world", "8", "--ranks", "0,8", "--", __file__], "--ranks 0,8: there is no rank 8: --world is 8"),
        (["--world", "8", "--ranks", "x", "--", __file__], "'x' is no rank and no range"),
        (["--world", "8", "--gpu", "abacus", "--", __file__], "abacus"),
        (["--world", "2", "--", __file__], "has no PyTorch: give --python with one that has"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    assert said in refused("-o", str(tmp_path / "out"), *words)
