"""Runs in which one process is killed at a random moment, and their remains. Used by kills.py."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.write import save

RANKS = 4
MARK = "GENIE_KILLS_MARK"  # environment variable of every process of a run
LIMIT_S = 60.0
LONG, SHORT = 5000, 4  # iterations: practically endless, and a few for moments after the last one
WAYS = ("launcher", "mpirun", "torchrun")  # genie run by hand, a rank under mpirun, a rank with torchrun's variables
MOMENTS = ("start", "join", "play", "barrier", "gather")
GENIE = [sys.executable, "-P", "-m", "genie.cli.main"]


@dataclass(frozen=True)
class Kill:
    """The process to kill, the moment and the signal."""

    way: str
    victim: str  # rank, two ranks, mpirun, launcher
    ranks: tuple[int, ...]  # that are killed, in order
    moment: str
    iteration: int  # for some moments: the last iteration that the first of them has saved
    later_s: float  # delay after that moment
    signal: str = "SIGKILL"


def drawn(seed: int, number: int, attempt: int) -> Kill:
    """The kill of this number; another attempt draws another kill, for when a run has ended before its kill."""
    draw = random.Random(f"{seed}/{number}/{attempt}")
    way = draw.choices(WAYS, (8, 1, 1))[0]
    victims = {"rank": 12, "two ranks": 3, "mpirun": 3, "launcher": 3} if way == "launcher" else {"rank": 1}
    victim = draw.choices(list(victims), list(victims.values()))[0]
    count = {"rank": 1, "two ranks": 2}.get(victim, 0)
    moment = draw.choices(MOMENTS, (2, 1, 4, 1, 2))[0]
    longest_s = {"start": 0.8, "join": 0.3, "play": 0.06, "barrier": 0.004, "gather": 0.5}[moment]
    iteration = SHORT - 1 if moment == "gather" else draw.randrange(1, 6)
    ranks, later_s = tuple(draw.sample(range(RANKS), count)), draw.uniform(0, longest_s)
    polite = victim == "rank" or (victim == "mpirun" and moment != "start")  # too early for mpirun at start
    name = draw.choices(("SIGKILL", "SIGTERM"), (3, 1 if polite else 0))[0]
    return Kill(way, victim, ranks, moment, iteration, later_s, name)


class Scene:
    """One run in its own folder."""

    def __init__(self, folder: Path, number: int) -> None:
        self.out, self.temporary = folder / "out", folder / "temporary"
        self.temporary.mkdir(parents=True)
        self.mark = uuid.uuid4().hex
        base = os.getpid() * 251 + number
        address = f"127.{64 + base % 61}.{base // 61 % 251 + 1}.{{rank+1}}"
        hosts = folder / "hosts.toml"
        hosts.write_text(f'[[host]]\nname = "localhost"\nranks = "0-{RANKS - 1}"\naddress = "{address}"\n')
        _save_rings(folder / "rings")
        self.job = ["run", str(folder / "rings"), "--hosts", str(hosts), "--rate", "200Mb/s", "--stall", "2"]
        self.job += ["--join", "20", "-o", str(self.out)]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, kill: Kill) -> None:
        """Start the run in the kill's way."""
        job = [*GENIE, *self.job, "-n", str(SHORT if kill.moment == "gather" else LONG)]
        if kill.way == "launcher":
            self._start(job, {})
        elif kill.way == "mpirun":
            mpirun = Path(sys.executable).parent / "mpirun"
            self._start([str(mpirun) if mpirun.exists() else "mpirun", "-n", str(RANKS), *job], {})
        else:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            for rank in range(RANKS):
                self._start(job, {**common, "RANK": str(rank)})

    def _start(self, line: list[str], more: dict[str, str]) -> None:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PMI_", "SLURM_", "MASTER_", "GENIE_LAUNCHED"))
            and name not in ("RANK", "WORLD_SIZE")
        }
        environment = {**clean, **more, MARK: self.mark, "TMPDIR": str(self.temporary), "COLUMNS": "100"}
        self.processes.append(
            subprocess.Popen(
                line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, start_new_session=True,
            )
        )  # fmt: skip

    def kill(self, kill: Kill) -> bool:
        """Kill at the moment; False if the process had already ended. Of two ranks, the first ends before the second is
        killed.
        """
        victims: list[int] = []

        def come() -> bool:
            victims[:] = self._victims(kill)
            return len(victims) == max(len(kill.ranks), 1) and self._is(kill)

        if not self._until(come):
            return False
        time.sleep(kill.later_s)
        hits = [_ended_by(pid, signal.Signals[kill.signal], wait=pid != victims[-1]) for pid in victims]
        return hits[0]  # mpirun may have ended the second

    def _is(self, kill: Kill) -> bool:
        rank = kill.ranks[0] if kill.ranks else 0
        parts = self.out / "parts"
        if kill.moment == "start":
            return True
        if kill.moment == "join":
            return (parts / f"{rank:05d}.pid").exists()
        return (parts / f"{rank:05d}-{kill.iteration:05d}.npz").exists()

    def _victims(self, kill: Kill) -> list[int]:
        alive = self.alive()
        if kill.victim == "launcher":
            return [self.processes[0].pid]
        if kill.victim == "mpirun":
            return [
                pid for pid in alive if _parent(pid) == self.processes[0].pid and b"mpirun" in _read(pid, "cmdline")
            ]
        if kill.way == "torchrun":
            return [self.processes[rank].pid for rank in kill.ranks]
        ranks = {_variable(pid, b"PMI_RANK="): pid for pid in alive}
        return [ranks[str(rank).encode()] for rank in kill.ranks if str(rank).encode() in ranks]

    def _until(self, true: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + LIMIT_S
        while not true():
            if time.monotonic() > deadline or all(process.poll() is not None for process in self.processes):
                return False
            time.sleep(0.001)
        return True

    def end(self) -> tuple[list[int], list[str]]:
        """Wait for the end; return (exit codes, lines of output). `left` then shows processes that still run."""
        codes, lines = [], []
        for process in self.processes:
            try:
                _, said = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                said = "genie: it did not end"
            codes.append(process.returncode if process.returncode is not None else 124)
            lines += [line for line in said.splitlines() if line.startswith("genie: ")]
        deadline = time.monotonic() + 15.0  # ranks that were left alone notice, and gather the records
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        usual = ("/mpirun ", " played", "genie: counters: ")
        return codes, [line for line in lines if not any(words in line for words in usual)]

    def next_command(self) -> int:
        """Exit code of another run in the same folder."""
        line = [*GENIE, *self.job, "-n", "1"]
        ended = subprocess.run(line, capture_output=True, timeout=LIMIT_S, check=False, start_new_session=True)
        return ended.returncode

    def left(self) -> list[str]:
        """Processes and files that should be gone."""
        found = [f"process {pid}: {_read(pid, 'cmdline')[:80]!r}" for pid in self.alive()]
        if self.out.is_dir():
            found += [path.name for path in self.out.iterdir() if path.name == "parts" or path.name.endswith(".part")]
            descriptor = os.open(self.out, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found.append("lock")
            finally:
                os.close(descriptor)
        return found + [f"temporary {path.name}" for path in self.temporary.iterdir()]

    def clear(self) -> None:
        """Kill all remaining processes and remove all remaining files."""
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def alive(self) -> list[int]:
        """Living processes of this run."""
        wanted = f"{MARK}={self.mark}".encode()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        found = [pid for pid in pids if wanted in _read(pid, "environ").split(b"\0")]
        return [pid for pid in found if _read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])]


def shared_memory() -> set[str]:
    """Named memory segments of MPICH between ranks of a node that no process uses."""
    names = {str(path) for path in Path("/dev/shm").glob("mpich_shm_*")}
    if names:
        for path in Path("/proc").glob("[0-9]*"):
            text = _read(int(path.name), "maps")
            names = {name for name in names if name.encode() not in text}
    return names


def _save_rings(folder: Path) -> None:
    """Write a workload of 64 KiB all-reduces with 0.2 ms of compute before each."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload("rings", RANKS, [Group("world", tuple(range(RANKS)))], graphs)
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for _ in range(4):
            pause = builder.add(len(builder), "pause", Kind.COMP, last, duration_ns=200_000)
            last = (
                builder.add(len(builder), "ring", Kind.COLL, (pause,), size_bytes=65536, op=Op.ALL_REDUCE, group=0),
            )
        graphs[rank], _ = builder.finish()
    save(workload, folder, "rings")


def _ended_by(pid: int, number: signal.Signals, *, wait: bool) -> bool:
    """Whether the process existed and was sent the signal; `wait`: until it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, number)
            if wait:
                select.select([descriptor], [], [], LIMIT_S)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        return False
    return True


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else -1


def _variable(pid: int, name: bytes) -> bytes:
    entries = _read(pid, "environ").split(b"\0")
    return next((entry[len(name) :] for entry in entries if entry.startswith(name)), b"")


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run kills.py.")
