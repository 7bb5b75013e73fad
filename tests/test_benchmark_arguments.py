"""Arguments that benchmarks refuse before they measure: one line that names the argument, and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
WITH_JSON = (
    "accuracy", "attack", "congestion", "detection", "first_aid", "hardware", "kinds", "load_trace", "location",
    "ns3_reference",
    "pairs_of_runs", "perftest", "softroce_goodput", "step_times", "truth", "twin_packets", "twin_threads",
    "walker_steps", "wire",
)  # fmt: skip
WORDS_BEFORE = {"ns3_reference": ["DATA"]}
ONE_OR_MORE = "give 1 or more"
WRONG = [
    ("accuracy", "--dilations x", "argument --dilations: x: give 1 to 1000"),
    ("accuracy", "--dilations 1,0", "argument --dilations: 0: give 1 to 1000"),
    ("accuracy", "--cases x", "argument --cases: x: give some of dlrm, collectives"),
    ("accuracy", "--iterations 0", f"argument --iterations: 0: {ONE_OR_MORE}"),
    ("attack", "--iterations 0", f"argument --iterations: 0: {ONE_OR_MORE}"),
    ("attack", "--levels x", "argument --levels: x: give some of stranger, wrong port, old numbers, blind"),
    ("congestion", "--runs 0", f"argument --runs: 0: {ONE_OR_MORE}"),
    ("congestion", "--cases x", "argument --cases: x: give some of incast, all-to-all"),
    ("kinds", "--conditions x", "argument --conditions: x: give some of clean, spine-40"),
    ("kinds", "--limit 0", f"argument --limit: 0: {ONE_OR_MORE}"),
    ("pairs_of_runs", "--pairs 0", f"argument --pairs: 0: {ONE_OR_MORE}"),
    ("detection", "--runs 0", f"argument --runs: 0: {ONE_OR_MORE}"),
    ("detection", "--conditions x", "argument --conditions: x: give some of clean, nic-50, nic-80"),
    ("detection", "--workload nope", "argument --workload: nope: there is no folder of this name"),
    ("first_aid", "--runs 0", f"argument --runs: 0: {ONE_OR_MORE}"),
    ("first_aid", "--faults x", "argument --faults: x: give some of clean, control-off, small-mtu"),
    ("hardware", "--clusters x", "argument --clusters: x: give some of mn5-4, mn5-16, spark2, oci-h100, oke"),
    ("load_trace", "--nodes 0", f"argument --nodes: 0: {ONE_OR_MORE}"),
    ("load_trace", "--nodes=-1", f"argument --nodes: -1: {ONE_OR_MORE}"),
    ("location", "--runs 0", f"argument --runs: 0: {ONE_OR_MORE}"),
    ("location", "--conditions x", "argument --conditions: x: give some of spine-40, host-50, clean"),
    ("perftest", "--nics x", "argument --nics: x: give some of cx5-100g, cx7-200g"),
    ("ns3_reference", "--seeds 0", f"argument --seeds: 0: {ONE_OR_MORE}"),
    ("ns3_reference", "--seeds=-1", f"argument --seeds: -1: {ONE_OR_MORE}"),
    *(
        ("softroce_goodput", f"--size={size}", f"argument --size: {size}: give 1 to 268435456")
        for size in ("0", "-4", "99999999999999", "9" * 5000)
    ),
    ("step_times", "--publications x", "argument --publications: x: give some of korthikanti, torchtitan, narayanan"),
    ("step_times", "--resume", "--resume: give --json FILE with it, the file to go on with"),
    ("twin_packets", "--hosts 7", "argument --hosts: invalid choice: 7 (choose from 16, 128, 1024, 8192)"),
    ("twin_packets", "--hosts 999999999", "(choose from 16, 128, 1024, 8192)"),
    ("twin_packets", "--case foo", "--case foo: the cases here are one flow, 1 switch; "),
    ("twin_packets", "--case permutation-16", "(with --hosts there are others)"),
    ("twin_packets", "--hosts 16 --case foo", "--case foo: the cases here are permutation-16; allreduce-16\n"),
    ("twin_packets", "--hosts 16 --quick", "--quick: its cases are not those of --hosts"),
    ("twin_threads", "--hosts 7", "argument --hosts: invalid choice: 7 (choose from 16, 128, 1024, 8192)"),
    ("twin_threads", "--rounds 0", f"argument --rounds: 0: {ONE_OR_MORE}"),
    ("twin_threads", "--rounds=-1", f"argument --rounds: -1: {ONE_OR_MORE}"),
    ("wire", "--again=-1", "argument --again: -1: give 0 or more"),
    *((name, "--json none/x.json", "none/x.json has no folder none to lie in: give a file's") for name in WITH_JSON),
    *((name, "--json .", "argument --json: . is a folder: give a file's name") for name in WITH_JSON),
]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Benchmarks can be imported, and start in an empty folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize(("name", "words", "says"), WRONG)
def test_what_cannot_be_is_refused(
    name: str, words: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = importlib.import_module(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *WORDS_BEFORE.get(name, []), *words.split()])
    with pytest.raises(SystemExit) as left:
        benchmark.main()
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (2, "")
    assert f"\n{name}.py: error: " in said.err
    assert says in said.err.split(": error: ")[1]


def test_help_measures_nothing_and_says_something() -> None:
    for name in ("native/crc_speed", "kinds"):
        shown = subprocess.run(
            [sys.executable, str(BENCHMARKS / f"{name}.py"), "--help"], capture_output=True, text=True
        )
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "GB/s" not in shown.stdout
        assert len(shown.stdout.splitlines()) >= 2


@pytest.mark.usefixtures("benchmarks")
def test_a_file_that_may_not_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = importlib.import_module("common.arguments")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(argparse.ArgumentTypeError, match=r"^x\.json may not be written: give"):
        arguments.results_file("x.json")


@pytest.mark.usefixtures("benchmarks")
def test_a_collective_is_judged_by_the_permutation_of_the_same_run() -> None:
    packets: Any = importlib.import_module("twin_packets")
    cases = packets.cases(128)
    assert list(cases) == ["permutation-128", "allreduce-128", "alltoall-64"]
    row = {"data_packets_per_s": 1.5e6, "rss_mb": 1.0, "setup_s": 0.1}
    assert packets.judged(row, cases["permutation-128"], {})["missed"] == []
    measured = packets.judged(row, cases["alltoall-64"], {"permutation-128": 2e6})
    assert measured["wanted_packets_per_s"] == pytest.approx(1.6e6)
    assert measured["wanted_is"] == "80% of permutation-128, as measured"
    assert measured["missed"] == ["1.5e+06 data_packets_per_s, target 1.6e+06"]
    alone = packets.judged(row, cases["alltoall-64"], {})
    assert alone["wanted_packets_per_s"] == pytest.approx(1.2e6)
    assert alone["wanted_is"] == "80% of permutation-128, its target, as it was not played"
    assert alone["missed"] == []


@pytest.mark.usefixtures("benchmarks")
def test_a_run_that_was_not_judged_has_not_found_its_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    location: Any = importlib.import_module("location")
    asked: list[str] = []

    def ending(code: int | None, verdict: bool) -> bool:
        def genie(*words: str, **_: object) -> subprocess.CompletedProcess[str]:
            asked.append(" ".join(words[:2]))
            if words[0] == "validate" and verdict:
                (tmp_path / "run").mkdir()
                (tmp_path / "run" / "verdict.json").write_text('{"suspects": [], "result": "pass", "summary": ""}')
            if words[0] == "validate" and code is None:
                raise subprocess.TimeoutExpired("genie", 120)
            return subprocess.CompletedProcess(words, code or 0, "", "no lab")

        monkeypatch.setattr(location, "genie", genie)
        right: bool = location.one(tmp_path, "clean", 0)["right"]
        return right

    assert ending(0, verdict=True)
    assert not ending(3, verdict=False), "the verdict that lies there is that of the run before"
    assert not ending(3, verdict=True)
    assert asked == [f"validate {tmp_path / 'trace'}"] * 3
    assert not ending(None, verdict=True), "it took too long"
    assert asked[-2:] == ["lab down", "lab up"], "its fault may be there still"


def run_beside_benchmarks(code: str) -> None:
    """Run code beside the benchmarks, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_set_up_counts_the_plan_and_memory_counts_the_workload() -> None:
    run_beside_benchmarks("""
import twin_packets as packets
held = []
def workload():
    held.append(bytearray(b"x") * (64 << 20))
    return packets.collective(packets.Op.ALL_REDUCE, 4, 1 << 16)
row = packets.measure("small", packets.Case(lambda: packets.single_switch(4), workload))
assert row["setup_s"] > row["plan_s"] > 0, row
assert row["rss_mb"] >= 60, row
""")


def test_threads_that_come_later_are_pinned_each_to_a_processor() -> None:
    run_beside_benchmarks("""
import os, threading, twin_threads
processors = sorted(os.sched_getaffinity(0))[:2]
if len(processors) == 2:
    pins = twin_threads.Pins(processors)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    while len(pins.pinned) < 2:
        over.wait(0.001)
    assert pins.end() == [[processors[0]], [processors[1]]], pins.pinned
    assert os.sched_getaffinity(0) == {processors[0]}
    assert os.sched_getaffinity(other.native_id) == {processors[1]}
    over.set()
    other.join()
""")


def test_published_step_times_become_jobs_that_can_be(shared_data: Path) -> None:
    run_beside_benchmarks(f"""
import tempfile
from pathlib import Path
import step_times as times
with tempfile.TemporaryDirectory() as folder:
    rows, left = times.rows_of(Path({str(shared_data)!r}) / "hardware", Path(folder), times.PUBLICATIONS)
    names = [row.name for row in rows]
    assert len(set(names)) == len(names) and len(left) > 70, names
    assert all(row.job.training().micro_batches == row.job.micro_batches for row in rows)
    titan = next(row for row in rows if row.name == "torchtitan 8B 128 GPUs eager")
    assert abs(titan.measured_s - 16384 / 5605) < 1e-9 and titan.job.gpus == 128, titan
    large = next(row for row in rows if row.name.startswith("MT-NLG 530B 280 GPUs seq"))
    assert (large.measured_s, large.job.pp, large.job.vp, large.job.micro_batches) == (37.83, 35, 3, 280), large
    factors = times.Efficiencies()
    assert {{row for table in factors.tables.values() for row in table["rows"]}} <= set(names)
    assert not any(factors.has_set(row) for row in rows if row.publication != "torchtitan")
""")


def test_a_long_step_is_extrapolated_and_the_slowest_gpu_grows_with_their_number() -> None:
    run_beside_benchmarks("""
import step_times as times
job = times.TrainingJob(model="llama3-8b", gpus=16, tp=8, pp=2, vp=2, layers=4, micro_batches=24, gpu="a100")
whole = times.played(job, whole=True)
times.NODES_MAX = 0
short = times.played(job)
assert abs(short.step_s / whole.step_s - 1) < 0.01 and short.step_s != whole.step_s, (short, whole)
assert abs(short.exposed - whole.exposed) < 0.01, (short, whole)
assert times.slowest(0.02, 8) == 1 < times.slowest(0.02, 64) < times.slowest(0.02, 128) < 1.03
assert abs(times.largest(2) - 0.564) < 0.03 and abs(times.largest(100) - 2.508) < 0.01  # the exact means
""")
