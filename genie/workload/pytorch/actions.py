"""The points of a profile at which the host and other work meet, in the order of time.

Between two such points of a thread the host only computes. See `pytorch_timeline` for what is made of them.
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
# Calls that return when everything on the device is done; freeing memory is one of them.
DEVICE_SYNC_CALLS = frozenset(
    {"cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize", "cudaFree", "cuMemFree_v2", "hipFree"}
)
SYNC_CALLS = STREAM_SYNC_CALLS | EVENT_SYNC_CALLS | DEVICE_SYNC_CALLS
WAIT_OPERATOR = "wait_tensor"  # silence, not work: the operator in which a functional collective is waited for
BACKWARD_PREFIX = "autograd::engine::evaluate_function"


class Step(Enum):
    """What happens at a point."""

    LAUNCH = "launch"  # the host starts work on a stream
    SYNC = "sync"  # the host waits for a stream, an event or the device
    STREAM_WAIT = "stream_wait"  # a stream is told to wait for an event
    COMMUNICATION = "communication"  # a call for a communication has returned
    WAIT = "wait"  # the host or its stream waits for a communication
    OPERATOR = "operator"  # an operator of the host has ended
    HAND_OVER = "hand_over"  # a thread lets another work for it
    HAND_BACK = "hand_back"  # and goes on when that one is done
    END = "end"  # of the thread


@dataclass(slots=True)
class Action:
    """One point of a thread's time."""

    time_ns: int
    step: Step
    thread: Thread | None
    label: str = ""  # what the host did up to here
    call: HostEvent | None = None  # the runtime call
    ops: list[DeviceOp] = field(default_factory=list)  # what it launched
    span: Span | None = None  # the communication around the call
    other: Thread | None = None  # the thread handed over to
    waits_for: int = -1  # call id of the communication waited for; -1: the span's sequence number says it


def find_actions(device: DeviceTrace, spans: list[Span], waits: Iterable[Action] = ()) -> list[Action]:
    """All points of one rank's profile by time; `waits`: those that the profile does not show itself."""
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
    # What was launched before the profile began has no call here: it only has its place in its stream.
    for ops in launched.values():
        actions += [Action(op.start_ns, Step.LAUNCH, None, ops=[op]) for op in ops]
    return sorted(actions, key=lambda action: action.time_ns)


def main_thread(device: DeviceTrace) -> Thread:
    """The thread that runs the training loop: the one with the profiler's steps, else the one with most operators."""
    for event in device.annotations:
        if event.name.startswith(STEP_PREFIX):
            return event.thread
    counts: dict[Thread, int] = defaultdict(int)
    for event in (*device.operators, *device.calls):
        counts[event.thread] += 1
    return max(counts, key=lambda thread: counts[thread], default=(0, 0))


def _end(device: DeviceTrace, main: Thread) -> int:
    """Where the iteration ends on the main thread: after the last step, later calls are the profiler's own."""
    steps = [event.end_ns for event in device.annotations if event.name.startswith(STEP_PREFIX)]
    events = (*device.operators, *device.annotations, *device.calls)
    return max(steps or (event.end_ns for event in events if event.thread == main), default=0)


def _call_actions(
    device: DeviceTrace, spans: list[Span], launched: dict[int, list[DeviceOp]], end_ns: int
) -> list[Action]:
    """Launches (taken out of `launched`), waits of streams and synchronizations."""
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
    """Finds the communication during which a call was made."""

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
    """Ends of outermost operators: inner ones would count their time twice."""
    actions = []
    for thread in threads:
        for event in _outermost(event for event in device.operators if event.thread == thread):
            actions.append(Action(event.end_ns, Step.OPERATOR, thread, label=event.name))
    return actions


def _outermost(events: Iterable[HostEvent]) -> list[HostEvent]:
    """Those of a thread's events, given by start, that no other of them is around."""
    found: list[HostEvent] = []
    for event in events:
        if not found or event.start_ns >= found[-1].end_ns:
            found.append(event)
    return found


def _innermost(events: list[HostEvent]) -> list[HostEvent]:
    """Those of a thread's events, given by start, within which none of them begins."""
    pairs = zip(events, [*events[1:], *([None] if events else [])], strict=True)
    return [event for event, following in pairs if following is None or following.start_ns >= event.end_ns]


def _hand_overs(device: DeviceTrace, main: Thread, others: set[Thread]) -> list[Action]:
    """Where the main thread is silent while another runs the backward pass for it.

    The engine's thread is started by what the main thread did last before it, and the main thread goes on when it is
    done, or when it hands something back in between. Other threads run beside the main thread.
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
    """The stretches of a thread between neighbouring starts and ends of its events, numbered in order."""

    def __init__(self, device: DeviceTrace, thread: Thread) -> None:
        events = [e for e in (*device.operators, *device.annotations, *device.calls) if e.thread == thread]
        self._marks = sorted({mark for event in events for mark in (event.start_ns, event.end_ns)})
        operators = _innermost([event for event in device.operators if event.thread == thread])
        operators = [event for event in operators if not event.name.endswith(WAIT_OPERATOR)]
        self._starts = [event.start_ns for event in operators]
        self._ends = [event.end_ns for event in operators]

    def index(self, time_ns: int) -> int:
        """The stretch that holds a time."""
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
        """Start and end of the silent stretch that holds a time, or of the first after it."""
        for index in range(self.index(time_ns - 1), len(self._marks)):
            if self.holds(index):
                return self.start_ns(index), self.end_ns(index)
        return None


def _label(device: DeviceTrace, actions: list[Action]) -> None:
    """Name each point after the innermost operator or annotation around it, else after the call."""
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
