"""A bench of one collective, as nccl-tests measures it: the operations, and the workload of each size.

Sizes, shares and the factors of bus bandwidth are those of nccl-tests (its PERFORMANCE page). A size S is that of the
whole operation; algorithm bandwidth is S / t. Bus bandwidth compares with a link's rate whatever the number of ranks.
Where each rank has a share of S, shares are multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from genie.bench.asked import Asked, Blocking
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

# Names as in nccl-tests. Bytes are moved and not reduced, so that types and operators change counts and roundings only.
ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
NO_REDUCTION = "none"
SHARE_BYTES = 16  # shares are multiples of it
TIMED, WARM_UP, APART = "timed", "warm-up", "apart"  # names of nodes, followed by the number of their iteration
SENDRECV = "sendrecv"


@dataclass(frozen=True)
class Operation:
    """An operation that can be measured. `op` is NONE for sendrecv, which sends and receives around a ring."""

    name: str  # as in genie/collectives
    op: Op
    redop: str  # columns of nccl-tests
    root: int  # -1: without a root
    shared: bool  # each rank has a share of the size
    size_is_share: bool  # the graph's size is that share (genie/workload/graph.py), not the whole size
    data_type: str = "float"

    @property
    def element_bytes(self) -> int:
        """Size of an element of the data type."""
        return ELEMENT_BYTES[self.data_type]

    def share_bytes(self, size_bytes: int, ranks: int) -> int:
        """Each rank's share of a size."""
        elements = size_bytes // self.element_bytes
        if not self.shared:
            return elements * self.element_bytes
        return elements // ranks * self.element_bytes // SHARE_BYTES * SHARE_BYTES

    def total_bytes(self, size_bytes: int, ranks: int) -> int:
        """The size that is played: whole elements, whole shares."""
        return self.share_bytes(size_bytes, ranks) * (ranks if self.shared else 1)

    def node_bytes(self, size_bytes: int, ranks: int) -> int:
        """The size of a node by the graph's convention."""
        return self.share_bytes(size_bytes, ranks) if self.size_is_share else self.total_bytes(size_bytes, ranks)

    def bus_factor(self, ranks: int) -> Fraction:
        """Bus bandwidth over algorithm bandwidth."""
        if self.op is Op.ALL_REDUCE:
            return Fraction(2 * (ranks - 1), ranks)
        return Fraction(ranks - 1, ranks) if self.shared else Fraction(1)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("all_reduce", Op.ALL_REDUCE, "sum", -1, False, False),
        Operation("all_gather", Op.ALL_GATHER, NO_REDUCTION, -1, True, True),
        Operation("reduce_scatter", Op.REDUCE_SCATTER, "sum", -1, True, False),
        Operation("all_to_all", Op.ALL_TO_ALL, NO_REDUCTION, -1, True, False),
        Operation("broadcast", Op.BROADCAST, NO_REDUCTION, 0, False, False),
        Operation("reduce", Op.REDUCE, "sum", 0, False, False),
        Operation("gather", Op.GATHER, NO_REDUCTION, 0, True, True),
        Operation("scatter", Op.SCATTER, NO_REDUCTION, 0, True, False),
        Operation(SENDRECV, Op.NONE, "sum", -1, False, False),
    )
}


def chain(operation: Operation, asked: Asked, size_bytes: int) -> Workload:
    """The workload of one size: warm-up iterations one after another, a barrier, then the timed iterations."""
    ranks = asked.ranks
    graphs: dict[int, RankGraph] = {}
    workload = Workload(f"{operation.name}-{ranks}x{size_bytes}", ranks, [Group("0", tuple(range(ranks)))], graphs)
    for rank in range(ranks):
        chained = _Chain(operation, asked, RankBuilder(rank), operation.node_bytes(size_bytes, ranks))
        for number in range(asked.warmup):
            chained.iteration(f"{WARM_UP} {number}")
        if asked.warmup:
            chained.barrier("barrier")
        for number in range(asked.iterations):
            chained.iteration(f"{TIMED} {number}")
            if asked.blocking is Blocking.UNTIMED_BARRIER:
                chained.barrier(f"{APART} {number}")
        graphs[rank], _ = chained.builder.finish()
    return workload


@dataclass
class _Chain:
    """One rank's iterations, each after the one before it."""

    operation: Operation
    asked: Asked
    builder: RankBuilder
    node_bytes: int
    last: tuple[int, ...] = ()  # nodes that the next one waits for

    def iteration(self, name: str) -> None:
        """Add the operations of one iteration: together, or one after another according to --blocking."""
        together: tuple[int, ...] = ()
        for number in range(self.asked.aggregated):
            added = self._operation(name, number)
            if self.asked.blocking in (Blocking.BARRIER, Blocking.WAIT):
                self.last = added
                if self.asked.blocking is Blocking.BARRIER:
                    self.barrier(name)
            else:
                together += added
        self.last = together or self.last

    def barrier(self, name: str) -> None:
        """Add a barrier of all ranks."""
        new = len(self.builder)
        self.last = (self.builder.add(new, name, Kind.COLL, self.last, size_bytes=0, op=Op.BARRIER, group=0),)

    def _operation(self, name: str, number: int) -> tuple[int, ...]:
        operation, builder, new = self.operation, self.builder, len(self.builder)
        stream = number if self.asked.aggregated > 1 else -1  # a stream runs one operation at a time
        if operation.op is not Op.NONE:
            root = max(operation.root, 0)
            added = builder.add(
                new, name, Kind.COLL, self.last,
                size_bytes=self.node_bytes, op=operation.op, group=0, root=root, stream=stream,
            )  # fmt: skip
            return (added,)
        return tuple(
            builder.add(
                new + at, name, kind, self.last,
                size_bytes=self.node_bytes, peer=(builder.rank + step) % self.asked.ranks, tag=0, stream=stream,
            )
            for at, (kind, step) in enumerate(((Kind.SEND, 1), (Kind.RECV, -1)))
        )  # fmt: skip
