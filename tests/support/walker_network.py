"""Walkers of all ranks over an ideal network in a drawn order: messages of one pair of ranks stay in order, no more."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Protocol

import genie_core

Event = tuple[str, int, Any]  # ("timer", rank, (node, due)), ("arrived", rank, source) or ("sent", rank, handle)


class Watcher(Protocol):
    """Sees what every rank is told and what it answers."""

    def begun(self, rank: int, now: int, operations: list[Any]) -> None: ...

    def advanced(self, rank: int, now: int, completions: list[Any], operations: list[Any]) -> None: ...


class DrawnNetwork:
    """`late_ps`: up to how late timers are handled; `batch`: up to how many completions a rank is told at once."""

    def __init__(
        self,
        plan: genie_core.Plan,
        seed: int,
        *,
        late_ps: int = 0,
        batch: int = 1,
        slow_rank: int = -1,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.walkers = [genie_core.Walker(plan, rank) for rank in range(plan.ranks)]
        self.draw = random.Random(seed)
        self.late_ps, self.batch, self.slow_rank, self.watchers = late_ps, batch, slow_rank, watchers
        self.events: list[Event] = []
        self.wire: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)  # -> (tag, size_bytes)
        self.bytes_sent: dict[tuple[int, int], int] = defaultdict(int)
        self.now = 0
        for rank, walker in enumerate(self.walkers):
            operations = walker.begin(0)
            for watcher in watchers:
                watcher.begun(rank, 0, operations)
            self._take(rank, operations)

    def _take(self, rank: int, operations: list[Any]) -> None:
        for kind, handle, *rest in operations:
            if kind == "timer":
                self.events.append(("timer", rank, (handle, rest[0])))
                continue
            peer, tag, size_bytes = rest
            self.wire[rank, peer].append((tag, size_bytes))
            self.bytes_sent[rank, peer] += size_bytes
            self.events += [("arrived", peer, rank), ("sent", rank, handle)]

    def _pick(self) -> Event:
        free = [at for at, event in enumerate(self.events) if event[1] != self.slow_rank]
        return self.events.pop(self.draw.choice(free) if free else self.draw.randrange(len(self.events)))

    def _completion(self, event: Event) -> Any:
        kind, rank, what = event
        if kind == "timer":
            return ("timer", what[0], what[1])
        if kind == "sent":
            return ("sent", what, self.now, 0)
        tag, size_bytes = self.wire[what, rank].popleft()
        return ("arrived", what, tag, size_bytes, self.now, self.now)

    def run(self) -> None:
        """Until nothing can happen any more."""
        while self.events:
            chosen = [self._pick()]
            rank = chosen[0][1]
            for _ in range(self.draw.randrange(self.batch)):
                same = [at for at, event in enumerate(self.events) if event[1] == rank]
                if same:
                    chosen.append(self.events.pop(self.draw.choice(same)))
            due = max([self.now, *(event[2][1] for event in chosen if event[0] == "timer")])
            self.now = due + self.draw.randrange(self.late_ps + 1)
            completions = [self._completion(event) for event in chosen]
            operations = self.walkers[rank].advance(self.now, completions)
            for watcher in self.watchers:
                watcher.advanced(rank, self.now, completions, operations)
            self._take(rank, operations)
