"""Operator times at other batches and on other GPUs, from those of a trace.

Of an operator's time, three parts follow different rules when the batch changes:

- the start and end of its kernels: that of the shortest operator of the trace, constant;
- the traffic of its weights, at the memory bandwidth that the trace's elementwise operators reach, constant;
- the rest, which follows the batch.

The optimizer works on weights alone. Traces at several batches replace the rule by a straight line for each operator,
fitted through its times (the form of Li et al. 2023 for kernels).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from genie.compute.gpus import Gpu, gpus
from genie.errors import UsageError
from genie.extrapolate.step import ELEMENTWISE, Stage, TracedOperator, TracedStep

LONG_NS = 10_000  # an elementwise operator of this time has reached the memory's bandwidth
MEMORY_SIDE = 0.5  # of the memory's bandwidth: an operator with more traffic is bound by memory
GRADIENT_PASSES = 2  # a backward operator reads the weights and writes their gradients


@dataclass(frozen=True)
class Times:
    """Times of a step's operators. `traces`: of the same model and GPU, with different batches; the first one leads."""

    traces: tuple[TracedStep, ...]
    target: Gpu | None = None  # another GPU than the traces'
    source: Gpu | None = None  # that of the traces

    @property
    def step(self) -> TracedStep:
        return self.traces[0]

    @property
    def origin(self) -> str:
        """Origin of times that are not the trace's own."""
        batches = [str(trace.batch) for trace in self.traces]
        found = f"fitted to batches {', '.join(batches)}" if len(batches) > 1 else f"scaled from batch {batches[0]}"
        return found if self.source is None else f"{found} and from {self.source.label}"

    def at(self, place: int, batch: float) -> float:
        """Return the time of the operator at a place of the step, in ns, for `batch` samples."""
        each = self.step.operators[place]
        if len(self.traces) > 1:
            fixed_ns, per_sample_ns = self._lines[place]
            time_ns = fixed_ns + per_sample_ns * batch
        else:
            constant_ns = self.constant_ns(each)
            time_ns = constant_ns + (each.time_ns - constant_ns) * batch / self.step.batch
        return time_ns * self._other_gpu(each)

    def total_ns(self, batch: float) -> float:
        """Return the time of all kernels of a step."""
        return sum(self.at(place, batch) for place in range(len(self.step.operators)))

    def constant_ns(self, each: TracedOperator) -> float:
        """Return the part of an operator's time that does not follow the batch."""
        if each.stage is Stage.UPDATE or each.kind.endswith("accumulategrad"):
            return each.time_ns
        passes = GRADIENT_PASSES if each.stage is Stage.BACKWARD else 1
        traffic_ns = passes * each.parameter_bytes / self.bytes_per_ns if self.bytes_per_ns else 0.0
        return min(each.time_ns, self.shortest_ns + traffic_ns)

    @cached_property
    def shortest_ns(self) -> int:
        """Time of the shortest operator."""
        return min((each.time_ns for each in self.step.operators if each.time_ns), default=0)

    @cached_property
    def bytes_per_ns(self) -> float:
        """Memory bandwidth that elementwise operators reach; 0 without long ones."""
        return max(
            (
                2 * each.inputs[0].size_bytes / each.time_ns
                for each in self.step.operators
                if each.kind in ELEMENTWISE and each.inputs and each.time_ns >= LONG_NS
            ),
            default=0.0,
        )

    def errors(self) -> list[float]:
        """Return the relative error of each trace's total when the line is fitted through the others; needs three."""
        if len(self.traces) < 3:
            return []
        found = []
        for at, left_out in enumerate(self.traces):
            others = Times((*self.traces[:at], *self.traces[at + 1 :]))
            found.append(others.total_ns(left_out.batch) / left_out.time_ns() - 1)
        return found

    @cached_property
    def _lines(self) -> list[tuple[float, float]]:
        batches = np.array([trace.batch for trace in self.traces], np.float64)
        return [
            _line(batches, np.array([trace.operators[place].time_ns for trace in self.traces], np.float64))
            for place in range(len(self.step.operators))
        ]

    def _other_gpu(self, each: TracedOperator) -> float:
        """Return the factor for another GPU: of its memory or its arithmetic, whichever binds the operator."""
        if self.target is None or self.source is None:
            return 1.0
        bytes_moved = sum(tensor.size_bytes for tensor in (*each.inputs, *each.outputs))
        binds_memory = bytes_moved / max(each.time_ns, 1) >= MEMORY_SIDE * self.source.memory_gb_per_s
        if each.kind in ELEMENTWISE or each.stage is Stage.UPDATE or binds_memory:
            return self.source.memory_gb_per_s / self.target.memory_gb_per_s
        return self.source.bf16_tflops / self.target.bf16_tflops


def same_model(traces: Sequence[TracedStep]) -> tuple[TracedStep, ...]:
    """Return the traces. Raises UsageError where they are not of one model and of different batches."""
    first = traces[0]
    for at, other in enumerate(traces[1:], 1):
        if any(other.batch == before.batch for before in traces[:at]):
            raise UsageError(
                f"{other.path}: has batch {other.batch} as another trace: give traces of different batches"
            )
        kinds, others = ([(each.stage, each.kind) for each in trace.operators] for trace in (first, other))
        if kinds != others:
            more = Counter(others) - Counter(kinds) or Counter(kinds) - Counter(others)
            stage, kind = next(iter(more), kinds[0])
            raise UsageError(
                f"{other.path}: has other operators than {first.path} (the first: {stage.value} {kind}): give traces "
                "of one model"
            )
    return tuple(traces)


def gpu_named(name: str) -> str | None:
    """Return the name in gpus.toml of a device as the driver names it, such as `NVIDIA H100 80GB HBM3`."""
    words = name.lower().replace("-", " ").split()
    found = [known for known in gpus() if known.partition("-")[0] in words and "-" not in known]
    return found[0] if len(found) == 1 else None


def _line(batches: np.ndarray, times_ns: np.ndarray) -> tuple[float, float]:
    """Return the line of least squares with no negative part."""
    slope, fixed = np.polyfit(batches, times_ns, 1)
    if slope < 0:
        return float(times_ns.mean()), 0.0
    if fixed < 0:
        return 0.0, float((batches @ times_ns) / (batches @ batches))
    return float(fixed), float(slope)
