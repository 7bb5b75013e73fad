"""The time that a rank waits for a core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_runs import genie, loopback, rings

from genie.live.rank import run_queue
from genie.record import open_run

pytestmark = pytest.mark.exclusive

# Works for 0.3 s, then says how long it waited for a core meanwhile.
WORKS = """
import time
from genie.live.rank.run_queue import waited_for_core_ns

end = time.monotonic() + 0.3
print("at work", flush=True)
while time.monotonic() < end:
    pass
print(waited_for_core_ns())
"""


def test_two_that_share_a_core_wait_for_it_half_of_the_time() -> None:
    core = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(core), sys.executable, "-c", WORKS]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    waited_ns = [int(process.communicate(timeout=120)[0].split()[-1]) for process in both]
    assert sum(waited_ns) > 100e6


def test_a_kernel_that_does_not_count_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_queue, "SCHEDSTAT", tmp_path / "none")
    assert run_queue.waited_for_core_ns() == -1


def test_a_run_says_it_by_rank_and_iteration(tmp_path: Path) -> None:
    ended = genie("run", rings(tmp_path / "rings"), "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-n", "3",
                  "-o", str(tmp_path / "out"))  # fmt: skip
    assert ended.code == 0
    waited_ns = open_run(tmp_path / "out").info["run_queue_ns"]
    assert [len(each) for each in waited_ns] == [3] * 4
    assert all(value >= 0 for each in waited_ns for value in each)
