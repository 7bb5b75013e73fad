"""Scripts of PyTorch, captured. `make capture-test` installs PyTorch and names its Python in GENIE_TORCH_PYTHON."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import timeline_picture

from genie.workload.graph import Kind, Op, Workload
from genie.workload.inspect import inspect_workload
from genie.workload.load import load

pytestmark = pytest.mark.pytorch

SCRIPTS = Path(__file__).parent / "scripts"
LLAMA = Path(__file__).resolve().parents[2] / "examples/capture/llama.py"
Kinds = Counter[tuple[str, int, int]]  # operation, members, bytes


def captured(folder: Path, script: Path, world: int, *words: str) -> tuple[Workload, str]:
    """Capture a script; return the workload and the output of the command."""
    line = [sys.executable, "-m", "genie", "capture", "--world", str(world), "-o", str(folder)]
    line += ["--python", os.environ["GENIE_TORCH_PYTHON"], "--", str(script), *words]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return load(folder), ended.stdout + ended.stderr


def kinds_of(workload: Workload, rank: int = 0) -> Kinds:
    graph = workload.ranks[rank]
    rows = [row for row in range(len(graph)) if graph.kind[row] == Kind.COLL]
    members = [len(workload.groups[int(graph.group[row])].ranks) for row in rows]
    names = [Op(int(graph.op[row])).name.lower() for row in rows]
    return Counter(zip(names, members, (int(graph.size_bytes[row]) for row in rows), strict=True))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workload, float, float]:
    """A Llama of a billion parameters on 1,024 ranks, seconds, and the most memory of a process in GB."""
    began = time.monotonic()
    workload, _ = captured(tmp_path_factory.mktemp("llama"), LLAMA, 1024, "--tp", "8")
    memory_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    return workload, time.monotonic() - began, memory_gb


def test_two_ranks_of_a_billion_parameters_take_less_than_the_limit(llama: tuple[Workload, float, float]) -> None:
    _, took_s, memory_gb = llama
    assert took_s < 2 * 60
    assert memory_gb < 4


def test_its_collectives_are_those_that_generate_makes(llama: tuple[Workload, float, float], tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 32000,
        "tie_word_embeddings": False, "max_position_embeddings": 4096,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = [sys.executable, "-m", "genie", "generate", str(tmp_path / "config.json"), "--gpus", "1024", "--tp", "8"]
    line += ["--fsdp", "--no-sequence-parallel", "-o", str(tmp_path / "generated")]
    subprocess.run(line, check=True, timeout=120, capture_output=True)
    generated = kinds_of(load(tmp_path / "generated"))
    generated.pop(("all_reduce", 1024, 4))  # the script does not clip gradients
    of_script = kinds_of(llama[0])

    assert of_script == generated


def test_the_shipped_transformer_has_the_collectives_of_its_trace(tmp_path: Path) -> None:
    """examples/transformer is a recording of real training on 8 ranks: the same collectives in each group's order."""
    workload, _ = captured(tmp_path, SCRIPTS / "shipped_transformer.py", 8)
    recorded = load(LLAMA.parents[1] / "transformer")

    def sequences(played: Workload, rank: int) -> dict[tuple[int, ...], list[tuple[int, int]]]:
        graph, found = played.ranks[rank], defaultdict(list)
        for row in np.flatnonzero(graph.kind == Kind.COLL).tolist():
            ranks = played.groups[int(graph.group[row])].ranks
            found[ranks].append((int(graph.op[row]), int(graph.size_bytes[row])))
        return dict(found)

    for rank in range(8):
        assert sequences(workload, rank) == sequences(recorded, rank)


def test_it_is_lint_clean_on_fewer_ranks(tmp_path: Path) -> None:
    workload, _ = captured(tmp_path, LLAMA, 8, "--tp", "2", "--layers", "2")
    assert inspect_workload(workload).lints == []


def test_gathers_of_fsdp_overlap_with_compute(llama: tuple[Workload, float, float]) -> None:
    """A backward gather waits for no product of the layer after it: it is prefetched."""
    graph = llama[0].ranks[0]
    gathers = [row for row in range(len(graph)) if graph.op[row] == Op.ALL_GATHER]
    behind = 0
    for row in gathers:
        deps = graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
        behind += any("mm" in graph.name[int(dep)] for dep in deps)
    assert behind == 0


def test_data_parallel_buckets_are_those_of_the_rule(tmp_path: Path) -> None:
    """The first bucket ends at 1 MiB, with the linear layer's weight. Buffers are broadcast by type."""
    workload, said = captured(tmp_path, SCRIPTS / "ddp.py", 8)
    linear, rest = 4 * 256 * 2000, 4 * (2000 + 3 * 256 * 9 + 2 * 256)
    buffers = 4 * 2 * 256
    assert kinds_of(workload) == Counter(
        {("all_reduce", 8, linear): 1, ("all_reduce", 8, rest): 1, ("broadcast", 8, buffers): 1, ("broadcast", 8, 8): 1}
    )
    assert "a number of a tensor that the script reads is taken as 1" in said
    assert inspect_workload(workload).lints == []


def test_stages_of_a_pipeline_send_what_they_compute(tmp_path: Path) -> None:
    workload, said = captured(tmp_path, SCRIPTS / "pipeline.py", 8)
    assert "captured: ranks 0, 1, 2, 3; rank 7 does as the rank that stands for it" in said
    assert inspect_workload(workload).lints == []
    for rank in range(8):
        graph = workload.ranks[rank]
        sends = graph.kind == Kind.SEND
        assert set(graph.size_bytes[sends].tolist()) == {2 * 256 * 4}
        assert int(sends.sum()) == (8 if rank % 4 in (0, 3) else 16)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ((SCRIPTS / "values.py").read_text(), "rank 0: train.py:8: aten.nonzero.default needs values"),
        ("import flash_attn\n", "rank 0: train.py:1: imports flash_attn, whose kernels need a GPU"),
        ("raise SystemExit('no data')\n", "rank 0: the script ended with no data before step 2"),
        ("import torch\n", "rank 0: the script ended after 0 steps of its optimizer"),
        ("import torch\ntorch.ones(3).view(2)\n", "rank 0: train.py:2: RuntimeError"),
    ],
)
def test_a_script_that_cannot_be_captured_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    line = [sys.executable, "-m", "genie", "capture", "--world", "8", "-o", str(tmp_path / "out")]
    line += ["--python", os.environ["GENIE_TORCH_PYTHON"], "--", str(script)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    (only,) = ended.stderr.strip().splitlines()
    assert said in only


def test_the_picture_of_the_guide_is_drawn_from_a_capture() -> None:
    drawn = timeline_picture.drawing(timeline_picture.CAPTURED)
    assert (LLAMA.parents[2] / "docs" / "captured.svg").read_text() == drawn, "GENIE_TORCH_PYTHON=... make picture"
    assert len(drawn) < 100_000
