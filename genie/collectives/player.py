"""Player of a set of templates under one timing, as a walker plays them on the worst possible network.

Messages of one lane stay in order. The policy decides the order of all other events: starts of members, deliveries of
lanes, acknowledgements and credits.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import TYPE_CHECKING, TypeAlias

from genie.collectives.meaning import CheckError, Content, Lane, Meaning, Step, expand, sent_content

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from genie.collectives.template import Template

# Possible next events: a member starts, a lane delivers, a send is acknowledged, a credit arrives.
Event: TypeAlias = "tuple[str, int | Lane | Step]"
# A message: its send, the content of its blocks, members known to its sender.
Message: TypeAlias = "tuple[Step, list[Content], int]"
Policy: TypeAlias = "Callable[[list[Event], random.Random], int]"


def _drawn(events: list[Event], draw: random.Random) -> int:
    return draw.randrange(len(events))


def _oldest(events: list[Event], draw: random.Random) -> int:
    return 0


def _newest(events: list[Event], draw: random.Random) -> int:
    return len(events) - 1


def _late_acknowledgements(events: list[Event], draw: random.Random) -> int:
    others = [at for at, (kind, _) in enumerate(events) if kind != "acknowledge"]
    return draw.choice(others) if others else draw.randrange(len(events))


def _late_member(events: list[Event], draw: random.Random) -> int:
    """Member 0 starts last, when no other member can go on."""
    others = [at for at, event in enumerate(events) if event != ("start", 0)]
    return draw.choice(others) if others else 0


POLICIES: dict[str, Policy] = {
    "drawn": _drawn,
    "oldest": _oldest,
    "newest": _newest,
    "late_acknowledgements": _late_acknowledgements,
    "late_member": _late_member,
}


def play(
    meaning: Meaning,
    templates: Sequence[Template],
    sizes: Sequence[NDArray[np.int64]],
    policy: str = "drawn",
    seed: int = 0,
    eager: bool = False,
) -> list[int]:
    """Bytes that each member has sent at the end. Raises CheckError for any failure.

    `eager`: a send copies its block when it starts.
    """
    group = _Group(meaning, [_Member(steps) for steps in expand(templates, sizes)], eager)
    draw = random.Random(seed)
    pick = POLICIES[policy]
    while group.events:
        group.happen(group.events.pop(pick(group.events, draw)))
    group.finish(sizes)
    return [member.bytes_sent for member in group.members]


class _Member:
    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.started = False
        self.waits = [len(step.deps) for step in steps]
        self.after: list[list[int]] = [[] for _ in steps]
        for step in steps:
            for dep in step.deps:
                self.after[dep].append(step.number)
        self.done = [False] * len(steps)
        self.unsent: dict[Lane, deque[int]] = defaultdict(deque)  # sends that have not started, in step order
        self.expected: dict[Lane, deque[int]] = defaultdict(deque)  # receives that are not done, in step order
        for step in steps:
            if step.message:
                (self.unsent if step.sends else self.expected)[step.lane].append(step.number)
        self.reading: dict[int, int] = defaultdict(int)  # block -> number of sends that may still read it
        self.bytes_sent = 0


class _Group:
    def __init__(self, meaning: Meaning, members: list[_Member], eager: bool) -> None:
        self.meaning = meaning
        self.eager = eager
        self.members = members
        self.blocks = [meaning.before(position) for position in range(len(members))]
        self.events: list[Event] = [("start", position) for position in range(len(members))]
        self.wire: dict[Lane, deque[Message]] = defaultdict(deque)
        self.arrived: dict[Lane, deque[Message]] = defaultdict(deque)
        self.credits: dict[Lane, int] = defaultdict(int)
        self.heard = [0] * len(members)  # bits of the members that each one knows to have started
        self.read: set[tuple[int, int]] = set()  # sends that no longer need their block

    def happen(self, event: Event) -> None:
        kind, what = event
        if isinstance(what, int):
            self.members[what].started = True
            self.heard[what] |= 1 << what
            self._advance(what, [step.number for step in self.members[what].steps if not step.deps])
            for lane in [lane for lane in self.arrived if lane.target == what]:
                self._receive(lane)
        elif isinstance(what, Step):  # acknowledge
            self._release(what)
            self._finish_step(what)
        elif kind == "credit":
            self.credits[what] += 1
            self._send(what)
        else:
            self.arrived[what].append(self.wire[what].popleft())
            self._receive(what)

    def _advance(self, position: int, ready: list[int]) -> None:
        for number in ready:
            step = self.members[position].steps[number]
            if not step.message:
                self._finish_step(step)
            elif step.sends:
                self._send(step.lane)
            else:
                if step.credit:
                    self.events.append(("credit", step.lane))
                self._receive(step.lane)

    def _ready(self, step: Step) -> bool:
        member = self.members[step.position]
        return member.started and member.waits[step.number] == 0

    def _send(self, lane: Lane) -> None:
        """Start the lane's ready sends; a send that is overtaken is an error."""
        member = self.members[lane.source]
        waiting = member.unsent[lane]
        for number in list(waiting):
            step = member.steps[number]
            if not self._ready(step):
                late = next((n for n in waiting if self._ready(member.steps[n])), None)
                if late is not None:
                    raise CheckError(f"lane {lane}: {member.steps[late]} is ready before {step}")
                return
            if step.credit:
                if self.credits[lane] == 0:
                    return
                self.credits[lane] -= 1
            waiting.popleft()
            content = sent_content(step, self.blocks[step.position])
            for block in step.blocks:
                member.reading[block] += 1
            member.bytes_sent += step.size_bytes
            self.wire[lane].append((step, content, self.heard[step.position]))
            self.events += [("deliver", lane), ("acknowledge", step)]

    def _receive(self, lane: Lane) -> None:
        member = self.members[lane.target]
        while self.arrived[lane]:
            if not member.expected[lane]:
                raise CheckError(f"lane {lane}: a message without a receive")
            step = member.steps[member.expected[lane][0]]
            if not self._ready(step):
                return
            send, content, heard = self.arrived[lane].popleft()
            member.expected[lane].popleft()
            if send.size_bytes != step.size_bytes:
                raise CheckError(f"{step} expects {step.size_bytes} B and gets {send.size_bytes} B from {send}")
            self._release(send)
            blocks = self.blocks[step.position]
            for block, part in zip(step.blocks, content, strict=True):
                if member.reading[block] and step.size_bytes and not self.eager:
                    raise CheckError(f"race: {step} while the block is being sent")
                blocks[block] = self.meaning.receive(step, blocks[block], part)
            self.heard[step.position] |= heard
            self._finish_step(step)

    def _release(self, send: Step) -> None:
        """Free a send's block, on acknowledgement or receipt, whichever is known first."""
        key = (send.position, send.number)
        if key not in self.read:
            self.read.add(key)
            for block in send.blocks:
                self.members[send.position].reading[block] -= 1

    def _finish_step(self, step: Step) -> None:
        member = self.members[step.position]
        member.done[step.number] = True
        ready = []
        for later in member.after[step.number]:
            member.waits[later] -= 1
            if member.waits[later] == 0:
                ready.append(later)
        self._advance(step.position, ready)

    def finish(self, sizes: Sequence[NDArray[np.int64]]) -> None:
        for position, member in enumerate(self.members):
            for step in member.steps:
                if not member.done[step.number]:
                    raise CheckError(f"deadlock: {step} never ends")
            self.meaning.compare(position, self.blocks[position], sizes[position])
            if self.meaning.op == "barrier" and self.heard[position] != (1 << len(self.members)) - 1:
                raise CheckError(f"member {position} passes the barrier before all have started")
