"""Communications of a profile without a host trace.

A communication's size and group come from the first of these that has them:

- the arguments of its record: profiles of PyTorch 2.1 and later;
- the arguments of its kernel;
- the annotation `nccl:...` of its call: the shapes of the inputs, where the profiler recorded shapes.

An annotation names no group. PyTorch launches the kernels of each process group on a stream of its own, so that the
stream tells the groups apart. The output of an all-gather is as many times its input as its group has members.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from genie.workload.graph import SIZE_MAX_BYTES, Op, WorkloadError
from genie.workload.pytorch.communications import (
    ELEMENT_BYTES,
    OPERATOR_PREFIX,
    Communication,
    Role,
    call_error,
    is_communication,
    role_of,
    set_sizes,
)
from genie.workload.pytorch.join import Span
from genie.workload.pytorch.kineto import COLLECTIVE_NAME, DeviceOp, DeviceTrace, HostEvent, Thread
from genie.workload.pytorch.trace import HostNode

ANNOTATION_PREFIX = "nccl:"
# Bytes of an element by the C++ name of its type, as shapes have it.
TYPE_BYTES = {
    "float": 4, "double": 8, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "long": 8, "int": 4, "short int": 2,
    "short": 2, "unsigned char": 1, "signed char": 1, "bool": 1,
}  # fmt: skip
OUTPUT_FIRST = ("allgatherbase", "reducescatterbase", "alltoallbase")  # operators whose first arguments are out and in
HOW_TO_RECORD = (
    "record with PyTorch 2.1 or later, or with record_shapes=True, or give the host traces too (--host FOLDER)"
)


@dataclass(frozen=True)
class GroupShape:
    """Number of members of a group, and the distance of their ranks."""

    size: int
    stride: int = 1

    def members(self, rank: int) -> list[int]:
        """Return the members of the group that a rank is in; groups of the shape fill the job."""
        block = self.size * self.stride
        first = rank // block * block + rank % self.stride
        return list(range(first, first + block, self.stride))


@dataclass
class DeviceCommunications:
    """One rank's communications."""

    spans: list[Span]  # in the order of their calls
    groups: list[dict[str, Any]]  # pg_name, ranks (empty: all) and group_size of each
    notes: list[str]


def find_device_communications(
    device: DeviceTrace, rank: int, world_size: int, shapes: Mapping[int, GroupShape]
) -> DeviceCommunications:
    """Return the communications of a profile. `shapes`: stream -> groups of its kernels, given by the user.

    Raises WorkloadError for a communication without a size.
    """
    reader = _Reader(device)
    calls = [*reader.recorded(), *reader.kernels_alone()]
    calls.sort(key=lambda call: call.span.event.start_ns)
    groups, notes = _name_groups(device, calls, rank, world_size, shapes)
    return DeviceCommunications([call.span for call in calls], groups, notes)


@dataclass
class _Call:
    """A communication with what tells its group."""

    span: Span
    stream: int = -1  # of its kernels; -1: it has none
    ranks: list[int] = field(default_factory=list)  # of its group, where recorded
    is_named: bool = False  # the trace names its group


class _Reader:
    def __init__(self, device: DeviceTrace) -> None:
        self.device = device
        self.kernels: dict[int, DeviceOp] = {op.correlation: op for op in device.device_ops if op.is_communication}
        self.launches: dict[Thread, list[HostEvent]] = defaultdict(list)
        for call in device.calls:
            if call.correlation in self.kernels:
                self.launches[call.thread].append(call)
        self.postponed: set[Thread] = set()  # threads with calls that have no kernel of their own
        self.inside: set[int] = set()  # correlations of kernels launched inside a recorded call
        self.number = 0

    def recorded(self) -> Iterator[_Call]:
        """Yield the communications that host events show."""
        for events in _outermost_with_inner(self.device):
            kernels = self._launched_during(events[0])
            self.inside.update(kernel.correlation for kernel in kernels)
            call = self._of_events(events, kernels)
            if call is None:
                continue
            if not kernels and call.span.communication.moves_data:
                self.postponed.add(events[0].thread)
            yield call

    def kernels_alone(self) -> Iterator[_Call]:
        """Yield the communications that kernels alone show. A group of calls is launched after them, by one kernel."""
        for thread, launches in self.launches.items():
            for launch in launches:
                kernel = self.kernels[launch.correlation]
                if kernel.correlation in self.inside or thread in self.postponed:
                    continue
                if not kernel.args:
                    raise self._no_size(kernel)
                found = self._from_arguments(launch, kernel.args)
                if found is not None:
                    found.stream = kernel.stream
                    yield found

    def _launched_during(self, event: HostEvent) -> list[DeviceOp]:
        inside = [call for call in self.launches[event.thread] if event.start_ns <= call.start_ns <= event.end_ns]
        return [self.kernels[call.correlation] for call in inside]

    def _of_events(self, events: list[HostEvent], kernels: list[DeviceOp]) -> _Call | None:
        """Return the communication of a call, given with the events inside it; None if it moves no data."""
        found = None
        described = next((event for event in events if COLLECTIVE_NAME in event.args), None)
        annotation = next((event for event in events if event.name.startswith(ANNOTATION_PREFIX)), None)
        if described is not None:
            found = self._from_arguments(described, described.args)
        elif kernels and kernels[0].args:
            found = self._from_arguments(events[0], kernels[0].args)
        elif annotation is not None:
            found = self._from_annotation(annotation, events, kernels)
        elif kernels:
            raise self._no_size(kernels[0])
        if found is not None and kernels:
            found.stream = kernels[0].stream
        return found

    def _from_arguments(self, event: HostEvent, args: dict[str, Any]) -> _Call | None:
        found = self._named(event, str(args[COLLECTIVE_NAME]))
        if found.role is Role.NOTHING:
            return None
        found.group = str(args.get("Process Group Name", ""))
        found.group_size = self._number(found, args, "Group size")
        found.sequence = self._number(found, args, "Seq", -1)
        ranks = _integers(args.get("Process Group Ranks"))
        start, stride = (self._number(found, args, f"Global rank {word}", -1) for word in ("start", "stride"))
        if not ranks and start >= 0 and stride > 0:
            ranks = list(range(start, start + stride * found.group_size, stride))
        if found.role in (Role.SEND, Role.RECV):
            other = self._number(found, args, "Dst Rank" if found.role is Role.SEND else "Src Rank", -1)
            found.peer = ranks.index(other) if other in ranks else self._number(found, args, "Rank", -1)
        call = _Call(Span(event, found), ranks=ranks, is_named=bool(found.group))
        if found.role is Role.WAIT:
            return call if found.sequence >= 0 else None
        element_bytes = _element_bytes(str(args.get("dtype", "")))
        if found.op is not Op.BARRIER and not element_bytes:
            raise call_error(self.device.path, found.node, f"an element of {args.get('dtype')!r} has no known size")
        numbers = [self._number(found, args, f"{way} msg nelems") for way in ("In", "Out")]
        splits = [_integers(args.get(f"{way} split size")) for way in ("In", "Out")]
        self._size(found, numbers[0] * element_bytes, numbers[1] * element_bytes, splits)
        return call

    def _from_annotation(self, event: HostEvent, events: list[HostEvent], kernels: list[DeviceOp]) -> _Call | None:
        words = event.name.removeprefix(ANNOTATION_PREFIX).split()
        found = self._named(event, words[0] if words else "")
        if found.role in (Role.NOTHING, Role.WAIT):
            return None
        if found.role in (Role.SEND, Role.RECV):  # "send 0->1", "recv 0<-1": positions in the group
            ends = re.findall(r"\d{1,9}", " ".join(words[1:]))
            found.peer = int(ends[1]) if len(ends) == 2 else -1
        in_bytes, out_bytes = _shaped_bytes(event), 0
        operator = next((each for each in events if each.name.startswith(OPERATOR_PREFIX)), None)
        plain = operator.name.removeprefix(OPERATOR_PREFIX).replace("_", "") if operator is not None else ""
        if operator is not None and plain.startswith(OUTPUT_FIRST):
            out_bytes = _shaped_bytes(operator, 0)
        if not in_bytes and found.op is not Op.BARRIER:
            if kernels:
                raise self._no_size(kernels[0])
            return None
        if found.op is Op.ALL_GATHER and out_bytes and out_bytes % in_bytes == 0:
            found.group_size = out_bytes // in_bytes
        elif found.op is Op.REDUCE_SCATTER and out_bytes and in_bytes % out_bytes == 0:
            found.group_size = in_bytes // out_bytes
        self._size(found, in_bytes, out_bytes, [[], []])
        return _Call(Span(event, found))

    def _named(self, event: HostEvent, name: str) -> Communication:
        node = HostNode(self.number, -1, name, 0, -1, "", [], [], [])
        self.number += 1
        try:
            role, op = role_of(name)
        except ValueError as error:
            raise WorkloadError(f"{self.device.path}: {event.name} at {_shown_time(event.start_ns)}: {error}") from None
        return Communication(node, name, role, op)

    def _number(self, found: Communication, args: dict[str, Any], key: str, default: int = 0) -> int:
        value = args.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise call_error(self.device.path, found.node, f"{key}: {value!r} is not a whole number")
        return value

    def _size(self, found: Communication, in_bytes: int, out_bytes: int, splits: list[list[int]]) -> None:
        set_sizes(self.device.path, found, in_bytes, out_bytes, splits)
        for size_bytes in (found.size_bytes, sum(found.to_each), sum(found.from_each)):
            if not 0 <= size_bytes <= SIZE_MAX_BYTES:
                raise call_error(self.device.path, found.node, f"{size_bytes} bytes are not from 0 to {SIZE_MAX_BYTES}")
        on = "cuda:0" if self.kernels else "cpu"
        found.node.outputs = [[0, 0, 0, found.size_bytes, 1, on]]

    def _no_size(self, kernel: DeviceOp) -> WorkloadError:
        return WorkloadError(
            f"{self.device.path}: kernel {kernel.name.partition('(')[0]} at {_shown_time(kernel.start_ns)}: neither "
            f"its arguments nor an event of its call give a size; {HOW_TO_RECORD}"
        )


def _name_groups(
    device: DeviceTrace, calls: list[_Call], rank: int, world_size: int, shapes: Mapping[int, GroupShape]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Name the groups of all calls; return their members, and notes on what the trace does not say."""
    groups: dict[str, dict[str, Any]] = {}
    unnamed: dict[int, list[Communication]] = defaultdict(list)
    for call in calls:
        found = call.span.communication
        if not call.is_named:
            unnamed[call.stream].append(found)
        elif call.ranks or found.group_size == world_size:
            groups.setdefault(
                found.group, {"pg_name": found.group, "ranks": call.ranks, "group_size": found.group_size}
            )
    if strange := sorted(set(shapes) - set(unnamed)):
        known = ", ".join(str(stream) for stream in unnamed if stream >= 0) or "none"
        raise WorkloadError(
            f"{device.path}: --group {strange[0]}=...: no communication without a group is on stream {strange[0]}; "
            f"streams with such communications: {known}"
        )
    notes: list[str] = []
    for number, (stream, found_there) in enumerate(unnamed.items()):
        sizes = {found.group_size for found in found_there if found.group_size}
        shape = shapes.get(stream) or GroupShape(sizes.pop() if len(sizes) == 1 else world_size)
        if shape.size * shape.stride > world_size or world_size % (shape.size * shape.stride):
            raise WorkloadError(
                f"{device.path}: stream {stream}: groups of {shape.size} with ranks {shape.stride} apart do not divide "
                f"a job of {world_size} ranks; --group {stream}=SIZE:STRIDE gives others"
            )
        name = f"nccl{number}"
        for found in found_there:
            found.group, found.group_size = name, shape.size
        groups[name] = {"pg_name": name, "ranks": shape.members(rank), "group_size": shape.size}
        notes += _note(stream, found_there, shape, world_size, stream in shapes)
    return list(groups.values()), notes


def _note(stream: int, found: list[Communication], shape: GroupShape, world_size: int, is_given: bool) -> Iterator[str]:
    counts = Counter(each.op.name.lower() for each in found if each.role is Role.COLLECTIVE)
    counts.update(each.role.value for each in found if each.role in (Role.SEND, Role.RECV))
    whole = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    if is_given or world_size == 1:
        return
    if shape.size == world_size:
        yield (
            f"stream {stream} ({whole}): the trace does not name the group; taken to be all {world_size} ranks; "
            f"--group {stream}=SIZE or {stream}=SIZE:STRIDE gives another"
        )
    else:
        yield (
            f"stream {stream} ({whole}): groups of {shape.size}, by the sizes of all-gathers or reduce-scatters; taken "
            f"to be consecutive ranks; --group {stream}=SIZE:STRIDE gives others"
        )


def _outermost_with_inner(device: DeviceTrace) -> Iterator[list[HostEvent]]:
    """Yield each outermost event of a communication with those inside it, by start."""
    events = [event for event in device.operators if is_communication(event.name)]
    events += [event for event in device.annotations if event.name.startswith(ANNOTATION_PREFIX)]
    events.sort(key=lambda event: (str(event.thread), event.start_ns, -event.end_ns))
    found: list[HostEvent] = []
    for event in events:
        if found and (event.thread != found[0].thread or event.start_ns >= found[0].end_ns):
            yield found
            found = []
        found.append(event)
    if found:
        yield found


def _shaped_bytes(event: HostEvent, at: int | None = None) -> int:
    """Return the bytes of an event's tensors by shape, or of one of them; 0 where shapes or types are unknown."""
    dims, types = event.args.get("Input Dims"), event.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    pairs = list(zip(dims, types, strict=False))
    return sum(_tensor_bytes(shape, kind) for shape, kind in (pairs if at is None else pairs[at : at + 1]))


def _tensor_bytes(shape: Any, kind: Any) -> int:
    if not isinstance(shape, list) or not shape or not all(type(size) is int and size >= 0 for size in shape):
        return 0
    return math.prod(shape) * element_bytes_of(kind)


def element_bytes_of(kind: Any) -> int:
    """Return the bytes of an element by the C++ name of its type; 0: unknown."""
    plain = str(kind).lower()
    return TYPE_BYTES.get(plain, 1 if "float8" in plain else 0)


def _element_bytes(dtype: str) -> int:
    plain = dtype.lower()
    return 1 if plain.startswith("float8") else ELEMENT_BYTES.get(plain, 0)


def _integers(value: Any) -> list[int]:
    """Return a list of whole numbers, also as text; empty where it is cut or something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) and all(type(number) is int for number in value) else []


def _shown_time(time_ns: int) -> str:
    return f"{time_ns / 1e6:.3f} ms"
