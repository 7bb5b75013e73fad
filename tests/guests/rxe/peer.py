"""The host's side of `guest_peer.py`: an end of a connection in a guest, as an object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rxe.failure import RigError
from rxe.guest import TOOLS, Guest

PROGRAM = f"{TOOLS}/guest_peer.py"
SUCCESS = 0  # IBV_WC_SUCCESS
# Of an acknowledgement: 4.096 us * 2^18 = 1.07 s. The guests' device does not survive that one is taken for lost that a
# busy machine only made late (README, traps).
TIMEOUT = 18
SHORT_TIMEOUT = 14  # 67 ms: for reads, which that does not concern, and where nothing comes at all


@dataclass(frozen=True)
class Completion:
    """As libibverbs reports it; `immediate` is None unless the message brought one."""

    id: int
    status: int
    opcode: int
    size_bytes: int
    immediate: int | None
    vendor: int


class Peer:
    """Started and opened at once, with one queue pair that is not connected yet.

    Args:
        guest: where it runs.
        memory_bytes: of its registered memory.
        address: its own; the guest's IPv4 address unless given.
        open_with: more of what `open` in guest_peer.py takes.

    `gid`, `qpn`, `psn`, `rkey`, `memory_address` and `mtu_bytes` are what another end must know of it.

    Raises (all methods):
        RigError: it says no, says nothing in time, or has ended.
    """

    def __init__(self, guest: Guest, memory_bytes: int, address: str | None = None, **open_with: Any) -> None:
        self.guest = guest
        self.memory_bytes = memory_bytes
        self._command = guest.start(["python3", PROGRAM])
        opened = self.ask("open", address=address or guest.ipv4, memory_bytes=memory_bytes, limit_s=60, **open_with)
        self.gid: str = opened["gid"]
        self.gid_index: int = opened["gid_index"]
        self.mtu_bytes: int = opened["mtu_bytes"]
        self.memory_address: int = opened["memory_address"]
        self.rkey: int = opened["rkey"]
        self.qpn: int = opened["qpn"]
        self.psn: int = opened["psn"]

    def ask(self, what: str, limit_s: float = 20, **words: Any) -> dict[str, Any]:
        """Let it do something and return its answer."""
        self._command.write(json.dumps({"do": what, **words}) + "\n")
        answer: dict[str, Any] = json.loads(self._command.read_line(limit_s))
        if not answer["ok"]:
            raise RigError(f"{self.guest.name}: peer, {what}: {answer['error']}")
        return answer

    def pair(self, psn: int | None = None) -> None:
        """A new queue pair in place of the present one."""
        answer = self.ask("pair", psn=psn)
        self.qpn, self.psn = answer["qpn"], answer["psn"]

    def connect(self, qpn: int, psn: int, gid: str, **words: Any) -> None:
        """To the other end's queue pair; more words as in guest_peer.py."""
        self.ask("connect", qpn=qpn, psn=psn, gid=gid, **words)

    def poll(self, count: int = 1, limit_s: float = 10) -> list[Completion]:
        """The next completions; fewer than `count` when time is up."""
        answer = self.ask("poll", limit_s=limit_s + 20, count=count, wait_s=limit_s)
        return [Completion(**each) for each in answer["completions"]]

    def close(self) -> None:
        """End it, and its queue pair with it."""
        if self._command.code is None:
            self._command.write('{"do": "leave"}\n')
            self._command.wait(120)


def connect_pair(one: Peer, other: Peer, **words: Any) -> None:
    """Connect two peers that have been opened, with the same words for both ends."""
    one.connect(other.qpn, other.psn, other.gid, **words)
    other.connect(one.qpn, one.psn, one.gid, **words)
