"""The order in which processes of this machine ended, and their signals, as the kernel reports both."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# linux/pidfd.h. The answer includes the exit status since Linux 6.15, once the process has been reaped.
INFO = struct.Struct("=QQ11Ii")  # mask, cgroup, eleven ids, exit code
INFO_EXIT = 1 << 3
GET_INFO = 3 << 30 | INFO.size << 16 | 0xFF << 8 | 11
EXIT_CODE_FIELD = 49  # in /proc/PID/stat behind the command; valid for a process that waits to be reaped


@dataclass(frozen=True)
class End:
    """A process that has ended."""

    who: int  # the number that was given to `watch`
    pid: int
    noticed_s: float  # time.monotonic()
    watched: bool  # False: it was gone before it could be watched, so that its place in the order is unknown


class EndOrder:
    """Watches processes of this machine, and lists their ends in order.

    Each process is a pidfd in one epoll set. When a process ends, the kernel appends its pidfd to the set's ready list
    before the process can be reaped. So the order is right however late it is read, and a child's end precedes its
    parent's reaction.
    """

    def __init__(self) -> None:
        self.ends: list[End] = []
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[int, int]] = {}  # number given to `watch` -> process id, pidfd
        self._by_descriptor: dict[int, int] = {}  # pidfd -> who, of running processes

    def pids(self) -> dict[int, int]:
        """Return who -> process id of all watched processes, ended ones included."""
        return {who: pid for who, (pid, _) in self._watched.items()}

    def watch(self, who: int, pid: int) -> None:
        """Watch a process from now on; it replaces an earlier process of the same `who`."""
        known = self._watched.get(who)
        if known is not None and known[0] == pid:
            return
        if known is not None:
            self._forget(who)
        descriptor = -1
        with suppress(OSError):  # the process is gone, or descriptors have run out
            descriptor = os.pidfd_open(pid)
        self._watched[who] = (pid, descriptor)
        if not state_of(pid):
            self.ends.append(End(who, pid, time.monotonic(), watched=False))
        elif descriptor >= 0:
            self._by_descriptor[descriptor] = who
            self._epoll.register(descriptor, select.EPOLLIN)

    def look(self, wait_s: float = 0.0) -> None:
        """Note the processes that have ended; wait up to `wait_s` for an end."""
        for descriptor, _ in self._epoll.poll(wait_s, max(len(self._by_descriptor), 1)):
            self._epoll.unregister(descriptor)
            who = self._by_descriptor.pop(descriptor)
            self.ends.append(End(who, self._watched[who][0], time.monotonic(), watched=True))
        noted = {end.who for end in self.ends}
        for who, (pid, descriptor) in self._watched.items():
            if descriptor < 0 and who not in noted and not state_of(pid):
                self.ends.append(End(who, pid, time.monotonic(), watched=False))

    def signal_of(self, who: int) -> int | None:
        """Return the signal that ended a process, 0 when it exited, None where the kernel does not say."""
        status = self._status(*self._watched[who])
        return None if status is None else status & 0x7F

    def close(self) -> None:
        """Close all descriptors."""
        for who in list(self._watched):
            self._forget(who)
        self._epoll.close()

    def _forget(self, who: int) -> None:
        pid, descriptor = self._watched.pop(who)
        self.ends = [end for end in self.ends if (end.who, end.pid) != (who, pid)]
        self._by_descriptor.pop(descriptor, None)
        if descriptor >= 0:
            os.close(descriptor)  # closing also removes it from the epoll set

    @staticmethod
    def _status(pid: int, descriptor: int) -> int | None:
        """Return a wait status: from /proc while a process waits to be reaped, afterwards from its pidfd."""
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                return int(fields[EXIT_CODE_FIELD])
        answer = bytearray(INFO.size)
        INFO.pack_into(answer, 0, INFO_EXIT, *[0] * 13)
        with suppress(OSError):
            fcntl.ioctl(descriptor, GET_INFO, answer)
            mask, *_, status = INFO.unpack(answer)
            return int(status) if mask & INFO_EXIT else None
        return None


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state: R, S, T, ...; "" when it is gone or waits to be reaped."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if letter in ("Z", "X") else letter


def in_words(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
