"""Sweeps: one row per run on all workers, and no run is played twice, however the sweep ends."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from live_runs import GENIE, Command, Ended, genie, in_this_process, rings, started
from polars.testing import assert_frame_equal

from genie.cli import sweep as sweeping
from simtwin.fabric.reading import fabric_from
from simtwin.sweep import grid
from simtwin.sweep.grid import load_sweep

FABRIC = """
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
[link]
rate = "100Gb/s"
delay = "500ns"
[ecn]
minimum = "100kB"
maximum = "400kB"
probability = 0.2
"""
SWEEP = """
[base]
fabric = "fabric.toml"
[base.traffic]
kind = "poisson"
load = 0.5
duration = "1ms"
sizes = "200kB"
[grid]
fabric.transport.congestion = ["dcqcn", "swift"]
fabric.switch.buffer = ["100kB", "4MB"]
traffic.load = [0.4, 0.8]
seed = [1, 2]
"""
RUNS = 16
PYTHON = Path(sys.executable)
MPI = [str(PYTHON.parent / "mpiexec"), "-n", "3", str(PYTHON), "-m", "mpi4py.futures", "-m", "genie"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write a sweep and its fabric; returns the sweep's file."""
    (tmp_path / "fabric.toml").write_text(FABRIC)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path / "sweep.toml"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The rows, played by one process."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "fabric.toml").write_text(FABRIC)
    (folder / "sweep.toml").write_text(SWEEP)
    ended = genie("sweep", str(folder / "sweep.toml"), "-o", str(folder / "out"), "--jobs", "1")
    assert ended.code == 0, ended
    assert "16 runs, 16 played now, 0 failed" in ended.stdout
    assert "sweep.toml: 16 runs" in (folder / "out/sweep.html").read_text()
    return rows_of(folder / "out")


def rows_of(out: Path) -> pl.DataFrame:
    """Return the columns that do not depend on the workers."""
    table = pl.read_parquet(out / "sweep.parquet")
    assert_frame_equal(pl.read_csv(out / "sweep.csv").select("run", "id"), table.select("run", "id"))
    return table.drop("wall_s")


def kept(out: Path) -> list[str]:
    """Return the identities of the runs with a complete line."""
    path = out / "rows.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [row["id"] for row in map(json.loads, lines) if "id" in row]


def test_a_row_has_parameters_and_results(reference: pl.DataFrame) -> None:
    assert reference.columns[:6] == [
        "run", "fabric.transport.congestion", "fabric.switch.buffer", "traffic.load", "seed", "id",
    ]  # fmt: skip
    assert reference["run"].to_list() == list(range(RUNS))
    assert reference["traffic.load"].to_list() == [0.4, 0.4, 0.8, 0.8] * 4
    assert reference["fabric.transport.congestion"].to_list() == ["dcqcn"] * 8 + ["swift"] * 8
    assert reference["error"].to_list() == [""] * RUNS
    assert reference["id"].n_unique() == RUNS
    assert (reference["fct_p50_ns"] <= reference["fct_p99_ns"]).all()
    assert (reference["slowdown_p50"] >= 1).all()
    assert (reference["completion_s"] > 0.9e-3).all()
    small, large = (reference.filter(pl.col("fabric.switch.buffer") == size) for size in ("100kB", "4MB"))
    assert small["longest_queue_bytes"].max() <= 100_000  # type: ignore[operator]
    assert small["dropped"].sum() > large["dropped"].sum() == 0


def test_a_seed_of_the_grid_draws_the_traffic_too(files: Path, reference: pl.DataFrame) -> None:
    """Traffic without a seed of its own uses it; equal seeds give equal traffic, whatever else differs."""
    one, two = (reference.filter(pl.col("seed") == seed) for seed in (1, 2))
    load = pl.col("traffic.load") == 0.4
    flows = {name: frame.filter(load)["flows"].unique().to_list() for name, frame in (("one", one), ("two", two))}
    assert len(flows["one"]) == len(flows["two"]) == 1
    assert flows["one"] != flows["two"]
    files.write_text(SWEEP.replace("load = 0.5", "load = 0.5\nseed = 7").replace("[1, 2]", "[1, 2, 3]"))
    runs = list(load_sweep(files).runs())
    assert {run.base.traffic.seed for run in runs} == {7}  # type: ignore[union-attr]
    assert len({run.identity for run in runs}) == len(runs)
    files.write_text(
        '[base]\nfabric = "fabric.toml"\ntraffic = { kind = "permutation", size = "1kB" }\n[grid]\nseed = [4, 5]\n'
    )
    assert [run.base.traffic.seed for run in load_sweep(files).runs()] == [4, 5]  # type: ignore[union-attr]


def test_a_grid_that_is_too_large_is_refused_before_its_values_are_looked_at(files: Path) -> None:
    seeds = ", ".join(map(str, [*range(100_000), 0]))
    files.write_text(SWEEP.split("[grid]")[0] + f'[grid]\nseed = [{seeds}]\nlevel = ["none", "such"]\n')
    ended = in_this_process("sweep", str(files), "-o", str(files.parent / "out"), "--dry-run")
    assert ended.code == 2
    assert ended.stderr == f"genie: {files}:9: grid has 200002 runs: give at most 100000\n"


def test_a_large_grid_is_checked_with_one_fabric_and_says_how_far_it_is(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(grid, "fabric_from", lambda tables: built.append(tables) or fabric_from(tables))
    clock = itertools.count(step=4.0)
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    files.write_text(SWEEP.split("[grid]")[0] + f"[grid]\nseed = {list(range(40))}\n")
    ended = in_this_process("sweep", str(files), "-o", str(files.parent / "out"), "--dry-run")
    assert ended.code == 0, ended
    assert len(built) == 1
    said = ended.stderr.splitlines()
    assert said[0] == "genie: 0 of 40 values checked"
    assert re.fullmatch(r"genie: \d+ of 40 runs prepared", said[-1])
    assert len(said) < 40


def run_mpi(*arguments: str) -> Ended:
    """Sweep under mpiexec with two workers, with the command of the help."""
    with started(line=[*MPI, *arguments]) as command:
        return command.end()


@pytest.mark.extended
@pytest.mark.parametrize("mpi", [False, True])
def test_a_sweep_that_is_killed_goes_on_and_ends_with_the_same_rows(
    mpi: bool, files: Path, reference: pl.DataFrame
) -> None:
    out = files.parent / "out"
    arguments = ["sweep", str(files), "-o", str(out)]
    with started(line=[*MPI, *arguments]) if mpi else started(*arguments, "--jobs", "2") as command:
        command.until(lambda: len(kept(out)) >= 1)
        os.kill(command.process.pid, signal.SIGKILL)
        ended = command.end()
    assert ended.left == [], "processes outlived their sweep"
    before = (out / "rows.jsonl").read_bytes()
    were = len(kept(out))
    assert 1 <= were < RUNS
    with (out / "rows.jsonl").open("ab") as file:
        file.write(before.split(b"\n")[0][:100])  # a row that was being written

    ended = run_mpi(*arguments) if mpi else genie(*arguments, "--jobs", "2")
    assert ended.code == 0, ended
    assert f"16 runs, {RUNS - were} to play" in ended.stderr
    assert (out / "rows.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert len(kept(out)) == len(set(kept(out))) == RUNS
    assert_frame_equal(rows_of(out), reference)
    if not mpi:
        again = in_this_process(*arguments)
        assert (again.code, len(kept(out))) == (0, RUNS)
        assert "16 runs, 0 played now, 0 failed" in again.stdout


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_told_to_end_ends_and_keeps_what_is_done(number: signal.Signals, files: Path) -> None:
    out = files.parent / "out"
    with started("sweep", str(files), "-o", str(out), "--jobs", "2") as command:
        command.until(lambda: len(kept(out)) >= 1)
        # A terminal's Ctrl-C goes to all processes.
        (os.killpg if number is signal.SIGINT else os.kill)(command.process.pid, number)
        ended = command.end(limit_s=15)
    assert (ended.code, ended.left) == (128 + number, []), ended
    done = len(kept(out))
    assert f"genie: {done} of 16 runs are in {out}; the same command goes on" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(rows_of(out)) == done


def test_a_grid_that_changes_reuses_runs_and_a_fabric_that_changes_does_not(files: Path) -> None:
    out = files.parent / "out"
    one = SWEEP.replace('["dcqcn", "swift"]', '["swift"]').replace('"100kB", ', "").replace("[1, 2]", "[1]")
    files.write_text(one)
    arguments = ("sweep", str(files), "-o", str(out))
    assert "2 runs, 2 played now" in genie(*arguments).stdout
    files.write_text(one.replace('["swift"]', '["dctcp", "swift"]'))
    ended = genie(*arguments)
    assert "4 runs, 2 played now" in ended.stdout
    assert len(kept(out)) == 4
    fabric = files.parent / "fabric.toml"
    fabric.write_text(f"# a comment\n{FABRIC}")
    planned = in_this_process(*arguments, "--dry-run")
    assert planned.stdout.count("is there") == 4
    assert planned.stdout.endswith(f"4 runs, 0 to play; {out}\n")
    fabric.write_text(FABRIC.replace("500ns", "600ns"))
    planned = in_this_process(*arguments, "--dry-run")
    assert planned.stdout.endswith(f"4 runs, 4 to play; {out}\n")
    assert len(kept(out)) == 4


def test_a_run_that_fails_is_a_row(files: Path) -> None:
    """Run folders are kept where the sweep asks for it, and `--retry` plays failed runs again."""
    out = files.parent / "out"
    files.write_text(
        'keep = true\n[base]\nfabric = "fabric.toml"\n[base.traffic]\nkind = "incast"\nsize = "10kB"\n'
        "[grid]\ntraffic.target = [2, 9]\n"
    )
    ended = genie("sweep", str(files), "-o", str(out))
    assert ended.code == 1
    assert "2 runs, 2 played now, 1 failed" in ended.stdout
    line = "incast: target = 9: give one of ranks 0 to 7"
    assert f"genie: 1 run failed (--retry plays them again); the first: {line}" in ended.stderr
    table = rows_of(out)
    assert table["error"].to_list() == ["", line]
    assert table["completion_s"].is_null().to_list() == [False, True]
    folders = [path.name for path in (out / "runs").iterdir()]
    assert folders == [table["id"][0]]
    assert json.loads((out / "runs" / folders[0] / "run.json").read_text())["ranks"] == 8
    assert "2 runs, 0 played now, 1 failed" in in_this_process("sweep", str(files), "-o", str(out)).stdout
    assert "2 runs, 1 played now, 1 failed" in genie("sweep", str(files), "-o", str(out), "--retry").stdout


def test_a_combination_that_cannot_be_is_a_row(files: Path) -> None:
    """One headroom uses up the buffer and the other does not, in any order of the grid."""
    out = files.parent / "out"
    for headrooms in ('["2MB", "10kB"]', '["10kB", "2MB"]'):
        files.write_text(
            '[base]\nfabric = "fabric.toml"\n[base.traffic]\nkind = "incast"\nsize = "10kB"\n'
            f'[grid]\nfabric.pfc.headroom = {headrooms}\nfabric.switch.shared_buffer = ["4MB", "64MB"]\n'
        )
        ended = genie("sweep", str(files), "-o", str(out))
        assert ended.code == 1, ended
        assert "4 runs" in ended.stdout
    failed = rows_of(out).filter(pl.col("error") != "")
    assert failed["fabric.pfc.headroom"].to_list() == ["2MB"]
    assert failed["fabric.switch.shared_buffer"].to_list() == ["4MB"]
    files.write_text(files.read_text().replace('"10kB", ', "").replace(', "64MB"', ""))
    ended = in_this_process("sweep", str(files), "-o", str(out))
    assert ended.code == 2
    assert "keep 12024576 B as headroom" in ended.stderr


def test_a_full_disk_is_said(files: Path, as_root: None) -> None:
    files.write_text(SWEEP.replace('["dcqcn", "swift"]', '["swift"]').replace('"100kB", ', ""))
    disk = files.parent / "disk"
    disk.mkdir()
    command = f"{GENIE} sweep {files} -o {disk}/out --jobs 1"
    script = f"mount -t tmpfs -o size=12k none {disk} && {command}"
    with started(line=["unshare", "--mount", "--propagation", "private", "sh", "-c", script]) as running:
        ended = running.end()
    assert ended.code == 3, ended
    line = ended.stderr.splitlines()[-1]
    assert line.startswith(f"genie: {disk}/out/sweep.")
    assert line.endswith("cannot be written: No space left on device; free some space or choose another -o")


@pytest.mark.extended
def test_a_process_that_is_killed_costs_no_other_run(files: Path, reference: pl.DataFrame) -> None:
    out = files.parent / "out"
    with started("sweep", str(files), "-o", str(out), "--jobs", "2") as command:
        command.until(lambda: len(kept(out)) >= 1)
        os.kill(workers_of(command)[0], signal.SIGKILL)
        ended = command.end()
    assert ended.code == 0, ended
    assert rows_of(out)["id"].n_unique() == len(kept(out)) == RUNS


def workers_of(command: Command) -> list[int]:
    """Return the processes of a sweep's workers on this machine."""
    children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_one_sweep_at_a_time_has_a_folder(files: Path) -> None:
    files.write_text(SWEEP.replace("1ms", "50ms"))
    out = files.parent / "out"
    with started("sweep", str(files), "-o", str(out), "--jobs", "1") as command:
        command.until(lambda: (out / "rows.jsonl").exists())
        other = genie("sweep", str(files), "-o", str(out))
    assert other.code == 2
    assert other.stderr == f"genie: {out}: another genie writes to it: wait until it has ended, or choose another -o\n"


def test_a_trace_is_swept_too(files: Path) -> None:
    rings(files.parent / "trace", ranks=4, collectives=1, compute_ns=1000)
    files.write_text(
        '[base]\nfabric = "fabric.toml"\nworkload = "trace"\nhosts = ["host0", "host4", "host1", "host5"]\n'
        '[grid]\nlevel = ["packet", "flow", "analytic"]\nwire = ["nccl", "plain"]\nthreads = [1, 2]\n'
    )
    out = files.parent / "out"
    ended = genie("sweep", str(files), "-o", str(out), "--jobs", "1")
    assert ended.code == 0, ended
    table = rows_of(out)
    assert len(kept(out)) == 6, "threads change no result"
    assert table["level"].to_list() == ["packet"] * 4 + ["flow"] * 4 + ["analytic"] * 4
    took_s = table.filter(pl.col("wire") == "plain")["completion_s"]
    assert took_s.max() < 1.2 * took_s.min()  # type: ignore[operator]
    assert table["flows"].to_list() == [4] * 8 + [None] * 4, "a rank's messages to the next, however many, are a flow"
    assert (table.head(8)["fct_p99_ns"] > 0).all()
    assert (table.head(8)["slowdown_p50"] > 0.9).all()
    for name in ("fct_p50_ns", "fct_p95_ns", "fct_p99_ns", "slowdown_p50", "slowdown_p95", "slowdown_p99"):
        assert table[name].is_null().to_list() == [False] * 8 + [True] * 4, name
    said = "genie: level analytic plays no messages: the number of flows, their times and slowdowns are left empty\n"
    assert ended.stderr.count(said) == 1
    for column in ("longest_queue_bytes", "marked", "trimmed", "pauses", "dropped"):
        assert table[column].is_null().to_list() == [False] * 4 + [True] * 8, column
    assert table["data_packets"].is_null().to_list() == [False] * 8 + [True] * 4


def test_columns_that_stay_empty_have_a_reason(files: Path) -> None:
    """A server's ranks reach each other without the fabric."""
    rings(files.parent / "trace", ranks=2, collectives=1, compute_ns=1000)
    files.write_text('[base]\nfabric = "fabric.toml"\nworkload = "trace"\nhosts = ["host0", "host0"]\n')
    ended = genie("sweep", str(files), "-o", str(files.parent / "out"), "--jobs", "1")
    assert ended.code == 0, ended
    assert "genie: no data was sent between two hosts: flow completion times and slowdowns are left" in ended.stderr


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "traffic.load = [0.4, 0.8]",
            "traffic.lod = [1]",
            "sweep.toml:12: grid.traffic.lod is an unknown key; the keys",
        ),
        ("[0.4, 0.8]", "[0.4, 80]", "sweep.toml:12: grid.traffic.load = 80: give a number above 0, at most 10"),
        ("[0.4, 0.8]", "[0.4, 0.4]", "sweep.toml:12: grid.traffic.load has a value twice: give each once"),
        ("[0.4, 0.8]", "0.4", "sweep.toml:12: grid.traffic.load = 0.4: give a list of values"),
        ('"4MB"]', '"1QB"]', "sweep.toml:11: grid.fabric.switch.buffer = '1QB' has the unknown unit 'QB': give a size"),
        ("switch.buffer", "swich.buffer", "sweep.toml:11: grid.fabric.swich.buffer: swich is an unknown key; the keys"),
        ("switch.buffer", '"switch.bufer"', "sweep.toml:11: grid.fabric.switch.bufer is an unknown key; the keys here"),
        ('"swift"]', '"prayer"]', "sweep.toml:10: grid.fabric.transport.congestion = 'prayer': give \"dcqcn\""),
        (
            "[grid]",
            '[grid]\nlevel = ["fluid"]',
            "sweep.toml:2: base: level fluid: is not a level; give packet, packet+skip, flow",
        ),
        (
            "[grid]",
            '[grid]\nalgorithms.all_gather = ["ring", "direct"]',
            "sweep.toml:10: grid.algorithms.all_gather = 'direct': algorithms all_gather=direct: NCCL does not play it",
        ),
        ("[base]", "[base]\nsed = 2", "sweep.toml:3: base.sed is an unknown key; the keys here are level"),
        (
            "[base]",
            "[base]\nworkload = 'x'",
            "sweep.toml:2: base: give one of workload = a folder or prefix of traces,",
        ),
        ('"fabric.toml"', '"nowhere.toml"', "nowhere.toml: cannot be read: No such file or directory"),
        ('sizes = "200kB"', 'sizes = "nowhere.txt"', "nowhere.txt: cannot be read (No such file or directory)"),
        ('duration = "1ms"', "duration = 1", "sweep.toml:7: base.traffic.duration = 1 has no unit: give a duration"),
    ],
)
def test_mistakes_are_named_with_their_line(before: str, after: str, says: str, files: Path) -> None:
    assert before in SWEEP
    files.write_text(SWEEP.replace(before, after))
    ended = in_this_process("sweep", str(files), "-o", str(files.parent / "out"))
    assert ended.code == 2, ended
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (files.parent / "out").exists()


def test_folders_of_others_and_half_a_launch_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = files.parent / "out"
    out.mkdir()
    (out / "thesis.tex").touch()
    ended = in_this_process("sweep", str(files), "-o", str(out))
    assert ended.code == 2
    assert f"{out}: holds files other than a sweep of Genie's (thesis.tex); choose another -o" in ended.stderr
    monkeypatch.setenv("PMI_RANK", "0")
    ended = in_this_process("sweep", str(files), "-o", str(files.parent / "other"))
    assert ended.code == 2
    assert "give mpiexec -n K python -m mpi4py.futures -m genie sweep" in ended.stderr
