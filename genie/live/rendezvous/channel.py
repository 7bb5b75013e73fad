"""The channel between ranks: tagged messages through rank 0, over whatever carries them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

STOPPED = " stopped: "  # in what a rank says because another one told it

AGREE_TAG, ANSWER_TAG, ALARM_TAG, CLOCK_TAG, ALIVE_TAG = 1, 2, 3, 4, 5


class RendezvousError(Exception):
    """Ranks that cannot find each other, or one that is gone; the message names it and what to do."""


class Channel(Protocol):
    """Tagged messages between rank 0 and the others. `receive` does not wait."""

    rank: int
    size: int
    name: str

    def send(self, to: int, tag: int, payload: bytes) -> None: ...
    def receive(self, tag: int) -> tuple[int, bytes] | None: ...
    def close(self) -> None: ...


def ranks_text(ranks: Iterable[int]) -> str:
    """Such as `rank 3`, `ranks 3, 5`, `ranks 0, 1, ... and 60 more`."""
    numbers = sorted(ranks)
    text = ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {text}"
