"""A run with a limit on its time: what is promised comes first and longest, and what was not played is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import time_limit
from test_documented_commands import ELSEWHERE
from time_limit import NOT_PLAYED, PROMISED, rank_of, skip_if_over, words_of

ROOT = Path(__file__).resolve().parent.parent


class Item:
    """A test of a file, with marks."""

    def __init__(self, file: str, *marks: str) -> None:
        self.nodeid, self.marks = f"{file}::test_it", marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def is_played(file: str, *marks: str) -> bool:
    item: Any = Item(file, *marks)
    try:
        skip_if_over(item)
    except pytest.skip.Exception:
        return False
    return True


@pytest.mark.parametrize(
    ("ends_s", "promised_ends_s", "drawn", "promised"), [(9, 9, 1, 1), (-9, 9, 0, 1), (-9, -9, 0, 0)]
)
def test_extended_tests_end_first(
    ends_s: float, promised_ends_s: float, drawn: bool, promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit.time, "time", lambda: 1000.0)
    monkeypatch.setenv("GENIE_TESTS_UNTIL", f"{1000 + ends_s} {1000 + promised_ends_s}")
    assert is_played("tests/a.py", "extended") == is_played("tests/a.py", "drawn") == drawn
    assert is_played(PROMISED[0], "extended") == promised
    assert is_played("tests/a.py")


def test_without_a_limit_all_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENIE_TESTS_UNTIL", raising=False)
    assert time_limit.times() is None
    assert is_played("tests/a.py", "extended")


def test_the_seed_draws_the_order_after_what_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [*(f"tests/{letter}.py" for letter in "abcdef"), PROMISED[1]]
    orders = []
    for seed in ("one", "two", "one"):
        monkeypatch.setenv("GENIE_TESTS_SEED", seed)
        orders.append(sorted(files, key=rank_of))
    assert orders[0] == orders[2] != orders[1]
    assert [order[0] for order in orders] == [PROMISED[1]] * 3
    assert all((ROOT / file).is_file() for file in PROMISED)


def test_what_was_not_played_is_counted() -> None:
    def report(file: str, why: str) -> Any:
        return SimpleNamespace(nodeid=f"{file}::test_it", longrepr=("conftest.py", 1, f"Skipped: {why}"))

    left = [report(file, NOT_PLAYED) for file in ("a.py", "a.py", "b.py")] + [report("c.py", "no root")]
    (line,) = words_of(left)
    assert line.startswith("3 extended tests of 2 files not played: ")
    assert words_of(left[3:]) == []
    (line, promised) = words_of([*left, report(PROMISED[0], NOT_PLAYED)])
    assert line.startswith("4 extended tests of 3 files")
    assert promised == f"PROMISED, BUT NOT PLAYED in full: {PROMISED[0]}"


def test_commands_that_other_files_run_are_promised() -> None:
    assert {test.partition("::")[0] for test in ELSEWHERE.values()} <= {*PROMISED}


def test_a_run_whose_time_is_over_says_so() -> None:
    environment = {**os.environ, "GENIE_TESTS_UNTIL": "1 2"}
    line = [sys.executable, "-m", "pytest", "-q", "-m", "extended", "tests/live/test_gather.py"]
    ended = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "1 skipped" in ended.stdout, ended
    assert f"1 extended tests of 1 files {NOT_PLAYED}; make test-all plays them" in ended.stdout
