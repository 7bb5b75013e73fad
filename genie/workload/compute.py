"""Durations of compute and memory nodes whose trace has none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genie.inputs.spelling import option
from genie.workload.classes import templates_of
from genie.workload.graph import Kind, RankGraph, Workload, WorkloadError

SYNTAX = "roofline:TFLOPS,GBPS"
ORIGIN = "roofline"  # of the durations that are filled in
# Upper bound for nodes of real jobs; guards the conversion to integers.
DURATION_NS_MAX = 10**18


@dataclass(frozen=True)
class Roofline:
    """Roofline model: the slower of arithmetic and memory decides the time.

    peak_flops_per_s: floating-point operations per second; memory_bytes_per_s: bytes per second.
    """

    peak_flops_per_s: float
    memory_bytes_per_s: float

    def duration_ns(self, num_ops: NDArray[np.int64], tensor_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """num_ops / min(bandwidth · num_ops / bytes, peak), in whole ns; -1 where neither is given (both < 0)."""
        arithmetic_s = np.maximum(num_ops, 0) / self.peak_flops_per_s
        memory_s = np.maximum(tensor_bytes, 0) / self.memory_bytes_per_s
        longest_ns = np.maximum(arithmetic_s, memory_s) * 1e9
        duration_ns = np.rint(np.minimum(longest_ns, DURATION_NS_MAX)).astype(np.int64)
        return np.where((num_ops < 0) & (tensor_bytes < 0), -1, duration_ns)


def parse_compute(text: str) -> Roofline:
    """The model named by `--compute roofline:TFLOPS,GBPS` (10¹² operations/s, 10⁹ bytes/s). Raises WorkloadError."""
    name, _, arguments = text.partition(":")
    try:
        tflops, gbytes_per_s = (float(argument) for argument in arguments.split(","))
    except ValueError:
        tflops = gbytes_per_s = float("nan")
    if name != "roofline" or not (0 < tflops < 1e9 and 0 < gbytes_per_s < 1e9):
        raise WorkloadError(
            f"{option('compute')} {text}: expected {SYNTAX}, two positive numbers, for example roofline:312,2039"
        )
    return Roofline(tflops * 1e12, gbytes_per_s * 1e9)


def fill_durations(workload: Workload, model: Roofline | None) -> int:
    """Fill in the missing durations of compute and memory nodes, in place; return the number filled.

    Raises WorkloadError that counts and names the nodes without a duration that the model can compute.
    """
    filled = 0
    for graph in templates_of(workload):
        rows = missing_rows(graph)
        if model is not None and len(rows):
            graph.duration_ns[rows] = model.duration_ns(graph.num_ops[rows], graph.tensor_bytes[rows])
            graph.origin = graph.origin or [""] * len(graph)
            for row in rows[graph.duration_ns[rows] >= 0].tolist():
                graph.origin[row] = ORIGIN
                filled += 1
    _require_durations(workload, model)
    return filled


def missing_rows(graph: RankGraph) -> NDArray[np.int64]:
    """Rows of the compute and memory nodes without a duration."""
    timed = (graph.kind == Kind.COMP) | (graph.kind == Kind.MEM)
    return np.flatnonzero(timed & (graph.duration_ns < 0))


def _require_durations(workload: Workload, model: Roofline | None, shown_max: int = 3) -> None:
    count = 0
    shown: list[str] = []
    for rank, graph in workload.ranks.items():
        rows = missing_rows(graph)
        count += len(rows)
        for row in rows[: shown_max - len(shown)].tolist():
            shown.append(f"rank {rank} node {graph.node_id[row]} ({graph.name[row]})")
    if count == 0:
        return
    names = ", ".join(shown) + (", ..." if count > len(shown) else "")
    if model is None:
        raise WorkloadError(
            f"{workload.name}: {count} compute nodes have no duration: {names}; give {option('compute')} {SYNTAX}"
        )
    raise WorkloadError(
        f"{workload.name}: {count} compute nodes have neither a duration nor num_ops nor tensor_size: {names}"
    )
