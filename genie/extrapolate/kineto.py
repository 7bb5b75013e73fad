"""A Kineto trace of one GPU as a training step. The profiler must have recorded shapes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

from genie.extrapolate.step import Stage, Tensor, TracedOperator, TracedStep, checked, kind_of, paired, split_inputs
from genie.workload.graph import WorkloadError
from genie.workload.pytorch.device_only import element_bytes_of
from genie.workload.pytorch.kineto import STEP_PREFIX, DeviceTrace, HostEvent, Thread, read_device_trace

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
UPDATE_PREFIXES = ("Optimizer.step#", "Optimizer.zero_grad#")


def read_kineto(path: Path) -> TracedStep:
    """Read the last step of a profile. Raises WorkloadError."""
    device = read_device_trace(path)
    if any(op.is_communication for op in device.device_ops):
        raise WorkloadError(
            f"{path}: has communication kernels: give the trace of a job on one GPU, or convert it with "
            "genie convert pytorch"
        )
    start_ns, end_ns = _last_step(device)
    times = _times(device)
    if not any("Input Dims" in event.args for event in device.operators):
        raise WorkloadError(
            f"{path}: no operator has the shapes of its inputs: record them "
            "(torch.profiler.profile(record_shapes=True))"
        )
    updates = [event for event in device.annotations if event.name.startswith(UPDATE_PREFIXES)]
    operators = []
    for event in sorted(_outermost(device), key=lambda event: event.start_ns):
        if not start_ns <= event.start_ns < end_ns:
            continue
        stage = Stage.FORWARD
        if any(each.thread == event.thread and each.start_ns <= event.start_ns <= each.end_ns for each in updates):
            stage = Stage.UPDATE
        elif event.name.startswith(BACKWARD_PREFIX):
            stage = Stage.BACKWARD
        time_ns, inputs = times.get(id(event), 0), inputs_of(event)
        parameters, buffers = split_inputs(kind_of(event.name), inputs) if stage is Stage.FORWARD else ((), ())
        if time_ns or parameters:
            operators.append(TracedOperator(event.name, stage, time_ns, inputs, (), parameters, buffers))
    first = next((each.inputs[0] for each in operators if each.parameters), None)
    batch = first.shape[0] if first is not None else 1
    return checked(TracedStep(path, batch, device.gpu, paired(operators)))


def _last_step(device: DeviceTrace) -> tuple[int, int]:
    steps = [event for event in device.annotations if event.name.startswith(STEP_PREFIX)]
    if not steps:
        return 0, 1 << 62
    last = max(steps, key=lambda event: event.start_ns)
    return last.start_ns, last.end_ns


def _outermost(device: DeviceTrace) -> list[HostEvent]:
    """Operators that no other operator encloses. Names without a namespace are the user's own annotations."""
    found: list[HostEvent] = []
    for event in device.operators:  # by thread and start
        if "::" not in event.name:
            continue
        if not found or event.thread != found[-1].thread or event.start_ns >= found[-1].end_ns:
            found.append(event)
    return found


def _times(device: DeviceTrace) -> dict[int, int]:
    """Return the time of the kernels, copies and sets that each outermost operator launched, by its id()."""
    by_thread: dict[Thread, list[HostEvent]] = defaultdict(list)
    for event in _outermost(device):
        by_thread[event.thread].append(event)
    starts = {thread: [event.start_ns for event in events] for thread, events in by_thread.items()}
    calls = {call.correlation: call for call in device.calls}
    found: dict[int, int] = defaultdict(int)
    for op in device.device_ops:
        call = calls.get(op.correlation)
        at = bisect_right(starts.get(call.thread, []), call.start_ns) - 1 if call is not None else -1
        if call is not None and at >= 0 and call.start_ns <= by_thread[call.thread][at].end_ns:
            found[id(by_thread[call.thread][at])] += op.duration_ns
    return found


def inputs_of(event: HostEvent) -> tuple[Tensor, ...]:
    """Return the tensors among an operator's inputs; none where the trace has no shapes."""
    dims, types = event.args.get("Input Dims"), event.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return ()
    found = []
    for shape, kind in zip(dims, types, strict=False):
        element_bytes = element_bytes_of(kind)
        is_tensor = isinstance(shape, list) and shape and all(type(size) is int and size >= 0 for size in shape)
        if is_tensor and element_bytes:
            found.append(Tensor(tuple(shape), element_bytes))
    return tuple(found)
