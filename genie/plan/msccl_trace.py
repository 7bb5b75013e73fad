"""An MSCCL algorithm as a trace: each chunk that it sends is a SEND on one rank and a RECV on another."""

from __future__ import annotations

from collections import Counter

from genie.collectives.msccl.algorithm import MscclAlgorithm
from genie.collectives.msccl.moves import Local, Move
from genie.collectives.template import Action
from genie.plan.build import MESSAGE_MAX_BYTES
from genie.plan.tags import CHANNELS_MAX
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, RankGraph, Workload, WorkloadError

# NCCL's FIFO between two GPUs has 8 slots, so a thread block has 8 messages in flight. Each slot is a stream, because a
# stream runs one node at a time.
SLOTS = 8
GROUP_NAME = "0"


def msccl_workload(algorithm: MscclAlgorithm, size_bytes: int, reduction_ns: int = 0) -> Workload:
    """One collective of `size_bytes` (convention: genie/workload/graph.py) among all ranks, as its messages.

    `reduction_ns`: time of a GPU to reduce a chunk, as a compute node (0: no such nodes). Copies take no time. Raises
    WorkloadError for a size that does not divide into the algorithm's chunks, or whose chunks are larger than a
    message.
    """
    file = algorithm.file
    chunk_bytes = algorithm.chunk_bytes(size_bytes)
    per_member = file.chunks // file.members if file.op == "all_gather" else file.chunks
    if chunk_bytes > MESSAGE_MAX_BYTES:
        raise WorkloadError(
            f"{size_bytes} B: chunks of {chunk_bytes} B are more than a message has, {MESSAGE_MAX_BYTES} B: give "
            f"{per_member * MESSAGE_MAX_BYTES} B or less"
        )
    if chunk_bytes <= 0:
        raise WorkloadError(f"{size_bytes} B: must be a multiple of {per_member}, the chunks of {file.where}")
    graphs: dict[int, RankGraph] = {}
    workload = Workload(file.name, file.members, [Group(GROUP_NAME, tuple(range(file.members)))], graphs)
    for rank, moves in enumerate(algorithm.moves):
        graphs[rank] = _Rank(rank, chunk_bytes, reduction_ns, len(file.gpus[rank].blocks)).build(moves)
    return workload


class _Rank:
    def __init__(self, rank: int, chunk_bytes: int, reduction_ns: int, thread_blocks: int) -> None:
        self.builder = RankBuilder(rank)
        self.chunk_bytes, self.reduction_ns = chunk_bytes, reduction_ns
        self.first_compute_stream = thread_blocks * SLOTS
        self.order: dict[int, int] = {}  # thread block -> its index among those with messages
        self.messages: Counter[tuple[object, ...]] = Counter()  # messages of each lane, and of each thread block

    def build(self, moves: list[Move]) -> RankGraph:
        """The graph, with nodes in the order of the moves."""
        over: list[frozenset[int]] = []  # for each move, the nodes that end no later than it
        for move in moves:
            deps: frozenset[int] = frozenset().union(*(over[dep] for dep in move.deps))
            over.append(self._node(move, deps))
        return self.builder.finish()[0]

    def _node(self, move: Move, deps: frozenset[int]) -> frozenset[int]:
        node = len(self.builder)
        block = self.order.setdefault(move.thread_block, len(self.order))
        if isinstance(move.action, Local):
            return self._reduce(move, block, deps) if move.action is Local.ADD else deps
        sends = move.action is Action.SEND
        kind = Kind.SEND if sends else Kind.RECV
        lane = (kind, move.peer, move.channel)
        stream = -1
        if sends:
            stream = block * SLOTS + self.messages[block,] % SLOTS
            self.messages[block,] += 1
        self.builder.add(
            node,
            f"{kind.name.lower()} {self.messages[lane]} of channel {move.channel}",
            kind,
            sorted(deps),
            size_bytes=self.chunk_bytes,
            peer=move.peer,
            tag=self.messages[lane] * CHANNELS_MAX + move.channel,
            stream=stream,
        )
        self.messages[lane] += 1
        received = frozenset({node})
        return self._reduce(move, block, received) if move.action is Action.REDUCE else received

    def _reduce(self, move: Move, block: int, deps: frozenset[int]) -> frozenset[int]:
        if self.reduction_ns == 0:
            return deps
        node = len(self.builder)
        stream = self.first_compute_stream + block
        self.builder.add(
            node, f"reduce {move.block}", Kind.COMP, sorted(deps), duration_ns=self.reduction_ns, stream=stream
        )
        return frozenset({node})
