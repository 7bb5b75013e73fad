"""Building a RankGraph node by node: for the reader, converters and generators."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from sys import intern

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Kind, Op, RankGraph, WorkloadError

# One row as bytes, widest columns first so that none needs padding: as NumPy reads it, and as struct writes it.
RECORD = np.dtype(
    [
        ("node_id", "<u8"),
        ("duration_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("tag", "<i8"),
        ("num_ops", "<i8"),
        ("tensor_bytes", "<i8"),
        ("group", "<i4"),
        ("root", "<i4"),
        ("peer", "<i4"),
        ("stream", "<i4"),
        ("kind", "<u1"),
        ("op", "<i1"),
        ("on_cpu", "?"),
    ]
)
PACK = Struct("<QqqqqqiiiiBb?").pack


class RankBuilder:
    """Gathers the nodes of one rank in any order; each argument of `add` means what its column in `graph.py` means."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._name: list[str] = []
        self._records = bytearray()
        self._dep_count = array("q")
        self._dep_id = array("Q")
        self._splits: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return len(self._name)

    def add(
        self,
        node_id: int,
        name: str,
        kind: Kind,
        deps: Iterable[int] = (),
        *,
        duration_ns: int = 0,
        size_bytes: int = -1,
        op: Op = Op.NONE,
        group: int = -1,
        root: int = 0,
        peer: int = -1,
        tag: int = 0,
        stream: int = -1,
        on_cpu: bool = False,
        num_ops: int = -1,
        tensor_bytes: int = -1,
        splits: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> int:
        """Append a node that waits for the nodes with the ids `deps`; returns its id.

        splits: bytes to each member and bytes from each member, in group position order.
        """
        if splits is not None:
            to_each, from_each = splits
            self._splits[len(self)] = (np.array(to_each, dtype=np.int64), np.array(from_each, dtype=np.int64))
        self._name.append(intern(name))
        self._records += PACK(
            node_id, duration_ns, size_bytes, tag, num_ops, tensor_bytes, group, root, peer, stream, kind, op, on_cpu
        )
        before = len(self._dep_id)
        self._dep_id.extend(deps)
        self._dep_count.append(len(self._dep_id) - before)
        return node_id

    def finish(self) -> tuple[RankGraph, int]:
        """The graph, rows in ascending id, and the number of dependencies dropped because their node is absent.

        Raises WorkloadError for an id that occurs twice. Cycles are the caller's affair (`order.find_cycle`).
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
        )
        return graph, dangling

    def _dependencies(
        self, node_id: NDArray[np.uint64], row_of: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """CSR of the dependencies as rows, each once, and how many were on absent nodes."""
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
