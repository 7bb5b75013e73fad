"""Converted workloads on the wire: traces made of AICB's workloads and of MSCCL's algorithms."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from live_runs import genie, in_this_process, loopback

from genie.record import open_run

pytestmark = pytest.mark.live

WORKLOAD = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4
2
attention -1 200000 ALLREDUCE 20000 200000 ALLREDUCE 20000 100000 REDUCESCATTER 40000 100
mlp       -1 300000 ALLGATHER 20000 200000 ALLREDUCE 20000 100000 ALLGATHER     40000 100
"""


def run(trace: Path, ranks: int, folder: Path, *options: str) -> pl.DataFrame:
    """Play a trace once on loopback, every byte checked; the bytes of each pair of ranks."""
    ended = genie(
        "run", str(trace), "--hosts", loopback(folder, ranks), "--rate", "200Mb/s", "--events", "--verify", "-n", "1",
        "-o", str(folder / "run"), *options,
    )  # fmt: skip
    assert ended.code == 0, ended
    assert "none wrong" in ended.stderr
    return open_run(folder / "run").transfers.group_by("src", "dst").agg(pl.col("size_bytes").sum())


def test_a_workload_of_aicb(tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text(WORKLOAD)
    converted = in_this_process("convert", "aicb", str(tmp_path / "tiny.txt"), "-o", str(tmp_path / "trace"))
    assert converted.code == 0, converted
    sent = run(tmp_path / "trace", 4, tmp_path, "--wire", "plain")
    pairs = {(src, dst): size for src, dst, size in sent.rows()}
    tensor = 3 * 20_000 + 10_000  # three all-reduces of two, and an all-gather of halves
    data = 20_000 + 20_000  # half of what is scattered, and half of what is gathered
    assert pairs == {
        (0, 1): tensor, (1, 0): tensor, (2, 3): tensor, (3, 2): tensor,
        (0, 2): data, (2, 0): data, (1, 3): data, (3, 1): data,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "size"), [("msccl/ndv4/a2a2ll.xml", "16KiB"), ("msccl/ndv4/r48ll.xml", "64KiB")])
def test_an_algorithm_of_msccl(name: str, size: str, shared_data: Path, tmp_path: Path) -> None:
    xml = str(shared_data / name)
    converted = in_this_process("convert", "msccl", xml, "--size", size, "-o", str(tmp_path / "trace"))
    assert converted.code == 0, converted
    sent = run(tmp_path / "trace", 8, tmp_path)
    if "a2a" in name:
        assert sent["size_bytes"].to_list() == [2 << 10] * 56
    else:
        assert sent["size_bytes"].sum() == 2 * 7 * (64 << 10)
