"""Job of AICB's workloads: a rank that works serially, and all ranks that do the same in their own groups."""

from __future__ import annotations

from collections import Counter

import numpy as np

from genie.workload.aicb.layers import Communication
from genie.workload.aicb.parallel import DOMAINS, Domain, Parallelism
from genie.workload.build import RankBuilder
from genie.workload.classes import Classes
from genie.workload.graph import Group, Kind, Op, Workload

COMPUTE_STREAM, COMMUNICATION_STREAM, FIRST_BACKGROUND_STREAM = 0, 1, 2

# AICB writes 1 for an unknown time.
PLACEHOLDER_NS = 1


class SerialRank:
    """Compute and communication, one after another; background communication delays nothing.

    Nodes' groups are indices into `DOMAINS` until `job` gives each rank its own.
    """

    def __init__(self, parallelism: Parallelism) -> None:
        self.parallelism = parallelism
        self.builder = RankBuilder(0)
        self.warnings: Counter[str] = Counter()
        self._front: list[int] = []  # nodes that the next node waits for
        self._delay_ns = 0  # delay before the next node

    def compute(self, name: str, duration_ns: int, num_ops: int = -1, tensor_bytes: int = -1) -> None:
        """Add compute of a known duration, or (-1) of one that a compute model fills in."""
        if 0 <= duration_ns <= PLACEHOLDER_NS:
            if duration_ns:
                self.warnings["compute times of 1 ns, which stand for unknown times, left out"] += 1
            return
        if duration_ns >= 0:
            duration_ns, self._delay_ns = duration_ns + self._delay_ns, 0
        self._add(
            name, Kind.COMP, duration_ns=duration_ns, stream=COMPUTE_STREAM, num_ops=num_ops, tensor_bytes=tensor_bytes
        )

    def delay(self, delay_ns: int) -> None:
        """Add a delay before the next node, merged with the compute before that node if there is some."""
        self._delay_ns += delay_ns if delay_ns > PLACEHOLDER_NS else 0

    def wait_for(self, node: int | None) -> None:
        """Let the next node wait for a background node."""
        if node is not None and node not in self._front:
            self._front.append(node)

    def communicate(self, name: str, what: Communication | None, *, background: bool = False) -> int | None:
        """Add a collective and return its node; None if it has no bytes or no other member."""
        if what is None:
            return None
        members = self.parallelism.members(what.domain)
        kind = f"{what.op.name.lower()} of {what.domain.value} groups"
        if members == 1:
            self.warnings[f"{kind}, which have one rank, left out"] += 1
            return None
        if what.size_bytes == 0 and what.op is not Op.BARRIER:
            self.warnings[f"{kind} of no bytes left out"] += 1
            return None
        size_bytes = what.size_bytes
        if what.op is Op.ALL_GATHER:  # the list has the whole output, the graph one rank's input
            size_bytes = -(-size_bytes // members)
            if what.size_bytes % members:
                self.warnings[f"{kind} of {what.size_bytes} B, made a multiple of {members}"] += 1
        if self._delay_ns:
            duration_ns, self._delay_ns = self._delay_ns, 0
            self._add("update", Kind.COMP, duration_ns=duration_ns, stream=COMPUTE_STREAM)
        domain = DOMAINS.index(what.domain)
        stream = FIRST_BACKGROUND_STREAM + domain if background else COMMUNICATION_STREAM
        before = list(self._front)
        node = self._add(name, Kind.COLL, size_bytes=size_bytes, op=what.op, group=domain, stream=stream)
        if background:
            self._front = before
        return node

    def _add(self, name: str, kind: Kind, **columns: object) -> int:
        node = self.builder.add(len(self.builder), name, kind, self._front, **columns)  # type: ignore[arg-type]
        self._front = [node]
        return node

    def notes(self) -> list[str]:
        return [f"{count} {what}" for what, count in self.warnings.items() if count]


def job(rank: SerialRank, name: str) -> Workload:
    """The job in which every rank does the same as `rank`: one class."""
    parallelism = rank.parallelism
    graph, _ = rank.builder.finish()
    groups: list[Group] = []
    first = np.full(len(DOMAINS), -1)
    used = [domain for domain in DOMAINS if (graph.group == DOMAINS.index(domain)).any()]
    for domain in used or [Domain.ALL]:
        first[DOMAINS.index(domain)] = len(groups)
        groups += parallelism.groups(domain)
    numbers = np.stack([parallelism.group_of(domain) for domain in DOMAINS])  # (domains, ranks)
    group_of = np.where(first[:, None] < 0, -1, first[:, None] + numbers).T.astype(np.int32)
    one_class = np.zeros(parallelism.ranks, np.int32)
    classes = Classes((graph,), one_class, group_of, np.zeros((parallelism.ranks, 0), np.int32))
    return Workload(name, parallelism.ranks, groups, classes.view())
