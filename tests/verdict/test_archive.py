"""The archive of runs: which runs are of one job, and where a job became slower."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from live_runs import genie, in_this_process
from synthetic_runs import Fault, Noise, run_pair

from genie.record import Run, marked_json, open_run, write_run
from genie.verdict.history.archive import Entry, entries, job_of, newest_pass, steps_of

NONE = Fault()


def entry(at: int, iteration_ns: int, job: str = "a") -> Entry:
    return Entry(Path(f"run{at:03}"), "validate", f"2026-01-01T00:{at:02}:00", "w", "f", 8, 10, iteration_ns, "", job)


def newest_first(values: list[int], job: str = "a") -> list[Entry]:
    return [entry(at, value, job) for at, value in enumerate(values)][::-1]


def test_a_step_is_marked_once_where_it_is() -> None:
    found = steps_of(newest_first([1000, 1010, 995, 1003, 1200, 1195, 1204, 1001]))
    assert [(step.entry.folder.name, round(step.fraction, 1)) for step in found] == [("run007", -0.2), ("run004", 0.2)]


def test_noise_is_no_step() -> None:
    assert not steps_of(newest_first([1000, 1300, 800, 1150, 900, 1250, 1000]))
    assert not steps_of(newest_first([1000, 1040, 1090]))
    assert not steps_of(newest_first([1000, 2000])), "one run before it shows no noise"


def test_jobs_are_apart() -> None:
    slow = [entry(at, 2000, "b") for at in (1, 3, 5)]
    fast = [entry(at, 1000, "a") for at in (0, 2, 4)]
    assert not steps_of(sorted([*slow, *fast], key=lambda it: it.recorded_at, reverse=True))


def saved(folder: Path, seed: int, at: str, fault: Fault = NONE, result: str = "pass", **info: object) -> Run:
    live, twin = run_pair(seed, Noise(), fault)
    for run, name in ((live, "live"), (twin, "twin")):
        facts = {**run.info, "recorded_at": at, "workload": "traces/job", **info}
        write_run(folder / name, facts, run.timeline, run.transfers, run.counters)
    (folder / "verdict.json").write_text(marked_json("verdict", {"result": result}))
    return open_run(folder / "live")


def test_the_runs_of_a_folder(tmp_path: Path) -> None:
    first = saved(tmp_path / "monday", 1, "2026-01-01T00:00:00Z")
    second = saved(tmp_path / "tuesday", 2, "2026-01-02T00:00:00Z", result="fail")
    other = saved(tmp_path / "other", 3, "2026-01-03T00:00:00Z", workload="traces/other")
    (tmp_path / "empty").mkdir()
    (tmp_path / "latest").symlink_to("monday")
    found = entries(tmp_path)
    assert [each.folder.name for each in found] == ["other", "tuesday", "monday"]
    assert [each.result for each in found] == ["pass", "fail", "pass"]
    assert job_of(first) == job_of(second) != job_of(other)
    assert newest_pass(tmp_path, job_of(first), tmp_path / "x") == tmp_path / "monday"
    assert newest_pass(tmp_path, job_of(first), tmp_path / "monday") is None
    assert newest_pass(tmp_path / "none", job_of(first), tmp_path) is None


def test_the_command_lists_and_marks(tmp_path: Path) -> None:
    for at, rate in enumerate((1.0, 1.0, 1.0, 0.5)):
        saved(tmp_path / f"night{at}", at + 1, f"2026-01-0{at + 1}T00:00:00Z", Fault(5, rate) if rate < 1 else Fault())
    page, record = tmp_path / "runs.html", tmp_path / "runs.json"
    ended = genie("runs", str(tmp_path), "-o", str(page), "--json", str(record))
    assert ended.code == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("night")]
    assert [line.split()[0] for line in lines] == ["night3", "night2", "night1", "night0"]
    assert lines[0].rstrip().endswith("%")
    assert not any("%" in line for line in lines[1:])
    changes = [row["change"] for row in json.loads(record.read_text())["runs"]]
    assert changes[0] > 0.5
    assert changes[1:] == [None] * 3
    assert "night3" in page.read_text()


def test_a_damaged_run_is_listed_as_such(tmp_path: Path) -> None:
    saved(tmp_path / "good", 1, "2026-01-01T00:00:00Z")
    saved(tmp_path / "bad", 1, "2026-01-01T00:00:00Z")
    (tmp_path / "bad" / "live" / "timeline.parquet").write_bytes(b"cut")
    found = {each.folder.name: each.problem for each in entries(tmp_path)}
    assert found["good"] == ""
    assert "timeline.parquet" in found["bad"]


def test_a_baseline_fails_a_run_that_became_slower(tmp_path: Path) -> None:
    saved(tmp_path / "monday", 1, "2026-01-01T00:00:00Z")
    for name, fault, code in (("same", Fault(), 0), ("slow", Fault(fleet=0.85), 1)):
        run = saved(tmp_path / name, 7, "2026-01-02T00:00:00Z", fault, "fail")
        ended = genie("diff", f"{run.path}", f"{tmp_path / name / 'twin'}", "--baseline", "last")
        assert ended.code == code, ended.stdout + ended.stderr
        assert str(tmp_path / "monday" / "live") in ended.stdout
    ended = genie("diff", f"{run.path}", f"{tmp_path / 'slow' / 'twin'}", "--baseline", str(tmp_path / "none"))
    assert ended.code == 2
    assert replace(run).path == run.path


def test_without_a_baseline_it_is_said(tmp_path: Path) -> None:
    run = saved(tmp_path / "only", 1, "2026-01-01T00:00:00Z")
    ended = genie("diff", str(run.path), str(tmp_path / "only" / "twin"), "--baseline", "last")
    assert ended.code == 0
    assert "no validation of this job" in ended.stderr


def test_a_baseline_of_no_use_is_refused_before_anything_runs(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", 1, "2026-01-01T00:00:00Z").path.parent
    job = ("validate", "--collectives", "all_reduce", "--ranks", "2")
    for baseline, out, words in (
        (tmp_path / "none", tmp_path / "out", "does not exist"),
        (before, before, "is replaced by this run"),
        (before.parent / "before" / "twin", tmp_path / "out", "is a simulation: give a live run"),
        (before, tmp_path / "out", "is of another job: it has 8 ranks, and this one 2"),
    ):
        ended = genie(*job, "--baseline", str(baseline), "-o", str(out))
        assert ended.code == 2
        assert words in ended.stderr
    assert (before / "live" / "run.json").is_file()
    assert not (tmp_path / "out").exists()
    assert genie("compare", str(before), str(before)).code == 2


def test_checks_and_calibrations_are_not_listed(tmp_path: Path) -> None:
    saved(tmp_path / "good", 1, "2026-01-01T00:00:00Z")
    (tmp_path / "check").mkdir()
    (tmp_path / "check" / "run.json").write_text(marked_json("check", {}))
    (saved(tmp_path / "rings", 1, "2026-01-01T00:00:00Z").path / "run.json").write_text(marked_json("calibration", {}))
    assert [each.folder.name for each in entries(tmp_path)] == ["good"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs", ".", "-o", "none/trends.html"), "-o none/trends.html: its folder is not there"),
        (("runs", ".", "-o", "own.html"), "own.html: is not a file that Genie wrote there"),
        (("runs", ".", "--json", "none/runs.json"), "--json none/runs.json: its folder is not there"),
        (("compare", "one", "two", "-o", "own.html"), "-o own.html: is a file: give a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_outputs_that_cannot_be_written_are_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.html"
    own.write_text("<p>mine</p>")
    ended = in_this_process(*words)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"genie: {said}")
    assert len(ended.stderr.splitlines()) == 1
    assert own.read_text() == "<p>mine</p>"
