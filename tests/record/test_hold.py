"""Folders that one process writes at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genie.record import (
    LIVE,
    TWIN,
    VALIDATION,
    RecordError,
    lock_folder,
    prepare_folder,
    temporary_folder,
    unlock_folders,
)

HOLDS = """
import sys, time
from pathlib import Path
from genie.record import LIVE, prepare_folder
for path in sys.argv[1:]:
    prepare_folder(Path(path), LIVE)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _nothing_is_held() -> Iterator[None]:
    yield
    unlock_folders()


@contextmanager
def another(*paths: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that prepares folders one after another."""
    line = [sys.executable, "-c", HOLDS, *map(str, paths)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with another(out) as process:
        with pytest.raises(RecordError, match=f"{out}: another genie writes to it: .* choose another -o"):
            prepare_folder(out, LIVE)
        process.kill()
        process.wait()
        prepare_folder(out, LIVE)


def test_what_contains_a_folder_that_is_written_is_refused(tmp_path: Path) -> None:
    with another(tmp_path / "out" / "live"), pytest.raises(RecordError, match="live: another genie"):
        prepare_folder(tmp_path / "out", VALIDATION)


def test_a_process_keeps_the_folder_around_its_runs_and_lets_go_of_earlier_ones(tmp_path: Path) -> None:
    with another(tmp_path / "out", tmp_path / "out" / "calibration", tmp_path / "out" / "live"):
        for held in ("", "live"):
            with pytest.raises(RecordError):
                lock_folder(tmp_path / "out" / held)
        lock_folder(tmp_path / "out" / "calibration")


def test_one_process_may_prepare_a_folder_again(tmp_path: Path) -> None:
    whole = ("out", VALIDATION)
    for path, kind in (whole, ("out/live", LIVE), ("out/twin", TWIN), whole, ("out/live", LIVE)):
        prepare_folder(tmp_path / path, kind)
    with another(tmp_path / "other"):
        pass


def test_a_temporary_folder_is_gone_afterwards_and_those_of_the_dead_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "genie-dead").mkdir()
    (tmp_path / "genie-dead" / "trace").write_text("")
    with temporary_folder("genie-") as first, temporary_folder("genie-") as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []
