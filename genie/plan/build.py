"""Building a plan: collectives get templates, size tables and tags; nodes get resources. Each class is bound once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.collectives import Action, LoweringError, Template, block_sizes, choose, lower
from genie.collectives.msccl.algorithm import lower_msccl
from genie.collectives.msccl.file import MscclError
from genie.collectives.nccl.shape import lower_nccl
from genie.inputs.spelling import option
from genie.plan.classes import Binding, PlanClass, class_of_one, plan_classes
from genie.plan.groups import colours
from genie.plan.lowering import Lowering, check_groups, members_per_node
from genie.plan.sequence import sequence_numbers
from genie.plan.tags import (
    CHANNELS_MAX,
    COLOUR_SHIFT,
    COLOURS_MAX,
    POINT_TO_POINT_TAG_MAX,
    collective_tag,
)
from genie.workload.graph import Kind, Op, RankGraph, Workload, WorkloadError

Slots = Literal["streams", "astra"]
Splits: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]] | None"

TIME_MAX_PS = 1 << 62  # so that sums of two times fit in 64 bits
MESSAGE_MAX_BYTES = (1 << 31) - 1  # of one RDMA message (InfiniBand Architecture Specification 1, section 9.2.8)
CPU_SLOT, COMPUTE_SLOT, COMM_SLOT, FIRST_STREAM_SLOT = 0, 1, 2, 3


@dataclass
class Plan:
    """The native plan, and the data needed to interpret its records."""

    native: genie_core.Plan
    ranks: list[int]  # in the native plan's order
    classes: list[PlanClass]
    slots: Slots
    algorithms: dict[str, int]  # "operation algorithm" -> number of collective nodes, for run.json
    message_max_bytes: int
    transfers: int  # pairs of a collective's node and a peer that it sends to, of all ranks


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
    ranks = sorted(workload.ranks)
    if release_ns is None:
        classes = plan_classes(workload)
    else:  # times differ by rank
        classes = [class_of_one(_with_played(workload.ranks[rank], release_ns[rank])) for rank in ranks]
    if slots is None:
        slots = "streams" if any((each.template.stream >= 0).any() for each in classes) else "astra"
    check_groups(lowering, workload)
    builder = _Builder(workload, lowering, time_factor)
    # A node that is left out keeps its sequence number.
    numbers = [
        sequence_numbers(each.template if release_ns is None else workload.ranks[int(each.ranks[0])])
        for each in classes
    ]
    bound = [builder.bind(each, seq) for each, seq in zip(classes, numbers, strict=True)]
    builder.finish_pools()
    if lowering.nccl is not None:
        builder.native.set_slice_delay(lowering.nccl.slice_delay_ns * 1000 * time_factor)
    place: dict[int, tuple[int, int]] = {}  # rank -> class, place in it
    for number, each in enumerate(classes):
        times = None if release_ns is None else release_ns[int(each.ranks[0])]
        builder.add_table(each, bound[number].tag, _slots_of(each.template, slots), times, time_factor)
        place |= {rank: (number, at) for at, rank in enumerate(each.ranks.tolist())}
    for rank in ranks:
        number, at = place[rank]
        builder.add_rank(rank, number, bound[number], at)
    return Plan(builder.native, ranks, classes, slots, builder.algorithms, builder.message_max_bytes, builder.transfers)


@dataclass
class _Bound:
    """Bindings of a class: a row for each of its ranks, a column for each binding."""

    tag: NDArray[np.uint32]  # (n,) by node, without the bits of its binding
    template_id: NDArray[np.int32]
    sizes_start: NDArray[np.int64]
    group: NDArray[np.int32]
    position: NDArray[np.int32]
    peer: NDArray[np.int32]
    tag_bits: NDArray[np.uint32]


class _Builder:
    def __init__(self, workload: Workload, lowering: Lowering, time_factor: int) -> None:
        self.native = genie_core.Plan()
        self.time_factor = time_factor
        self.workload = workload
        self.lowering = lowering
        self.algorithms: dict[str, int] = {}
        self.message_max_bytes = 0
        self.transfers = 0
        self._colours = np.array(colours(workload.groups), np.uint32)
        if max(self._colours, default=0) >= COLOURS_MAX:
            raise WorkloadError(
                f"a rank is in more than {COLOURS_MAX} groups: more than a message's tag can tell apart"
            )
        self._positions = [{rank: at for at, rank in enumerate(group.ranks)} for group in workload.groups]
        self._template_ids: dict[int, int] = {}
        self._templates: list[Template] = []  # keeps ids unique
        self._receivers: dict[int, int] = {}  # template -> peers that it sends to
        self._table_at: dict[bytes, int] = {}
        self._tables: list[NDArray[np.int64]] = []
        self._tables_rows = 0
        self._members = np.array([len(group.ranks) for group in workload.groups], np.int64)
        # Number of members of each group on a node.
        per_node = lowering.node_ranks
        self._local = np.array([members_per_node(group.ranks, per_node) for group in workload.groups], np.int64)
        self._bound: dict[tuple[object, ...], tuple[int, int, str]] = {}

    def bind(self, own: PlanClass, seq: NDArray[np.int32]) -> _Bound:
        """Choose template, size table, position and tag of every collective of a class of ranks.

        seq: (n,) sequence numbers of its collectives.
        """
        template, shape = own.template, (len(own.ranks), len(own.bindings))
        out = _Bound(
            np.zeros(len(template), np.uint32), np.full(shape, -1, np.int32), np.zeros(shape, np.int64),
            np.full(shape, -1, np.int32), np.zeros(shape, np.int32), np.full(shape, -1, np.int32),
            np.zeros(shape, np.uint32),
        )  # fmt: skip
        collective = template.kind == Kind.COLL
        out.tag[collective] = collective_tag(0, seq[collective])
        messages = (template.kind == Kind.SEND) | (template.kind == Kind.RECV)
        self._check_messages(own, np.flatnonzero(messages))
        out.tag[messages] = template.tag[messages].astype(np.uint32)
        if messages.any():
            self.message_max_bytes = max(self.message_max_bytes, int(template.size_bytes[messages].max()))
        places: dict[int, NDArray[np.int64]] = {}
        for at, binding in enumerate(own.bindings):
            if binding.kind != Kind.COLL:
                out.peer[:, at] = own.peers[:, binding.column]
                continue
            groups = own.groups[:, binding.column]
            if binding.column not in places:
                places[binding.column] = self._places(own, binding, groups)
            positions = places[binding.column]
            out.group[:, at], out.position[:, at] = groups, positions
            out.tag_bits[:, at] = self._colours[groups] << np.uint32(COLOUR_SHIFT)
            shapes = np.stack([self._members[groups], positions, self._local[groups]], axis=1)
            _, first, of_rank, counts = np.unique(
                shapes, axis=0, return_index=True, return_inverse=True, return_counts=True
            )
            found = np.zeros((len(first), 2), np.int64)
            for number in np.argsort(first).tolist():
                found[number] = self._lower(own, binding, int(first[number]), shapes[first[number]], counts[number])
            out.template_id[:, at], out.sizes_start[:, at] = found[of_rank.reshape(-1)].T
        return out

    def _places(self, own: PlanClass, binding: Binding, groups: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the position of each rank of a class in its group."""
        ranks = own.ranks.tolist()
        found = [self._positions[group].get(rank, -1) for rank, group in zip(ranks, groups.tolist(), strict=True)]
        if -1 in found:
            at = found.index(-1)
            raise WorkloadError(
                f"{_where(own, at, binding.row)} is a collective of group "
                f"'{self.workload.groups[int(groups[at])].name}', which rank {ranks[at]} is not a member of"
            )
        return np.array(found, np.int64)

    def _check_messages(self, own: PlanClass, rows: NDArray[np.int64]) -> None:
        """Check the sends and receives of a class."""
        graph = own.template
        for row in rows[(graph.tag[rows] < 0) | (graph.tag[rows] > POINT_TO_POINT_TAG_MAX)][:1].tolist():
            raise WorkloadError(f"{_where(own, 0, row)}: tag {graph.tag[row]} is not in 0..{POINT_TO_POINT_TAG_MAX}")
        for row in rows[(graph.size_bytes[rows] < 0) | (graph.size_bytes[rows] > MESSAGE_MAX_BYTES)][:1].tolist():
            raise WorkloadError(
                f"{_where(own, 0, row)}: a message of {graph.size_bytes[row]} bytes; allowed: 0..{MESSAGE_MAX_BYTES}"
            )
        for row in rows[graph.peer[rows] < 0][:1].tolist():
            raise WorkloadError(f"{_where(own, 0, row)}: {self._no_rank(-1)}")
        for column in np.unique(graph.peer[rows]).tolist():
            peers = own.peers[:, column]
            row = int(rows[graph.peer[rows] == column][0])
            for at in np.flatnonzero((peers < 0) | (peers >= self.workload.world_size))[:1].tolist():
                raise WorkloadError(f"{_where(own, at, row)}: {self._no_rank(int(peers[at]))}")
            for at in np.flatnonzero(peers == own.ranks)[:1].tolist():
                raise WorkloadError(
                    f"{_where(own, at, row)}: a message to its own rank; no data would be on the network: remove it"
                )

    def _no_rank(self, peer: int) -> str:
        return f"peer {peer} is not a rank of 0..{self.workload.world_size - 1}"

    def _lower(
        self, own: PlanClass, binding: Binding, at: int, shape: NDArray[np.int64], ranks: int
    ) -> tuple[int, int]:
        """Return template and size table of a binding of `ranks` ranks; `at` is the place of the first in the class.

        shape: members of the group, position, members on a node.
        """
        members, position, local = shape.tolist()
        op, count, root = Op(binding.op).name.lower(), binding.nodes * int(ranks), binding.root
        size, splits = binding.size_bytes, own.template.splits.get(binding.row)
        if size < 0:
            if op != "barrier":
                raise WorkloadError(f"{_where(own, at, binding.row)} is an {op} without a size")
            size = 0
        key = (op, members, position, size, root, local)
        if splits is None and key in self._bound:
            template_id, sizes_start, name = self._bound[key]
            self.algorithms[name] += count
            self.transfers += count * self._receivers[template_id]
            return template_id, sizes_start
        try:
            algorithm, template, sizes = self._template_of(op, members, position, size, root, splits, local)
        except (LoweringError, MscclError) as error:
            raise WorkloadError(f"{_where(own, at, binding.row)}: {error}") from error
        name = f"{op} {algorithm}"
        self.algorithms[name] = self.algorithms.get(name, 0) + count
        if len(sizes):
            self.message_max_bytes = max(self.message_max_bytes, int(sizes.max()))
            if self.message_max_bytes > MESSAGE_MAX_BYTES:
                raise WorkloadError(
                    f"{_where(own, at, binding.row)} needs a message of "
                    f"{self.message_max_bytes} bytes; an RDMA message has {MESSAGE_MAX_BYTES}: give more channels"
                )
        template_id, sizes_start = self._template(template), self._table(sizes)
        self.transfers += count * self._receivers[template_id]
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
        channels = lowering.channels
        template = lower(op, algorithm, members, position, channels, root, lowering.credit, local)
        return algorithm, template, block_sizes(op, algorithm, members, position, size, channels, root, splits, local)

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
        if (timing := template.timing) is not None:
            factor = self.time_factor
            self.native.set_timing(
                number,
                timing.start_ps * factor,
                timing.delay_ps * factor,
                timing.delay_ps_per_kib * factor,
                timing.work_ps_per_kib * factor,
            )
        self._template_ids[id(template)] = number
        self._receivers[number] = len(np.unique(template.peer[template.action == Action.SEND]))
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

    def add_table(
        self,
        own: PlanClass,
        tag: NDArray[np.uint32],
        slot: NDArray[np.int32],
        release_ns: NDArray[np.int64] | None,
        time_factor: int,
    ) -> None:
        graph = own.template
        rank = int(own.ranks[0])
        kind, dep_start, deps = graph.kind, graph.dep_start.astype(np.int32), graph.deps
        duration_ns = np.where((kind == Kind.COMP) | (kind == Kind.MEM), graph.duration_ns, 0)
        if (duration_ns < 0).any():
            missing = int((duration_ns < 0).sum())
            first = graph.node_id[np.flatnonzero(duration_ns < 0)[0]]
            raise WorkloadError(
                f"rank {rank}: {missing} compute nodes have no duration (first: node {first}); "
                f"give {option('compute')} roofline:TFLOPS,GBPS"
            )
        longest_ns = int(max(duration_ns.max(initial=0), 0 if release_ns is None else release_ns.max(initial=0)))
        if longest_ns * 1000 * time_factor > TIME_MAX_PS:
            raise WorkloadError(
                f"rank {rank}: a node takes {longest_ns} ns, which at dilation {time_factor} is more than "
                f"{TIME_MAX_PS // 10**12} s"
            )
        release = np.zeros(len(graph), np.int64)
        if release_ns is not None:
            # The times already include the effect of dependencies and slots.
            release = np.maximum(release_ns, 0)
            slot = np.full(len(graph), -1, np.int32)
            dep_start, deps = np.zeros(len(graph) + 1, np.int32), np.zeros(0, np.int32)
        self.native.add_table(
            kind,
            slot,
            duration_ns * 1000 * time_factor,
            release * 1000 * time_factor,
            np.maximum(graph.size_bytes, 0),
            tag,
            own.binding_of,
            dep_start,
            deps,
        )

    def add_rank(self, rank: int, table: int, bound: _Bound, at: int) -> None:
        self.native.add_rank(
            rank,
            table,
            bound.template_id[at],
            bound.sizes_start[at],
            bound.group[at],
            bound.position[at],
            bound.peer[at],
            bound.tag_bits[at],
        )


def _with_played(graph: RankGraph, release_ns: NDArray[np.int64]) -> RankGraph:
    """Return the graph with the nodes that are left out as metadata, which ends at once."""
    return replace(graph, kind=np.where(release_ns >= 0, graph.kind, np.uint8(Kind.META)).astype(np.uint8))


def _where(own: PlanClass, at: int, row: int) -> str:
    """Return a node in words."""
    return f"rank {own.ranks[at]}: node {own.template.node_id[row]} ({own.template.name[row]})"


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
