"""The messages that NCCL sends for a collective (`--wire nccl`): a template and its size table.

Channels, loops, chunks and slices are those of `nccl_sizes`, order and dependencies those of `nccl_steps`. Members of
one node send each other only one-byte messages, at their start and at their end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from genie.collectives.algorithms import RECV, REDUCE, SEND, Steps, StepTimes, no_steps
from genie.collectives.lower import CHANNELS_MAX, LATENCY_BOUND_SHARE_BYTES, LoweringError, block_sizes, lower
from genie.collectives.nccl import steps as n
from genie.collectives.nccl.nodes import WORD_BYTES, Edge, Member, template_of, with_delay, with_words
from genie.collectives.nccl.sizes import (
    LONG_CHUNKS,
    PROTOCOLS,
    STEPS,
    Cut,
    cut_of,
    even_shares,
    message_chunks,
    over_channels,
    own_chunks,
    shared_chunks,
    slices_of,
    tree_chunk_bytes,
)
from genie.collectives.nccl.tuning import (
    LL128,
    NO_COSTS,
    NVLS,
    NVLS_TREE,
    RING,
    SIMPLE,
    TREE,
    Choice,
    Costs,
    Server,
    Tuner,
)
from genie.collectives.sizes import split_table, table
from genie.collectives.template import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

P2P = "p2p"
# Operation -> NCCL's algorithms; the first applies unless the size is small or NCCL_ALGO names another.
NCCL_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (RING, TREE),
    "all_gather": (RING,),
    "reduce_scatter": (RING,),
    "broadcast": (RING,),
    "reduce": (RING,),
    "all_to_all": (P2P,),
    "gather": (P2P,),
    "scatter": (P2P,),
}
MESSAGES_AT_ONCE = 8  # pairs of a grouped operation that communicate at the same time


@dataclass(frozen=True)
class NcclShape:
    """Settings that decide NCCL's messages; the defaults are NCCL's own."""

    channels: int = 2
    algorithm: str | None = None  # ring or tree, where the operation has both; None: chosen by size
    protocol: str = "simple"
    buffer_bytes: int = 4 << 20
    p2p_chunk_bytes: int = 128 << 10
    ranks_per_node: int = 1
    pxn: bool = True  # messages to a rank leave a node by the NIC of that rank's rail
    slice_delay_ns: int = 0  # GPU time before each slice that is sent
    # GPUs whose costs are played, and whose NCCL chooses algorithm and protocol; None: they take no time.
    server: Server | None = None
    protocols: tuple[str, ...] = ()  # of which `server` chooses; (): all

    def __post_init__(self) -> None:
        if not 1 <= self.channels <= CHANNELS_MAX:
            raise LoweringError(f"{self.channels} channels; allowed are 1..{CHANNELS_MAX}")
        if self.protocol not in PROTOCOLS:
            raise LoweringError(f"protocol {self.protocol!r}; known: {', '.join(PROTOCOLS)}")


# Algorithms that NCCL's choice has beside those above, where GPUs are known.
WITH_GPUS: dict[str, tuple[str, ...]] = {"all_reduce": (RING, TREE, NVLS, NVLS_TREE)}


@cache
def choose_nccl(op: str, members: int, size_bytes: int, shape: NcclShape, local: int = 1) -> Choice:
    """Algorithm, protocol, channels and costs of GPUs.

    Without GPUs: the tree for small all-reduces, the ring for all others, without costs. With them it is NCCL's own
    choice. `local`: number of members on each node. Raises LoweringError.
    """
    known = NCCL_ALGORITHMS[op]
    if shape.server is not None and members > 1 and size_bytes > 0:
        if known == (P2P,):
            return Choice(P2P, SIMPLE, shape.channels, _costs_of_messages(op, shape.server, members, local, size_bytes))
        allowed = (shape.algorithm,) if shape.algorithm in known else WITH_GPUS.get(op, known)
        if members == local and shape.algorithm == TREE:
            allowed = (RING,)  # as NCCL, which has no tree inside a server
        whole_bytes = size_bytes * (members if op == "all_gather" else 1)  # NCCL's model counts what all receive
        return Tuner(shape.server, op, members, local, shape.channels).choose(
            whole_bytes, tuple(map(str, allowed)), shape.protocols or tuple(PROTOCOLS)
        )
    small = size_bytes // max(members, 1) < LATENCY_BOUND_SHARE_BYTES
    algorithm = str(shape.algorithm) if shape.algorithm in known else TREE if TREE in known and small else known[0]
    return Choice(algorithm, shape.protocol, shape.channels)


def _costs_of_messages(op: str, server: Server, members: int, local: int, size_bytes: int) -> Costs:
    """Costs of grouped sends and receives, which use the protocol Simple."""
    tuner = Tuner(server, "all_gather", members, local, 1)
    share = size_bytes / members if op == "all_to_all" else size_bytes
    inside_us = tuner.scale_up_us(RING, SIMPLE) + share * (local - 1) / (1000 * server.scale_up_gb_per_s)
    return replace(tuner.costs_of_messages(), finish_ps=round(inside_us * 1_000_000) if local > 1 else 0)


def lower_nccl(
    op: str,
    shape: NcclShape,
    members: int,
    position: int,
    size_bytes: int,
    root: int = 0,
    splits: tuple[ArrayLike, ArrayLike] | None = None,
    local: int = 1,
) -> tuple[str, Template, NDArray[np.int64]]:
    """(name of the algorithm, template, size table) of the member at `position`.

    `local`: number of the group's members on each node, in order. Sizes are those on the wire, which LL and LL128 make
    larger than the data. A barrier, which NCCL does not have, is the plain one. Raises LoweringError.
    """
    if op == "barrier":
        algorithm = "dissemination"
        return algorithm, lower(op, algorithm, members, position), block_sizes(op, algorithm, members, position, 0)
    if op not in NCCL_ALGORITHMS:
        raise LoweringError(f"unknown collective {op!r}; known: {', '.join(NCCL_ALGORITHMS)}")
    if size_bytes < 0 or not (0 <= position < members and 0 <= root < members) or members % local:
        raise LoweringError(f"{op}: no such member, root or size: {position}, {root} of {members}, {size_bytes} B")
    at = Member(members, position, local)
    choice = choose_nccl(op, members, _moved_bytes(size_bytes, splits), shape, local)
    if choice.algorithm == P2P:
        template, sizes = _point_to_point(op, shape, at, size_bytes, root, splits, choice.costs)
    else:
        template, sizes = _in_channels(op, choice, shape, at, size_bytes, root)
    name = f"nccl {choice.algorithm}"
    return name if shape.server is None else f"{name} {choice.protocol}", template, sizes


def _moved_bytes(size_bytes: int, splits: tuple[ArrayLike, ArrayLike] | None) -> int:
    return size_bytes if splits is None else int(np.asarray(splits[0]).sum())


def _in_channels(
    op: str, choice: Choice, shape: NcclShape, at: Member, size_bytes: int, root: int
) -> tuple[Template, NDArray[np.int64]]:
    algorithm, protocol = choice.algorithm, PROTOCOLS[choice.protocol]
    cut = cut_of(op, algorithm, protocol, shape.buffer_bytes)
    if shape.server is not None and algorithm == TREE and choice.protocol == LL128 and size_bytes:
        chunk_bytes = tree_chunk_bytes(cut, size_bytes, choice.channels, at.nodes, at.local)
        cut = replace(cut, chunk_bytes=chunk_bytes)
    crossings = 2 if op == "all_reduce" else at.members if op in LONG_CHUNKS else 1
    ringed = op in LONG_CHUNKS and algorithm == RING
    if ringed and op != "all_reduce":
        rows = table(op, at.members, at.members, at.position, size_bytes)
        chunks = own_chunks(_channels(int(rows.max()), choice, crossings), rows, cut)
    else:
        chunks = shared_chunks(_channels(size_bytes, choice, crossings), at.members if ringed else 1, cut)
    channels = len(chunks)
    # (channels, loops, slices, rows) is the order of blocks in a template.
    sizes = protocol.on_wire(np.moveaxis(slices_of(chunks, cut), -1, 2))
    # In a ring all nodes are alike.
    where = Member(at.members, at.place, at.local) if ringed else at
    origin = 0 if ringed else root
    template = _channel_template(op, algorithm, where, channels, chunks.shape[1], cut, origin, choice.costs)
    words = np.full(template.blocks - sizes.size, WORD_BYTES, np.int64)
    return template, np.concatenate((sizes.reshape(-1), words))


def _channels(size_bytes: int, choice: Choice, crossings: int) -> NDArray[np.int64]:
    """Bytes of each channel; at least one channel."""
    shares = (even_shares if choice.even else over_channels)(size_bytes, choice.channels, crossings)
    return shares if len(shares) else np.zeros(1, np.int64)


@cache
def _channel_template(
    op: str, algorithm: str, at: Member, channels: int, loops: int, cut: Cut, root: int, costs: Costs
) -> Template:
    ringed = op in LONG_CHUNKS and algorithm == RING
    rows = at.members if ringed else 1
    parts = loops * cut.slices * channels
    pieces = []
    if at.nodes > 1:
        for channel in range(at.place, channels, at.local):
            steps = _steps(op, algorithm, at, loops, cut, root, channel % at.local, channel * 2 >= channels)
            steps.block_base[:] += channel * loops * cut.slices * rows
            pieces.append((channel, _with_costs(steps, costs, loops if ringed else 0, cut.slices)))
    blocks = (parts * rows, parts)
    return with_words(f"nccl {algorithm}", at, pieces, channels, blocks, relative=ringed, costs=costs)


def _with_costs(steps: Steps, costs: Costs, loops: int, slices: int) -> Steps:
    """The steps with the times of GPUs. `loops`: of a ring, with so many slices in each round; 0: not a ring."""
    if costs == NO_COSTS:
        return steps
    sends = steps.action == SEND
    if loops:  # a slice of the first rounds comes from the member that is as many places back
        number = np.cumsum(sends) - 1
        hops = np.minimum(number % (sends.sum() // loops) // slices, costs.hops)
    else:  # the sum of a server's own members is ready before those of other servers come
        hops = np.where((steps.deps < 0).all(axis=1), costs.hops, 0)
    # A chunk keeps its channel busy once, however many others it goes to.
    blocks = steps.block_base * (steps.block.max(initial=0) + 1) + steps.block
    first = np.zeros(len(sends), bool)
    first[np.unique(np.where(sends, blocks, -1), return_index=True)[1]] = True
    work = sends if loops else sends & first
    return replace(
        steps,
        times=StepTimes(
            np.where(sends, hops * costs.hop_ps + costs.send_ps, costs.receive_ps),
            np.where(sends, hops * costs.hop_ps_per_kib, 0),
            np.where(work, costs.work_ps_per_kib, 0),
        ),
    )


def _steps(op: str, algorithm: str, at: Member, loops: int, cut: Cut, root: int, leader: int, second: bool) -> Steps:
    """Steps of the node's leader on a channel; `second`: the channel uses the second of the two trees."""
    members, rounds = at.members, np.arange(at.members - 1)
    window = cut.window
    if op in LONG_CHUNKS and algorithm == RING:
        scatter, gather = (REDUCE, -1 - rounds), (RECV, -rounds)
        phases = {"all_reduce": [scatter, gather], "reduce_scatter": [scatter], "all_gather": [gather]}[op]
        return n.ring(members, phases, loops, cut.slices, window, at.local, at.place)

    def member(node: int) -> int:
        return n.NOBODY if node == n.NOBODY else node * at.local + leader

    if algorithm in (TREE, NVLS_TREE):
        up, down = n.double_binary_tree(at.nodes, at.node, int(second))
        return n.tree(loops, member(up), [member(child) for child in down], window)
    first = root // at.local
    before, after = (at.node - 1) % at.nodes, (at.node + 1) % at.nodes
    if op == "broadcast":  # from the root's node around to the node before it
        up = n.NOBODY if at.node == first else before
        return n.chain(loops, member(up), member(n.NOBODY if after == first else after), RECV, window)
    up = n.NOBODY if before == first else before
    return n.chain(loops, member(up), member(n.NOBODY if at.node == first else after), REDUCE, window)


def _point_to_point(
    op: str,
    shape: NcclShape,
    at: Member,
    size_bytes: int,
    root: int,
    splits: tuple[ArrayLike, ArrayLike] | None,
    costs: Costs,
) -> tuple[Template, NDArray[np.int64]]:
    """Grouped sends and receives, each in chunks; inside a node a one-byte word replaces the message."""
    if splits is not None:
        if op != "all_to_all":
            raise LoweringError(f"{op}: split sizes are for all_to_all only")
        try:
            whole = split_table(at.members, splits)
        except ValueError as error:
            raise LoweringError(str(error)) from None
    else:
        rows = 2 * at.members if op == "all_to_all" else at.members
        whole = table(op, rows, at.members, at.position, size_bytes)
    if at.local > 1:
        # All data of a gather or scatter goes to the root or comes from it.
        to_root = op != "all_to_all" and at.position != root
        other = np.full(len(whole), root) if to_root else np.arange(len(whole)) % at.members
        inside = other // at.local == at.node
        whole = np.where(inside & (whole > 0), WORD_BYTES, whole)
    sizes = message_chunks(whole, shape.p2p_chunk_bytes)
    relays = shape.pxn and at.local > 1 and splits is None
    template = _message_template(op, at if at.local > 1 or op != "all_to_all" else Member(at.members, 0),
                                 len(sizes), len(whole), root, relays, costs)  # fmt: skip
    return template, np.ascontiguousarray(sizes.reshape(-1))


@cache
def _message_template(op: str, at: Member, chunks: int, rows: int, root: int, relays: bool, costs: Costs) -> Template:
    members, position = at.members, at.position
    relative = op == "all_to_all" and at.local == 1
    others = [(root + step) % members for step in range(1, members)]
    pairs: list[_Pair]
    if op == "all_to_all":
        pairs = _exchanges(at, 0 if relative else position, range(1, members))
    elif op == "gather":
        pairs = [(n.NOBODY, 0, it, it) for it in others] if position == root else [(root, position, n.NOBODY, 0)]
    else:
        pairs = [(it, it, n.NOBODY, 0) for it in others] if position == root else [(n.NOBODY, 0, root, position)]
    pieces = [_side_by_side(pairs, chunks, rows)] if members > 1 else [no_steps()]
    edges: list[Edge] = []
    if op == "all_to_all" and relays:
        words, relayed = _relayed(at, chunks, rows)
        pieces = [words, relayed]
        begins = np.flatnonzero((relayed.action == SEND) & (relayed.deps < 0).all(axis=1))
        edges = [((1, int(step)), (0, int(word))) for step in begins for word in np.flatnonzero(words.action != SEND)]
    for steps in pieces if op == "all_to_all" else ():  # data from member j is in block members + j
        steps.block_base[steps.action != SEND] += members
    numbered = [(0, _with_costs_of_messages(steps, at, costs)) for steps in pieces]
    blocks, words_first = (chunks * rows, chunks), len(pieces) - 1
    return template_of("nccl p2p", members, numbered, edges, blocks, relative=relative, before=words_first, costs=costs)


def _with_costs_of_messages(steps: Steps, at: Member, costs: Costs) -> Steps:
    """Sends with the time of GPUs: over the network, or of all data of a server's members where nothing leaves it."""
    if costs == NO_COSTS:
        return steps
    inside = costs.finish_ps if at.nodes == 1 else 0
    if at.local == 1:
        return with_delay(steps, costs.send_ps + costs.receive_ps)
    crosses = steps.peer % at.members // at.local != at.node
    none = np.zeros(len(steps.action), np.int64)
    delay_ps = np.where(steps.action == SEND, np.where(crosses, costs.send_ps + costs.receive_ps, inside), 0)
    return replace(steps, times=StepTimes(delay_ps, none, none))


_Pair: TypeAlias = "tuple[int, int, int, int]"  # send to, its block, receive from, its block


def _exchanges(at: Member, position: int, distances: Sequence[int]) -> list[_Pair]:
    """The sends and receives of a member, by distance."""
    to = [(position + far) % at.members for far in distances]
    source = [(position - far) % at.members for far in distances]
    return list(zip(to, to, source, source, strict=True))


def _side_by_side(pairs: Sequence[_Pair], chunks: int, rows: int, copies: int = 1) -> Steps:
    groups = [pairs[start : start + MESSAGES_AT_ONCE] for start in range(0, len(pairs), MESSAGES_AT_ONCE)]
    return n.messages(groups, chunks, STEPS, rows, copies) if groups else no_steps()


def _relayed(at: Member, chunks: int, rows: int) -> tuple[Steps, Steps]:
    """With PXN: the words between a node's members, and the messages that leave the node, which wait for the words.

    All messages of a node to a rank go through the member on that rank's rail.
    """
    first = at.node * at.local
    inside = [first + (at.place + step) % at.local for step in range(1, at.local)]
    words = n.messages([[(it, it, it, it) for it in inside]], 1, STEPS, rows)
    nodes = _exchanges(at, at.position, [step * at.local for step in range(1, at.nodes)])
    return words, _side_by_side(nodes, chunks, rows, at.local)
