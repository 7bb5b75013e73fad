"""An MSCCL algorithm as moves of single chunks, each after the moves that it waits for.

A thread block takes its steps one after another. Thread blocks of a GPU wait for each other where a step says so. For
later steps, a send is over once its chunk is copied (in NCCL's FIFO), not once it has arrived. The steps after a send
therefore wait for the send's own dependencies. The k-th message of a thread block meets the k-th of its peer's.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import IntEnum

from genie.collectives.msccl.file import REDUCING, SENDING, Gpu, MscclError, MscclFile, Step, buffer_chunks
from genie.collectives.template import Action


class Local(IntEnum):
    """A GPU's action on two of its own chunks; the numbers continue those of `Action`."""

    COPY = 8  # the content of one replaces the content of the other
    ADD = 9  # the content of one is reduced into the other


@dataclass(frozen=True)
class Move:
    """One chunk sent, received, copied or reduced."""

    action: Action | Local
    block: int  # block that is sent or written
    source: int  # block that a local move reads; -1: a message
    peer: int
    channel: int
    thread_block: int
    deps: tuple[int, ...]  # earlier moves of the same GPU that must be done first
    after_sends: tuple[int, ...]  # sends that must have started; they have once `deps` are done
    line: int  # in the file


@dataclass(frozen=True)
class Past:
    """Moves that are done, and sends whose chunk is copied."""

    done: frozenset[int]
    sent: frozenset[int]

    def __or__(self, other: Past) -> Past:
        return Past(self.done | other.done, self.sent | other.sent)


NOTHING = Past(frozenset(), frozenset())


@dataclass(frozen=True)
class Layout:
    """Places of a GPU's chunks among its blocks: input, output, scratch, then chunks that are reduced in transit.

    In place, an output chunk is the input chunk of the same data.
    """

    position: int
    op: str
    in_place: bool
    input_chunks: int
    output_chunks: int
    scratch_chunks: int

    @property
    def blocks(self) -> int:
        return self.input_chunks + self.output_chunks + self.scratch_chunks

    def block(self, buffer: str, chunk: int) -> int:
        """Block of a chunk. Raises ValueError if the buffer has no such chunk."""
        count = {"i": self.input_chunks, "o": self.output_chunks, "s": self.scratch_chunks}[buffer]
        if not 0 <= chunk < count:
            raise ValueError(f"chunk {chunk} of a buffer {buffer} of {count}")
        if buffer == "i":
            return chunk
        if buffer == "s":
            return self.input_chunks + self.output_chunks + chunk
        return self.input_chunks + chunk if self._twin_of(chunk) < 0 else self._twin_of(chunk)

    def _twin_of(self, chunk: int) -> int:
        """Input chunk that an output chunk shares, in place; -1: none."""
        if not self.in_place:
            return -1
        if self.op == "all_gather":
            own = chunk - self.position * self.input_chunks
            return own if 0 <= own < self.input_chunks else -1
        return chunk + (self.position * self.output_chunks if self.op == "reduce_scatter" else 0)


def layout_of(file: MscclFile, position: int) -> Layout:
    """The blocks of one member, without those for chunks in transit."""
    return Layout(position, file.op, file.in_place, *buffer_chunks(file), file.gpus[position].scratch_chunks)


def moves_of(file: MscclFile, position: int) -> tuple[list[Move], int]:
    """(moves of one member, number of its blocks). Raises MscclError for waits that never end."""
    return _Gpu(file, position).moves()


class _Gpu:
    def __init__(self, file: MscclFile, position: int) -> None:
        self.file, self.position = file, position
        self.gpu: Gpu = file.gpus[position]
        self.layout = layout_of(file, position)
        self.blocks = self.layout.blocks
        self.found: list[Move] = []
        # For each thread block, the moves that must be over before its next step; the same after each step.
        self.front: dict[int, Past] = dict.fromkeys(self.gpu.blocks, NOTHING)
        self.over: dict[tuple[int, int], Past] = {}

    def moves(self) -> tuple[list[Move], int]:
        waiting = {
            (number, at): (at > 0) + (step.after is not None)
            for number, block in self.gpu.blocks.items()
            for at, step in enumerate(block.steps)
        }
        later = self._waiters()
        ready = [(at, number) for (number, at), count in waiting.items() if count == 0]
        heapq.heapify(ready)
        while ready:
            at, number = heapq.heappop(ready)
            self._take(number, at)
            for other in later.get((number, at), ()):
                waiting[other] -= 1
                if waiting[other] == 0:
                    heapq.heappush(ready, (other[1], other[0]))
        if len(self.over) < len(waiting):
            number, at = min(key for key in waiting if key not in self.over)
            self._fail(self.gpu.blocks[number].steps[at], "waits for itself, through other steps")
        return self.found, self.blocks

    def _waiters(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        later: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, block in self.gpu.blocks.items():
            for at, step in enumerate(block.steps):
                if at:
                    later.setdefault((number, at - 1), []).append((number, at))
                if step.after is None:
                    continue
                other, its = step.after
                if other not in self.gpu.blocks or its >= len(self.gpu.blocks[other].steps):
                    self._fail(step, f"waits for step {its} of thread block {other}, which gpu {self.position} has not")
                if not self.gpu.blocks[other].steps[its].signals:
                    self._fail(step, f'waits for step {its} of thread block {other}, which has no hasdep="1"')
                later.setdefault(step.after, []).append((number, at))
        return later

    def _fail(self, step: Step, what: str) -> None:
        raise MscclError(f"{self.file.where}:{step.line}: {what}")

    def _take(self, number: int, at: int) -> None:
        step = self.gpu.blocks[number].steps[at]
        before = self.front[number] | (self.over[step.after] if step.after else NOTHING)
        over = before
        for chunk in range(step.chunks if step.type != "nop" else 0):
            over = self._chunk(number, step, chunk, before, over)
        self.front[number] = self.over[number, at] = over

    def _chunk(self, number: int, step: Step, chunk: int, before: Past, over: Past) -> Past:
        """Add the moves of one chunk of a step, after `before`; return the moves that the next step must wait for.

        `over`: the result for the previous chunk. Received chunks come in order, so the last one stands for all.
        """
        kind = step.type
        if kind == "s":
            sent = self._add(number, step, Action.SEND, self._place(step, step.source, chunk), over)
            return Past(over.done, frozenset({sent}))
        if kind in ("cpy", "re"):
            local = Local.COPY if kind == "cpy" else Local.ADD
            source = self._place(step, step.source, chunk)
            return _done(self._add(number, step, local, self._place(step, step.target, chunk), over, source))
        if kind == "rrs":  # reduced in transit: the source keeps its content
            target = self.blocks
            self.blocks += 1
        else:
            target = self._place(step, step.target, chunk)
        if kind in REDUCING:
            source = self._place(step, step.source, chunk)
            if source != target:
                before = _done(self._add(number, step, Local.COPY, target, over, source))
            received = _done(self._add(number, step, Action.REDUCE, target, before))
        else:
            received = _done(self._add(number, step, Action.RECV, target, before))
        if kind not in SENDING:
            return received
        return Past(received.done, frozenset({self._add(number, step, Action.SEND, target, received)}))

    def _place(self, step: Step, at: tuple[str, int], chunk: int) -> int:
        buffer, first = at
        try:
            return self.layout.block(buffer, first + chunk)
        except ValueError as error:
            raise MscclError(f"{self.file.where}:{step.line}: {error}") from None

    def _add(self, number: int, step: Step, action: Action | Local, block: int, before: Past, source: int = -1) -> int:
        runs = self.gpu.blocks[number]
        peer = runs.send_peer if action is Action.SEND else runs.receive_peer
        self.found.append(
            Move(
                action=action,
                block=block,
                source=source,
                peer=-1 if isinstance(action, Local) else peer,
                channel=runs.channel,
                thread_block=number,
                deps=tuple(sorted(before.done)),
                after_sends=tuple(sorted(before.sent)),
                line=step.line,
            )
        )
        return len(self.found) - 1


def _done(move: int) -> Past:
    return Past(frozenset({move}), frozenset())
