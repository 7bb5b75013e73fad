"""Sweeps of training jobs: cases, the numbers of their communication, and the shipped suite."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from live_runs import Ended, in_this_process

from genie.config.strict_toml import SettingsError
from genie.errors import UsageError
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.api import simulate
from simtwin.fabric.reading import parse_fabric
from simtwin.sweep.communication import communication_of
from simtwin.sweep.grid import load_sweep

ROOT = Path(__file__).resolve().parents[2]
FABRIC = """
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
hosts_per_server = 2
[topology.domain]
rate = "3600Gb/s"
[link]
rate = "400Gb/s"
delay = "500ns"
"""
SWEEP = """
[base]
fabric = "fabric.toml"
level = "analytic"
ranks_per_node = 1
[base.job]
layers = 2
sequence = 512
[grid]
fabric.link.rate = ["100Gb/s", "400Gb/s"]
[[case]]
name = "dense-8"
job = {model = "llama3-8b", gpus = 8, tp = 2, pp = 2}
[[case]]
name = "experts-8"
job = {model = "mixtral-8x7b", gpus = 8, ep = 4}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "fabric.toml").write_text(FABRIC)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path / "sweep.toml"


def sweep(file: Path, *arguments: str) -> Ended:
    return in_this_process("sweep", str(file), "-o", str(file.parent / "out"), "--jobs", "1", *arguments)


def test_each_case_is_played_on_each_value_of_the_grid(file: Path) -> None:
    ended = sweep(file)
    assert ended.code == 0, ended
    head, *lines = (re.split(r"\s{2,}", line.strip()) for line in ended.stdout.splitlines())
    assert head == [
        "case", "rate", "iteration ms", "exposed ms", "tp busbw GB/s", "dp busbw GB/s", "ep busbw GB/s", "wall s",
    ]  # fmt: skip
    assert [tuple(line[:2]) for line in lines[:-1]] == [
        (case, rate) for case in ("dense-8", "experts-8") for rate in ("100Gb/s", "400Gb/s")
    ]
    table = pl.read_parquet(file.parent / "out" / "sweep.parquet")
    slow, fast = table.filter(pl.col("case") == "dense-8").to_dicts()
    assert slow["completion_s"] > fast["completion_s"] > fast["exposed_s"] > 0
    # Tensor-parallel ranks share a server, whatever the fabric; data-parallel ones cross it.
    assert slow["tp_bus_bytes_per_s"] == pytest.approx(fast["tp_bus_bytes_per_s"], rel=1e-3)
    assert slow["tp_bus_bytes_per_s"] > 50e9
    assert slow["dp_bus_bytes_per_s"] < 12.5e9 < fast["dp_bus_bytes_per_s"] < 50e9
    assert fast["ep_bus_bytes_per_s"] is None
    page = (file.parent / "out" / "sweep.html").read_text()
    assert "Exposed communication" in page
    assert "rotate(-40" in page  # names of cases slope
    rows = [json.loads(line) for line in (file.parent / "out" / "rows.jsonl").read_text().splitlines()]
    assert sum("id" in row for row in rows) == 4


def test_cases_are_chosen_by_name_and_kept_in_the_folder(file: Path) -> None:
    assert "2 runs, 2 played now" in sweep(file, "--case", "dense*").stdout
    assert "4 runs, 2 played now" in sweep(file).stdout
    ended = sweep(file, "--case", "none")
    assert ended.code == 2
    assert "--case none: matches no case; the cases are dense-8, experts-8" in ended.stderr


def test_numbers_of_communication_are_those_of_a_single_collective() -> None:
    """Nothing computes: all of an iteration is exposed, and the bus bandwidth is that of the one collective."""
    fabric = parse_fabric(FABRIC)
    workload = collective(Op.ALL_REDUCE, 8, 1 << 24)
    workload.groups[0] = type(workload.groups[0])("dp0", workload.groups[0].ranks)
    run = simulate(fabric, workload, level="analytic", ranks_per_node=1)
    found = communication_of(run)
    assert found["exposed_s"] == pytest.approx(run.completion_s)
    assert found["dp_bus_bytes_per_s"] == pytest.approx(2 * 7 / 8 * (1 << 24) / run.completion_s)
    assert found["tp_bus_bytes_per_s"] is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "experts-8"', 'name = "dense-8"', "case[1].name: give a name of its own"),
        ('name = "experts-8"\n', "", "case[1]: give a name of its own"),
        ("ep = 4", "ep = 3", "case = 'experts-8': job: a stage has 8 ranks"),
        ("gpus = 8, ep", "gpu = 8, ep", "case 'experts-8': job.gpu = 8"),
        ('model = "mixtral-8x7b", ', "", "base.job.model is missing"),
        ("ep = 4", "epp = 4", "job.epp is an unknown key"),
        ('"mixtral-8x7b"', '"mixtral"', "is no file and no model by name"),
        ("[base.job]", '[base.traffic]\nkind = "incast"\nsize = "1KiB"\n[base.job]', "give one of workload = a folder"),
    ],
)
def test_what_cannot_be_is_refused_with_the_line(file: Path, old: str, new: str, said: str) -> None:
    file.write_text(SWEEP.replace(old, new))
    with pytest.raises((SettingsError, UsageError)) as wrong:
        load_sweep(file)
    assert said in str(wrong.value)
    assert re.search(r"sweep\.toml(:\d+)?: ", str(wrong.value))
    assert "\n" not in str(wrong.value)


def test_the_shipped_suite_has_the_four_models_at_all_sizes() -> None:
    suite = load_sweep(ROOT / "examples" / "suite.toml")
    played: dict[str, set[int]] = {}
    fabrics: dict[str, Any] = {}
    for run in suite.runs():
        assert run.base.job is not None
        played.setdefault(
            run.parameters["case"].rsplit("-", 1 + run.parameters["case"].endswith("flow"))[0], set()
        ).add(run.base.job.gpus)
        fabrics[run.parameters["fabric"]] = run.fabric["topology"]
    assert set(played) == {"gpt3-13b", "gpt3-175b", "llama3-70b", "deepseek-v3"}
    assert all(max(sizes) == 4096 and min(sizes) <= 256 for sizes in played.values())
    assert len(fabrics) == 3
