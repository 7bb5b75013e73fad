"""A run or a verdict as metrics in Prometheus' text format, for the textfile collector of node_exporter.

One file is one run: the next run's file replaces it, so that a metric without a value ends. Labels stay few. Messages
have no labels, collectives are grouped by size, and only the groups that move most data have a name.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import polars as pl
from msgspec import Meta, Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from genie.record import METRICS_FILE, RecordError, Run, mark, open_run, read_object, replace_own
from genie.record.bus_bandwidth import bus_bytes

# Name -> help text. Names of counters get the suffix `_total`.
METRICS = {
    "genie_run_complete": "1 when the run was played to its end, 0 when not.",
    "genie_run_timestamp_seconds": "When the run was recorded, in seconds since 1970.",
    "genie_run_ranks": "Ranks of the run.",
    "genie_run_iterations": "Iterations that count: played to the end, without warm-up iterations.",
    "genie_exit_code": "Exit code of the command that wrote this file: 0 pass, 1 fail, 4 inconclusive, 2 usage, 3 "
    "environment.",
    "genie_iteration_seconds": "Duration of an iteration; quantile over the iterations that count.",
    "genie_collective_busbw_bytes_per_second": "Bus bandwidth by nccl-tests' convention from the last rank's arrival "
    "on, median; size_bucket is the largest size in it.",
    "genie_excess_ratio": "Median excess of collectives' time on the wire over the twin's: 0.1 is 10 %.",
    "genie_verdict_result": "1 for the verdict's result: pass, fail or inconclusive.",
    "genie_judged_ratio": "Share of judged components by kind: nics, links between switches, or tiers of such links.",
    "genie_suspect": "Measured over simulated time of a suspect, relative to its peers: 2 is twice as long.",
    "genie_counter_amiss": "Growth of a counter that should not grow; 3 is the worst severity.",
}
COUNTERS = {
    "genie_counter": "Growth of a device's counter during the run; counters that did not grow are left out.",
    "genie_retransmitted_packets": "Packets that a rank on softroce retransmitted.",
}
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
BUCKETS = ((1 << 16, "64KiB"), (1 << 20, "1MiB"), (1 << 24, "16MiB"), (1 << 28, "256MiB"))
LARGER = "larger"
GROUPS_MAX = 16  # with names; the others are one
OTHER_GROUPS = "other"
SUSPECTS_MAX = 32
AMISS_MAX = 64
RANKS_MAX = 256  # above it, only ranks that retransmitted
LABELS = ("run", "workload", "fabric")


class _Runs(Struct):
    live: str = ""
    twin: str = ""
    workload: str = ""
    fabric: str = ""


class _Iteration(Struct):
    measured_ns: Annotated[float, Meta(ge=0, le=1e18)]
    simulated_ns: Annotated[float, Meta(ge=0, le=1e18)]


class _Suspect(Struct):
    kind: str
    name: str
    slow_down: Annotated[float, Meta(ge=-1e9, le=1e9)]


class _Verdict(Struct):
    """Fields of verdict.json that metrics read, where present."""

    result: str = ""
    runs: _Runs | None = None
    iterations: list[_Iteration] | None = None
    suspects: list[_Suspect] | None = None


@dataclass
class Source:
    """Input of the metrics of one run."""

    name: str  # label `run`
    workload: str = ""
    fabric: str = ""
    run: Run | None = None  # None: nothing was recorded
    verdict: dict[str, Any] | None = None  # verdict.json
    exit_code: int | None = None
    timestamp_s: float = field(default_factory=time.time)  # for a folder without a run


def read_source(folder: Path) -> Source:
    """Read a run folder, or a folder with a verdict from genie validate or genie diff. Raises RecordError."""
    source = Source(folder.resolve().name)
    path = folder / "verdict.json"
    runs: dict[str, Any] = {}
    if path.is_file():
        source.verdict = read_object(path, _Verdict)
        runs = source.verdict.get("runs") or {}
    places = [folder, folder / "live", Path(runs.get("live") or folder)]
    place = next((each for each in places if (each / "run.json").is_file()), None)
    if place is not None:
        source.run = open_run(place)
    elif source.verdict is None:
        raise RecordError(
            f"{folder}: has neither run.json nor verdict.json; give the -o of genie run, validate, simulate or diff"
        )
    info = source.run.info if source.run else {}
    source.workload = Path(str(runs.get("workload") or info.get("workload") or "")).name
    source.fabric = str(runs.get("fabric") or info.get("fabric") or "")
    return source


def write_metrics(path: Path, source: Source) -> None:
    """Write the file atomically, replacing other metrics of Genie only. Raises RecordError."""
    registry = CollectorRegistry()
    registry.register(_Families(source))
    try:
        families = generate_latest(registry)
    except UnicodeEncodeError as error:
        raise RecordError(
            f"{path}: a name in the record has a lone surrogate (half of a character); make the run again"
        ) from error
    replace_own(path, f"# {mark(METRICS_FILE)}\n".encode() + families, METRICS_FILE)


class _Families(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source
        self._common = [source.name, source.workload, source.fabric]

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        source = self._source
        info = source.run.info if source.run else {}
        yield self._gauge("genie_run_complete", [([], float(bool(source.run) and info.get("complete", True)))])
        yield self._gauge("genie_run_timestamp_seconds", [([], _recorded_at(info, source.timestamp_s))])
        if source.exit_code is not None:
            yield self._gauge("genie_exit_code", [([], source.exit_code)])
        if source.run:
            yield from self._of_run(source.run)
        if source.verdict:
            yield from self._of_verdict(source.verdict)

    def _of_run(self, run: Run) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        played = counted(run)
        spans_s = iteration_spans_s(played)
        yield self._gauge("genie_run_ranks", [([], run.info.get("ranks", 0))])
        yield self._gauge("genie_run_iterations", [([], len(spans_s))])
        if spans_s:
            quantiles = np.quantile(spans_s, QUANTILES)
            samples = [([f"{q:g}"], float(value)) for q, value in zip(QUANTILES, quantiles, strict=True)]
            yield self._gauge("genie_iteration_seconds", samples, "quantile")
        name = "genie_collective_busbw_bytes_per_second"
        yield self._gauge(name, [(list(key), value) for key, value in bus_bandwidths(played).items()],
                          "op", "group", "size_bucket")  # fmt: skip
        ranks = [(rank, each) for rank, each in enumerate(run.counters.get("ranks") or []) if each]
        again = [([str(rank)], each["retransmitted"]) for rank, each in ranks if "retransmitted" in each]
        if len(again) > RANKS_MAX:
            again = [sample for sample in again if sample[1]]
        yield self._counter("genie_retransmitted_packets", again, "rank")
        grew = {(each["host"], each["device"], name): value for each in run.counters.get("devices") or []
                for name, value in each["counters"].items() if value}  # fmt: skip
        grew |= of_softroce(run)
        yield self._counter("genie_counter", [(list(key), value) for key, value in grew.items()],
                            "host", "device", "counter")  # fmt: skip
        amiss = [([each["host"], each["device"], each["counter"], str(each["severity"])], each["grew"])
                 for each in (run.counters.get("warnings") or [])[:AMISS_MAX]]  # fmt: skip
        yield self._gauge("genie_counter_amiss", amiss, "host", "device", "counter", "severity")

    def _of_verdict(self, verdict: dict[str, Any]) -> Iterator[GaugeMetricFamily]:
        results = [([result], float(verdict.get("result") == result)) for result in ("pass", "fail", "inconclusive")]
        yield self._gauge("genie_verdict_result", results, "result")
        coverage = verdict.get("coverage") or {}
        parts = {"nics": coverage.get("nics"), "tiers" if coverage.get("by_tier") else "links": coverage.get("links")}
        shares = [
            ([kind], part["judged"] / part["total"]) for kind, part in parts.items() if part and part.get("total")
        ]
        yield self._gauge("genie_judged_ratio", shares, "kind")
        iterations = verdict.get("iterations") or []
        if ratios := [each["measured_ns"] / each["simulated_ns"] for each in iterations if each["simulated_ns"]]:
            yield self._gauge("genie_excess_ratio", [([], median(ratios) - 1)])
        suspects = {(each["kind"], each["name"]): 1 + each["slow_down"] for each in verdict.get("suspects") or []}
        named = [(list(key), value) for key, value in list(suspects.items())[:SUSPECTS_MAX]]
        yield self._gauge("genie_suspect", named, "kind", "name")

    def _gauge(self, name: str, samples: list[tuple[list[str], float]], *labels: str) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, METRICS[name], labels=[*LABELS, *labels])
        for values, value in samples:
            if math.isfinite(value):
                family.add_metric([*self._common, *values], value)
        return family

    def _counter(self, name: str, samples: list[tuple[list[str], float]], *labels: str) -> CounterMetricFamily:
        family = CounterMetricFamily(name, COUNTERS[name], labels=[*LABELS, *labels])
        for values, value in samples:
            family.add_metric([*self._common, *values], value)
        return family


def _recorded_at(info: dict[str, Any], otherwise_s: float) -> float:
    try:
        return datetime.fromisoformat(str(info["recorded_at"])).timestamp()
    except (KeyError, ValueError):
        return otherwise_s


def counted(run: Run) -> pl.DataFrame:
    """Rows of the iterations that count: after the warm-up iterations, with all nodes ended."""
    timeline = run.timeline.filter(pl.col("iteration") >= int(run.info.get("warmup", 0)))
    return timeline.filter((pl.col("end_ns") >= 0).all().over("iteration"))


def iteration_spans_s(played: pl.DataFrame) -> list[float]:
    """Duration of each iteration over all ranks, in seconds."""
    spans = played.group_by("iteration").agg(span=pl.col("end_ns").max() - pl.col("start_ns").min())
    return [span / 1e9 for span in spans["span"].to_list()]


def bus_bandwidths(played: pl.DataFrame) -> dict[tuple[str, str, str], float]:
    """(operation, group, size bucket) -> bus bandwidth in bytes/s, the median over collectives."""
    table = (
        played.filter((pl.col("kind") == "coll") & (pl.col("size_bytes") > 0))
        .group_by("iteration", "group", "seq")
        .agg(
            pl.col("op").first(),
            pl.col("size_bytes").first(),
            members=pl.len(),
            took_ns=pl.col("end_ns").max() - pl.col("start_ns").max(),
        )
        .filter(pl.col("took_ns") > 0)
        .sort("iteration", "group", "seq")
    )
    moved: Counter[str] = Counter()
    found: list[tuple[str, str, int, float]] = []
    for group, op, size_bytes, members, took_ns in table.select(
        "group", "op", "size_bytes", "members", "took_ns"
    ).iter_rows():
        volume = bus_bytes(op or "", size_bytes, members)
        moved[group or ""] += round(volume)
        found.append((op or "", group or "", size_bytes, volume / took_ns * 1e9))
    named = {group for group, _ in moved.most_common(GROUPS_MAX)}
    values: dict[tuple[str, str, str], list[float]] = {}
    for op, group, size_bytes, rate in found:
        key = (op, group if group in named else OTHER_GROUPS, bucket_of(size_bytes))
        values.setdefault(key, []).append(rate)
    return {key: median(each) for key, each in values.items()}


def bucket_of(size_bytes: int) -> str:
    """Name of the size bucket, which is its largest size."""
    return next((words for largest, words in BUCKETS if size_bytes <= largest), LARGER)


def of_softroce(run: Run) -> dict[tuple[str, str, str], int]:
    """(host, "softroce", counter) -> sum over the host's ranks on softroce, where it grew."""
    hosts = {each["rank"]: str(each.get("host") or "") for each in run.info.get("hosts") or [] if "rank" in each}
    total: Counter[tuple[str, str, str]] = Counter()
    for rank, counters in enumerate(run.counters.get("ranks") or []):
        if counters and "retransmitted" in counters:
            for name, value in counters.items():
                if not name.endswith("_ns"):  # a maximum
                    total[hosts.get(rank, ""), "softroce", name] += value
    return {key: value for key, value in total.items() if value}
