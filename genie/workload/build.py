"""Building a RankGraph node by node: for the reader, converters and generators."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from sys import intern

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Kind, Op, RankGraph, WorkloadError


class RankBuilder:
    """Gathers the nodes of one rank in any order; each argument of `add` means what its column in `graph.py` means."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._name: list[str] = []
        self._node_id = array("Q")
        self._kind = array("B")
        self._duration_ns = array("q")
        self._size_bytes = array("q")
        self._op = array("b")
        self._group = array("i")
        self._root = array("i")
        self._peer = array("i")
        self._tag = array("q")
        self._stream = array("i")
        self._on_cpu = array("b")
        self._num_ops = array("q")
        self._tensor_bytes = array("q")
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
        self._node_id.append(node_id)
        self._name.append(intern(name))
        self._kind.append(kind)
        self._duration_ns.append(duration_ns)
        self._size_bytes.append(size_bytes)
        self._op.append(op)
        self._group.append(group)
        self._root.append(root)
        self._peer.append(peer)
        self._tag.append(tag)
        self._stream.append(stream)
        self._on_cpu.append(on_cpu)
        self._num_ops.append(num_ops)
        self._tensor_bytes.append(tensor_bytes)
        before = len(self._dep_id)
        self._dep_id.extend(deps)
        self._dep_count.append(len(self._dep_id) - before)
        return node_id

    def finish(self) -> tuple[RankGraph, int]:
        """The graph, rows in ascending id, and the number of dependencies dropped because their node is absent.

        Raises WorkloadError for an id that occurs twice. Cycles are the caller's affair (`order.find_cycle`).
        """
        node_id = np.frombuffer(self._node_id, dtype=np.uint64)
        order = np.argsort(node_id, kind="stable")
        node_id = node_id[order]
        twice = np.flatnonzero(node_id[1:] == node_id[:-1])
        if len(twice):
            raise WorkloadError(f"node id {node_id[twice[0]]} occurs twice ({len(twice)} such ids)")
        row_of = np.empty(len(order), dtype=np.int64)
        row_of[order] = np.arange(len(order))
        dep_start, deps, dangling = self._dependencies(node_id, row_of)
        graph = RankGraph(
            rank=self.rank,
            node_id=node_id,
            name=[self._name[index] for index in order.tolist()],
            kind=np.frombuffer(self._kind, dtype=np.uint8)[order],
            duration_ns=np.frombuffer(self._duration_ns, dtype=np.int64)[order],
            size_bytes=np.frombuffer(self._size_bytes, dtype=np.int64)[order],
            op=np.frombuffer(self._op, dtype=np.int8)[order],
            group=np.frombuffer(self._group, dtype=np.int32)[order],
            root=np.frombuffer(self._root, dtype=np.int32)[order],
            peer=np.frombuffer(self._peer, dtype=np.int32)[order],
            tag=np.frombuffer(self._tag, dtype=np.int64)[order],
            stream=np.frombuffer(self._stream, dtype=np.int32)[order],
            on_cpu=np.frombuffer(self._on_cpu, dtype=np.bool_)[order],
            num_ops=np.frombuffer(self._num_ops, dtype=np.int64)[order],
            tensor_bytes=np.frombuffer(self._tensor_bytes, dtype=np.int64)[order],
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
        pairs = np.unique(waiting[present] * count + found[present])
        waiting, deps = np.divmod(pairs, max(count, 1))
        dep_start = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(waiting, minlength=count), out=dep_start[1:])
        return dep_start, deps.astype(np.int32), int(len(wanted) - np.count_nonzero(present))
