"""`genie run` as a rank: under mpirun, with torchrun's variables, with Slurm's. Ends are told there too."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from live_runs import GENIE, Command, Ended, genie, loopback, pid_of, played, rings, started
from trace_files import RECV, node, trace

from genie.record import open_run

pytestmark = pytest.mark.live

MPIRUN = str(Path(sys.executable).parent / "mpirun")
TORCHRUN, SLURM = ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    ranks = rings(tmp_path / "rings")
    return [
        "run",
        ranks,
        "--hosts",
        loopback(tmp_path),
        "--rate",
        "200Mb/s",
        "--stall",
        "2",
        "-o",
        str(tmp_path / "out"),
    ]


@contextmanager
def over_tcp(
    job: Sequence[str], names: tuple[str, str] = TORCHRUN, ranks: Sequence[int] = range(4)
) -> Iterator[list[Command]]:
    """Each rank started on its own, as torchrun or srun do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    *job,
                    environment={
                        names[0]: str(r),
                        names[1]: "4",
                        "SLURM_STEP_ID": "0",
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": port,
                    },
                )
            )
            for r in ranks
        ]


def holds_the_run(out: Path) -> None:
    run = open_run(out)
    assert run.info["complete"] is True
    assert run.timeline.n_unique("rank") == 4
    assert run.timeline.n_unique("iteration") == 2
    assert (run.timeline["end_ns"] > 0).all()
    assert run.transfers.height == 2 * 4 * 4  # iterations, collectives, links of the ring
    assert not (out / "parts").exists()
    assert (out / "launch.json").exists()


def test_under_mpirun(job: list[str], tmp_path: Path) -> None:
    with started(line=[MPIRUN, "-n", "4", str(GENIE), *job, "-n", "2"]) as command:
        ended = command.end()
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    holds_the_run(tmp_path / "out")


@pytest.mark.extended
@pytest.mark.parametrize("by", ["mpirun", "tcp"])
def test_options_without_effect_are_said_once_and_kept(by: str, job: list[str], tmp_path: Path) -> None:
    job = [*job, "-n", "2", "--wire", "plain", "--algorithm", "all_gather=ring", "--compute", "roofline:300,2000"]
    if by == "mpirun":
        with started(line=[MPIRUN, "-n", "4", str(GENIE), *job]) as command:
            ends = [command.end()]
    else:
        with over_tcp(job) as commands:
            ends = [command.end() for command in commands]
    assert {(ended.code, tuple(ended.left)) for ended in ends} == {(0, ())}
    lines = sorted(line for ended in ends for line in ended.said)
    warnings = [
        "--algorithm all_gather=ring: has no effect: the workload has no all_gather",
        "--compute roofline:300,2000: has no effect: every compute node of the workload has a duration",
    ]
    assert lines == [f"genie: {text}" for text in warnings]
    assert sorted(open_run(tmp_path / "out").info["warnings"]) == warnings


@pytest.mark.extended
def test_the_printed_line_can_be_run_by_hand(job: list[str], tmp_path: Path) -> None:
    first = genie("-v", *job, "-n", "2")
    line = first.stderr.splitlines()[0].removeprefix("genie: ").split()
    assert line[0].endswith("mpirun")
    for name in ("run.json", "timeline.parquet", "transfers.parquet", "counters.json"):
        (tmp_path / "out" / name).unlink()
    with started(line=line) as command:
        ended = command.end()
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    holds_the_run(tmp_path / "out")


@pytest.mark.parametrize("names", [TORCHRUN, SLURM], ids=["torchrun", "slurm"])
def test_without_mpi(names: tuple[str, str], job: list[str], tmp_path: Path) -> None:
    with over_tcp([*job, "-n", "2"], names) as commands:
        ends = [command.end() for command in commands]
    assert [(ended.code, ended.said, ended.left) for ended in ends] == [(0, [], [])] * 4
    holds_the_run(tmp_path / "out")


def test_another_number_of_ranks_than_the_run_has(job: list[str], tmp_path: Path) -> None:
    with started(line=[MPIRUN, "-n", "3", str(GENIE), *job]) as command:
        ended = command.end()
    assert (ended.code, ended.left) == (2, [])
    assert ended.said == ["genie: 3 ranks started and the run has 4: start that many"]
    assert not (tmp_path / "out").exists()


@pytest.mark.extended
def test_wrong_input_is_said_once(job: list[str], tmp_path: Path) -> None:
    for given, words in (
        (["--rate", "fast"], "--rate fast"),
        (["--wire", "copper"], "--wire copper"),
        (["--bogus"], "--bogus"),
    ):
        with started(line=[MPIRUN, "-n", "4", str(GENIE), *job, *given]) as command:
            ended = command.end()
        assert (ended.code, ended.left) == (2, [])
        assert len(ended.said) == 1
        assert words in ended.said[0]


def test_mpi_that_sees_one_rank_alone(job: list[str]) -> None:
    """srun without MASTER_ADDR, and with an MPI that does not know Slurm: each process is a world of its own."""
    variables = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}
    ended = genie(*job, environment=variables)
    assert ended.code == 2
    assert len(ended.said) == 1
    assert "1 rank started and the run has 4" in ended.said[0]
    assert "under srun set MASTER_ADDR" in ended.said[0]


def test_a_rank_that_is_missing(job: list[str], tmp_path: Path) -> None:
    with over_tcp([*job, "--join", "2"], ranks=(0, 1, 3)) as commands:
        ends = [command.end() for command in commands]
    assert [ended.code for ended in ends] == [3, 3, 3]
    assert ends[0].said == ["genie: rank 2 did not join rank 0 within 2 s: is it running?"]
    for ended in ends[1:]:
        assert len(ended.said) == 1
        assert "rank 0" in ended.said[0]


def test_rank_0_is_missing(job: list[str]) -> None:
    with over_tcp([*job, "--join", "1"], ranks=(1, 2)) as commands:
        ends = [command.end() for command in commands]
    for rank, ended in zip((1, 2), ends, strict=True):
        assert ended.code == 3
        assert len(ended.said) == 1
        assert f"rank {rank} cannot reach rank 0 at 127.0.0.1:" in ended.said[0]


def kill_in_mid_run(job: Sequence[str], victim: int, out: Path) -> list[Ended]:
    with over_tcp([*job, "-n", "5000"], SLURM) as commands:
        commands[0].until(lambda: played(out, 3, 2))
        pid = pid_of(out, victim)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return [command.end() for command in commands]


def test_a_rank_is_killed(job: list[str], tmp_path: Path) -> None:
    """Rank 0 says it, and completes the run folder."""
    out = tmp_path / "out"
    ends = kill_in_mid_run(job, 2, out)
    assert [ended.code for ended in ends] == [1, 1, -signal.SIGKILL, 1]
    assert [ended.said for ended in ends] == [["genie: rank 0: rank 2 is gone: its connection closed"], [], [], []]
    run = open_run(out)
    assert run.info["complete"] is False
    assert "rank 2 is gone" in run.info["problem"]
    assert run.timeline.n_unique("iteration") >= 2


def test_rank_0_is_killed_and_diff_gathers_what_is_left(job: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ends = kill_in_mid_run(job, 0, out)
    assert [ended.code for ended in ends] == [-signal.SIGKILL, 1, 1, 1]
    for ended in ends[1:]:
        assert len(ended.said) == 1
        assert "rank 0 is gone" in ended.said[0]
    assert not (out / "run.json").exists()
    twin = tmp_path / "twin"
    simulated = genie("simulate", job[1], "--rate", "200Mb/s", "--follow", str(out), "-o", str(twin))
    assert simulated.code == 0, simulated
    assert open_run(out).info["complete"] is False
    assert genie("diff", str(out), str(twin)).code in (1, 4)


def test_a_stall_under_mpirun_leaves_a_run_folder(tmp_path: Path) -> None:
    """mpirun ends all ranks as soon as one has failed: they wait until rank 0 has gathered what there is."""
    folder = tmp_path / "trace"
    folder.mkdir()
    receive = node(1, RECV, (0,), name="wait", comm_src=1, comm_tag=7, comm_size=64)
    trace(folder, [node(0, duration_micros=10), receive], [node(0, duration_micros=10)])
    job = ["run", str(folder), "--hosts", loopback(tmp_path, 2), "--stall", "0.5", "-o", str(tmp_path / "out")]
    with started(line=[MPIRUN, "-n", "2", str(GENIE), *job]) as command:
        ended = command.end()
    assert ended.left == []
    assert ended.code != 0
    lines = [line for line in ended.said if line.startswith("genie: ")]
    assert len(lines) == 1
    assert "nothing came for 0.5 s: rank 0, node 1 (wait): receive of 64 bytes from rank 1, tag 7" in lines[0]
    run = open_run(tmp_path / "out")
    assert run.info["complete"] is False
    assert run.timeline.filter(run.timeline["name"] == "n0").height == 2


@pytest.mark.parametrize("by", ["mpirun", "tcp"])
def test_a_validation_is_judged_by_rank_0(job: list[str], tmp_path: Path, by: str) -> None:
    """All ranks play; rank 0 plays the twin and says the verdict, which is the job's exit code there."""
    job = ["validate", *job[1:], "-n", "4", "--warmup", "1"]
    if by == "mpirun":
        with started(line=[MPIRUN, "-n", "4", str(GENIE), *job]) as command:
            ended = [command.end()]
    else:
        with over_tcp(job) as commands:
            ended = [command.end() for command in commands]
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    lines = "".join(each.stdout for each in ended).splitlines()
    assert [line for line in lines if line.startswith(("PASS", "FAIL", "INCONCLUSIVE"))] == lines[:1]
    assert lines[0].startswith(verdict["result"].upper())
    assert ended[0].code == (0 if lines[0].startswith("PASS") else 1)
    assert [each.code for each in ended[1:]] == [0] * (len(ended) - 1)
    assert all(each.left == [] for each in ended)
    live, twin = open_run(tmp_path / "out" / "live"), open_run(tmp_path / "out" / "twin")
    assert live.transfers["size_bytes"].sum() == twin.transfers["size_bytes"].sum() > 0
