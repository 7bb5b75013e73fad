"""The graph of one rank, built in the order in which a framework issues its operators and collectives.

Nodes of a stream follow each other by explicit edges. Compute waits for collectives where the framework does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from genie.compute.operators import Operator, Price, Timed
from genie.generate.degrees import Degrees, Domain
from genie.workload.build import RankBuilder
from genie.workload.graph import Kind, Op, RankGraph


class Stream(IntEnum):
    """Streams of a rank."""

    COMPUTE = 0
    TENSOR = 1
    CONTEXT = 2
    EXPERT = 3
    PIPELINE = 4
    GRADIENTS = 5
    PARAMETERS = 6


# Letters of formulas. Sizes are in bytes, by the conventions of genie/workload/graph.py.
LEGEND = {
    "b": "sequences of a micro-batch", "s": "tokens of a sequence", "h": "hidden size", "c": "--cp", "t": "--tp",
    "T": "tokens of a micro-batch on a rank: b s / (c t) with sequence parallelism, otherwise b s / c",
    "w": "width of the layer's other side", "k": "experts of a token", "E": "experts", "e": "--ep x --etp",
    "R": "ranks that have experts of a token, expected", "P": "parameters on the rank", "d": "ranks that share them",
}  # fmt: skip


Splits = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Traffic:
    """A kind of collective or send of a rank."""

    name: str
    op: str
    domain: Domain | None  # None: of a send
    size_bytes: int
    stream: Stream
    formula: str


def kind_of(name: str) -> str:
    """Return the name of a node without the numbers of layers, stages and micro-batches."""
    return re.sub(r"\d+", "*", name)


class Program:
    """Nodes of one rank; groups are domains, and peers are columns of a table of ranks."""

    def __init__(self, degrees: Degrees, price: Price) -> None:
        self.degrees = degrees
        self._price = price
        self._builder = RankBuilder(0)
        self._last: dict[Stream, int] = {}
        self._awaited: list[int] = []  # by the next compute node
        self.traffic: Counter[Traffic] = Counter()

    def compute(self, operator: Operator) -> int:
        """Add an operator after the previous one, and after all that is awaited."""
        timed = self._price(operator)
        return self._compute(operator.name, timed, num_ops=operator.flops, tensor_bytes=operator.moved_bytes)

    def compute_for(self, name: str, timed: Timed) -> int:
        """Add an operator of a known time, as `compute` does."""
        return self._compute(name, timed)

    def _compute(self, name: str, timed: Timed, **columns: int) -> int:
        before = self._before(Stream.COMPUTE, self._awaited)
        node = self._add(
            name, Kind.COMP, before, duration_ns=timed.duration_ns, origin=timed.origin, stream=Stream.COMPUTE,
            **columns,
        )  # fmt: skip
        self._awaited = []
        self._last[Stream.COMPUTE] = node
        return node

    def collective(
        self,
        name: str,
        op: Op,
        domain: Domain,
        size_bytes: int,
        stream: Stream,
        formula: str,
        after: Iterable[int] | None = None,
        splits: Splits | None = None,
    ) -> int | None:
        """Add a collective after all that compute has waited for, or after the nodes given; None in a group of one.

        size_bytes: by the convention of genie/workload/graph.py. `formula`: of the size, with the letters of LEGEND.
        splits: of an uneven all-to-all, bytes to each member and from each member.
        """
        if self.degrees.members(domain) == 1 or (size_bytes == 0 and op is not Op.BARRIER):
            return None
        self.traffic[Traffic(kind_of(name), op.name.lower(), domain, size_bytes, stream, formula)] += 1
        before = [*self._compute_so_far(), *self._awaited] if after is None else [node for node in after if node >= 0]
        node = self._add(
            name, Kind.COLL, self._before(stream, before), size_bytes=size_bytes, op=op, group=domain, stream=stream,
            splits=splits,
        )  # fmt: skip
        self._last[stream] = node
        return node

    def send(
        self, name: str, column: int, size_bytes: int, tag: int, stream: Stream, formula: str, after: Iterable[int]
    ) -> int:
        """Add a send after these nodes. `column`: of the peer in the table of ranks."""
        self.traffic[Traffic(kind_of(name), "send", None, size_bytes, stream, formula)] += 1
        node = self._add(
            name, Kind.SEND, self._before(stream, after), size_bytes=size_bytes, peer=column, tag=tag, stream=stream
        )
        self._last[stream] = node
        return node

    def receive(self, name: str, column: int, size_bytes: int, tag: int, *, awaited: bool = True) -> int:
        """Add a receive, posted after the last compute node. `awaited`: the next compute node waits for it."""
        node = self._add(name, Kind.RECV, self._compute_so_far(), size_bytes=size_bytes, peer=column, tag=tag)
        if awaited:
            self._awaited.append(node)
        return node

    def wait_for(self, *nodes: int | None) -> None:
        """Let the next compute node wait for these nodes."""
        self._awaited += [node for node in nodes if node is not None and node not in self._awaited]

    @property
    def last_compute(self) -> int:
        """The last compute node; -1: none yet."""
        return self._last.get(Stream.COMPUTE, -1)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Nodes that the next compute node waits for."""
        return tuple(self._awaited)

    def finish(self) -> RankGraph:
        """Return the graph."""
        graph, _ = self._builder.finish()
        return graph

    def _compute_so_far(self) -> list[int]:
        return [self.last_compute] if self.last_compute >= 0 else []

    def _before(self, stream: Stream, more: Iterable[int]) -> list[int]:
        last = self._last.get(stream)
        return [*([] if last is None else [last]), *more]

    def _add(self, name: str, kind: Kind, deps: Iterable[int], **columns: object) -> int:
        return self._builder.add(len(self._builder), name, kind, deps, **columns)  # type: ignore[arg-type]
