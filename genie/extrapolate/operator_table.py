"""The operators of a Kineto trace by total time, and the rows of `--compute` tables among them."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from genie.compute.gpus import Gpu
from genie.compute.table import COLUMNS
from genie.extrapolate.kineto import inputs_of
from genie.workload.graph import WorkloadError
from genie.workload.pytorch.kineto import DeviceTrace, HostEvent, read_device_trace

# Matrix products: positions of the two factors among an operator's tensors.
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
CONVOLUTION_BACKWARD = "aten::convolution_backward"  # tensors: gradient of the output, input, weight
DTYPES = {2: "bf16", 1: "fp8"}  # bytes of an element -> data type in tables of times
NO_OPERATOR = "(no operator)"

Shapes = tuple[tuple[int, ...], ...]


@dataclass
class OperatorRow:
    """All calls of one operator with the same shapes. flops: of one call; 0: unknown."""

    name: str
    shapes: Shapes
    element_bytes: int  # of the first tensor; 0: shapes are not in the trace
    count: int = 0
    total_ns: int = 0

    @property
    def mean_ns(self) -> int:
        return round(self.total_ns / self.count)

    @property
    def flops(self) -> int:
        """Floating-point operations of one call; 0: unknown."""
        if self.name == CONVOLUTION_BACKWARD and len(self.shapes) >= 3:
            return 4 * math.prod(self.shapes[0]) * math.prod(self.shapes[2][1:])
        product = self.product()
        return 2 * math.prod(product) if product else 0

    def product(self) -> tuple[int, ...]:
        """Return the sizes of a matrix product: m, k, n, of a batched one the batch first; empty for others."""
        at = PRODUCTS.get(self.name)
        if at is None or len(self.shapes) < at + 2:
            return ()
        left, right = self.shapes[at], self.shapes[at + 1]
        if len(left) < 2 or len(left) != len(right) or left[-1] != right[-2]:
            return ()
        return (*left, right[-1])

    def share_of_peak(self, gpu: Gpu) -> float | None:
        """Return the share of the dense peak of its data type that it reaches; None where that is unknown."""
        peak = {"bf16": gpu.bf16_tflops, "fp8": gpu.fp8_tflops}.get(DTYPES.get(self.element_bytes, ""), 0.0)
        return self.flops / (self.mean_ns * 1e-9) / (peak * 1e12) if peak and self.flops and self.mean_ns else None


@dataclass
class OperatorTable:
    """All operators of a trace with kernels, the longest total first. `gpu`: as the trace names it."""

    path: Path
    gpu: str
    rows: list[OperatorRow]

    @property
    def total_ns(self) -> int:
        return sum(row.total_ns for row in self.rows)

    def as_csv(self, gpu_name: str) -> tuple[str, int]:
        """Return the rows that `--compute` can use as text, and their number: matrix products in BF16 and FP8."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        times: dict[tuple[str, str, str], list[OperatorRow]] = defaultdict(list)
        for row in self.rows:
            dtype, product = DTYPES.get(row.element_bytes), row.product()
            if dtype and product and len(product) in (3, 4) and row.mean_ns:
                kind = "gemm" if len(product) == 3 else "grouped-gemm"
                times[kind, "x".join(map(str, product)), dtype].append(row)
        for (kind, shape, dtype), same in times.items():
            mean_ns = round(sum(row.total_ns for row in same) / sum(row.count for row in same))
            writer.writerow([gpu_name, kind, shape, dtype, mean_ns])
        return text.getvalue(), len(times)


def read_operators(path: Path) -> OperatorTable:
    """Read the operators of a profile. Raises WorkloadError where it has no kernels.

    A kernel belongs to the innermost operator that launches it. Communication kernels are left out.
    """
    device = read_device_trace(path)
    rows: dict[tuple[str, Shapes, int], OperatorRow] = {}
    counted: set[tuple[int, tuple[str, Shapes, int]]] = set()
    owner = dict(_innermost(device))
    for op in device.device_ops:
        if op.is_communication:
            continue
        event = owner.get(op.correlation)
        inputs = inputs_of(event) if event is not None else ()
        name = event.name if event is not None else NO_OPERATOR
        key = (name, tuple(tensor.shape for tensor in inputs), inputs[0].element_bytes if inputs else 0)
        row = rows.setdefault(key, OperatorRow(*key))
        row.total_ns += op.duration_ns
        call = (op.correlation if event is None else id(event), key)
        if call not in counted:
            counted.add(call)
            row.count += 1
    if not rows:
        raise WorkloadError(f"{path}: has no kernels of operators: give the profile of a job on a GPU")
    return OperatorTable(path, device.gpu, sorted(rows.values(), key=lambda row: (-row.total_ns, row.name)))


def _innermost(device: DeviceTrace) -> Iterator[tuple[int, HostEvent]]:
    """Yield the correlation of each launch with the innermost operator around it."""
    launches = {op.correlation for op in device.device_ops}
    calls = [call for call in device.calls if call.correlation in launches]
    events = [(event, True) for event in device.operators] + [(call, False) for call in calls]
    events.sort(key=lambda pair: (str(pair[0].thread), pair[0].start_ns, -pair[0].end_ns, not pair[1]))
    stack: list[HostEvent] = []
    for event, is_operator in events:
        while stack and (stack[-1].thread != event.thread or stack[-1].end_ns <= event.start_ns):
            stack.pop()
        if is_operator:
            stack.append(event)
        elif stack:
            yield event.correlation, stack[-1]
