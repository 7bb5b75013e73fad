"""The channel between ranks: tagged messages through rank 0, over MPI or TCP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from genie.errors import MachineError

STOPPED = " stopped: "  # in the error of a rank that ended because another one reported a failure

AGREE_TAG, ANSWER_TAG, ALARM_TAG, CLOCK_TAG, ALIVE_TAG = 1, 2, 3, 4, 5


class RendezvousError(MachineError):
    """Ranks cannot find each other, or one is gone; the message names it and what to do."""


class Channel(Protocol):
    """Tagged messages between rank 0 and the other ranks. `receive` does not wait."""

    rank: int
    size: int
    name: str

    def send(self, to: int, tag: int, payload: bytes) -> None: ...
    def receive(self, tag: int) -> tuple[int, bytes] | None: ...
    def close(self) -> None: ...


def ranks_text(ranks: Iterable[int]) -> str:
    """Return a list such as `rank 3`, `ranks 3, 5`, `ranks 0, 1, ... and 60 more`."""
    numbers = sorted(ranks)
    text = ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {text}"
