"""Times of operators from an accelerator's data sheet: the slower of arithmetic and memory traffic decides."""

from __future__ import annotations

from dataclasses import dataclass

from genie.compute.gpus import Gpu
from genie.compute.operators import Operator, Timed
from genie.errors import UsageError

GAP_S = 2e-6  # between two kernels of a stream; not measured
# Long products reach the accelerator's efficiency; one with this inner dimension half of it. Fitted as gpus.toml says.
HALF_INNER = 175
GROUPED_SHARE = 0.85  # efficiency of grouped products over that of single ones (SimuMax, A100: 0.647 / 0.76)
ATTENTION_SHARE = 0.66  # the same of attention, of the products that a causal mask leaves (SimuMax, A100: 0.50 / 0.76)
MEMORY_EFFICIENCY = 0.75  # of the memory's bandwidth (SimuMax: 0.77 on A100, 0.71 on B200)
SCALE_MAX = 1000.0
ROOFLINE = "roofline"  # origin of these times


@dataclass(frozen=True)
class Roofline:
    """Times on one accelerator, times `scale`. Raises UsageError for a scale that is not positive."""

    gpu: Gpu
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale <= SCALE_MAX:
            raise UsageError(f"--compute-scale {self.scale}: give a number above 0, up to {SCALE_MAX:g}")

    def duration_ns(self, operator: Operator) -> int:
        """Return the time of an operator."""
        peak = self._peak(operator.dtype) * self._efficiency(operator)
        arithmetic_s = operator.flops / peak
        memory_s = operator.moved_bytes / (self.gpu.memory_gb_per_s * 1e9 * MEMORY_EFFICIENCY)
        return round(self.scale * (GAP_S + max(arithmetic_s, memory_s)) * 1e9)

    def timed(self, operator: Operator) -> Timed:
        """Return the time of an operator, with its origin."""
        return Timed(self.duration_ns(operator), ROOFLINE)

    def _peak(self, dtype: str) -> float:
        tflops = self.gpu.fp8_tflops if dtype == "fp8" else self.gpu.bf16_tflops
        if not tflops:
            raise UsageError(f"--fp8: {self.gpu.label} has no FP8: leave it out, or give another --gpu")
        return tflops * 1e12

    def _efficiency(self, operator: Operator) -> float:
        efficiency = self.gpu.gemm_efficiency
        if operator.kind in ("gemm", "grouped-gemm"):
            inner = operator.shape[-2]
            share = GROUPED_SHARE if operator.kind == "grouped-gemm" else 1.0
            return efficiency * share * inner / (inner + HALF_INNER)
        return efficiency * (ATTENTION_SHARE if operator.kind == "attention" else 1.0)
