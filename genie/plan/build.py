"""Building a plan: collectives get templates, size tables and tags; nodes get resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.collectives import LoweringError, Template, block_sizes, choose, lower
from genie.collectives.msccl.algorithm import lower_msccl
from genie.collectives.msccl.file import MscclError
from genie.collectives.nccl.shape import lower_nccl
from genie.inputs.spelling import option
from genie.plan.groups import colours
from genie.plan.lowering import Lowering, check_groups, members_per_node
from genie.plan.sequence import sequence_numbers
from genie.plan.tags import CHANNELS_MAX, COLOURS_MAX, POINT_TO_POINT_TAG_MAX, collective_tag
from genie.workload.graph import Kind, Op, RankGraph, Workload, WorkloadError

Slots = Literal["streams", "astra"]
Splits: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]] | None"

TIME_MAX_PS = 1 << 62  # so that sums of two times fit in 64 bits
MESSAGE_MAX_BYTES = (1 << 31) - 1  # of one RDMA message (InfiniBand Architecture Specification 1, section 9.2.8)
FACTS = ("op", "group", "size_bytes", "root")  # that decide how a collective is lowered, but for uneven splits
CPU_SLOT, COMPUTE_SLOT, COMM_SLOT, FIRST_STREAM_SLOT = 0, 1, 2, 3


@dataclass
class Plan:
    """The native plan, and the data needed to interpret its records."""

    native: genie_core.Plan
    ranks: list[int]  # in the native plan's order
    slots: Slots
    algorithms: dict[str, int]  # "operation algorithm" -> number of collective nodes, for run.json
    message_max_bytes: int


def build_plan(
    workload: Workload,
    *,
    slots: Slots | None = None,
    lowering: Lowering | None = None,
    release_ns: dict[int, NDArray[np.int64]] | None = None,
    time_factor: int = 1,
) -> Plan:
    """Bind every rank's graph.

    `slots`: "streams" runs one node at a time on each stream; "astra" has one CPU, one compute and one communication
    slot (None: streams where the trace has them).

    `release_ns`: rank -> (n,) earliest start of every node, -1 to leave the node out. Dependencies and slots are then
    dropped, because the times already include their effect.

    `time_factor` stretches compute (dilation). Raises WorkloadError when a node cannot be played.
    """
    lowering = lowering or Lowering()
    if not 1 <= lowering.channels <= CHANNELS_MAX:
        raise WorkloadError(f"channels must be 1..{CHANNELS_MAX}, not {lowering.channels}")
    if slots is None:
        slots = "streams" if any((graph.stream >= 0).any() for graph in workload.ranks.values()) else "astra"
    check_groups(lowering, workload)
    builder = _Builder(workload, lowering)
    ranks = sorted(workload.ranks)
    bound = [builder.bind(workload.ranks[rank]) for rank in ranks]
    builder.finish_pools()
    if lowering.nccl is not None:
        builder.native.set_slice_delay(lowering.nccl.slice_delay_ns * 1000 * time_factor)
    for rank, columns in zip(ranks, bound, strict=True):
        graph = workload.ranks[rank]
        times = None if release_ns is None else release_ns[rank]
        builder.add_rank(graph, columns, _slots_of(graph, slots), times, time_factor)
    return Plan(builder.native, ranks, slots, builder.algorithms, builder.message_max_bytes)


@dataclass
class _Bound:
    """Columns per node that binding adds to the graph."""

    template_id: NDArray[np.int32]
    sizes_start: NDArray[np.int64]
    position: NDArray[np.int32]
    tag: NDArray[np.uint32]


class _Builder:
    def __init__(self, workload: Workload, lowering: Lowering) -> None:
        self.native = genie_core.Plan()
        self.workload = workload
        self.lowering = lowering
        self.algorithms: dict[str, int] = {}
        self.message_max_bytes = 0
        self._colours = colours(workload.groups)
        if max(self._colours, default=0) >= COLOURS_MAX:
            raise WorkloadError(
                f"a rank is in more than {COLOURS_MAX} groups: more than a message's tag can tell apart"
            )
        self._positions = [{rank: at for at, rank in enumerate(group.ranks)} for group in workload.groups]
        self._template_ids: dict[int, int] = {}
        self._templates: list[Template] = []  # keeps ids unique
        self._table_at: dict[bytes, int] = {}
        self._tables: list[NDArray[np.int64]] = []
        self._tables_rows = 0
        # With NCCL's messages: number of members of each group on a node.
        per_node = lowering.nccl.ranks_per_node if lowering.nccl else 1
        self._local = [members_per_node(group.ranks, per_node) for group in workload.groups]
        self._bound: dict[tuple[object, ...], tuple[int, int, str]] = {}

    def bind(self, graph: RankGraph) -> _Bound:
        """Choose template, size table, position and tag of every collective of one rank."""
        count = len(graph)
        out = _Bound(
            np.full(count, -1, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int32),
            np.zeros(count, np.uint32),
        )
        seq = sequence_numbers(graph)
        rows = np.flatnonzero(graph.kind == Kind.COLL)
        # Few collectives differ: each kind is lowered once, and in the order of nodes.
        facts = np.stack([getattr(graph, name)[rows].astype(np.int64) for name in FACTS], axis=1)
        facts = np.concatenate([facts, np.isin(rows, list(graph.splits))[:, None] * (rows[:, None] + 1)], axis=1)
        _, first, kind, counts = np.unique(facts, axis=0, return_index=True, return_inverse=True, return_counts=True)
        kind = kind.reshape(-1)
        for at in np.argsort(first).tolist():
            row, same = int(rows[first[at]]), rows[kind == at]
            group = int(graph.group[row])
            position = self._positions[group].get(graph.rank)
            if position is None:
                raise WorkloadError(
                    f"rank {graph.rank}: node {graph.node_id[row]} ({graph.name[row]}) is a collective of group "
                    f"'{self.workload.groups[group].name}', which rank {graph.rank} is not a member of"
                )
            out.position[same] = position
            out.tag[same] = collective_tag(self._colours[group], seq[same])
            out.template_id[same], out.sizes_start[same] = self._lower(graph, row, group, position, int(counts[at]))
        messages = (graph.kind == Kind.SEND) | (graph.kind == Kind.RECV)
        for at in np.flatnonzero(messages).tolist():
            self._check_message(graph, at)
        out.tag[messages] = graph.tag[messages].astype(np.uint32)
        if messages.any():
            self.message_max_bytes = max(self.message_max_bytes, int(graph.size_bytes[messages].max()))
        return out

    def _check_message(self, graph: RankGraph, row: int) -> None:
        where = f"rank {graph.rank}: node {graph.node_id[row]} ({graph.name[row]})"
        if not 0 <= graph.tag[row] <= POINT_TO_POINT_TAG_MAX:
            raise WorkloadError(f"{where}: tag {graph.tag[row]} is not in 0..{POINT_TO_POINT_TAG_MAX}")
        if not 0 <= graph.peer[row] < self.workload.world_size:
            raise WorkloadError(f"{where}: peer {graph.peer[row]} is not a rank of 0..{self.workload.world_size - 1}")
        if graph.peer[row] == graph.rank:
            raise WorkloadError(f"{where}: a message to its own rank; no data would be on the network: remove it")
        if not 0 <= graph.size_bytes[row] <= MESSAGE_MAX_BYTES:
            raise WorkloadError(f"{where}: a message of {graph.size_bytes[row]} bytes; allowed: 0..{MESSAGE_MAX_BYTES}")

    def _lower(self, graph: RankGraph, row: int, group: int, position: int, count: int) -> tuple[int, int]:
        """Return template and size table of a collective that `count` nodes of the rank have."""
        op = Op(graph.op[row]).name.lower()
        members = len(self.workload.groups[group].ranks)
        size, root, splits = int(graph.size_bytes[row]), int(graph.root[row]), graph.splits.get(row)
        if size < 0:
            if op != "barrier":
                raise WorkloadError(
                    f"rank {graph.rank}: node {graph.node_id[row]} ({graph.name[row]}) is an {op} without a size"
                )
            size = 0
        key = (op, members, position, size, root, self._local[group])
        if splits is None and key in self._bound:
            template_id, sizes_start, name = self._bound[key]
            self.algorithms[name] += count
            return template_id, sizes_start
        try:
            local = self._local[group]
            algorithm, template, sizes = self._template_of(op, members, position, size, root, splits, local)
        except (LoweringError, MscclError) as error:
            raise WorkloadError(f"rank {graph.rank}: node {graph.node_id[row]} ({graph.name[row]}): {error}") from error
        name = f"{op} {algorithm}"
        self.algorithms[name] = self.algorithms.get(name, 0) + count
        if len(sizes):
            self.message_max_bytes = max(self.message_max_bytes, int(sizes.max()))
            if self.message_max_bytes > MESSAGE_MAX_BYTES:
                raise WorkloadError(
                    f"rank {graph.rank}: node {graph.node_id[row]} ({graph.name[row]}) needs a message of "
                    f"{self.message_max_bytes} bytes; an RDMA message has {MESSAGE_MAX_BYTES}: give more channels"
                )
        template_id, sizes_start = self._template(template), self._table(sizes)
        if splits is None:
            self._bound[key] = (template_id, sizes_start, name)
        return template_id, sizes_start

    def _template_of(
        self, op: str, members: int, position: int, size: int, root: int, splits: Splits, local: int
    ) -> tuple[str, Template, NDArray[np.int64]]:
        """Algorithm, template and size table of a collective. Raises LoweringError."""
        lowering = self.lowering
        if lowering.nccl is not None:
            return lower_nccl(op, lowering.nccl, members, position, size, root, splits, local)
        if path := lowering.msccl_files.get(op):
            found = lower_msccl(op, path, members, position, size, root, splits is None)
            if found is not None:
                return found
        requested = None if path else lowering.algorithms.get(op)
        algorithm = choose(op, members, size, requested)
        template = lower(op, algorithm, members, position, lowering.channels, root, lowering.credit)
        return algorithm, template, block_sizes(op, algorithm, members, position, size, lowering.channels, root, splits)

    def _template(self, template: Template) -> int:
        known = self._template_ids.get(id(template))
        if known is not None:
            return known
        number = self.native.add_template(
            template.members,
            template.relative,
            template.empty_messages,
            template.action,
            template.peer,
            template.block_base,
            template.block,
            template.channel,
            template.credit,
            template.dep_start,
            template.deps,
        )
        self._template_ids[id(template)] = number
        self._templates.append(template)
        return number

    def _table(self, sizes: NDArray[np.int64]) -> int:
        key = sizes.tobytes()
        if key not in self._table_at:
            self._table_at[key] = self._tables_rows
            self._tables.append(sizes)
            self._tables_rows += len(sizes)
        return self._table_at[key]

    def finish_pools(self) -> None:
        members = [np.array(group.ranks, np.int32) for group in self.workload.groups]
        starts = np.concatenate(([0], np.cumsum([len(ranks) for ranks in members]))).astype(np.int64)
        self.native.set_pools(
            np.concatenate([*self._tables, np.zeros(0, np.int64)]),
            starts,
            np.concatenate([*members, np.zeros(0, np.int32)]),
        )

    def add_rank(
        self,
        graph: RankGraph,
        bound: _Bound,
        slot: NDArray[np.int32],
        release_ns: NDArray[np.int64] | None,
        time_factor: int,
    ) -> None:
        kind, dep_start, deps = graph.kind, graph.dep_start.astype(np.int32), graph.deps
        duration_ns = np.where((kind == Kind.COMP) | (kind == Kind.MEM), graph.duration_ns, 0)
        if (duration_ns < 0).any():
            missing = int((duration_ns < 0).sum())
            first = graph.node_id[np.flatnonzero(duration_ns < 0)[0]]
            raise WorkloadError(
                f"rank {graph.rank}: {missing} compute nodes have no duration (first: node {first}); "
                f"give {option('compute')} roofline:TFLOPS,GBPS"
            )
        longest_ns = int(max(duration_ns.max(initial=0), 0 if release_ns is None else release_ns.max(initial=0)))
        if longest_ns * 1000 * time_factor > TIME_MAX_PS:
            raise WorkloadError(
                f"rank {graph.rank}: a node takes {longest_ns} ns, which at dilation {time_factor} is more than "
                f"{TIME_MAX_PS // 10**12} s"
            )
        release = np.zeros(len(graph), np.int64)
        if release_ns is not None:
            # Nodes that are left out end at once; the times already include the effect of dependencies and slots.
            played = release_ns >= 0
            kind = np.where(played, kind, np.uint8(Kind.META)).astype(np.uint8)
            release = np.where(played, release_ns, 0)
            duration_ns = np.where(played, duration_ns, 0)
            slot = np.full(len(graph), -1, np.int32)
            dep_start, deps = np.zeros(len(graph) + 1, np.int32), np.zeros(0, np.int32)
        self.native.add_rank(
            graph.rank,
            kind,
            slot,
            duration_ns * 1000 * time_factor,
            release * 1000 * time_factor,
            bound.template_id,
            bound.sizes_start,
            graph.group,
            bound.position,
            graph.peer,
            bound.tag,
            np.maximum(graph.size_bytes, 0),
            dep_start,
            deps,
        )


def _slots_of(graph: RankGraph, slots: Slots) -> NDArray[np.int32]:
    """The resource of every node; receives and metadata take none."""
    comm = (graph.kind == Kind.SEND) | (graph.kind == Kind.COLL) | (graph.kind == Kind.MEM)
    compute = graph.kind == Kind.COMP
    slot = np.full(len(graph), -1, np.int32)
    slot[comm] = COMM_SLOT
    slot[compute] = np.where(graph.on_cpu[compute], CPU_SLOT, COMPUTE_SLOT)
    if slots == "streams":
        on_stream = (comm | compute) & (graph.stream >= 0)
        _, numbers = np.unique(graph.stream[on_stream], return_inverse=True)
        slot[on_stream] = FIRST_STREAM_SLOT + numbers.astype(np.int32)
    return slot
