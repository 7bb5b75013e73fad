"""`genie generate` and `genie expand`: files, words, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from live_runs import genie

from genie.cli.workload.generate import GENERATE_EXAMPLES
from genie.workload.classes import RankViews
from genie.workload.graph import Kind
from genie.workload.load import load

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("kind", "duration_ns", "size_bytes", "op", "peer", "tag", "stream", "deps", "dep_start")
JOB = ("llama3-8b", "--gpus", "16", "--tp", "2", "--cp", "2", "--pp", "2", "--layers", "4", "--micro-batches", "4")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("job") / "traces"
    ended = genie("generate", *JOB, "-o", str(out))
    assert ended.code == 0, ended
    assert "16 ranks: tp2 cp2 pp2 dp2" in ended.stdout
    return out


def test_a_job_has_a_trace_for_each_class(job: Path) -> None:
    assert sorted(path.name for path in job.iterdir()) == [
        "workload.0.et", "workload.8.et", "workload.classes.json", "workload.json",
    ]  # fmt: skip
    workload = load(job)
    assert isinstance(workload.ranks, RankViews)
    assert (workload.world_size, len(workload.ranks)) == (16, 16)
    ended = genie("inspect", str(job))
    assert ended.code == 0
    assert "nothing found" in ended.stdout


def test_each_compute_node_says_where_its_time_comes_from(tmp_path: Path) -> None:
    """Names of operators that a table has, and the roofline for the others; expanded traces say it too."""
    table, out = tmp_path / "times.csv", tmp_path / "traces"
    table.write_text("gpu,op,shape,dtype,ns\nh100,operator,attention qkv,bf16,889000\n")
    ended = genie("generate", *JOB, "--compute", str(table), "-o", str(out))
    assert ended.code == 0, ended
    assert genie("expand", str(out), "-o", str(tmp_path / "plain")).code == 0
    for workload in (load(out), load(tmp_path / "plain")):
        graph = workload.ranks[3]
        assert graph.origin is not None
        measured = np.array([name.startswith("attention qkv") and "gradient" not in name for name in graph.name])
        words = np.where(graph.kind != Kind.COMP, "", np.where(measured, "measured by name", "roofline"))
        assert measured.any()
        assert graph.origin == words.tolist()
    inspected = genie("inspect", str(out)).stdout
    assert " measured by name" in inspected.partition("times from:")[2]


def test_expanded_traces_are_the_same_graphs(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    ended = genie("expand", str(job), "-o", str(out))
    assert ended.code == 0, ended
    assert len(list(out.glob("*.et"))) == 16
    plain, classed = load(out), load(job)
    for rank in range(16):
        one, other = plain.ranks[rank], classed.ranks[rank]
        for column in COLUMNS:
            assert np.array_equal(getattr(one, column), getattr(other, column)), (rank, column)
        names = [
            [it.groups[at].name for at in graph.group if at >= 0] for it, graph in ((plain, one), (classed, other))
        ]
        assert names[0] == names[1]
    some = tmp_path / "some"
    assert genie("expand", str(job), "--ranks", "3,8-9", "-o", str(some)).code == 0
    assert sorted(path.name for path in some.glob("*.et")) == ["workload.3.et", "workload.8.et", "workload.9.et"]


def test_one_rank_loads_its_own_class_only(job: Path) -> None:
    (job / "workload.8.et").rename(job / "aside")
    try:
        assert np.array_equal(load(job, ranks=[5]).ranks[5].peer, load(job, ranks=[5]).ranks[5].peer)
        assert genie("inspect", str(job)).code == 2
    finally:
        (job / "aside").rename(job / "workload.8.et")


def test_the_explanation_has_parameters_memory_and_formulas(tmp_path: Path) -> None:
    ended = genie(
        "generate", "mixtral-8x7b", "--gpus", "8", "--ep", "8", "--layers", "2", "--explain", "-o", str(tmp_path / "t")
    )
    assert ended.code == 0, ended
    assert "3,164,688,384 parameters" in ended.stdout
    for word in ("2 T k h", "experts of a token", "optimizer", "dispatch, probabilities", "  expert  "):
        assert word in ended.stdout, word


def test_a_scaled_job_has_the_same_load_on_a_nic_and_says_what_changed(tmp_path: Path) -> None:
    words = ("generate", "llama3-8b", "--tp", "4", "--pp", "2", "--layers", "2", "--gpus")
    ended = genie(*words, "1024", "--scale-to", "16", "-o", str(tmp_path / "small"))
    assert ended.code == 0, ended
    assert (
        "scaled from 1024 to 16 ranks: replicas 128 to 2; parameters: groups of 128 to 2, whose rings load a NIC with "
        "50 % of before"
    ) in ended.stdout
    assert genie(*words, "16", "-o", str(tmp_path / "plain")).code == 0
    small, plain = load(tmp_path / "small"), load(tmp_path / "plain")
    assert all(np.array_equal(small.ranks[rank].size_bytes, plain.ranks[rank].size_bytes) for rank in range(16))
    refused = genie(*words, "1024", "--scale-to", "12", "-o", str(tmp_path / "none"))
    assert refused.code == 2
    assert "--scale-to 12: give a multiple of 8, the ranks of a replica" in refused.stderr


def test_a_rank_without_enough_memory_is_warned_of(tmp_path: Path) -> None:
    ended = genie("generate", "llama3-70b", "--gpus", "8", "--tp", "8", "-o", str(tmp_path / "t"))
    assert ended.code == 0
    assert re.search(
        r"a rank of pipeline stage 0 needs about \d+ GB, and .* has 80 GB: give more --tp or ", ended.stderr
    )


def test_large_jobs_of_the_examples_fit(tmp_path: Path) -> None:
    text = GENERATE_EXAMPLES + (ROOT / "docs" / "generate-a-workload.md").read_text()
    lines = re.findall(r"(?m)^genie (generate (?:deepseek|mixtral).*) -o .*", text)
    assert len(lines) == 2
    for number, line in enumerate(lines):
        ended = genie(*line.split(), "-o", str(tmp_path / str(number)))
        assert (ended.code, ended.stderr) == (0, ""), line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llama9", "--gpus", "8"), "llama9: is no file and no model by name"),
        (("llama3-8b", "--gpus", "12", "--tp", "8"), "--gpus 12 is not a multiple of 8"),
        (("llama3-8b", "--gpus", "8", "--fsdp", "--zero", "1"), "--fsdp and --zero 1: give one of them"),
        (("llama3-8b", "--gpus", "8", "--gpu", "tpu"), "--gpu tpu: is not known: give one of a100"),
        (("llama3-8b", "--gpus", "8", "--gpu", "a100", "--fp8"), "A100 SXM 80 GB has no FP8"),
        (("llama3-8b", "--gpus", "8", "--recompute", "some"), "--recompute some: must be none, selective or full"),
        (("llama3-8b", "--gpus", "8", "--compute-scale", "0"), "--compute-scale 0.0: give a number above 0"),
        (("mixtral-8x7b", "--gpus", "8", "--routing", "zipf:-1"), "--routing zipf:-1: give an exponent above 0"),
        (("mixtral-8x7b", "--gpus", "8", "--routing", "none.json"), "none.json: cannot be read: No such file"),
        (("llama3-8b", "--gpus", "8", "--routing", "zipf:1"), "--routing: llama3-8b: has no experts"),
        (("llama3-8b", "--gpus", "8", "--hsdp", "2"), "--hsdp shards parameters: give --fsdp"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ended = genie("generate", *words, "-o", str(tmp_path / "t"))
    assert ended.code == 2, ended
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "genie.classes.2"}, "has the schema 'genie.classes.2': this version reads genie.classes.1"),
        ({"ranks": 17}, "class_runs do not give 17 ranks one of 2 classes each"),
        ({"lowest": [8, 0]}, "rank 8 is not of class 0"),
        ({"domains": [["tp99"]]}, "group 'tp99' is not in the groups file"),
        ({"domains": []}, "a collective's group is in no domain"),
        ({"peers": [[0]]}, "has not one entry for each of 16 ranks"),
        ({"peers": [[99] * 16]}, "a peer is not a rank of 0..15"),
        ({"peers": [[0] * 16]}, "the classes file does not have its peer"),
        ({"more": 1}, "is no classes file"),
    ],
)
def test_a_damaged_classes_file_is_refused(job: Path, change: dict[str, object], said: str) -> None:
    path = job / "workload.classes.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | change))
    try:
        ended = genie("inspect", str(job))
        assert ended.code == 2, ended
        assert said in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
    finally:
        path.write_text(before)
