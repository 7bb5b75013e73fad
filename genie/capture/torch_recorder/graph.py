"""Nodes of one rank as they are issued, and what each waits for: the order of streams, as CUDA has it.

A node waits for the one before it on its stream. A stream also waits for what it was told to wait for: events of other
streams, and collectives. A collective runs on a stream of its group's own, after all that was issued before it on the
stream that issued it.
"""

from __future__ import annotations

from typing import Any

COMPUTE = 0  # number of the default stream


class StepEnd(BaseException):
    """The steps that were asked for are recorded: the script need not go on."""


class Refused(BaseException):
    """Something in the script that cannot be captured."""


class Graph:
    """Nodes of the step in progress. `paused` while PyTorch computes shapes for itself."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.step = 0
        self.paused = 0
        self.notes: dict[str, int] = {}
        self.nodes: list[dict[str, Any]] = []
        self.current = COMPUTE  # stream
        self.streams = 1
        self._tails: dict[int, set[int]] = {}  # stream -> nodes that the next one waits for
        self._of_group: dict[str, int] = {}  # group -> its last collective
        self.groups: list[dict[str, Any]] = []  # as the script made them

    def note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def new_stream(self) -> int:
        self.streams += 1
        return self.streams - 1

    def add_compute(self, name: str, **facts: Any) -> None:
        number = self._add({"name": name, "stream": self.current, **facts}, self._tails.get(self.current, set()))
        self._tails[self.current] = {number}

    def add_collective(self, op: str, group: str, *, in_order: bool = True, **facts: Any) -> int:
        """Add a collective or a message of a group. `in_order`: after the group's one before."""
        after = set(self._tails.get(self.current, set()))
        if in_order and group in self._of_group:
            after.add(self._of_group[group])
        number = self._add({"op": op, "group": group, "from": self.current, **facts}, after)
        if in_order:
            self._of_group[group] = number
        return number

    def wait_for(self, node: int) -> None:
        """Let the current stream wait for a node."""
        if node >= 0:
            self._tails.setdefault(self.current, set()).add(node)

    def tail(self, stream: int) -> frozenset[int]:
        return frozenset(self._tails.get(stream, ()))

    def wait_for_all(self, stream: int, nodes: frozenset[int]) -> None:
        self._tails.setdefault(stream, set()).update(nodes)

    def synchronise(self) -> None:
        """Let all streams wait for all others."""
        every = frozenset().union(*self._tails.values()) if self._tails else frozenset()
        for stream in range(self.streams):
            self._tails[stream] = set(every)

    def _add(self, node: dict[str, Any], after: set[int]) -> int:
        node["after"] = sorted(after)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def end_step(self) -> None:
        """End a step of the optimizer; the last one that was asked for is what is kept."""
        self.step += 1
        if self.step == self.steps:
            raise StepEnd
        self.nodes = []
        self._tails = {}
        self._of_group = {}
