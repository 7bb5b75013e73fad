"""The messages that NCCL sends for a collective (`--wire nccl`): a template and its size table.

Channels, loops, chunks and slices are those of `nccl_sizes`, order and dependencies those of `nccl_steps`. Members of
one node send each other only one-byte messages, at their start and at their end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.algorithms import RECV, REDUCE, SEND, Steps, StepTimes
from genie.collectives.lower import CHANNELS_MAX, LATENCY_BOUND_SHARE_BYTES, LoweringError, block_sizes, lower
from genie.collectives.nccl import steps as n
from genie.collectives.nccl.collnet import collnet_cut, collnet_template, has_collnet
from genie.collectives.nccl.messages import P2P, bytes_of_messages, costs_of_messages, lower_messages
from genie.collectives.nccl.nodes import WORD_BYTES, Member, template_of, with_words
from genie.collectives.nccl.sizes import (
    LONG_CHUNKS,
    PROTOCOLS,
    STEPS,
    Cut,
    cut_of,
    even_shares,
    over_channels,
    own_chunks,
    pat_cut,
    shared_chunks,
    slices_of,
    tree_chunk_bytes,
)
from genie.collectives.nccl.tuner_file import TunerRow
from genie.collectives.nccl.tuning import (
    COLLNET,
    LL128,
    NO_COSTS,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    SIMPLE,
    TREE,
    Choice,
    Costs,
    Server,
    Tuner,
)
from genie.collectives.pat import Aggregation, aggregation, on_channel, steps_of_pat, with_bundles
from genie.collectives.sizes import table
from genie.collectives.template import Template

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Operation -> NCCL's algorithms; the first applies unless the size is small or NCCL_ALGO names another.
NCCL_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (RING, TREE),
    "all_gather": (RING, PAT),
    "reduce_scatter": (RING, PAT),
    "broadcast": (RING,),
    "reduce": (RING,),
    "all_to_all": (P2P,),
    "gather": (P2P,),
    "scatter": (P2P,),
}


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
    tuner: tuple[TunerRow, ...] = ()  # choices of a tuner's file, before NCCL's own
    collnet: bool = False  # the switches reduce, and NCCL_COLLNET_ENABLE is 1
    # (operation, algorithms), for operations of which NCCL_ALGO allows some only.
    allowed: tuple[tuple[str, tuple[str, ...]], ...] = ()

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
    named = (shape.algorithm,) if op == "all_reduce" and shape.algorithm else dict(shape.allowed).get(op, ())
    if shape.server is not None and members > 1 and size_bytes > 0:
        if known == (P2P,):
            return Choice(P2P, SIMPLE, shape.channels, costs_of_messages(op, shape.server, members, local, size_bytes))
        tuner = Tuner(shape.server, op, members, local, shape.channels)
        able = filter(tuner.plays, WITH_GPUS.get(op, known) + (COLLNET if shape.collnet else ()))
        # Where none of those named is possible, such as a tree inside a server, NCCL has the ring.
        allowed = tuple(name for name in able if not named or name in named) or (RING,)
        whole_bytes = size_bytes * members if op == "all_gather" else size_bytes
        protocols = shape.protocols or tuple(PROTOCOLS)
        for row in shape.tuner:
            if row.fits(op, whole_bytes, members, tuner.nodes):
                # As in NCCL, a row is passed over if its algorithm or protocol is not available here.
                is_allowed = row.algorithm in allowed and row.protocol in protocols
                if is_allowed and (choice := tuner.choose_only(whole_bytes, row.algorithm, row.protocol, row.channels)):
                    return choice
        return tuner.choose(whole_bytes, allowed, protocols)
    if named == (PAT,) and members > 1 and local == 1 and size_bytes > 0:
        return Choice(PAT, SIMPLE, shape.channels)
    if named and named[0] in COLLNET and shape.collnet and has_collnet(members // local, local) and size_bytes > 0:
        return Choice(named[0], SIMPLE, shape.channels)
    small = size_bytes // max(members, 1) < LATENCY_BOUND_SHARE_BYTES
    algorithms = [name for name in known if name in named] or known
    algorithm = TREE if TREE in algorithms and (small or RING not in algorithms) else RING if RING in known else P2P
    return Choice(algorithm, shape.protocol, shape.channels)


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
        whole = bytes_of_messages(op, at, size_bytes, splits)
        relays = shape.pxn and splits is None
        template, sizes = lower_messages(op, at, whole, shape.p2p_chunk_bytes, root, relays, choice.costs)
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
    if algorithm == PAT:
        return _pat(op, choice, shape, at, size_bytes)
    if algorithm in COLLNET:
        return _collnet(choice, shape, at, size_bytes)
    cut = played_cut(op, choice, shape, at.nodes, at.local, size_bytes)
    ringed = op in LONG_CHUNKS and algorithm == RING
    if ringed and op != "all_reduce":
        rows = table(op, at.members, at.members, at.position, size_bytes)
        chunks = own_chunks(played_channels(op, choice, at.members, int(rows.max())), rows, cut)
    else:
        shares = played_channels(op, choice, at.members, size_bytes)
        chunks = shared_chunks(shares, at.members if ringed else 1, cut)
    channels = len(chunks)
    # (channels, loops, slices, rows) is the order of blocks in a template.
    sizes = protocol.on_wire(np.moveaxis(slices_of(chunks, cut), -1, 2))
    # In a ring all nodes are alike.
    where = Member(at.members, at.place, at.local) if ringed else at
    origin = 0 if ringed else root
    template = _channel_template(op, algorithm, where, channels, chunks.shape[1], cut, origin, choice.costs)
    words = np.full(template.blocks - sizes.size, WORD_BYTES, np.int64)
    return template, np.concatenate((sizes.reshape(-1), words))


def played_cut(op: str, choice: Choice, shape: NcclShape, nodes: int, local: int, size_bytes: int) -> Cut:
    """Return the chunks and slices of a ring or tree; with GPUs, LL128 cuts a tree's chunks by its depth."""
    cut = cut_of(op, choice.algorithm, PROTOCOLS[choice.protocol], shape.buffer_bytes)
    if shape.server is not None and choice.algorithm == TREE and choice.protocol == LL128 and size_bytes:
        return replace(cut, chunk_bytes=tree_chunk_bytes(cut, size_bytes, choice.channels, nodes, local))
    return cut


def played_channels(op: str, choice: Choice, members: int, size_bytes: int) -> NDArray[np.int64]:
    """Return the bytes of each channel, (used,); at least one channel.

    `size_bytes`: of the buffer; of the largest block in an all-gather or a reduce-scatter.
    """
    crossings = 2 if op == "all_reduce" else members if op in LONG_CHUNKS else 1
    shares = (even_shares if choice.even else over_channels)(size_bytes, choice.channels, crossings)
    return shares if len(shares) else np.zeros(1, np.int64)


def _collnet(choice: Choice, shape: NcclShape, at: Member, size_bytes: int) -> tuple[Template, NDArray[np.int64]]:
    shares = played_channels("all_reduce", choice, at.members, size_bytes)
    cut = collnet_cut(choice.algorithm, size_bytes, len(shares), at.local, shape.buffer_bytes)
    chunks = shared_chunks(shares, 1, cut)
    template = collnet_template(choice.algorithm, at, len(shares), chunks.shape[1], cut, choice.costs)
    words = np.full(template.blocks - chunks.size, WORD_BYTES, np.int64)
    return template, np.concatenate((chunks.reshape(-1), words))


def _pat(op: str, choice: Choice, shape: NcclShape, at: Member, size_bytes: int) -> tuple[Template, NDArray[np.int64]]:
    rows = table(op, at.members, at.members, at.position, size_bytes)
    shares = played_channels(op, choice, at.members, int(rows.max()))
    cut = pat_cut(op, int(rows.sum()), len(shares), shape.buffer_bytes)
    chunks = own_chunks(shares, rows, cut)
    how = aggregation(at.members, cut.chunk_bytes // max(int(shares.max()), 1), STEPS)
    template = _pat_template(op, at.members, len(shares), chunks.shape[1], how, cut.window, choice.costs)
    return template, with_bundles(template.bundles, at.members, chunks.reshape(-1))


@cache
def _pat_template(
    op: str, members: int, channels: int, loops: int, how: Aggregation, window: int, costs: Costs
) -> Template:
    steps = steps_of_pat(op, members, how, loops, window, in_order=True)
    own = loops * members
    placed = [on_channel(steps, own, members, channel, channels) for channel in range(channels)]
    bundles = tuple(bundle for _, found in placed for bundle in found)
    pieces = [
        (channel, _with_costs(replace(steps, block_base=bases), costs, loops, 1))
        for channel, (bases, _) in enumerate(placed)
    ]
    blocks = (channels * own + members * len(bundles), channels * loops)
    template = template_of(f"nccl {PAT}", members, pieces, [], blocks, relative=True, costs=costs)
    # A shorter block may lack its last chunk, and a message of no bytes keeps the order of a reduce-scatter.
    return replace(template, bundles=bundles, empty_messages=op == "reduce_scatter")


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
