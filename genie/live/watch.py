"""What the launcher sees of the ranks while they run: the signs and records that they leave."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from genie.live.endings import FACTS, FAILED, FINISHED, PARTS, SIGN, STARTING
from genie.live.rendezvous import ranks_text
from genie.live.settings import RunSettings


class Watch:
    """Looks at the ranks of a run; of other machines only what is on a common disk."""

    def __init__(self, settings: RunSettings) -> None:
        self._folder = settings.out_path / PARTS
        self._ranks = settings.ranks
        self._total = settings.iterations + settings.warmup
        self._shown = 0

    def look(self) -> None:
        """Print progress: a line about once in a tenth of the run; on a terminal one line that changes."""
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

    def vanished(self) -> str | None:
        """A rank of this machine whose process is gone although it has neither finished nor failed."""
        for rank, pid in self._running().items():
            if not _state(pid) and not self._has_ended(rank):
                done = sum(1 for _ in self._folder.glob(f"{rank:05d}-?????.npz"))
                set_up = (self._folder / f"{rank:05d}{FACTS}").exists()
                when = f"in iteration {done}" if set_up else "at its start"
                return f"rank {rank} died {when}: its process {pid} was killed or crashed"
        return None

    def stopped(self) -> str | None:
        """A rank of this machine whose process is stopped."""
        for rank, pid in self._running().items():
            if _state(pid) in ("T", "t"):
                return f"rank {rank} is stopped: its process {pid} got SIGSTOP or is being debugged"
        return None

    def nobody_runs(self) -> bool:
        """Whether no rank can leave anything any more: all have ended, or are stopped."""
        running = self._running()
        return len(running) == self._ranks and all(
            self._has_ended(rank) or _state(pid) in ("", "T", "t") for rank, pid in running.items()
        )

    def _has_ended(self, rank: int) -> bool:
        if (self._folder / f"{rank:05d}{FAILED}").exists():
            return True
        sign = self._folder / f"{rank:05d}{SIGN}"
        return not sign.exists() or sign.read_text().endswith(FINISHED)

    def _running(self) -> dict[int, int]:
        """Ranks of this machine that have signed and not finished: rank -> process."""
        return _signed(self._folder)


def still_running(out: Path) -> tuple[int, int] | None:
    """A rank and its process that an earlier run in this folder has left running on this machine."""
    for rank, pid in _signed(out / PARTS).items():
        with suppress(OSError):
            if _state(pid) and b"genie" in Path(f"/proc/{pid}/cmdline").read_bytes():  # not another one of that number
                return rank, pid
    return None


def _signed(folder: Path) -> dict[int, int]:
    found = {}
    for path in folder.glob(f"*{SIGN}"):
        try:
            node, pid, state = path.read_text().split()
        except (OSError, ValueError):
            continue  # being written
        if node == os.uname().nodename and state != FINISHED:
            found[int(path.stem)] = int(pid)
    return found


def _state(pid: int) -> str:
    """The kernel's letter for a process: R, S, T, ...; "" when it is gone or only waits to be reaped."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if letter in ("Z", "X") else letter
