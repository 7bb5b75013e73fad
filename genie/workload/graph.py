"""The execution graph in memory: one column per property, one row per node.

All code after the readers works on these arrays. The modules that use them know neither protobuf nor JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from genie.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Kind(IntEnum):
    """A node's action in a replay. The names in lower case are the timeline's `kind`."""

    META = 0
    COMP = 1
    MEM = 2
    SEND = 3
    RECV = 4
    COLL = 5


class Op(IntEnum):
    """A collective's operation. The names in lower case are the timeline's `op`. NONE: not a collective."""

    NONE = -1
    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    BARRIER = 9


@dataclass
class RankGraph:
    """One rank's graph: `n` nodes in ascending id, `m` dependencies.

    Dependencies are rows, not ids. Dependencies on nodes that are not in the file are dropped (`Workload.dangling`
    counts them). Data and control dependencies are merged, without duplicates.
    """

    rank: int
    node_id: NDArray[np.uint64]  # (n,) ids as in the file, ascending
    name: list[str]  # (n,)
    kind: NDArray[np.uint8]  # (n,) Kind
    duration_ns: NDArray[np.int64]  # (n,) -1: unknown; a compute model must fill it before a plan is made
    size_bytes: NDArray[np.int64]  # (n,) by the convention of Op below; -1: none given
    op: NDArray[np.int8]  # (n,) Op
    group: NDArray[np.int32]  # (n,) index into Workload.groups; -1: not a collective
    root: NDArray[np.int32]  # (n,) root's position in the group; 0 where the operation has none
    peer: NDArray[np.int32]  # (n,) rank at the other end of a send or receive; -1 elsewhere
    tag: NDArray[np.int64]  # (n,) of a send or receive
    stream: NDArray[np.int32]  # (n,) stream of the node; -1: not in the trace
    on_cpu: NDArray[np.bool_]  # (n,) a host operator
    num_ops: NDArray[np.int64]  # (n,) floating-point operations, for a compute model; -1: none given
    tensor_bytes: NDArray[np.int64]  # (n,) memory traffic, for a compute model; -1: none given
    dep_start: NDArray[np.int64]  # (n + 1,) CSR over `deps`
    deps: NDArray[np.int32]  # (m,) rows that must end first
    # Uneven collectives: row -> (bytes to each member, bytes from each member), in group position order.
    splits: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    origin: list[str] | None = None  # (n,) where a duration comes from, "" where it is not said; None: nowhere said

    def __len__(self) -> int:
        return len(self.node_id)


@dataclass(frozen=True)
class Group:
    """A communicator: its name in the trace and its members, ascending; position = index in `ranks`."""

    name: str
    ranks: tuple[int, ...]


# Sizes follow the trace (ASTRA-sim's convention), and so does `size_bytes` of a timeline.
#   all_reduce, reduce, broadcast: the full buffer.       all_gather, gather: one rank's input.
#   reduce_scatter: the full input.                       scatter: the root's full buffer.
#   all_to_all: one rank's total input.                   barrier: 0.


@dataclass
class Workload:
    """All ranks of a job, or the ranks that were loaded."""

    name: str
    world_size: int
    groups: list[Group]
    ranks: Mapping[int, RankGraph]
    dangling: int = 0  # number of dropped dependencies on nodes that are not in the files
    notes: list[str] = field(default_factory=list)  # one line each: unknown node types, ignored wrappers, ...

    def __repr__(self) -> str:
        nodes = sum(map(len, self.ranks.values()))
        return f"<Workload {self.name!r}: {self.world_size} ranks, {nodes} nodes>"


SIZE_MAX_BYTES = 1 << 50  # of a collective or a message in a file


class WorkloadError(InputError):
    """A trace that cannot be used: the message names the file or node, the problem and the remedy."""
