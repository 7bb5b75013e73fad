"""The channel between ranks: tagged messages through rank 0, over MPI or TCP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from genie.errors import MachineError
from genie.live.failure import Failure

AGREE_TAG, ANSWER_TAG, ALARM_TAG, CLOCK_TAG, ALIVE_TAG = 1, 2, 3, 4, 5


class RendezvousError(MachineError):
    """Ranks cannot find each other, or one is gone; the message names it and what to do."""


class PeerError(RendezvousError):
    """Another rank raised an alarm."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Channel(Protocol):
    """Tagged messages between rank 0 and the other ranks.

    `receive` does not wait. For an alarm it raises RendezvousError when a rank is gone.
    """

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
