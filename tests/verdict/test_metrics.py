"""Metrics of runs and verdicts, as Prometheus' own parser reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from synthetic_runs import Fault, Noise, run_pair

from genie.record import RecordError, RecordWriteError, Run, write_run
from genie.report.metrics import COUNTERS, GROUPS_MAX, METRICS, Source, bucket_of, read_source, write_metrics
from genie.verdict import judge

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(path: Path) -> Samples:
    """(name, labels besides run, workload and fabric) -> value; each sample once."""
    found: Samples = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.name in METRICS or family.name in COUNTERS
        for sample in family.samples:
            assert sample.timestamp is None  # node_exporter refuses files with timestamps
            more = {name: value for name, value in sample.labels.items() if name not in ("run", "workload", "fabric")}
            key = (sample.name, frozenset(more.items()))
            assert key not in found
            found[key] = sample.value
    return found


def of(found: Samples, metric: str, /, **labels: str) -> float:
    return found[metric, frozenset(labels.items())]


def written(folder: Path, source: Source) -> Samples:
    path = folder / "genie.prom"
    write_metrics(path, source)
    assert [entry.name for entry in folder.iterdir() if entry.name.startswith("genie.")] == ["genie.prom"]
    return samples(path)


def with_counters(live: Run) -> Run:
    live.counters = {
        "ranks": [{"retransmitted": 10 * rank, "data_sent": 100, "latest_departure_ns": 7} for rank in range(8)],
        "devices": [{"host": "h3", "device": "mlx5_0:1", "kind": "rdma", "driver": "mlx5", "ranks": [3],
                     "counters": {"out_of_buffer": 12, "out_of_sequence": 0}}],
        "warnings": [{"severity": 2, "host": "h3", "device": "mlx5_0:1", "counter": "out_of_buffer", "grew": 12,
                     "devices": 1, "text": "..."}],
    }  # fmt: skip
    return live


@pytest.mark.parametrize(("by_tier", "kind"), [("", "links"), ("paths changed during the run", "tiers")])
def test_coverage_of_links_between_switches(tmp_path: Path, by_tier: str, kind: str) -> None:
    coverage = {"nics": {"judged": 8, "total": 8}, "links": {"judged": 2, "total": 8}, "by_tier": by_tier}
    found = written(tmp_path, Source("nightly", "gpt", "lab", None, {"result": "inconclusive", "coverage": coverage}))
    assert of(found, "genie_judged_ratio", kind="nics") == 1
    assert of(found, "genie_judged_ratio", kind=kind) == 0.25
    assert of(found, "genie_verdict_result", result="inconclusive") == 1


def test_a_verdict_with_a_slow_nic(tmp_path: Path) -> None:
    live, twin = run_pair(1, Noise(), Fault(5, 0.5))
    verdict = judge(live, twin)
    found = written(tmp_path, Source("nightly", "gpt", "leaf-spine", with_counters(live), verdict.to_dict(), 1, 1e9))
    text = (tmp_path / "genie.prom").read_text()
    assert 'genie_run_complete{fabric="leaf-spine",run="nightly",workload="gpt"} 1.0' in text
    assert of(found, "genie_exit_code") == 1
    assert of(found, "genie_verdict_result", result="fail") == 1
    assert of(found, "genie_verdict_result", result="pass") == 0
    assert of(found, "genie_judged_ratio", kind="nics") == verdict.judged.nics.judged / 8 < 1
    suspect = of(found, "genie_suspect", kind="nic", name=verdict.suspects[0].name)
    assert suspect == pytest.approx(2.0, rel=0.15)
    iterations = [item.measured_ns / item.simulated_ns for item in verdict.iterations]
    assert of(found, "genie_excess_ratio") == pytest.approx(sorted(iterations)[len(iterations) // 2] - 1, rel=0.2)
    assert of(found, "genie_retransmitted_packets_total", rank="7") == 70
    assert of(found, "genie_counter_total", host="h3", device="mlx5_0:1", counter="out_of_buffer") == 12
    assert not [key for key in found if ("counter", "out_of_sequence") in key[1]]  # did not grow
    amiss = of(found, "genie_counter_amiss", host="h3", device="mlx5_0:1", counter="out_of_buffer", severity="2")
    assert amiss == 12


def test_iterations_and_bandwidths_are_those_of_the_timeline(tmp_path: Path) -> None:
    live, twin = run_pair(1, Noise(), Fault())
    verdict = judge(live, twin)
    found = written(tmp_path, Source("r", run=live))
    spans = sorted(item.span_ns / 1e9 for item in verdict.iterations)
    assert of(found, "genie_run_iterations") == len(spans)
    assert of(found, "genie_iteration_seconds", quantile="0") == pytest.approx(spans[0])
    assert of(found, "genie_iteration_seconds", quantile="1") == pytest.approx(spans[-1])
    rates = {key[1]: value for key, value in found.items() if key[0] == "genie_collective_busbw_bytes_per_second"}
    assert {dict(labels)["op"] for labels in rates} == set(live.timeline["op"].drop_nulls().to_list())
    usual = sorted(item.measured_bytes_per_s for item in verdict.iterations)
    assert min(rates.values()) <= usual[len(usual) // 2] <= max(rates.values())


def test_of_many_groups_and_ranks_the_small_are_put_together(tmp_path: Path) -> None:
    live, _ = run_pair(1, Noise(), Fault())
    one = live.timeline.filter(pl.col("kind") == "coll").head(1)
    rows = []
    for group in range(100):
        for rank in range(2):
            start = {"start_ns": 0, "end_ns": 1000, "iteration": 5, "size_bytes": 1000 + group}
            rows.append({**one.row(0, named=True), "group": f"g{group}", "rank": rank, "seq": 0, **start})
    live.timeline = pl.DataFrame(rows, schema=live.timeline.schema)
    live.counters = {
        "ranks": [{"retransmitted": int(rank == 5)} for rank in range(1000)],
        "devices": [],
        "warnings": [],
    }
    found = written(tmp_path, Source("r", run=live))
    groups = {dict(labels)["group"] for name, labels in found if name.endswith("busbw_bytes_per_second")}
    assert len(groups) == GROUPS_MAX + 1
    assert {"g99", "other"} <= groups
    assert [dict(labels)["rank"] for name, labels in found if "retransmitted_packets" in name] == ["5"]


@pytest.mark.parametrize(
    ("size_bytes", "bucket"),
    [(1, "64KiB"), (65536, "64KiB"), (65537, "1MiB"), (1 << 28, "256MiB"), (1 << 30, "larger")],
)
def test_size_buckets(size_bytes: int, bucket: str) -> None:
    assert bucket_of(size_bytes) == bucket


def test_nothing_recorded(tmp_path: Path) -> None:
    found = written(tmp_path, Source("nightly", "gpt", exit_code=3, timestamp_s=1e9))
    assert {name: value for (name, _), value in found.items()} == {
        "genie_run_complete": 0, "genie_run_timestamp_seconds": 1e9, "genie_exit_code": 3
    }  # fmt: skip


def save(folder: Path, run: Run) -> None:
    write_run(folder, {**run.info, "workload": "traces/gpt"}, run.timeline, run.transfers, run.counters)


def test_folders_that_are_read(tmp_path: Path) -> None:
    live, twin = run_pair(1, Noise(), Fault(5, 0.5))
    save(tmp_path / "job" / "live", with_counters(live))
    # A validation whose live run is all there is; then one with a verdict; then a verdict elsewhere.
    assert read_source(tmp_path / "job").run is not None
    verdict: dict[str, Any] = judge(live, twin).to_dict()
    runs = {"live": str(tmp_path / "job" / "live"), "workload": "traces/gpt", "fabric": "two-tier"}
    text = json.dumps({**verdict, "runs": runs})
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path / "job", tmp_path / "elsewhere"):
        (folder / "verdict.json").write_text(text)
        source = read_source(folder)
        assert source.run is not None
        assert (source.name, source.workload, source.fabric) == (folder.name, "gpt", "two-tier")
        found = written(tmp_path, source)
        assert of(found, "genie_verdict_result", result="fail") == 1
        assert of(found, "genie_run_complete") == 1
    assert read_source(tmp_path / "job" / "live").verdict is None


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"neither run\.json nor verdict\.json; give the -o of genie run"):
        read_source(tmp_path)
    (tmp_path / "verdict.json").write_text("[")
    with pytest.raises(RecordError, match=r"verdict\.json: cannot be read"):
        read_source(tmp_path)
    with pytest.raises(RecordWriteError, match="No such file or directory; choose another -o"):
        write_metrics(tmp_path / "no" / "genie.prom", Source("r"))
