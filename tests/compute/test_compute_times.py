"""Compute times: the roofline against measured products, and tables of measured times."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.compute.gpus import find_gpu, gpus
from genie.compute.operators import attention, gemm, grouped_gemm, memory
from genie.compute.roofline import Roofline
from genie.compute.table import MeasuredTimes, TableTimes, read_times
from genie.errors import UsageError

HEAD = "gpu,op,shape,dtype,ns\n"


def measured_products(path: Path, tflops: float) -> list[tuple[tuple[int, int, int], float]]:
    """((m, k, n), ns) of a table of SimuMax, which has shares of a peak."""

    def found(value: Any) -> Any:
        if isinstance(value, dict):
            if "accurate_efficient_factor" in value.get("matmul", {}):
                return value["matmul"]["accurate_efficient_factor"]
            return next((it for it in map(found, value.values()) if it), None)
        return None

    rows = []
    for key, share in found(json.loads(path.read_text())).items():
        sizes = dict(re.findall(r"(\w+)=(\d+)", key))
        m, k, n = (int(sizes[name]) for name in "mkn")
        rows.append(((m, k, n), 2 * m * k * n / (tflops * 1e12 * float(share)) * 1e9))
    return rows


@pytest.mark.parametrize(
    ("file", "gpu", "median", "tenth"),
    [("a100_pcie.json", "a100", 0.05, 0.2), ("b200_bf16_ceperm.json", "b200", 0.1, 0.35)],
)
def test_products_take_about_as_long_as_measured(
    shared_data: Path, file: str, gpu: str, median: float, tenth: float
) -> None:
    """Tables of SimuMax: 183 and 514 shapes. The constants of gpus.toml were fitted to them."""
    times = Roofline(find_gpu(gpu))
    rows = measured_products(shared_data / "simumax" / file, find_gpu(gpu).bf16_tflops)
    error = [abs(times.duration_ns(gemm("it", *shape)) / ns - 1) for shape, ns in rows]
    assert len(error) > 100
    assert np.median(error) < median
    assert np.quantile(error, 0.9) < tenth


@pytest.mark.parametrize("name", gpus())
def test_a_gpu_is_never_faster_than_its_data_sheet(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu.source
    for operator in (
        gemm("a", 8192, 8192, 8192), grouped_gemm("b", 8, 512, 4096, 4096), attention("c", 1, 8192, 8192, 32, 128, 128),
        memory("d", 1 << 30),
    ):  # fmt: skip
        seconds = Roofline(gpu).duration_ns(operator) / 1e9
        assert operator.flops / seconds < gpu.bf16_tflops * 1e12
        assert operator.moved_bytes / seconds < gpu.memory_gb_per_s * 1e9


def test_the_scale_multiplies_all_times() -> None:
    operator = gemm("it", 4096, 4096, 4096)
    plain, twice = (Roofline(find_gpu("h100"), scale).duration_ns(operator) for scale in (1.0, 2.0))
    assert twice == pytest.approx(2 * plain, abs=2)


def times_of(tmp_path: Path, text: str, gpu: str = "h100") -> TableTimes:
    path = tmp_path / "times.csv"
    path.write_text(HEAD + text)
    return TableTimes(read_times(path), gpu, Roofline(find_gpu(gpu)))


def test_a_row_comes_first_then_a_line_then_another_gpu_then_the_roofline(tmp_path: Path) -> None:
    rows = "".join(
        f"h100,gemm,{m}x4096x4096,bf16,{10_000 + 2 * m * 4096 * 4096 // 600_000}\n" for m in (1024, 2048, 8192)
    )
    table = times_of(tmp_path, rows + "a100,attention,1x1024x1024x8x128x128,bf16,20000\n")
    assert table.timed(gemm("own", 2048, 4096, 4096)) == (10_000 + 2 * 2048 * 4096 * 4096 // 600_000, "measured")
    between = gemm("between", 4096, 4096, 4096)
    fitted = table.timed(between)
    assert fitted.duration_ns == pytest.approx(10_000 + between.flops / 600_000, rel=1e-3)
    assert fitted.origin == "fitted"
    norm = memory("norm", 1 << 20)
    assert table.timed(norm) == (Roofline(find_gpu("h100")).duration_ns(norm), "roofline")
    other = times_of(tmp_path, rows, "a100").timed(between)
    assert other.duration_ns > 1.5 * fitted.duration_ns
    assert other.origin == "scaled from h100"


def test_the_backward_pass_of_attention_has_no_forward_row(tmp_path: Path) -> None:
    table = times_of(tmp_path, "h100,attention,1x1024x1024x8x128x128,bf16,20000\n")
    forward, backward = (attention("it", 1, 1024, 1024, 8, 128, 128, passes) for passes in (1.0, 2.5))
    assert table.timed(forward) == (20000, "measured")
    assert table.timed(backward).origin == "roofline"


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(64, 8192), st.integers(10**3, 10**9)), min_size=3, max_size=8, unique_by=lambda it: it[0]
    )
)
def test_a_fitted_time_is_never_negative_and_grows_with_the_work(rows: list[tuple[int, int]]) -> None:
    known = {(m, 512, 512): ns for m, ns in rows}
    table = TableTimes(MeasuredTimes({"h100": {("gemm", "bf16"): known}}, ""), "h100", Roofline(find_gpu("h100")))
    times = [table.timed(gemm("it", m, 512, 513)).duration_ns for m in (1, 100, 10_000)]
    assert 0 < times[0] <= times[1] <= times[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu,op\n", ":1: the columns must be gpu,op,shape,dtype,ns"),
        (HEAD + "h100,gemm,8x8x8,bf16\n", ":2: has 4 columns"),
        (HEAD + "tpu,gemm,8x8x8,bf16,9\n", ":2: gpu: 'tpu' is not known"),
        (HEAD + "h100,conv,8x8x8,bf16,9\n", ":2: op: 'conv': give one of gemm"),
        (HEAD + "h100,gemm,8x8,bf16,9\n", ":2: shape: '8x8': a gemm has 3 sizes"),
        (HEAD + "h100,gemm,8x8x0,bf16,9\n", ":2: shape: '8x8x0'"),
        (HEAD + "h100,gemm,8x8x8,int4,9\n", ":2: dtype: 'int4'"),
        (HEAD + "h100,gemm,8x8x8,bf16,1.5\n", ":2: ns: '1.5': give a whole number of nanoseconds"),
        (HEAD + "\nh100,gemm,8192x8192x8192,bf16,1400\n", ":3: ns: 1400 is 7.9e+02 times the peak of H100 SXM 80 GB"),
        (HEAD + "h100,gemm,8192x8192x8192,bf16,1400000000000\n", "is it in another unit than ns?"),
        (HEAD + "a100,gemm,8x8x8,fp8,9\n", ":2: dtype: A100 SXM 80 GB has no FP8"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as wrong:
        read_times(path)
    assert said in str(wrong.value)
    assert str(wrong.value).startswith(str(path))


def test_an_unknown_gpu_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match=r"--gpu tpu: is not known: give one of a100, "):
        find_gpu("tpu")
