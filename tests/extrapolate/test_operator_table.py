"""`genie inspect --operators`: the operators of a Kineto trace by total time."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import in_this_process
from pytorch_samples import Sample

from genie.compute.gpus import find_gpu
from genie.compute.table import read_times
from genie.extrapolate.operator_table import read_operators


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two calls of one product, whose inner operator launches the kernels; a copy without an operator; NCCL."""
    sample = Sample()
    for number, start in enumerate((100, 200), 1):
        sample.operator("aten::linear", start, 50)
        dims = [[64], [4096, 8192], [8192, 1024]]
        types = ["c10::BFloat16"] * 3
        sample.operator("aten::addmm", start + 5, 30, **{"Input Dims": dims, "Input type": types})
        sample.launch(number, start + 10, 5)
        sample.kernel("gemm", start + 60, 100 * number, 7, number)
    sample.call("cudaMemcpyAsync", 400, 5, 3)
    sample.copy("Memcpy HtoD (Pinned -> Device)", 410, 7, 7, 3, 1024)
    sample.launch(4, 420, 5)
    sample.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 430, 999, 8, 4)
    return sample.write(tmp_path)[1]


def test_kernels_belong_to_the_innermost_operator(trace: Path) -> None:
    first, second = read_operators(trace).rows
    assert (first.name, first.count, first.total_ns, first.mean_ns) == ("aten::addmm", 2, 300_000, 150_000)
    assert first.shapes == ((64,), (4096, 8192), (8192, 1024))
    assert first.flops == 2 * 4096 * 8192 * 1024
    assert first.share_of_peak(find_gpu("h100")) == pytest.approx(first.flops / 150e-6 / 989.4e12)
    assert (second.name, second.count, second.total_ns) == ("(no operator)", 1, 7_000)


def test_the_table_is_one_for_compute(trace: Path, tmp_path: Path) -> None:
    ended = in_this_process("inspect", str(trace), "--operators", "--gpu", "h100", "--csv", str(tmp_path / "t.csv"))
    assert ended.code == 0, ended.stderr
    assert "1 matrix products in BF16 and FP8" in ended.stdout
    assert read_times(tmp_path / "t.csv").rows == {"h100": {("gemm", "bf16"): {(4096, 8192, 1024): 150_000}}}


def test_total_time_is_that_of_all_kernels(shared_data: Path) -> None:
    table = read_operators(shared_data / "triosim" / "profiler_vgg13-iter41.json")
    assert (table.total_ns, table.gpu) == (346_370_000, "NVIDIA H100 80GB HBM3")
    ended = in_this_process("inspect", str(table.path), "--operators")
    lines = ended.stdout.splitlines()
    assert lines[0] == "profiler_vgg13-iter41.json: 346 ms of kernels without communication on H100 SXM 80 GB"
    assert lines[2].split()[-4:] == [
        "aten::convolution_backward", "512x64x224x224", "512x64x224x224", "64x64x3x3"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--operators", "--json"), "--operators: leave out --json"),
        (("--operators", "--compute", "roofline:1,1"), "--operators: leave out --compute"),
        (("--gpu", "h100"), "--gpu: has a meaning with --operators only"),
        (("--operators", "--csv", "t.csv"), "does not name its GPU: give --gpu"),
        (("--operators", "--gpu", "h1"), "--gpu h1: is not known"),
    ],
)
def test_bad_options_are_one_line(words: tuple[str, ...], said: str, trace: Path) -> None:
    ended = in_this_process("inspect", str(trace), *words)
    assert ended.code == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
