"""Building of a RankGraph node by node, for the reader, converters and generators."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from sys import intern
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Kind, Op, RankGraph, WorkloadError


class NodeColumns(TypedDict, total=False):
    """The columns of a node that are not their default, as in `graph.py`.

    splits: bytes to each member and bytes from each member, in group position order.
    origin: where the duration comes from.
    """

    duration_ns: int
    size_bytes: int
    tag: int
    num_ops: int
    tensor_bytes: int
    group: int
    root: int
    peer: int
    stream: int
    op: Op
    on_cpu: bool
    splits: tuple[Sequence[int], Sequence[int]] | None
    origin: str


# Layout of one row without padding, for NumPy and for struct: the two columns that each node has, then the others.
RECORD = np.dtype(
    [
        ("node_id", "<u8"),
        ("kind", "<u1"),
        ("duration_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("tag", "<i8"),
        ("num_ops", "<i8"),
        ("tensor_bytes", "<i8"),
        ("group", "<i4"),
        ("root", "<i4"),
        ("peer", "<i4"),
        ("stream", "<i4"),
        ("op", "<i1"),
        ("on_cpu", "?"),
    ]
)
PACK = Struct("<QBqqqqqiiiib?").pack
# In the order of the layout, so that a node's own columns merge into them.
NO_OPERATION = int(Op.NONE)
DEFAULTS: dict[str, int] = {
    "duration_ns": 0,
    "size_bytes": -1,
    "tag": 0,
    "num_ops": -1,
    "tensor_bytes": -1,
    "group": -1,
    "root": 0,
    "peer": -1,
    "stream": -1,
    "op": Op.NONE,
    "on_cpu": False,
}


class RankBuilder:
    """Collects the nodes of one rank in any order; the arguments of `add` are the columns in `graph.py`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._name: list[str] = []
        self._records = bytearray()
        self._dep_count = array("q")
        self._dep_id = array("Q")
        self._splits: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._origin: dict[int, str] = {}  # row -> where its duration comes from

    def __len__(self) -> int:
        return len(self._name)

    def add(self, node_id: int, name: str, kind: Kind, deps: Iterable[int] = (), **columns: Unpack[NodeColumns]) -> int:
        """Append a node that waits for the nodes with the ids `deps`; returns its id."""
        if "splits" in columns:
            splits = columns.pop("splits")
            if splits is not None:
                to_each, from_each = splits
                self._splits[len(self)] = (np.array(to_each, dtype=np.int64), np.array(from_each, dtype=np.int64))
        if origin := columns.pop("origin", ""):
            self._origin[len(self)] = intern(origin)
        self._append(name, deps, PACK(node_id, kind, *(DEFAULTS | columns).values()))
        return node_id

    def add_compute(
        self,
        node_id: int,
        name: str,
        kind: Kind,
        deps: Iterable[int] = (),
        *,
        duration_ns: int = 0,
        num_ops: int = -1,
        tensor_bytes: int = -1,
        stream: int = -1,
        on_cpu: bool = False,
        origin: str = "",
    ) -> None:
        """Append a node that communicates with no rank. Most nodes of a trace are such, so this one is fast."""
        if origin:
            self._origin[len(self)] = intern(origin)
        row = PACK(node_id, kind, duration_ns, -1, 0, num_ops, tensor_bytes, -1, 0, -1, stream, NO_OPERATION, on_cpu)
        self._append(name, deps, row)

    def _append(self, name: str, deps: Iterable[int], row: bytes) -> None:
        self._name.append(intern(name))
        self._records += row
        before = len(self._dep_id)
        self._dep_id.extend(deps)
        self._dep_count.append(len(self._dep_id) - before)

    def finish(self) -> tuple[RankGraph, int]:
        """(graph with rows in ascending id, number of dependencies dropped because their node is absent).

        Raises WorkloadError for an id that occurs twice. The caller checks for cycles (`order.find_cycle`).
        """
        records = np.frombuffer(self._records, dtype=RECORD)
        order = np.argsort(records["node_id"], kind="stable")
        records = records[order]
        node_id = records["node_id"]
        twice = np.flatnonzero(node_id[1:] == node_id[:-1])
        if len(twice):
            raise WorkloadError(f"node id {node_id[twice[0]]} occurs twice ({len(twice)} such ids)")
        row_of = np.empty(len(order), dtype=np.int64)
        row_of[order] = np.arange(len(order))
        dep_start, deps, dangling = self._dependencies(np.ascontiguousarray(node_id), row_of)
        graph = RankGraph(
            rank=self.rank,
            name=[self._name[index] for index in order.tolist()],
            **{column: np.ascontiguousarray(records[column]) for column in RECORD.names or ()},
            dep_start=dep_start,
            deps=deps,
            splits={int(row_of[index]): splits for index, splits in self._splits.items()},
            origin=[self._origin.get(index, "") for index in order.tolist()] if self._origin else None,
        )
        return graph, dangling

    def _dependencies(
        self, node_id: NDArray[np.uint64], row_of: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """CSR of the dependencies as rows, each once, and the number of dependencies on absent nodes."""
        count = len(node_id)
        wanted = np.frombuffer(self._dep_id, dtype=np.uint64)
        waiting = np.repeat(row_of, np.frombuffer(self._dep_count, dtype=np.int64))
        found = np.minimum(np.searchsorted(node_id, wanted), max(count - 1, 0))
        present = node_id[found] == wanted if count else np.zeros(0, dtype=np.bool_)
        pairs = np.sort(waiting[present] * count + found[present])
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        waiting, deps = np.divmod(pairs, max(count, 1))
        dep_start = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(waiting, minlength=count), out=dep_start[1:])
        return dep_start, deps.astype(np.int32), int(len(wanted) - np.count_nonzero(present))
