"""Short live runs through the command line, on loopback, for the tests of this folder and of tests/cli."""

from __future__ import annotations

import io
import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from genie.cli.main import main
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.write import save

GENIE = Path(sys.executable).parent / "genie"
_numbers = itertools.count()
MARK = "GENIE_TEST_MARK"  # every process of a test has it in its environment


def rings(
    folder: Path, ranks: int = 4, *, collectives: int = 4, size_bytes: int = 65536, compute_ns: int = 200_000,
    op: Op = Op.ALL_REDUCE,
) -> str:  # fmt: skip
    """A trace of all-reduces, or another operation, with a pause before each; returns its path."""
    workload = Workload("rings", ranks, [Group("world", tuple(range(ranks)))], {})
    for rank in range(ranks):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for _ in range(collectives):
            last = (builder.add(len(builder), "pause", Kind.COMP, last, duration_ns=compute_ns),)
            last = (builder.add(len(builder), "ring", Kind.COLL, last, size_bytes=size_bytes, op=op, group=0),)
        workload.ranks[rank], _ = builder.finish()
    save(workload, folder, "rings")
    return str(folder)


def loopback(folder: Path, ranks: int = 4, *, shared: bool = False) -> str:
    """Write a hosts file with loopback addresses of this test alone, away from other runs; returns its path."""
    number = os.getpid() * 251 + next(_numbers)
    base = f"127.{64 + number % 61}.{number // 61 % 251 + 1}"
    path = folder / "hosts.toml"
    address = f"{base}.1" if shared else f"{base}.{{rank+1}}"
    path.write_text(f'[[host]]\nname = "localhost"\nranks = "0-{ranks - 1}"\naddress = "{address}"\n')
    return str(path)


@dataclass
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    wall_s: float
    left: list[str] = field(default_factory=list)  # command lines of processes that outlived it

    @property
    def said(self) -> list[str]:
        """Lines of standard error except the mpirun line, progress and counters: a busy machine loses packets too."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        usual = ("/mpirun ", " played", "genie: counters: ")
        return [line for line in lines if not any(words in line for words in usual)]


def in_this_process(*arguments: str) -> Ended:
    """`genie ARGUMENTS` through its entry point."""
    stdout, stderr, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["genie", *arguments]
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as left:
            main()
    finally:
        sys.argv = before
    assert isinstance(left.value.code, int)
    return Ended(left.value.code, stdout.getvalue(), stderr.getvalue(), 0.0)


def marked(mark: str) -> dict[int, str]:
    """Processes of a test that are alive: id -> command line."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return found


def heed_signals() -> None:
    """Reset signal handlers as a terminal's shell does, however the tests were started."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Command:
    """A command that runs in the background, and the processes that it started."""

    def __init__(self, line: list[str], environment: dict[str, str], folder: Path | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.began = time.monotonic()
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PMI_", "SLURM_", "MASTER_", "GENIE_LAUNCHED"))
            and name not in ("RANK", "WORLD_SIZE")
        }
        self.process = subprocess.Popen(
            line,
            env={**clean, "COLUMNS": "100", **environment, MARK: self.mark},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=folder, start_new_session=True, preexec_fn=heed_signals,
        )  # fmt: skip

    def until(self, true: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Wait for something to become true while the command runs."""
        deadline = time.monotonic() + limit_s
        while not true():
            assert self.process.poll() is None, f"ended early: {self.process.communicate()}"
            assert time.monotonic() < deadline, "it did not come to that"
            time.sleep(0.005)

    def end(self, limit_s: float = 60.0) -> Ended:
        """Wait for its end. Processes that are left over are reported and killed."""
        try:
            stdout, stderr = self.process.communicate(timeout=limit_s)
        finally:
            wall_s = time.monotonic() - self.began
            left = marked(self.mark)
            deadline = time.monotonic() + 0.5  # the kernel may still be removing killed processes
            while left and time.monotonic() < deadline:
                time.sleep(0.02)
                left = marked(self.mark)
            self.kill_all()
        return Ended(self.process.returncode, stdout, stderr, wall_s, list(left.values()))

    def kill_all(self) -> None:
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@contextmanager
def started(
    *arguments: str, environment: dict[str, str] | None = None, line: list[str] | None = None
) -> Iterator[Command]:
    """`genie ARGUMENTS`, or another command line, in the background; no process of it is left afterwards."""
    command = Command(line if line is not None else [str(GENIE), *arguments], environment or {})
    try:
        yield command
    finally:
        command.kill_all()


def genie(*arguments: str, environment: dict[str, str] | None = None, limit_s: float = 60.0) -> Ended:
    """`genie ARGUMENTS`, to its end."""
    with started(*arguments, environment=environment) as command:
        return command.end(limit_s)


def pid_of(out: Path, rank: int) -> int | None:
    """The process of a rank of a run, once it has signed."""
    try:
        return int((out / "parts" / f"{rank:05d}.pid").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def played(out: Path, rank: int, iteration: int) -> bool:
    """Whether a rank has saved an iteration."""
    return (out / "parts" / f"{rank:05d}-{iteration:05d}.npz").exists()
