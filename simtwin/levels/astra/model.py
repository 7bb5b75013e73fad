"""ASTRA-sim's congestion-unaware analytical backend as a cost model of collectives and messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import permutations
from math import prod
from typing import NamedTuple

from simtwin.imports.astra.files import OPS, Algorithm, AstraError, System
from simtwin.imports.astra.network import Network
from simtwin.levels.astra.phases import (
    Endpoint,
    Line,
    PhaseError,
    direct_ns,
    double_binary_tree_ns,
    final_bytes,
    halving_doubling_ns,
    ring_ns,
)

PS_PER_NS = 1000
GROUP_ENDPOINT_NS = 10  # in communicators smaller than the network, regardless of endpoint-delay


class _Phase(NamedTuple):
    dimension: int
    op: str
    algorithm: Algorithm
    lines: tuple[Line, ...]


class AstraModel:
    """Times of a collective from the arrival of all its members, and of a message alone on the network.

    Sizes are Genie's (`genie.workload.graph`), which are ASTRA-sim's: for an all-gather, one rank's input. Answers are
    kept; they depend only on the arguments.
    """

    def __init__(self, network: Network, system: System, logical: Sequence[int] | None = None) -> None:
        """`logical`: sizes of the dimensions that collectives use, in place of the network's. Raises AstraError."""
        sizes = tuple(logical or network.sizes)
        if prod(sizes) != network.npus:
            shape = " x ".join(map(str, sizes))
            raise AstraError(f"{network.path}: npus_count: makes {network.npus} NPUs, and logical-dims {shape}")
        self.network, self.npus = network, network.npus  # npus: ranks that the network has room for
        self._system, self._sizes = system, sizes
        reductions_at = None if system.local_mem_bw is None else system.local_mem_bw * 1e9
        self._endpoint = Endpoint(system.endpoint_delay, reductions_at)
        self._group_endpoint = Endpoint(GROUP_ENDPOINT_NS, reductions_at)
        self._lines: dict[tuple[int, ...] | int | None, tuple[Line, ...]] = {}
        self._costs_ps: dict[tuple[str, tuple[int, ...] | None, int], int] = {}

    def message_ps(self, source: int, target: int, size_bytes: int) -> int:
        """Return the time of a message between two ranks, 0 to itself. Raises AstraError for a rank without an NPU."""
        self._check_ranks((source, target))
        if source == target:
            return 0
        return self.network.delay_ns(self.network.route(source, target), size_bytes) * PS_PER_NS

    def cost_ps(self, op: str, members: Sequence[int], size_bytes: int) -> int:
        """Return the time of a collective of `members` (ranks, ascending), from the last arrival until the last end.

        Raises AstraError for an operation, or a number of members, that the system file has no algorithm for.
        """
        ranks = None if len(members) == self.npus else tuple(members)
        key = (op, ranks, size_bytes)
        if (cost_ps := self._costs_ps.get(key)) is None:
            cost_ps = self._costs_ps[key] = self._cost_ns(op, ranks, size_bytes) * PS_PER_NS
        return cost_ps

    def _cost_ns(self, op: str, ranks: tuple[int, ...] | None, size_bytes: int) -> int:
        if op not in OPS:
            raise AstraError(f"ASTRA-sim's model has no {op.replace('_', '-')}: choose another model")
        if ranks is not None and len(ranks) < 2:
            return 0
        chunk_bytes, chunks = self._chunks(op, size_bytes)
        phases = self._phases(op, ranks)
        active = self._system.active_chunks_per_dimension
        if len(phases) == 1:
            return self._phase_ns(phases[0], chunk_bytes, chunks, active)
        times_ns = []
        for phase in phases:
            times_ns.append((phase.dimension, self._phase_ns(phase, chunk_bytes)))
            chunk_bytes = final_bytes(phase.op, chunk_bytes, len(phase.lines[0]))
        return _pipelined_ns(times_ns, chunks, active)

    def _chunks(self, op: str, size_bytes: int) -> tuple[int, int]:
        """Return the bytes of each chunk and their number.

        A chunk has at least one byte for each NPU, and no chunk is smaller than the others.
        """
        splits = self._system.preferred_dataset_splits
        chunk_bytes = size_bytes // splits
        if op == "all_gather":
            chunk_bytes = max(chunk_bytes, 1)
        elif chunk_bytes < self.npus:
            return self.npus, splits
        return chunk_bytes, max(1, -(-size_bytes // chunk_bytes))

    def _phases(self, op: str, ranks: tuple[int, ...] | None) -> list[_Phase]:
        """Return the phases of a chunk, in order."""
        algorithms = self._system.algorithms(op)
        if ranks is not None:
            algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring")
            return [_Phase(0, op, algorithm, self._group_line(ranks))]
        if algorithms[0].is_one:
            return [_Phase(0, op, algorithms[0], self._whole_line())]
        if len(algorithms) != len(self._sizes) or any(algorithm.is_one for algorithm in algorithms):
            key = f"{op.replace('_', '-')}-implementation"
            raise AstraError(
                f"{self._system.path}: {key}: is {', '.join(algorithms)} for {len(self._sizes)} dimensions; "
                "give an algorithm for each, or one of all NPUs such as oneRing"
            )
        used = [dimension for dimension, size in enumerate(self._sizes) if size > 1]
        order = [(dimension, op) for dimension in used]
        if op == "all_gather":
            order.reverse()
        elif op == "all_reduce" and self._system.collective_optimization == "localBWAware":
            order = [(dimension, "reduce_scatter") for dimension in used[:-1]]
            order += [(used[-1], "all_reduce"), *((dimension, "all_gather") for dimension in reversed(used[:-1]))]
        return [_Phase(d, phase_op, algorithms[d], self._lines_along(d)) for d, phase_op in order]

    def _phase_ns(self, phase: _Phase, size_bytes: int, chunks: int = 1, active: int = 1) -> int:
        """Return the time of the slowest line."""
        try:
            return max(_line_ns(phase.op, phase.algorithm, size_bytes, line, chunks, active) for line in phase.lines)
        except PhaseError as wrong:
            raise AstraError(f"{self._system.path}: {phase.algorithm} {wrong}; give another algorithm") from wrong

    def _check_ranks(self, ranks: tuple[int, ...]) -> None:
        if wrong := [rank for rank in ranks if not 0 <= rank < self.npus]:
            where = f"{self.network.path}: npus_count"
            raise AstraError(f"{where}: has no room for rank {wrong[0]}: makes {self.npus} NPUs; give more")

    def _group_line(self, ranks: tuple[int, ...]) -> tuple[Line, ...]:
        if ranks not in self._lines:
            self._check_ranks(ranks)
            is_regular = self.network.is_uniform
            self._lines[ranks] = (Line(ranks, self.network, self._group_endpoint, True, is_regular),)
        return self._lines[ranks]

    def _whole_line(self) -> tuple[Line, ...]:
        if None not in self._lines:
            is_regular = len(self.network.dimensions) == 1
            line = Line(tuple(range(self.npus)), self.network, self._endpoint, is_regular=is_regular)
            self._lines[None] = (line,)
        return self._lines[None]

    def _lines_along(self, dimension: int) -> tuple[Line, ...]:
        """Return the lines of a dimension that differ in their routes."""
        if dimension not in self._lines:
            stride, size = prod(self._sizes[:dimension]), self._sizes[dimension]
            starts = [rank for rank in range(self.npus) if rank // stride % size == 0]
            is_regular = self._sizes == self.network.sizes
            route = self.network.route
            lines: dict[tuple[tuple[int, int], ...], Line] = {}
            for start in starts[:1] if is_regular else starts:
                members = tuple(range(start, start + stride * size, stride))
                routes = () if is_regular else tuple(route(a, b) for a, b in permutations(members, 2))
                lines.setdefault(routes, Line(members, self.network, self._endpoint, is_regular=is_regular))
            self._lines[dimension] = tuple(lines.values())
        return self._lines[dimension]


def _line_ns(op: str, algorithm: Algorithm, size_bytes: int, line: Line, chunks: int, active: int) -> int:
    """Return the time of `chunks`, `active` at a time; with most algorithms these start and end together."""
    rounds = -(-chunks // active)
    if algorithm.base == "ring":
        return ring_ns(op, size_bytes, line, rounds)
    if algorithm.base == "direct":
        return direct_ns(op, size_bytes, line, rounds, algorithm.window)
    if algorithm.base == "halvingDoubling":
        return halving_doubling_ns(op, size_bytes, line, rounds)
    return double_binary_tree_ns(op, size_bytes, line, chunks, active)


def _pipelined_ns(phases: list[tuple[int, int]], chunks: int, active: int) -> int:
    """Return when the last of `chunks` has passed all phases, (dimension, ns) each.

    A dimension runs `active` at a time.
    """
    waiting: dict[int, deque[tuple[int, int]]] = {dimension: deque() for dimension, _ in phases}
    running = dict.fromkeys(waiting, 0)
    ends: list[tuple[int, int, int, int]] = []  # time, order, chunk, phase
    now_ns = started = 0

    def start(dimension: int) -> None:
        nonlocal started
        while waiting[dimension] and running[dimension] < active:
            chunk, phase = waiting[dimension].popleft()
            running[dimension] += 1
            heappush(ends, (now_ns + phases[phase][1], started, chunk, phase))
            started += 1

    first = phases[0][0]
    waiting[first].extend((chunk, 0) for chunk in range(chunks))
    start(first)
    while ends:
        now_ns, _, chunk, phase = heappop(ends)
        dimension = phases[phase][0]
        running[dimension] -= 1
        if phase + 1 < len(phases):
            waiting[phases[phase + 1][0]].append((chunk, phase + 1))
        start(dimension)
        if phase + 1 < len(phases):
            start(phases[phase + 1][0])
    return now_ns
