"""The launcher's view of ranks while they run: their processes, and the signs and records that they leave."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from genie.live.launch.blame import MPIRUN, Evidence, blame
from genie.live.launch.end_order import EndOrder, state_of
from genie.live.launch.segments import Segments
from genie.live.parts import FACTS, FAILED, FINISHED, PARTS, SIGN, STARTING
from genie.live.rendezvous.channel import ranks_text
from genie.live.rendezvous.meeting import MPI_RANK_VARIABLES
from genie.live.settings import RunSettings

STARTING_POLL_S = 0.01  # until each rank has a process that is watched


class Watch:
    """Looks at the ranks of a run; of other machines only what is on a common disk."""

    def __init__(self, settings: RunSettings) -> None:
        self._out = settings.out_path
        self._folder = settings.out_path / PARTS
        self._folders = {path: _identity(path) for path in (self._out, self._folder)}
        self._ranks = settings.ranks
        self._total = settings.iterations + settings.warmup
        self._shown = 0
        self._mpirun = -1
        self._order = EndOrder()
        self._segments = Segments()

    def begin(self, mpirun: int) -> None:
        """Watch mpirun's process, and those that it will start."""
        self._mpirun = mpirun
        self._order.watch(MPIRUN, mpirun)

    def look(self, wait_s: float) -> None:
        """Note which processes have come and gone, for at most so long, and print progress."""
        ready = self.anyone_ready()
        self._order.look(wait_s if ready else STARTING_POLL_S)
        self._find_processes()
        if not ready:
            self._segments.note(self._rank_pids().values())
        self._show_progress()

    def _find_processes(self) -> None:
        """Watch each rank's process: as mpirun's child from its first moment, then as the one that has signed."""
        watched = self._order.pids()
        if len(watched) <= self._ranks:  # the ranks and mpirun
            for rank, pid in _ranks_below(self._mpirun).items():
                if rank not in watched and rank < self._ranks:
                    self._order.watch(rank, pid)
        for rank, pid in self._running().items():
            self._order.watch(rank, pid)

    def _show_progress(self) -> None:
        """A line about once in a tenth of the run; on a terminal one line that changes."""
        done = self._shown
        while (self._folder / f"00000-{done:05d}.npz").exists():
            done += 1
        terminal = sys.stderr.isatty()
        step = 1 if terminal else max(1, self._total // 10)
        if done == self._shown or (done - self._shown < step and done < self._total):
            return
        self._shown = done
        end = "\r" if terminal and done < self._total else "\n"
        print(f"genie: iteration {done}/{self._total} played", end=end, file=sys.stderr, flush=True)

    def removed(self) -> str | None:
        """Which folder of the run is gone, or another one now."""
        for path, identity in self._folders.items():
            try:
                now = _identity(path)
            except FileNotFoundError:
                now = None
            except OSError:
                continue  # a network's disk that does not answer for now
            if now != identity:
                return f"{path} was removed during the run"
        return None

    def failed(self) -> bool:
        """Whether a rank has said that it failed."""
        return any(self._folder.glob(f"*{FAILED}"))

    def not_started(self) -> str | None:
        """Which ranks have not begun, and what they lack; None when all have."""
        begun = {int(path.stem): path.read_text() for path in self._folder.glob(f"*{SIGN}")}
        missing = set(range(self._ranks)) - set(begun)
        if missing:
            return f"{ranks_text(missing)} did not start"
        starting = [rank for rank, text in begun.items() if text.endswith(STARTING)]
        return f"{ranks_text(starting)} did not meet the others" if starting else None

    def anyone_ready(self) -> bool:
        """Whether a rank has met the others and bound its port."""
        return any(self._folder.glob(f"*{FACTS}"))

    def vanished(self) -> bool:
        """Whether a rank's process of this machine is gone although it has neither finished nor failed."""
        return any(self._vanished(end.who) for end in self._order.ends if end.who != MPIRUN)

    def _vanished(self, rank: int) -> bool:
        if self._sign(rank, FAILED).exists() or self._finished(rank):
            return False
        return self._sign(rank, SIGN).exists() or self._order.signal_of(rank) != 0

    def verdict(self, returncode: int | None, told: dict[int, str]) -> str | None:
        """The cause, as the ends of processes show it; None when they do not.

        `returncode`: mpirun's; `told`: ranks that a signal told to end, as their records say.
        """
        self._order.look()
        ranks = {end.who for end in self._order.ends} - {MPIRUN}
        return blame(
            Evidence(
                ends=list(self._order.ends),
                signals={rank: self._order.signal_of(rank) for rank in ranks},
                signed={rank for rank in ranks if self._sign(rank, SIGN).exists()},
                failed={rank for rank in ranks if self._sign(rank, FAILED).exists()},
                told=told,
                finished={rank for rank in ranks if self._finished(rank)},
                when={rank: self._when(rank) for rank in ranks},
                ranks=self._ranks,
                seen=set(self._rank_pids()),
                ready=self.anyone_ready(),
                mpirun=(self._mpirun, returncode),
            )
        )

    def close(self) -> None:
        """Stop watching, once no process of the run is left. Ranks that have met have no names in memory any more."""
        self._order.close()
        if not self.anyone_ready():
            self._segments.remove()

    def stopped(self) -> str | None:
        """A rank of this machine whose process is stopped."""
        for rank, pid in self._running().items():
            if state_of(pid) in ("T", "t"):
                return f"rank {rank} is stopped: its process {pid} got SIGSTOP or is being debugged"
        return None

    def nobody_runs(self) -> bool:
        """Whether no rank can leave anything any more: all have ended, or are stopped."""
        watched = self._rank_pids()
        return len(watched) == self._ranks and all(
            self._sign(rank, FAILED).exists() or self._finished(rank) or state_of(pid) in ("", "T", "t")
            for rank, pid in watched.items()
        )

    def _rank_pids(self) -> dict[int, int]:
        """Processes of ranks that are or were watched: rank -> process."""
        return {rank: pid for rank, pid in self._order.pids().items() if rank != MPIRUN}

    def _finished(self, rank: int) -> bool:
        try:
            return self._sign(rank, SIGN).read_text().endswith(FINISHED)
        except OSError:
            return False

    def _when(self, rank: int) -> str:
        if not self._sign(rank, FACTS).exists():
            return "at its start"
        done = sum(1 for _ in self._folder.glob(f"{rank:05d}-?????.npz"))
        return f"in iteration {done}" if done < self._total else "after its last iteration"

    def _sign(self, rank: int, name: str) -> Path:
        return self._folder / f"{rank:05d}{name}"

    def _running(self) -> dict[int, int]:
        """Ranks of this machine that have signed and not finished: rank -> process."""
        return _signed(self._folder)


def still_running(out: Path) -> tuple[int, int] | None:
    """A rank and its process that an earlier run in this folder has left running on this machine."""
    for rank, pid in _signed(out / PARTS).items():
        with suppress(OSError):
            # Not another one of that number.
            if state_of(pid) and b"genie" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return rank, pid
    return None


def _signed(folder: Path) -> dict[int, int]:
    found = {}
    for path in folder.glob(f"*{SIGN}"):
        try:
            node, pid, state = path.read_text().split()
            if node == os.uname().nodename and state != FINISHED:
                found[int(path.stem)] = int(pid)
        except (OSError, ValueError):
            continue  # being written, or damaged
    return found


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _ranks_below(mpirun: int) -> dict[int, int]:
    """The ranks among the processes that mpirun has started on this machine: rank -> process."""
    found: dict[int, int] = {}
    waiting = [mpirun]
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += [int(child) for child in children.read_text().split()]
        if pid != mpirun and (rank := _rank_of(pid)) is not None:
            found[rank] = pid  # of a wrapper and what it has started, the inner one
    return found


def _rank_of(pid: int) -> int | None:
    """The rank that mpirun gave a process in its environment."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name in MPI_RANK_VARIABLES and value.isdecimal():
                return int(value)
    return None
