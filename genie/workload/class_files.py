"""Classes on disk: the trace of one rank of each class, the groups file, and PREFIX.classes.json.

The trace is that of the class's lowest rank, so that it is a trace like any other. Its sends and receives name their
column of peers beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from genie.inputs.content import ContentError, read_bytes
from genie.workload.classes import Classes
from genie.workload.graph import Kind, RankGraph, Workload, WorkloadError

SCHEMA = "genie.classes.1"


class ClassesFile(Struct, forbid_unknown_fields=True):
    """PREFIX.classes.json. Runs are `[value, count]` of consecutive ranks."""

    schema: str
    ranks: int
    lowest: list[int]  # the rank of each class whose trace is on disk
    class_runs: list[tuple[int, int]]  # class of each rank
    domains: list[list[str]]  # names of the groups of each domain: a rank is in at most one of them
    peers: list[list[int]]  # of each column, the peer of each rank; -1: none


@dataclass(frozen=True)
class ClassTable:
    """The places of all ranks, without their graphs."""

    lowest: tuple[int, ...]
    class_of: NDArray[np.int32]
    group_of: NDArray[np.int32]
    peer_of: NDArray[np.int32]

    def as_template(self, graph: RankGraph, columns: Mapping[int, int]) -> RankGraph:
        """Return the template of a class from its lowest rank's graph. `columns`: row -> column of the peer.

        Raises WorkloadError.
        """
        rank = graph.rank
        domain_of = {int(group): domain for domain, group in enumerate(self.group_of[rank]) if group >= 0}
        group = graph.group.copy()
        collective = graph.kind == Kind.COLL
        for number in np.unique(graph.group[collective]):
            if int(number) not in domain_of:
                raise WorkloadError(f"rank {rank}: a collective's group is in no domain of the classes file")
            group[collective & (graph.group == number)] = domain_of[int(number)]
        peer = graph.peer.copy()
        for row in np.flatnonzero((graph.kind == Kind.SEND) | (graph.kind == Kind.RECV)):
            column = columns.get(int(row), -1)
            if not 0 <= column < self.peer_of.shape[1] or self.peer_of[rank, column] != graph.peer[row]:
                raise WorkloadError(
                    f"rank {rank}: node {graph.node_id[row]} ({graph.name[row]}): the classes file does not have its "
                    "peer; write the workload again"
                )
            peer[row] = column
        return replace(graph, group=group, peer=peer)

    def with_templates(self, templates: Sequence[RankGraph]) -> Classes:
        """Return the classes."""
        return Classes(tuple(templates), self.class_of, self.group_of, self.peer_of)


def classes_text(workload: Workload, classes: Classes) -> str:
    """Return the text of the file."""
    lowest = [int(classes.members(number)[0]) for number in range(len(classes.templates))]
    change = np.flatnonzero(np.diff(classes.class_of, prepend=-1))
    counts = np.diff([*change, classes.ranks])
    domains = []
    for column in classes.group_of.T:
        domains.append([workload.groups[number].name for number in np.unique(column[column >= 0])])
    content = {
        "schema": SCHEMA,
        "ranks": classes.ranks,
        "lowest": lowest,
        "class_runs": [
            [int(number), int(count)] for number, count in zip(classes.class_of[change], counts, strict=True)
        ],
        "domains": domains,
        "peers": classes.peer_of.T.tolist(),
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


def read_table(path: Path, index: Mapping[str, int], members: Sequence[Sequence[int]]) -> ClassTable:
    """Return the table of a file. `index` and `members`: of groups, by name and by number. Raises WorkloadError."""
    try:
        value: Any = json.loads(read_bytes(path))
        found = msgspec.convert(value, ClassesFile)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error
    except (ContentError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}: is no classes file: {' '.join(str(error).split())}") from error
    ranks = found.ranks
    if found.schema != SCHEMA:
        raise WorkloadError(f"{path}: has the schema {found.schema!r}: this version reads {SCHEMA}")
    if ranks < 1 or sum(count for _, count in found.class_runs) != ranks or any(
        not 0 <= number < len(found.lowest) or count < 1 for number, count in found.class_runs
    ):  # fmt: skip
        raise WorkloadError(f"{path}: class_runs do not give {ranks} ranks one of {len(found.lowest)} classes each")
    class_of = np.repeat(*np.array(found.class_runs, np.int64).T).astype(np.int32)
    for number, rank in enumerate(found.lowest):
        if not 0 <= rank < ranks or class_of[rank] != number:
            raise WorkloadError(f"{path}: rank {rank} is not of class {number}")
    group_of = np.full((ranks, len(found.domains)), -1, np.int32)
    for domain, names in enumerate(found.domains):
        for name in names:
            if name not in index:
                raise WorkloadError(f"{path}: group {name!r} is not in the groups file")
            own = np.array(members[index[name]], np.int64)
            if own.max(initial=0) >= ranks or (group_of[own, domain] >= 0).any():
                raise WorkloadError(f"{path}: group {name!r}: a rank of it is in another group of its domain")
            group_of[own, domain] = index[name]
    if any(len(column) != ranks for column in found.peers):
        raise WorkloadError(f"{path}: a column of peers has not one entry for each of {ranks} ranks")
    peers = np.array(found.peers, np.int64).reshape(len(found.peers), ranks)
    if peers.size and (peers.min() < -1 or peers.max() >= ranks):
        raise WorkloadError(f"{path}: a peer is not a rank of 0..{ranks - 1}")
    return ClassTable(tuple(found.lowest), class_of, group_of, peers.T.astype(np.int32))
