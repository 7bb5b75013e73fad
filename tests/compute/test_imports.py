"""Operator times of SimuMax and AICB as tables, and what cannot be imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_runs import in_this_process

from genie.compute.gpus import find_gpu
from genie.compute.imports import import_times
from genie.compute.operators import attention, gemm, memory
from genie.compute.roofline import Roofline
from genie.compute.table import TableTimes, read_times
from genie.errors import UsageError


def table_of(file: Path, gpu: str, folder: Path) -> TableTimes:
    path = folder / "times.csv"
    path.write_text(import_times(file).as_csv(gpu))
    return TableTimes(read_times(path), gpu, Roofline(find_gpu(gpu)))


def test_shares_of_the_peak_become_times(shared_data: Path, tmp_path: Path) -> None:
    """A product of 4096 x 5120 x 1536 reaches 78.8 % of 312 TFLOP/s; attention counts operations without a mask."""
    times = table_of(shared_data / "simumax" / "a100_pcie.json", "a100", tmp_path)
    measured = 2 * 4096 * 5120 * 1536 / (312e12 * 0.7876672065615554) * 1e9
    product = times.timed(gemm("", 4096, 5120, 1536))
    assert product.duration_ns == pytest.approx(measured, rel=0.001)
    whole = 2 * 4096**2 * 128 * (192 + 128)
    found = times.timed(attention("", 1, 4096, 4096, 128, 192, 128))
    assert found.duration_ns == pytest.approx(whole / (312e12 * 1.0729673001633662) * 1e9, rel=0.001)
    assert (product.origin, found.origin) == ("measured", "measured")


def test_all_shipped_shares_can_be_read_back(shared_data: Path, tmp_path: Path) -> None:
    for name, gpu, count in (("a100_pcie", "a100", 174), ("b200_bf16_ceperm", "b200", 431)):
        times = table_of(shared_data / "simumax" / f"{name}.json", gpu, tmp_path)
        assert sum(len(rows) for rows in times.table.rows[gpu].values()) == count


def test_times_by_name_are_those_of_forward_passes(shared_data: Path, tmp_path: Path) -> None:
    times = table_of(shared_data / "aicb" / "aiob_Example.txt", "h100", tmp_path)
    assert times.timed(gemm("attention qkv", 8, 8, 8)) == (889_000, "measured by name")  # time_gpu_avg: 889 µs
    assert times.timed(memory("final norm", 100)) == (70_000, "measured by name")
    assert times.timed(gemm("attention qkv input gradient", 8, 8, 8)).origin == "roofline"


def test_equal_shapes_become_their_mean(tmp_path: Path) -> None:
    shares = {"b=1, m=8, k=8, n=8, layout=TN": 0.5, "b=1, m=8, k=8, n=8, layout=NT": 0.25}
    content = {"accelerator": {"op": {"matmul": {"tflops": 1e-6, "accurate_efficient_factor": shares}}}}
    path = tmp_path / "system.json"
    path.write_text(json.dumps(content))
    assert (
        import_times(path).as_csv("h100").splitlines()[1] == f"h100,gemm,8x8x8,bf16,{(1024000 * 2 + 1024000 * 4) // 2}"
    )


def simumax(**change: object) -> str:
    own = {"tflops": 312, "accurate_efficient_factor": {"b=1, m=8, k=8, n=8": 0.5}} | change
    return json.dumps({"accelerator": {"op": {"matmul": own}}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            simumax(accurate_efficient_factor={"b=1, m=8, k=8, n=8": 50}),
            "50 is not a share of the peak above 0, up to 2",
        ),
        (simumax(accurate_efficient_factor={"b=1, m=8, k=8": 0.5}), "has no size 'n'"),
        (simumax(tflops="312"), "tflops: '312' is not a rate"),
        (simumax(accurate_efficient_factor={}), "has no shares of the peak by shape"),
        ('{"a": 1}', "is no system file of SimuMax: has no table of operators, accelerator.op"),
        ('{"accelerator": {"op": {"matmul": 1}}}', "has no table of operators, accelerator.op"),
        ("{", "is no system file of SimuMax: Input data was truncated"),
        ("train_iter:10\nEmb:\n    time_gpu_avg: 0.8\n", "f:3: time_gpu_avg: '0.8' is not a whole number of µs"),
        ("train_iter:10\nOther:\n    time_gpu_avg: 8\n", "has no time_gpu_avg of an operator that Genie knows"),
        ("hello", "is no file of operator times"),
    ],
)
def test_bad_files_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(UsageError) as wrong:
        import_times(path)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_the_command_writes_a_table_for_generate(shared_data: Path, tmp_path: Path) -> None:
    file, table = shared_data / "aicb" / "aiob_Example.txt", tmp_path / "times.csv"
    ended = in_this_process("convert", "operators", str(file), "--gpu", "h100", "-o", str(table))
    assert ended.code == 0, ended.stderr
    assert "12 operators of H100 SXM 80 GB, for --compute" in ended.stdout
    words = ("--gpus", "8", "--tp", "8", "--layers", "2", "--compute", str(table), "-o", str(tmp_path / "out"))
    made = in_this_process("generate", "gpt3-13b", *words)
    assert "measured by name" in made.stdout
    assert in_this_process("convert", "operators", str(file), "--gpu", "h1", "-o", str(table)).code == 2
