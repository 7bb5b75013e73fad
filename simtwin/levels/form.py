"""Parts of a closed form: the load of messages that are sent at once, and the form of one collective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from genie.plan.lowering import Lowering
from simtwin.levels.analytic import CostKey

Transfers = Iterable[tuple[int, int, float]]  # from rank, to rank, part of the counted bytes


class Load(NamedTuple):
    """Latency and load of messages that are sent at once.

    `delay_ps`: of the longest route, and `hop_byte_ps` for each byte of a packet on all its links but the slowest;
    `mean_...`: mean of all routes. `byte_ps`: time of the most loaded link for each counted byte.
    """

    delay_ps: float
    hop_byte_ps: float
    mean_delay_ps: float
    mean_hop_byte_ps: float
    byte_ps: float


class Rounds(Protocol):
    """Times of messages on a network, of which the forms are made; as ClosedForms has them."""

    @property
    def lowering(self) -> Lowering: ...
    def wire(self, size_bytes: float, message_bytes: float | None = None) -> float: ...
    def alpha_ps(self, load: Load, size_bytes: float, *, mean: bool = False) -> float: ...
    def load(self, name: tuple[object, ...], transfers: Callable[[], Transfers]) -> Load: ...


class Form(ABC):
    """A collective's time with the algorithm for its size."""

    def __init__(self, forms: Rounds, key: CostKey) -> None:
        self._forms, self._key = forms, key
        self._members = len(key.ranks)
        whole = key.op in ("all_gather", "gather")
        self._share_bytes = key.size_bytes if whole else key.size_bytes / self._members  # the block of one member
        self._nearest: Load | None = None

    @abstractmethod
    def time_ps(self) -> float:
        """Return the time until the last message has arrived, in ps."""

    @property
    def last_acknowledgement_ps(self) -> float:
        """Time after the last arrival until the sender has the acknowledgement, as a node ends with it."""
        return self.nearest.mean_delay_ps

    @property
    def nearest(self) -> Load:
        """Load of messages to the next member."""
        if self._nearest is None:
            self._nearest = self._round(1)
        return self._nearest

    def _round(self, away: int) -> Load:
        """Return the load of messages from every member to the one `away` places further."""
        ranks, count = self._key.ranks, self._members
        return self._forms.load(
            ("away", ranks, away), lambda: [(ranks[at], ranks[(at + away) % count], 1.0) for at in range(count)]
        )

    def _round_of_nodes(self, local: int, *, inside: bool) -> Load:
        """Return the load of messages to the next member of the node, or to the same place in the next node."""
        ranks, count = self._key.ranks, self._members

        def after(at: int) -> int:
            return at // local * local + (at + 1) % local if inside else (at + local) % count

        return self._forms.load(
            ("nodes", ranks, local, inside),
            lambda: [(ranks[at], ranks[after(at)], 1.0) for at in range(count) if after(at) != at],
        )

    def _towards(self, op: str, distance: int) -> Load:
        """Return the load of PAT's messages of a distance: an all-gather sends backwards."""
        return self._round(self._members - distance if op == "all_gather" else distance)

    def _all(self) -> Load:
        """Return the load of messages from every member to every other."""
        ranks = self._key.ranks
        return self._forms.load(("all", ranks), lambda: [(a, b, 1.0) for a in ranks for b in ranks if a != b])

    def _star(self, *, inward: bool) -> Load:
        """Return the load of messages from all others to the root, or from it."""
        ranks, root = self._key.ranks, self._key.ranks[self._key.root]
        others = [rank for rank in ranks if rank != root]
        return self._forms.load(
            ("star", ranks, root, inward),
            lambda: [(rank, root, 1.0) if inward else (root, rank, 1.0) for rank in others],
        )
