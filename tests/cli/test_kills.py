"""A killed process is named, and no process is left: part of `make kills`, and its cases one by one."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from live_runs import Command, genie, loopback, marked, pid_of, played, rings, started

from genie.record import open_run

pytestmark = [pytest.mark.live, pytest.mark.extended]

KILLS = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "kills.py"
LIMIT_S = 30.0
SEED, COUNT = 1557, 3
FIRST_KILLS = [["rank", "play"], ["two ranks", "barrier"], ["mpirun", "gather"]]


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of a run of four ranks that would go on for minutes."""
    ranks = rings(tmp_path / "rings")
    return ("run", ranks, "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-n", "5000", "--stall", "2")


def process_of(command: Command, name: str) -> int:
    """The process of a run whose command line begins with this program."""
    return next(pid for pid, line in marked(command.mark).items() if Path(line.split()[0]).name == name)


@pytest.fixture
def kills() -> Iterator[Any]:
    """The benchmark as a module."""
    sys.path.insert(0, str(KILLS.parent))
    try:
        import kills

        yield kills
    finally:
        sys.path.remove(str(KILLS.parent))


@pytest.mark.parametrize("moment", ["join", "play", "barrier"])
@pytest.mark.parametrize("said", ["mpirun ended with exit code 9", "rank 0: nothing came for 2 s", "rank 0: gave up"])
def test_a_killed_rank_that_is_not_named_is_wrong(kills: Any, said: str, moment: str) -> None:
    kill = kills.Kill("launcher", "rank", (2,), moment, 3, 0.0)
    assert kills.judge(kill, [1], [said], said) == "WRONG"
    assert kills.judge(kill, [1], ["genie: rank 2 died in iteration 3"], "rank 2 died in iteration 3") == "right"


def test_of_two_killed_ranks_the_first_is_the_right_one(kills: Any) -> None:
    kill = kills.Kill("launcher", "two ranks", (2, 1), "play", 3, 0.0)

    def judged(said: str) -> str:
        return str(kills.judge(kill, [1], [f"genie: {said}"], said))

    assert judged("rank 2 died in iteration 3; then rank 0: lost rank 1") == "right"
    assert judged("rank 1 died in iteration 3") == "WRONG"
    assert judged("ranks 1, 2 ended within 4 ms, and it cannot be told which was first") == "cannot be told"
    assert judged("mpirun ended with exit code 9 before all ranks were done") == "WRONG"


def test_sigterm_of_a_rank_and_of_mpirun(kills: Any) -> None:
    def judged(victim: str, ranks: tuple[int, ...], said: str) -> str:
        kill = kills.Kill("launcher", victim, ranks, "play", 3, 0.0, "SIGTERM")
        return str(kills.judge(kill, [1], [f"genie: {said}"], said))

    assert judged("rank", (2,), "rank 2: told to end by SIGTERM") == "right"
    assert judged("rank", (2,), "rank 1: told to end by SIGTERM") == "WRONG"
    assert judged("mpirun", (), "all ranks were told to end by SIGTERM, through mpirun") == "right"
    assert judged("mpirun", (), "mpirun was ended by SIGTERM") == "right"
    assert judged("mpirun", (), "rank 2: told to end by SIGTERM") == "WRONG"


@pytest.mark.slow
def test_kills_at_drawn_moments(tmp_path: Path) -> None:
    results = tmp_path / "kills.json"
    line = [sys.executable, str(KILLS), "--kills", str(COUNT), "--seed", str(SEED), "--json", str(results)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(results.read_text())["rows"]
    assert len(rows) == COUNT
    assert {row["judged"] for row in rows} <= {"right", "complete", "cannot be told"}
    assert [[row["kill"]["victim"], row["kill"]["moment"]] for row in rows] == FIRST_KILLS
    assert [row["left"] for row in rows] == [[]] * COUNT
    assert [row["judged"] for row in rows[:2]] == ["right", "right"], done.stdout


def test_mpirun_is_killed_and_no_rank_is_named(job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        pid = process_of(command, "mpirun")
        os.kill(pid, signal.SIGKILL)
        ended = command.end()
    assert (ended.code, ended.left) == (1, [])
    assert ended.said == [f"genie: mpirun was ended by SIGKILL (process {pid}); what was recorded is in {out}"]
    assert open_run(out).info["complete"] is False


@pytest.mark.parametrize("playing", [True, False])
def test_mpirun_is_told_to_end_and_no_rank_is_named(playing: bool, job: tuple[str, ...], tmp_path: Path) -> None:
    """mpirun passes the signal on to all ranks."""
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2) if playing else all(pid_of(out, rank) for rank in range(4)))
        os.kill(process_of(command, "mpirun"), signal.SIGTERM)
        ended = command.end()
    assert (ended.code, ended.left, len(ended.said)) == (1, [], 1), ended
    assert re.match(r"genie: (all ranks|ranks [\d, ]+) were told to end by SIGTERM, through mpirun", ended.said[0])
    assert "rank " not in ended.said[0]


def test_the_first_of_all_ranks_is_named(job: tuple[str, ...], tmp_path: Path) -> None:
    """The ranks end faster than the launcher polls, rank 3 first, whose folder comes last in order."""
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        launcher = command.process.pid
        os.kill(launcher, signal.SIGSTOP)  # so that it polls afterwards
        for pid in [pid_of(out, rank) or 0 for rank in (3, 1, 0, 2)]:
            with suppress(ProcessLookupError):  # mpirun may have ended it meanwhile
                end_of = os.pidfd_open(pid)
                os.kill(pid, signal.SIGKILL)
                assert select.select([end_of], [], [], LIMIT_S)[0], "it lives on"
                os.close(end_of)
        os.kill(launcher, signal.SIGCONT)
        ended = command.end()
    assert (ended.code, ended.left, len(ended.said)) == (1, [], 1)
    assert "rank 3 died in iteration" in ended.said[0]


def test_a_run_folder_that_is_removed(job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        out.rename(tmp_path / "elsewhere")  # in one step, unlike a removal while ranks write
        shutil.rmtree(tmp_path / "elsewhere")
        ended = command.end()
    assert (ended.code, ended.left) == (3, [])
    assert ended.said == [f"genie: {out} was removed during the run"]
    assert not out.exists()


@pytest.mark.parametrize("limit_kib", [300_000, 600_000])
def test_too_little_memory_leaves_no_parts(limit_kib: int, job: tuple[str, ...], tmp_path: Path) -> None:
    """Either the memory suffices and the run is complete, or one line says which limit to raise."""
    out = tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_AS)
    arguments = [*job[:-4], "-n", "3", "-o", str(out)]
    resource.setrlimit(resource.RLIMIT_AS, (limit_kib * 1024, before[1]))
    try:
        command = Command([sys.executable, "-m", "genie.cli.main", *arguments], {})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    ended = command.end()
    assert ended.left == []
    assert not (out / "parts").exists()
    if ended.code == 0:
        assert open_run(out).info["complete"] is True
    else:
        assert ended.code == 3
        assert len(ended.said) == 1, ended.stderr
        assert f"ulimit -v is {limit_kib} KiB here, raise it" in ended.said[0]
        assert list(out.glob("*.parquet")) == []


def test_the_launcher_is_killed_before_any_rank_has_begun(job: tuple[str, ...], tmp_path: Path) -> None:
    """Ranks that start without it end by themselves, and the next command over the folder works."""
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: any("mpirun" in line for line in marked(command.mark).values()))
        command.process.kill()
        command.process.wait()
        command.process.communicate()
        deadline = time.monotonic() + 20
        while marked(command.mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert marked(command.mark) == {}, "ranks outlived their launcher"
        assert not (out / "parts").exists()
    again = [*job[:-4], "-n", "1", "-o", str(out)]
    assert genie(*again).code == 0
