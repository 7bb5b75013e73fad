"""Runs that cannot go on: one line, the right exit code, no process left, and a readable record."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from live_runs import GENIE, Ended, genie, loopback, marked, pid_of, played, rings, started
from trace_files import COMP, RECV, SEND, node, trace

from genie.live.rendezvous.meeting import SEGMENT
from genie.record import Run, open_run

pytestmark = [pytest.mark.live, pytest.mark.extended]

LIMIT_S = 30.0  # about 3 s on a free machine


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of a run of four ranks that would go on for minutes."""
    ranks = rings(tmp_path / "rings")
    return ("run", ranks, "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-n", "5000", "--stall", "2")


def one_line(ended: Ended, code: int) -> str:
    assert ended.code == code, ended.stderr
    assert ended.left == [], "still running"
    assert ended.wall_s < LIMIT_S
    assert len(ended.said) == 1, ended.stderr
    return ended.said[0]


def salvaged(out: Path, ranks: int = 4) -> Run:
    """Open the record of a run that was cut off; it has at least two iterations that all ranks ended."""
    run = open_run(out)
    assert run.info["complete"] is False
    assert run.info["problem"]
    assert not (out / "parts").exists()
    ended = run.timeline.filter(run.timeline["end_ns"] >= 0)
    assert ended.filter(ended["iteration"] == 1).n_unique("rank") == ranks
    assert run.transfers.filter(run.transfers["iteration"] == 1).height >= ranks
    assert all(port for port in run.transfers["path"])
    return run


@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP", "SIGTERM"])
def test_a_rank_that_stops_in_mid_run(end: str, job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        pid = pid_of(out, 2)
        assert pid is not None
        os.kill(pid, getattr(signal, end))
        line = one_line(command.end(), 1)
    words = {
        "SIGKILL": "rank 2 died in iteration",
        "SIGSTOP": "rank 2 is stopped",
        "SIGTERM": "rank 2: told to end by SIGTERM",
    }
    assert words[end] in line
    assert str(out) in line
    if end != "SIGTERM":
        assert str(pid) in line
    assert words[end] in salvaged(out).info["problem"]


@pytest.mark.parametrize(("end", "code", "words"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "SIGTERM")])
def test_the_launcher_is_told_to_end(end: str, code: int, words: str, job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        segments = segments_of(out)
        command.process.send_signal(getattr(signal, end))
        line = one_line(command.end(), code)
    assert words in line
    assert segments, "the ranks of a node share no memory"
    assert not any(Path(segment).exists() for segment in segments), "what ranks share has a name that may stay"
    salvaged(out)


def segments_of(out: Path) -> set[str]:
    """The memory that MPICH shares between the ranks of a run, as rank 0 sees it."""
    maps = Path(f"/proc/{pid_of(out, 0)}/maps").read_text().splitlines()
    return {line.removesuffix(" (deleted)").split()[-1] for line in maps if SEGMENT in line}


def test_the_launcher_is_killed(job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 2))
        command.process.kill()
        command.process.wait()
        deadline = time.monotonic() + 10
        while marked(command.mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not marked(command.mark), "ranks outlived their launcher"
    assert "launcher was killed" in salvaged(out).info["problem"]


def test_a_host_that_never_starts_its_rank(job: tuple[str, ...], tmp_path: Path) -> None:
    """The second host's remote shell hangs, as it does for a host that is down."""
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\nsleep 100\n")
    shell.chmod(0o755)
    hosts = Path(loopback(tmp_path))
    near = hosts.read_text()
    hosts.write_text(near.replace('"0-3"', '"0-2"') + near.replace('"0-3"', '"3"').replace("localhost", "farhost"))
    ended = genie(*job, "--join", "2", "-o", str(tmp_path / "out"), environment={"HYDRA_LAUNCHER_EXEC": str(shell)})
    assert "rank 3 did not start within 2 s" in one_line(ended, 3)


def test_a_host_that_mpirun_cannot_reach(job: tuple[str, ...], tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho 'connect to farhost: No route to host' >&2\nsleep 0.5\nexit 255\n")
    shell.chmod(0o755)
    hosts = Path(loopback(tmp_path))
    near = hosts.read_text()
    hosts.write_text(near.replace('"0-3"', '"0-2"') + near.replace('"0-3"', '"3"').replace("localhost", "farhost"))
    ended = genie(*job, "-o", str(tmp_path / "out"), environment={"HYDRA_LAUNCHER_EXEC": str(shell)})
    line = one_line(ended, 3)
    assert "mpirun ended with exit code" in line
    assert "farhost: No route to host" in line


def test_a_port_in_use_names_rank_and_address(job: tuple[str, ...], tmp_path: Path) -> None:
    hosts = Path(job[3])
    address = re.search(r'"(127\.[\d.]+)\.\{', hosts.read_text())
    assert address is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((f"{address[1]}.3", 4791))
        ended = genie(*job, "-o", str(tmp_path / "out"))
    line = one_line(ended, 3)
    assert f"rank 2 cannot receive on {address[1]}.3:4791: Address already in use" in line
    assert "--udp-port" in line


def test_a_rank_that_crashes_leaves_its_traceback(job: tuple[str, ...], tmp_path: Path) -> None:
    """A fault of Genie or of an installation: one line with the error, and a file with the traceback."""
    broken = tmp_path / "broken" / "sitecustomize.py"
    broken.parent.mkdir()
    broken.write_text("import os\nif os.environ.get('PMI_RANK') == '1':\n    raise SystemExit('no such library')\n")
    out = tmp_path / "out"
    ended = genie(*job, "--join", "3", "-o", str(out), environment={"PYTHONPATH": str(broken.parent)})
    line = one_line(ended, 3)
    assert "rank 1 did not start within 3 s; last words: " in line
    assert "no such library" in (out / "mpirun.log").read_text()


def waits_for_nobody(folder: Path) -> str:
    """Rank 0 waits for tag 7 from rank 1, which sends tag 8."""
    folder.mkdir()
    receive = node(1, RECV, (0,), name="wait", comm_src=1, comm_tag=7, comm_size=4096)
    send = node(1, SEND, (0,), comm_dst=0, comm_tag=8, comm_size=4096)
    first = node(0, COMP, duration_micros=100)
    return str(trace(folder, [first, receive], [first, send]))


def test_a_message_that_nobody_sends(tmp_path: Path) -> None:
    workload = waits_for_nobody(tmp_path / "trace")
    named = "rank 0, node 1 (wait): receive of 4096 bytes from rank 1, tag 7"
    live = genie("run", workload, "--hosts", loopback(tmp_path, 2), "--stall", "1", "-o", str(tmp_path / "live"))
    line = one_line(live, 1)
    assert named in line
    assert "nothing came for 1 s" in line
    run = open_run(tmp_path / "live")
    assert run.info["complete"] is False
    assert run.timeline.filter(run.timeline["name"] == "n0").height == 2

    twin = genie("simulate", workload, "--rate", "1Gb/s", "-o", str(tmp_path / "twin"))
    assert (twin.code, twin.left) == (1, [])
    (line,) = twin.stderr.splitlines()
    assert named in line
    assert line.endswith(f"; what was played until then is in {tmp_path / 'twin'}")
    inspected = genie("inspect", workload)
    assert "receives without a send: rank 0 node 1 (wait) from rank 1, tag 7" in inspected.stdout


def test_waiting_for_a_long_computation_is_no_stall(tmp_path: Path) -> None:
    """Rank 0 waits 1.5 s, more than --stall, for the computation of rank 1."""
    folder = tmp_path / "trace"
    folder.mkdir()
    receive = node(1, RECV, comm_src=1, comm_tag=7, comm_size=4096)
    send = node(1, SEND, (0,), comm_dst=0, comm_tag=7, comm_size=4096)
    trace(folder, [receive], [node(0, COMP, duration_micros=1_500_000), send])
    out = tmp_path / "out"
    ended = genie("run", str(folder), "--hosts", loopback(tmp_path, 2), "--stall", "0.5", "-o", str(out))
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    run = open_run(out)
    assert run.info["complete"] is True
    assert run.transfers["src"].to_list() == [1]


def test_a_full_disk(as_root: None, tmp_path: Path) -> None:
    """The run folder is on a disk of 300 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    job = f"run {rings(tmp_path / 'rings')} --hosts {loopback(tmp_path)} --rate 200Mb/s -n 5000"
    script = (
        f"mount -t tmpfs -o size=300k none {disk} && {GENIE} {job} -o {disk}/out; code=$?;"
        f" cp -r {disk}/out {tmp_path}/out; exit $code"
    )
    line_of = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with started(line=line_of) as command:
        line = one_line(command.end(), 3)
    assert "cannot be written: No space left on device; free some space or choose another -o" in line
    assert re.search(r"rank [0-3]: iteration [0-9]+:", line)
    salvaged(tmp_path / "out")


def test_a_disk_that_is_full_from_the_start(as_root: None, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    job = f"run {rings(tmp_path / 'rings')} --hosts {loopback(tmp_path)} -o {disk}/out"
    for size_kib in (4, 60):
        script = f"mount -t tmpfs -o size={size_kib}k none {disk} && {GENIE} {job}"
        with started(line=["unshare", "--mount", "--propagation", "private", "sh", "-c", script]) as command:
            line = one_line(command.end(), 3)
        assert "No space left on device" in line


def test_an_earlier_run_is_replaced_and_a_running_one_is_not(job: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    brief = [*job[:-4], "-n", "1", "-o", str(out)]
    assert genie(*brief).code == 0
    first = (out / "run.json").read_text()
    (out / "parts").mkdir()
    (out / "parts" / "00000-00000.npz").write_bytes(b"cut")
    assert genie(*brief).code == 0
    assert not (out / "parts").exists()
    assert (out / "run.json").read_text() != first  # its hosts have the same addresses, its origin times differ

    with started(*job, "-o", str(out)) as command:
        command.until(lambda: played(out, 2, 0))
        line = one_line(genie(*brief), 2)
        assert f"{out}: rank " in line
        assert "still running" in line
        for other in ("simulate", "validate"):
            line = one_line(genie(other, job[1], "--rate", "200Mb/s", "-o", str(out)), 2)
            assert "still running" in line
        assert command.process.poll() is None, "it was disturbed"


def test_two_runs_at_once_do_not_mix(job: tuple[str, ...], tmp_path: Path) -> None:
    """Two runs with the same addresses: the second is refused, and the first goes on."""
    with started(*job, "-o", str(tmp_path / "one")) as command:
        command.until(lambda: played(tmp_path / "one", 2, 0))
        line = one_line(genie(*job, "-o", str(tmp_path / "two")), 3)
        assert "Address already in use; is another run using it?" in line
        before = sum(1 for _ in (tmp_path / "one" / "parts").glob("00002-*.npz"))
        command.until(lambda: played(tmp_path / "one", 2, before + 1))


def test_commands_that_write_to_one_folder_do_not_mix(job: tuple[str, ...], tmp_path: Path) -> None:
    """The second command is refused in each phase of the first, also while no rank of it runs."""
    out = tmp_path / "out"
    with started("simulate", job[1], "--rate", "1Mb/s", "-n", "1000000", "-o", str(out / "twin")) as command:
        descriptors = Path(f"/proc/{command.process.pid}/fd")

        def is_held() -> bool:
            with suppress(FileNotFoundError):  # a descriptor that was closed meanwhile
                return (out / "twin").resolve() in [each.resolve() for each in descriptors.iterdir()]
            return False

        command.until(is_held)
        for other, folder in (("simulate", out / "twin"), ("validate", out)):
            line = one_line(genie(other, job[1], "--rate", "200Mb/s", "-o", str(folder)), 2)
            assert (
                line
                == f"genie: {out / 'twin'}: another genie writes to it: wait until it has ended, or choose another -o"
            )
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
    assert genie("simulate", job[1], "--rate", "200Mb/s", "-o", str(out / "twin")).code == 0


def test_a_command_that_starts_ranks_is_no_rank(tmp_path: Path) -> None:
    ended = genie("calibrate", "--ranks", "2", "-o", str(tmp_path / "out"), environment={"PMI_RANK": "0"})
    assert "starts ranks itself" in one_line(ended, 2)


def test_ctrl_c_in_a_simulation(job: tuple[str, ...], tmp_path: Path) -> None:
    simulation = ("simulate", job[1], "--rate", "1Mb/s", "-n", "1000000", "-o", str(tmp_path / "twin"))
    with started(*simulation) as command:
        command.until(lambda: (tmp_path / "twin").is_dir())
        command.process.send_signal(signal.SIGINT)
        ended = command.end()
    assert ended.code == 130, ended
    assert ended.stderr.splitlines()[-1] == "genie: interrupted"
