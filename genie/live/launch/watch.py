"""The launcher's view of running ranks: their processes, and the signs and records that they leave."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from genie.live.launch.blame import MPIRUN, Evidence, blame
from genie.live.launch.end_order import EndOrder, state_of
from genie.live.launch.segments import Segments
from genie.live.launched import MPI_RANK_VARIABLES
from genie.live.parts import FACTS, FAILED, FINISHED, PARTS, SIGN, STARTING
from genie.live.rendezvous.channel import ranks_text
from genie.live.settings import RunSettings
from genie.progress import Display

STARTING_POLL_S = 0.01  # until each rank has a process that is watched


class Watch:
    """Observes the ranks of a run; of ranks on other machines only their files on a shared disk."""

    def __init__(self, settings: RunSettings) -> None:
        self._out = settings.out_path
        self._folder = settings.out_path / PARTS
        self._folders = {path: _identity(path) for path in (self._out, self._folder)}
        self._ranks = settings.ranks
        self._total = settings.iterations + settings.warmup
        self._shown = 0
        self._display = Display()
        self._mpirun = -1
        self._order = EndOrder()
        self._segments = Segments()

    def begin(self, mpirun: int) -> None:
        """Watch mpirun's process, and those that it will start."""
        self._mpirun = mpirun
        self._order.watch(MPIRUN, mpirun)

    def look(self, wait_s: float) -> None:
        """Note started and ended processes, waiting for up to `wait_s`, and print progress."""
        ready = self.anyone_ready()
        self._order.look(wait_s if ready else STARTING_POLL_S)
        self._find_processes()
        if not ready:
            self._segments.note(self._rank_pids().values())
        self._show_progress()

    def _find_processes(self) -> None:
        """Watch each rank's process: first mpirun's child, later the process named in the rank's sign."""
        watched = self._order.pids()
        if len(watched) <= self._ranks:  # the ranks and mpirun
            for rank, pid in _ranks_below(self._mpirun).items():
                if rank not in watched and rank < self._ranks:
                    self._order.watch(rank, pid)
        for rank, pid in self._running().items():
            self._order.watch(rank, pid)

    def _show_progress(self) -> None:
        """Print a line about once per tenth of the run; on a terminal one line that is overwritten."""
        done = self._shown
        while (self._folder / f"00000-{done:05d}.npz").exists():
            done += 1
        step = 1 if self._display.is_terminal else max(1, self._total // 10)
        if done == self._shown or (done - self._shown < step and done < self._total):
            return
        self._shown = done
        self._display.update(f"iteration {done}/{self._total} played", done / self._total)

    def removed(self) -> str | None:
        """Return which folder of the run was removed or replaced; None when none was."""
        for path, identity in self._folders.items():
            try:
                now = _identity(path)
            except FileNotFoundError:
                now = None
            except OSError:
                continue  # a network disk that does not answer now
            if now != identity:
                return f"{path} was removed during the run"
        return None

    def failed(self) -> bool:
        """Return whether a rank has left a failure record."""
        return any(self._folder.glob(f"*{FAILED}"))

    def not_started(self) -> str | None:
        """Return which ranks have not started, or not met the others; None when all have."""
        begun = {int(path.stem): path.read_text() for path in self._folder.glob(f"*{SIGN}")}
        missing = set(range(self._ranks)) - set(begun)
        if missing:
            return f"{ranks_text(missing)} did not start"
        starting = [rank for rank, text in begun.items() if text.endswith(STARTING)]
        return f"{ranks_text(starting)} did not meet the others" if starting else None

    def anyone_ready(self) -> bool:
        """Return whether a rank has met the others and bound its port."""
        return any(self._folder.glob(f"*{FACTS}"))

    def vanished(self) -> bool:
        """Return whether a rank's process on this machine is gone without having finished or failed."""
        return any(self._vanished(end.who) for end in self._order.ends if end.who != MPIRUN)

    def _vanished(self, rank: int) -> bool:
        if self._sign(rank, FAILED).exists() or self._finished(rank):
            return False
        return self._sign(rank, SIGN).exists() or self._order.signal_of(rank) != 0

    def verdict(self, returncode: int | None, told: dict[int, str]) -> str | None:
        """Return the cause, as the ends of processes show it; None when they do not.

        `returncode`: mpirun's. `told`: rank -> signal name, for ranks whose records say that a signal told them to end.
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
        """Stop watching, once no process of the run is left. Ranks that have met have removed their segments' names."""
        self._display.end()
        self._order.close()
        if not self.anyone_ready():
            self._segments.remove()

    def stopped(self) -> str | None:
        """Name a rank of this machine whose process is stopped; None when there is none."""
        for rank, pid in self._running().items():
            if state_of(pid) in ("T", "t"):
                return f"rank {rank} is stopped: its process {pid} got SIGSTOP or is being debugged"
        return None

    def nobody_runs(self) -> bool:
        """Return whether no rank can leave further records: all have ended or are stopped."""
        watched = self._rank_pids()
        return len(watched) == self._ranks and all(
            self._sign(rank, FAILED).exists() or self._finished(rank) or state_of(pid) in ("", "T", "t")
            for rank, pid in watched.items()
        )

    def _rank_pids(self) -> dict[int, int]:
        """Return rank -> process id of ranks that are or were watched."""
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
        """Return rank -> process id of ranks on this machine that have signed and not finished."""
        return _signed(self._folder)


def still_running(out: Path) -> tuple[int, int] | None:
    """Return a rank and its process that an earlier run in this folder left running on this machine; else None."""
    for rank, pid in _signed(out / PARTS).items():
        with suppress(OSError):
            # The process id may have been reused.
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
            continue  # half-written or damaged
    return found


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _ranks_below(mpirun: int) -> dict[int, int]:
    """Return rank -> process id of the ranks among mpirun's descendants on this machine."""
    found: dict[int, int] = {}
    waiting = [mpirun]
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += [int(child) for child in children.read_text().split()]
        if pid != mpirun and (rank := _rank_of(pid)) is not None:
            found[rank] = pid  # of a wrapper and its child, the child
    return found


def _rank_of(pid: int) -> int | None:
    """Return the rank that mpirun gave a process in its environment; None without one."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name in MPI_RANK_VARIABLES and value.isdecimal():
                return int(value)
    return None
