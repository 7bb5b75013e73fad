"""Nodes and dependencies from a rank's profile.

The host's time is cut where it interacts with other work: launches of kernels, waits for streams and communication
calls. Each piece is a compute node of the host, named after the operator in which it ends. Its duration is the host's
own time, without waits.

A kernel depends on the piece that ends with its launch. A late launch therefore delays the kernel in a replay as in the
recording. A host that waited for a stream waits again until that stream gets there, however long the network takes
then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from chakra_protobuf.et_def_pb2 import NodeType

from genie.workload.pytorch.actions import DEVICE_SYNC_CALLS, EVENT_SYNC_CALLS, Action, Step, find_actions
from genie.workload.pytorch.communications import Communication
from genie.workload.pytorch.gloo import inferred_waits
from genie.workload.pytorch.join import Span
from genie.workload.pytorch.kineto import DeviceKind, DeviceOp, DeviceTrace, Thread
from genie.workload.pytorch.nodes import DraftNode, communication_type

# The profiler rounds starts and durations to 1 µs, so that the first of two consecutive events may seem to end that
# much late.
ROUNDING_NS = 1000


@dataclass
class HostThread:
    """Progress of a host thread."""

    cursor_ns: int = 0  # time up to here is in nodes
    last: int | None = None  # its latest node
    awaits: list[int] = field(default_factory=list)  # further nodes that its next node waits for
    stream: int | None = None  # stream of its last launch that was not a communication
    unknown_waits: list[dict[int, int]] = field(default_factory=list)  # for each event wait: stream -> latest node
    work_waits: list[int] = field(default_factory=list)  # communications that its current stream must wait for
    unlaunched: list[tuple[Span, list[int]]] = field(default_factory=list)  # (call without a kernel, dependencies)

    @property
    def front(self) -> list[int]:
        """Dependencies of any work that the thread starts now."""
        return self.awaits + ([] if self.last is None else [self.last])


@dataclass
class Timeline:
    """Plays the actions of a profile in order and collects nodes. Node numbers are positions in `nodes`."""

    device: DeviceTrace
    nodes: list[DraftNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    threads: dict[Thread, HostThread] = field(default_factory=lambda: defaultdict(HostThread))
    on_stream: dict[int, int] = field(default_factory=dict)  # latest node of each stream
    stream_waits: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # for its next node
    history: dict[int, tuple[list[int], list[int]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))
    work: dict[int, list[tuple[Communication, int]]] = field(default_factory=lambda: defaultdict(list))
    carried: dict[int, int] = field(default_factory=dict)  # communication's host call -> node, once it has one

    def play(self, spans: list[Span]) -> list[DraftNode]:
        """All nodes of the rank; each depends on earlier ones only."""
        self.calls = {call.correlation: call for call in self.device.calls}
        self.events_are_known = any("wait_on_stream" in args for args in self.device.synchronizations.values())
        steps = {
            Step.LAUNCH: self._launch,
            Step.SYNC: self._sync,
            Step.STREAM_WAIT: self._stream_wait,
            Step.COMMUNICATION: self._communication,
            Step.WAIT: self._wait,
            Step.OPERATOR: self._advance_to,
            Step.END: self._advance_to,
            Step.HAND_OVER: self._hand_over,
            Step.HAND_BACK: self._hand_back,
        }
        waits = inferred_waits(self.device, spans)
        self.notes += ["waits for gloo's collectives inferred from silence: the trace records none"] * len(waits)
        for action in find_actions(self.device, spans, waits):
            steps[action.step](action)
        for thread in self.threads.values():
            self._start_unlaunched(thread)
        return self.nodes

    def _add(self, node: DraftNode) -> int:
        node.deps = list(dict.fromkeys(node.deps))
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _advance(self, thread: HostThread, until_ns: int, name: str) -> None:
        """Turn the thread's time up to `until_ns` into a node."""
        if until_ns <= thread.cursor_ns:
            return
        node = DraftNode(
            name, NodeType.COMP_NODE, until_ns - thread.cursor_ns, thread.cursor_ns, until_ns, thread.front, on_cpu=True
        )
        thread.last, thread.awaits, thread.cursor_ns = self._add(node), [], until_ns

    def _advance_to(self, action: Action) -> None:
        assert action.thread is not None
        self._advance(self.threads[action.thread], action.time_ns, action.label)

    # Launches

    def _launch(self, action: Action) -> None:
        thread = self.threads[action.thread] if action.thread is not None else None
        if thread is not None and action.call is not None:
            first_ns = min(op.start_ns for op in action.ops)
            # A kernel may start before its launching call returns; the rest of the call delays the host only.
            boundary_ns = min(max(first_ns, action.call.start_ns), action.call.end_ns)
            self._advance(thread, boundary_ns, action.label)
        for op in action.ops:
            if op.is_communication:
                self._launch_communication(op, thread, action)
            else:
                self._launch_other(op, thread, action)
        call = action.call
        if thread is not None and call is not None and self._copy_blocks(call.name, call.end_ns, action.ops):
            self._block(thread, self.on_stream[action.ops[-1].stream], call.end_ns)

    @staticmethod
    def _copy_blocks(call_name: str, call_end_ns: int, ops: list[DeviceOp]) -> bool:
        """Whether the call returns when its copy is done: it is synchronous, or its memory is not pinned."""
        op = ops[-1]
        may_block = "Pageable" in op.name or not ("Async" in call_name or "async" in call_name)
        return op.kind is DeviceKind.COPY and may_block and call_end_ns + ROUNDING_NS >= op.end_ns

    def _launch_other(self, op: DeviceOp, thread: HostThread | None, action: Action) -> None:
        deps = self._stream_deps(op)
        if thread is not None:
            deps += thread.front
            if action.span is None:
                deps += self._thread_waits(op, thread)
                thread.stream = op.stream
        node_type = NodeType.COMP_NODE
        if op.kind is not DeviceKind.KERNEL:
            node_type = NodeType.MEM_LOAD_NODE if "HtoD" in op.name else NodeType.MEM_STORE_NODE
        node = DraftNode(op.name, node_type, op.duration_ns, op.start_ns, op.end_ns, deps, stream=op.stream)
        node.tensor_bytes = op.size_bytes
        node.launched_by = action.label
        self._put_on_stream(op, self._add(node), action.time_ns)

    def _launch_communication(self, op: DeviceOp, thread: HostThread | None, action: Action) -> None:
        """Add the kernel of the call around it, or of all earlier calls that a group of calls has postponed."""
        deps = self._stream_deps(op)
        if thread is None:
            self.notes.append("communication kernels launched before the profile began: left out")
            return
        deps += thread.front
        if not self.events_are_known and thread.stream in self.on_stream:
            before = self.on_stream[thread.stream]
            if self.nodes[before].end_ns <= op.start_ns + ROUNDING_NS:
                deps.append(before)
        if action.span is not None:
            pending = [(action.span, deps)]
            self._start_unlaunched(thread)
        else:
            pending = [(span, deps + own) for span, own in thread.unlaunched]
            thread.unlaunched = []
        if not pending:
            self.notes.append("communication kernels outside any recorded communication: left out")
        for span, own in pending:
            key = span.communication.node.id
            if key not in self.carried:
                node = self._communication_node(span, own, op.start_ns, op.end_ns)
                node.stream = op.stream
                self.carried[key] = self._remember(span, node)
                own.append(self.carried[key])
            carrier = self.nodes[self.carried[key]]
            carrier.end_ns = max(carrier.end_ns, op.end_ns)
            self._put_on_stream(op, self.carried[key], action.time_ns)

    def _stream_deps(self, op: DeviceOp) -> list[int]:
        deps = self.stream_waits.pop(op.stream, [])
        return deps + ([self.on_stream[op.stream]] if op.stream in self.on_stream else [])

    def _put_on_stream(self, op: DeviceOp, node: int, call_ns: int) -> None:
        self.on_stream[op.stream] = node
        times, nodes = self.history[op.stream]
        times.append(call_ns)
        nodes.append(node)

    # Waits between streams

    def _stream_wait(self, action: Action) -> None:
        """Let a stream wait for an event. "cuda_sync" events, if captured, tell which stream and event."""
        assert action.call is not None
        assert action.thread is not None
        info = self.device.synchronizations.get(action.call.correlation, {})
        source, target = int(info.get("wait_on_stream", -1)), int(info.get("stream", -1))
        if source >= 0 and target >= 0:
            node = self._last_before(source, int(info.get("wait_on_cuda_event_record_corr_id", -1)), action.time_ns)
            if node is not None:
                self.stream_waits[target].append(node)
        elif not self.events_are_known and action.span is None:
            self.threads[action.thread].unknown_waits.append(dict(self.on_stream))

    def _last_before(self, stream: int, record_correlation: int, time_ns: int) -> int | None:
        """The stream's last node that was launched before the event was recorded."""
        record = self.calls.get(record_correlation)
        times, nodes = self.history[stream]
        index = bisect_right(times, record.start_ns if record else time_ns)
        return nodes[index - 1] if index else None

    def _thread_waits(self, op: DeviceOp, thread: HostThread) -> list[int]:
        """Nodes that the thread's stream must wait for before `op`.

        Traces without "cuda_sync" events name neither the event that a stream waits for nor the stream. The stream is
        then taken to be the one that the thread launches on next. The event is taken to be the latest node of all other
        streams at that time. A wait that the recorded times contradict is ignored. A wait for a communication is for
        that communication.
        """
        deps = []
        for streams in thread.unknown_waits:
            deps += [node for stream, node in streams.items() if stream != op.stream and self._ended_before(node, op)]
        thread.unknown_waits = []
        deps += [node for node in thread.work_waits if self._ended_before(node, op)]
        thread.work_waits = [node for node in thread.work_waits if not self._ended_before(node, op)]
        return deps

    def _ended_before(self, node: int, op: DeviceOp) -> bool:
        return self.nodes[node].end_ns <= op.start_ns + ROUNDING_NS

    # The host waits

    def _sync(self, action: Action) -> None:
        call = action.call
        assert call is not None
        assert action.thread is not None
        thread = self.threads[action.thread]
        info = self.device.synchronizations.get(call.correlation, {})
        if call.name in DEVICE_SYNC_CALLS:
            nodes = list(self.on_stream.values())
        elif call.name in EVENT_SYNC_CALLS:
            nodes = self._event_nodes(info, call.start_ns, call.end_ns)
        else:
            stream = int(info.get("stream", -1))
            stream = stream if stream >= 0 else thread.stream if thread.stream is not None else -1
            nodes = [self.on_stream[stream]] if stream in self.on_stream else []
        waited = [node for node in nodes if self.nodes[node].end_ns <= call.end_ns + ROUNDING_NS]
        if waited:
            self._advance(thread, call.start_ns, action.label)
            for node in waited:
                self._block(thread, node, call.end_ns)

    def _event_nodes(self, info: dict[str, object], start_ns: int, end_ns: int) -> list[int]:
        source = int(str(info.get("wait_on_stream", -1)))
        if source >= 0:
            node = self._last_before(source, int(str(info.get("wait_on_cuda_event_record_corr_id", -1))), start_ns)
            return [] if node is None else [node]
        # Unknown event: of the nodes that were running at the start of the call, the last to end before its end held it
        # up.
        ends = {node: self.nodes[node].end_ns for _, nodes in self.history.values() for node in nodes[-1:]}
        held = [node for node, node_end in ends.items() if start_ns < node_end <= end_ns + ROUNDING_NS]
        return [max(held, key=lambda node: ends[node])] if held else []

    def _block(self, thread: HostThread, node: int, call_end_ns: int) -> None:
        """Let the thread continue when `node` has ended; the rest of the call is its own time again."""
        released_ns = min(call_end_ns, self.nodes[node].end_ns)
        thread.cursor_ns = max(thread.cursor_ns, released_ns)
        thread.awaits.append(node)

    # Communications called by the host

    def _communication(self, action: Action) -> None:
        assert action.span is not None
        assert action.thread is not None
        communication, thread = action.span.communication, self.threads[action.thread]
        if communication.node.id in self.carried:
            return
        if communication.on_device:
            thread.unlaunched.append((action.span, thread.front))
            return
        # The call's own time is the library's (gloo copies the buffers in it); a replay has its own transport.
        called_ns, returned_ns = action.span.event.start_ns, action.span.event.end_ns
        self._advance(thread, called_ns, action.label)
        thread.cursor_ns = max(thread.cursor_ns, returned_ns)
        node = self._communication_node(action.span, thread.front, called_ns, returned_ns)
        node.on_cpu = True
        self.carried[communication.node.id] = self._remember(action.span, node)

    def _start_unlaunched(self, thread: HostThread) -> None:
        """Start communications without a kernel (a group of one rank has none) at their calls."""
        for span, deps in thread.unlaunched:
            end_ns = span.event.end_ns
            self.carried[span.communication.node.id] = self._remember(
                span, self._communication_node(span, deps, end_ns, end_ns)
            )
        thread.unlaunched = []

    def _communication_node(self, span: Span, deps: list[int], start_ns: int, end_ns: int) -> DraftNode:
        """A communication's node. Its duration is 0: the recorded time is mostly waiting, and the network decides the
        rest.
        """
        communication = span.communication
        return DraftNode(
            communication.recorded_name, communication_type(communication), 0, start_ns, end_ns, list(deps),
            communication=communication,
        )  # fmt: skip

    def _remember(self, span: Span, node: DraftNode) -> int:
        number = self._add(node)
        self.work[span.communication.sequence].append((span.communication, number))
        return number

    def _wait(self, action: Action) -> None:
        assert action.span is not None
        assert action.thread is not None
        wait, thread = action.span.communication, self.threads[action.thread]
        candidates = [
            (communication, node)
            for communication, node in self.work[wait.sequence]
            if wait.group in ("", communication.group) or wait.group.startswith("backend ")
        ]
        if action.waits_for in self.carried:
            node = self.carried[action.waits_for]
        elif candidates:
            node = candidates[-1][1]
        else:
            return  # for a communication of the previous iteration
        if self.nodes[node].stream >= 0:
            if not self.events_are_known:
                thread.work_waits.append(node)
            return
        self._advance(thread, action.span.event.start_ns, action.label)
        thread.cursor_ns = max(thread.cursor_ns, action.span.event.end_ns)
        thread.awaits.append(node)

    # Threads

    def _hand_over(self, action: Action) -> None:
        assert action.thread is not None
        assert action.other is not None
        thread, other = self.threads[action.thread], self.threads[action.other]
        self._advance(thread, action.time_ns, action.label)
        other.awaits = other.front + thread.front
        other.last, other.cursor_ns = None, action.time_ns

    def _hand_back(self, action: Action) -> None:
        assert action.thread is not None
        assert action.other is not None
        thread, other = self.threads[action.thread], self.threads[action.other]
        self._advance(other, action.time_ns, action.label)
        thread.awaits += other.front
        thread.cursor_ns = action.time_ns
        # Waits of the other thread's streams apply to the next launch, by either thread.
        thread.unknown_waits += other.unknown_waits
        thread.work_waits += other.work_waits
        other.unknown_waits, other.work_waits = [], []
