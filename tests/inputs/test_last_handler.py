"""The last handler: a fault of Genie is one line, a file with its traceback, and exit code 70, whatever is raised."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from live_runs import Ended, in_this_process

from genie.cli import main as cli
from genie.inputs import fault
from genie.inputs.printable import ERASE_LINE, LINE_MAX, SafeStream, one_line, printable, shown_value


def deep(number: int = 0) -> int:
    return deep(number + 1)


def panic() -> None:
    import polars as pl

    raise pl.exceptions.PanicException("a hole in a table\nof two lines \x1b[31m")


def too_much() -> None:
    raise MemoryError


def ended_by(raises: object, monkeypatch: pytest.MonkeyPatch) -> Ended:
    monkeypatch.setattr(cli, "app", lambda **_: raises())  # type: ignore[operator]
    return in_this_process("inspect", "w")


@pytest.mark.parametrize("raises", [deep, panic, lambda: {}["key"]], ids=["recursion", "panic", "a key"])
def test_a_fault_is_one_line_and_a_file(raises: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = ended_by(raises, monkeypatch)
    assert (ended.code, ended.stdout) == (70, "")
    (line,) = ended.stderr.splitlines()
    (kept,) = tmp_path.iterdir()
    assert line.startswith("genie: this is a fault of Genie: ")
    assert f"its traceback is in {kept}" in line
    assert "\x1b" not in line
    assert kept.read_text().startswith("Traceback (most recent call last)")


def test_too_little_memory_is_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = ended_by(too_much, monkeypatch)
    assert ended.code == 3
    assert ended.stderr.startswith("genie: memory ran out: ")
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_another_place_is_taken_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault, "_here", lambda: str(tmp_path / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert str(tmp_path / "genie-fault-") in ended_by(deep, monkeypatch).stderr
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")
    ended = ended_by(deep, monkeypatch)
    assert (ended.code, "its traceback could not be written" in ended.stderr) == (70, True)


def test_a_thread_that_fails_says_it_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    fault.install_thread_handler()
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    said = capsys.readouterr().err
    assert said.startswith("genie: this is a fault of Genie: ZeroDivisionError in test_last_handler.py:")
    assert "Traceback" not in said


def test_a_full_disk_behind_the_output_is_of_the_environment(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "genie", "check", "--schedule", "--ranks", "8"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "genie: standard output: No space left on device\n")


def test_a_rank_whose_launch_file_is_damaged_says_so(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    path.write_text("[" * 5000)
    for module in ("genie.live.rank.process", "genie.check.rank", "genie.bench.rank"):
        done = subprocess.run(
            [sys.executable, "-m", module, str(path)], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 2, done
        assert done.stderr.startswith(f"genie: {path}: is not a launch file of genie run: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("raises", [deep, panic])
def test_a_fault_of_a_sweep_s_run_is_its_row_s_error(
    raises: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simtwin.sweep import workers
    from simtwin.sweep.grid import SweepRun

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "_results", lambda run, keep: raises())  # type: ignore[operator]
    row = workers.play_run(SweepRun("x", {}, None, {}, tmp_path))  # type: ignore[arg-type]
    (kept,) = tmp_path.iterdir()
    assert row["error"].startswith("this is a fault of Genie: ")
    assert f"its traceback is in {kept}" in row["error"]


def test_a_fault_of_the_lab_s_keeper_is_kept_by_who_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genie.lab import LabError, keeper, life

    monkeypatch.chdir(tmp_path)
    program = (
        f"import runpy, sys; sys.path[:0] = []; names = runpy.run_path({keeper.__file__!r}); "
        "names['main'].__globals__['_build'] = lambda order, held: order['nothing']; names['main']()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"state": ""}\n')
    process.stdin.flush()
    with pytest.raises(LabError, match=r"^this is a fault of Genie, in the lab's keeper; its traceback is in ") as told:
        life._answer(process)
    process.communicate(timeout=120)
    (kept,) = tmp_path.iterdir()
    assert told.value.code == 70
    assert "KeyError: 'nothing'" in kept.read_text()


def test_what_is_printed_has_no_control_characters() -> None:
    raw = "a\nb\t\x1b[31m\x00\x7f\x9b\ud800\u202eabc\u2028é🙂"
    assert printable(raw) == "a\\nb\\t\\x1b[31m\\x00\\x7f\\x9b\\ud800\\u202eabc\\u2028é🙂"
    assert printable(Path("x")) == "x"
    assert len(one_line("x" * 100_000)) < LINE_MAX + 20
    assert len(shown_value([["x" * 1000] * 1000] * 1000)) < 2000


def test_a_line_that_changes_in_place_keeps_its_erasing(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with path.open("w", newline="") as file:
        stream = SafeStream(file)
        stream.write(f"{ERASE_LINE}name \x1b[2J")
        stream.writelines(["one\n", "two\r\n"])
    assert path.read_bytes().decode() == f"{ERASE_LINE}name \\x1b[2Jone\ntwo\\r\n"
