"""Reading the profiler's device traces (Kineto): times of the host's calls and of the device's operations.

Times are in µs in the file, whole or fractional; here they are in ns from the trace's first event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from genie.inputs.printable import shown_value
from genie.workload.files import RANK_MAX
from genie.workload.graph import SIZE_MAX_BYTES, WorkloadError
from genie.workload.pytorch.trace import WRONG_CONTENT, read_json, wrong_words

Thread = tuple[Any, Any]  # process and thread, as in the file

MICROSECONDS_MAX = 1e18  # since 1970, and for durations; a larger value or one that is not a number is damage
SPAN_MAX_NS = 10**18  # of a profile: 30 years, which microseconds as doubles still resolve
INT32_MAX = 2**31 - 1
SYNCHRONIZATION_KEYS = ("stream", "wait_on_stream", "wait_on_cuda_event_record_corr_id", "correlation")

CORRELATION, RECORD_FUNCTION_ID = "correlation", "Record function id"
COLLECTIVE_NAME = "Collective name"  # among the arguments of a communication's record and kernel

STEP_PREFIX = "ProfilerStep#"
OPERATOR_CATEGORIES = frozenset({"cpu_op", "operator"})
ANNOTATION_CATEGORIES = frozenset({"user_annotation"})
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver"})


class DeviceKind(IntEnum):
    """Kind of operation on a device."""

    KERNEL = 0
    COPY = 1
    SET = 2


DEVICE_KINDS = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
}


@dataclass(slots=True)
class HostEvent:
    """An operator, annotation or runtime call on a host thread."""

    name: str
    start_ns: int
    end_ns: int
    thread: Thread
    args: dict[str, Any]

    @property
    def correlation(self) -> int:
        """Number that a runtime call shares with the operations that it launched; -1: none."""
        return _integer(self.args, CORRELATION, -1)


@dataclass(slots=True)
class DeviceOp:
    """A kernel, copy or set on a stream of the device."""

    name: str
    kind: DeviceKind
    start_ns: int
    end_ns: int
    stream: int
    correlation: int
    size_bytes: int  # of a copy or set; -1 for kernels
    args: dict[str, Any] = field(default_factory=dict)  # of a kernel that describes its communication

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def is_communication(self) -> bool:
        """Whether it is a kernel of NCCL or RCCL, whose duration is mostly waiting for other ranks."""
        return self.kind is DeviceKind.KERNEL and self.name.startswith(("nccl", "rccl", "void nccl"))


@dataclass
class DeviceTrace:
    """One rank's profile."""

    path: Path
    origin_ns: int  # the trace's first event on the host's clock; later times count from it
    operators: list[HostEvent] = field(default_factory=list)  # this and the next two: sorted by thread and start
    annotations: list[HostEvent] = field(default_factory=list)
    calls: list[HostEvent] = field(default_factory=list)  # runtime and driver calls
    device_ops: list[DeviceOp] = field(default_factory=list)  # by start
    synchronizations: dict[int, dict[str, Any]] = field(default_factory=dict)  # correlation -> args of "cuda_sync"
    distributed: dict[str, Any] = field(default_factory=dict)  # the file's distributedInfo
    gpu: str = ""  # name of the first device

    @property
    def rank(self) -> int:
        """Rank in the file; -1: none."""
        value = self.distributed.get("rank", -1)
        return value if isinstance(value, int) else -1


def read_device_trace(path: Path) -> DeviceTrace:
    """Read one rank's profile. Raises WorkloadError when the file is not a profile."""
    content = read_json(path)
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(events, list):
        what = "a host execution trace" if isinstance(content, dict) and "nodes" in content else "not one"
        raise WorkloadError(f"{path}: expected a PyTorch profiler trace (traceEvents), this is {what}")
    try:
        return _parse(path, content, [event for event in events if event.get("ph") == "X"])
    except WRONG_CONTENT as error:
        raise WorkloadError(f"{path}: an event {wrong_words(error)}; is the file damaged?") from error


def _parse(path: Path, content: dict[str, Any], events: list[dict[str, Any]]) -> DeviceTrace:
    wanted = (*OPERATOR_CATEGORIES, *ANNOTATION_CATEGORIES, *RUNTIME_CATEGORIES, *DEVICE_KINDS)
    origin_us = min((_microseconds(event, "ts") for event in events if event.get("cat") in wanted), default=0)
    base_ns = _integer(content, "baseTimeNanoseconds", 0)
    trace = DeviceTrace(path, base_ns + round(origin_us * 1000))
    trace.distributed = _distributed(content.get("distributedInfo") or {})
    trace.gpu = _gpu(content.get("deviceProperties"))
    devices = {event["args"].get("device", 0) for event in events if event.get("cat") in DEVICE_KINDS}
    for event in events:
        category = event.get("cat")
        if category in DEVICE_KINDS:
            trace.device_ops.append(_device_op(event, origin_us, len(devices) > 1))
        elif category == "cuda_sync":
            args = event["args"]
            waits = {name: _integer(args, name, -1) for name in SYNCHRONIZATION_KEYS if name in args}
            trace.synchronizations[_integer(args, "correlation")] = args | waits
        elif category in OPERATOR_CATEGORIES:
            trace.operators.append(_host_event(event, origin_us))
        elif category in ANNOTATION_CATEGORIES:
            trace.annotations.append(_host_event(event, origin_us))
        elif category in RUNTIME_CATEGORIES:
            trace.calls.append(_host_event(event, origin_us))
    for host_events in (trace.operators, trace.annotations, trace.calls):
        host_events.sort(key=lambda event: (str(event.thread), event.start_ns, -event.end_ns))
    trace.device_ops.sort(key=lambda op: (op.start_ns, op.end_ns))
    return trace


def _gpu(properties: Any) -> str:
    first = properties[0] if isinstance(properties, list) and properties else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _times(event: dict[str, Any], origin_us: float) -> tuple[int, int]:
    # Subtract first: a double resolves absolute times of today only to 0.25 µs.
    start_ns, duration_ns = round((_microseconds(event, "ts") - origin_us) * 1000), 0
    if "dur" in event:
        duration_ns = round(_microseconds(event, "dur") * 1000)
    if not (0 <= start_ns <= SPAN_MAX_NS and 0 <= duration_ns <= SPAN_MAX_NS):
        raise ValueError(f"ts {shown_value(event['ts'])} and dur: times are within {SPAN_MAX_NS // 10**9} s")
    return start_ns, start_ns + duration_ns


def _microseconds(event: dict[str, Any], key: str) -> float:
    value: float = event[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MICROSECONDS_MAX:
        raise ValueError(f"{key}: {shown_value(value)} is not a time")
    return value


def _integer(values: dict[str, Any], key: str, default: int | None = None) -> int:
    """An integer of 64 bits, also as text. Raises ValueError that names it, or KeyError."""
    value = values[key] if default is None else values.get(key, default)
    try:
        number = int(value) if not isinstance(value, str) or len(value) < 24 else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"{key}: {shown_value(value)} is not a whole number of 64 bits")
    return number


def _distributed(given: dict[str, Any]) -> dict[str, Any]:
    """The file's description of its job. Raises ValueError."""
    for key, least in (("rank", -1), ("world_size", 0)):
        number = _integer(given, key, 0) if given.get(key) is not None else 0
        if not least <= number <= RANK_MAX + 1:
            raise ValueError(f"{key}: {number} is not from {least} to {RANK_MAX + 1}")
    return given


def _host_event(event: dict[str, Any], origin_us: float) -> HostEvent:
    start_ns, end_ns = _times(event, origin_us)
    thread, args = (event["pid"], event["tid"]), event.get("args") or {}
    for key, value in zip(("pid", "tid"), thread, strict=True):
        if not isinstance(value, int | float | str):
            raise TypeError(f"{key}: {shown_value(value)} is not a number or a name")
    if not isinstance(args, dict):
        raise TypeError(f"args: {shown_value(args)} is not an object")
    made = HostEvent(str(event["name"]), start_ns, end_ns, thread, args)
    for name in (CORRELATION, RECORD_FUNCTION_ID):
        _integer(args, name, -1)
    return made


def _device_op(event: dict[str, Any], origin_us: float, many_devices: bool) -> DeviceOp:
    start_ns, end_ns = _times(event, origin_us)
    args = event["args"]
    stream = _integer(args, "stream")
    if many_devices:
        stream += _integer(args, "device") << 16
    if not -1 <= stream <= INT32_MAX:
        raise ValueError(f"stream: {stream} is not from -1 to {INT32_MAX}")
    kind = DEVICE_KINDS[event["cat"]]
    size_bytes = _integer(args, "bytes", 0) if kind is not DeviceKind.KERNEL else -1
    if size_bytes > SIZE_MAX_BYTES:
        raise ValueError(f"bytes: {size_bytes} is more than {SIZE_MAX_BYTES}")
    correlation = _integer(args, "correlation", -1)
    own = args if COLLECTIVE_NAME in args else {}
    return DeviceOp(str(event["name"]), kind, start_ns, end_ns, stream, correlation, size_bytes, own)
