"""Points of a profile at which the host interacts with other work, in the order of time.

Between two such points of a thread the host only computes. `timeline` turns the points into nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from genie.workload.pytorch.communications import Role
from genie.workload.pytorch.join import Span
from genie.workload.pytorch.kineto import STEP_PREFIX, DeviceOp, DeviceTrace, HostEvent, Thread

STREAM_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"})
STREAM_SYNC_CALLS = frozenset({"cudaStreamSynchronize", "cuStreamSynchronize", "hipStreamSynchronize"})
EVENT_SYNC_CALLS = frozenset({"cudaEventSynchronize", "cuEventSynchronize", "hipEventSynchronize"})
# Calls that return when all work on the device is done; freeing memory is one of them.
DEVICE_SYNC_CALLS = frozenset(
    {"cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize", "cudaFree", "cuMemFree_v2", "hipFree"}
)
SYNC_CALLS = STREAM_SYNC_CALLS | EVENT_SYNC_CALLS | DEVICE_SYNC_CALLS
WAIT_OPERATOR = "wait_tensor"  # silent: the operator that waits for a functional collective
BACKWARD_PREFIX = "autograd::engine::evaluate_function"


class Step(Enum):
    """Kind of a point."""

    LAUNCH = "launch"  # the host launches work on a stream
    SYNC = "sync"  # the host waits for a stream, an event or the device
    STREAM_WAIT = "stream_wait"  # a stream waits for an event
    COMMUNICATION = "communication"  # a communication call has returned
    WAIT = "wait"  # the host or its stream waits for a communication
    OPERATOR = "operator"  # an operator of the host has ended
    HAND_OVER = "hand_over"  # a thread lets another one work for it
    HAND_BACK = "hand_back"  # the thread continues when the other one is done
    END = "end"  # end of the thread


@dataclass(slots=True)
class Action:
    """One point in a thread's time."""

    time_ns: int
    step: Step
    thread: Thread | None
    label: str = ""  # the host's work up to this point
    call: HostEvent | None = None  # the runtime call
    ops: list[DeviceOp] = field(default_factory=list)  # device operations that the call launched
    span: Span | None = None  # the communication around the call
    other: Thread | None = None  # the thread handed over to
    waits_for: int = -1  # call id of the communication waited for; -1: identified by the span's sequence number


def find_actions(device: DeviceTrace, spans: list[Span], waits: Iterable[Action] = ()) -> list[Action]:
    """All points of one rank's profile by time; `waits`: points that the profile does not show."""
    main = main_thread(device)
    launched: dict[int, list[DeviceOp]] = defaultdict(list)
    for op in device.device_ops:
        launched[op.correlation].append(op)
    end_ns = _end(device, main)
    actions = _call_actions(device, spans, launched, end_ns)
    actions += [*_communication_actions(spans), *waits]
    threads = {action.thread for action in actions if action.thread is not None}
    if not device.device_ops:
        actions += _operator_actions(device, threads | {main})
    actions += _hand_overs(device, main, threads - {main})
    actions.append(Action(end_ns, Step.END, main))
    actions.sort(key=lambda action: action.time_ns)
    _label(device, actions)
    actions += _launched_before(device, launched, actions)
    return sorted(actions, key=lambda action: action.time_ns)


def _launched_before(
    device: DeviceTrace, without_call: dict[int, list[DeviceOp]], actions: list[Action]
) -> list[Action]:
    """Work launched before the profile began, which has no call here: only its place in its stream is known.

    A host may run ahead of its device: such work comes before all later work of its stream, which has a call.
    """
    called_ns = {id(op): action.time_ns for action in actions for op in action.ops}
    missing = {id(op) for ops in without_call.values() for op in ops}
    first_call_ns: dict[int, int] = {}  # of the stream's later work
    found = []
    for op in reversed(device.device_ops):
        if id(op) in missing:
            time_ns = min(op.start_ns, first_call_ns.get(op.stream, op.start_ns + 1) - 1)
            found.append(Action(time_ns, Step.LAUNCH, None, ops=[op]))
        else:
            time_ns = called_ns.get(id(op), op.start_ns)
            first_call_ns[op.stream] = min(time_ns, first_call_ns.get(op.stream, time_ns))
    return found[::-1]


def main_thread(device: DeviceTrace) -> Thread:
    """The thread of the training loop: the one with the profiler's steps, else the one with most operators."""
    for event in device.annotations:
        if event.name.startswith(STEP_PREFIX):
            return event.thread
    counts: dict[Thread, int] = defaultdict(int)
    for event in (*device.operators, *device.calls):
        counts[event.thread] += 1
    return max(counts, key=lambda thread: counts[thread], default=(0, 0))


def _end(device: DeviceTrace, main: Thread) -> int:
    """End of the iteration on the main thread: after the last step, later calls are the profiler's own."""
    steps = [event.end_ns for event in device.annotations if event.name.startswith(STEP_PREFIX)]
    events = (*device.operators, *device.annotations, *device.calls)
    return max(steps or (event.end_ns for event in events if event.thread == main), default=0)


def _call_actions(
    device: DeviceTrace, spans: list[Span], launched: dict[int, list[DeviceOp]], end_ns: int
) -> list[Action]:
    """Launches (removed from `launched`), waits of streams and synchronizations."""
    around = _SpanLookup(spans)
    actions = []
    for call in device.calls:
        ops = launched.pop(call.correlation, None)
        if ops is not None:
            step = Step.LAUNCH
        elif call.name in STREAM_WAIT_CALLS:
            step = Step.STREAM_WAIT
        elif call.name in SYNC_CALLS and call.start_ns < end_ns:
            step = Step.SYNC
        else:
            continue
        actions.append(Action(call.start_ns, step, call.thread, call=call, ops=ops or [], span=around.find(call)))
    return actions


def _communication_actions(spans: list[Span]) -> list[Action]:
    actions = []
    for span in spans:
        if span.communication.role is Role.WAIT:
            actions.append(Action(span.event.start_ns, Step.WAIT, span.event.thread, span=span))
        elif span.communication.moves_data:
            actions.append(Action(span.event.end_ns, Step.COMMUNICATION, span.event.thread, span=span))
    return actions


class _SpanLookup:
    """Lookup of the communication during which a call was made."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans: dict[Thread, list[Span]] = defaultdict(list)
        for span in spans:
            if span.communication.moves_data:
                self._spans[span.event.thread].append(span)
        self._starts = {thread: [s.event.start_ns for s in found] for thread, found in self._spans.items()}

    def find(self, call: HostEvent) -> Span | None:
        index = bisect_right(self._starts.get(call.thread, []), call.start_ns) - 1
        if index < 0:
            return None
        span = self._spans[call.thread][index]
        return span if call.start_ns <= span.event.end_ns else None


def _operator_actions(device: DeviceTrace, threads: Iterable[Thread]) -> list[Action]:
    """Ends of outermost operators; inner operators would count their time twice."""
    actions = []
    for thread in threads:
        for event in _outermost(event for event in device.operators if event.thread == thread):
            actions.append(Action(event.end_ns, Step.OPERATOR, thread, label=event.name))
    return actions


def _outermost(events: Iterable[HostEvent]) -> list[HostEvent]:
    """Events of a thread, given by start, that no other event encloses."""
    found: list[HostEvent] = []
    for event in events:
        if not found or event.start_ns >= found[-1].end_ns:
            found.append(event)
    return found


def _innermost(events: list[HostEvent]) -> list[HostEvent]:
    """Events of a thread, given by start, during which no other event starts."""
    pairs = zip(events, [*events[1:], *([None] if events else [])], strict=True)
    return [event for event, following in pairs if following is None or following.start_ns >= event.end_ns]


def _hand_overs(device: DeviceTrace, main: Thread, others: set[Thread]) -> list[Action]:
    """Points at which the main thread is silent because another thread runs the backward pass for it.

    The main thread's last action before its silence starts the engine's thread. The main thread continues when the
    engine is done, or when the engine hands something back in between. Other threads run independently of the main
    thread.
    """
    silence = Silence(device, main)
    actions = []
    for thread in sorted(others, key=str):
        operators = _outermost(event for event in device.operators if event.thread == thread)
        if not any(event.name.startswith(BACKWARD_PREFIX) for event in operators):
            continue
        bursts: dict[int, list[HostEvent]] = defaultdict(list)
        for event in operators:
            bursts[silence.index(event.start_ns)].append(event)
        last_end_ns = 0
        for index, events in bursts.items():
            start_ns, end_ns = events[0].start_ns, max(event.end_ns for event in events)
            if silence.holds(index) and last_end_ns <= silence.start_ns(index):
                actions.append(Action(start_ns, Step.HAND_OVER, main, other=thread))
            for time_ns in {min(end_ns, silence.end_ns(index)), end_ns}:
                if silence.holds(silence.index(time_ns - 1)):
                    actions.append(Action(time_ns, Step.HAND_BACK, main, other=thread, label=events[-1].name))
            last_end_ns = end_ns
    return actions


class Silence:
    """Stretches of a thread between neighbouring starts and ends of its events, numbered in order."""

    def __init__(self, device: DeviceTrace, thread: Thread) -> None:
        events = [e for e in (*device.operators, *device.annotations, *device.calls) if e.thread == thread]
        self._marks = sorted({mark for event in events for mark in (event.start_ns, event.end_ns)})
        operators = _innermost([event for event in device.operators if event.thread == thread])
        operators = [event for event in operators if not event.name.endswith(WAIT_OPERATOR)]
        self._starts = [event.start_ns for event in operators]
        self._ends = [event.end_ns for event in operators]

    def index(self, time_ns: int) -> int:
        """Number of the stretch that contains a time."""
        return bisect_right(self._marks, time_ns)

    def start_ns(self, index: int) -> int:
        return self._marks[index - 1] if index else 0

    def end_ns(self, index: int) -> int:
        return self._marks[index] if index < len(self._marks) else self._marks[-1]

    def holds(self, index: int) -> bool:
        """Whether the thread runs no innermost operator in this stretch and has events on both sides of it."""
        if not 0 < index < len(self._marks):
            return False
        around = bisect_right(self._starts, self._marks[index - 1]) - 1
        return around < 0 or self._ends[around] <= self._marks[index - 1]

    def first_after(self, time_ns: int) -> tuple[int, int] | None:
        """Start and end of the silent stretch that contains a time, or of the first one after it."""
        for index in range(self.index(time_ns - 1), len(self._marks)):
            if self.holds(index):
                return self.start_ns(index), self.end_ns(index)
        return None


def _label(device: DeviceTrace, actions: list[Action]) -> None:
    """Name each point after the innermost enclosing operator or annotation, else after the call."""
    events: dict[Thread, list[HostEvent]] = defaultdict(list)
    for event in sorted((*device.operators, *device.annotations), key=lambda e: (e.start_ns, -e.end_ns)):
        if not event.name.startswith(STEP_PREFIX):
            events[event.thread].append(event)
    positions: dict[Thread, int] = defaultdict(int)
    around: dict[Thread, list[HostEvent]] = defaultdict(list)
    for action in actions:
        thread = action.thread
        if thread is None or action.label:
            continue
        stack, queue = around[thread], events[thread]
        while positions[thread] < len(queue) and queue[positions[thread]].start_ns <= action.time_ns:
            stack.append(queue[positions[thread]])
            positions[thread] += 1
        while stack and stack[-1].end_ns < action.time_ns:
            stack.pop()
        inner = next((event for event in reversed(stack) if event.end_ns >= action.time_ns), None)
        action.label = inner.name if inner else action.call.name if action.call else "host"
