"""CollNet: all-reduces in which the switches of the network reduce (`[switch] reduces`).

A node's leader on a channel sends the node's sums up to its switch, and gets the sums of all nodes back. Each link to a
node thus carries every byte once each way, and so does each link of the tree of switches. No switch is a member. The
leader of the next node takes the switch's place: it gets the messages, and they load the same links by the same bytes.
Words of one byte among the leaders end a channel, as a sum needs the parts of all nodes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.algorithms import RECV, SEND, Row, Steps, StepTimes, steps_of
from genie.collectives.nccl.nodes import Member, with_words
from genie.collectives.nccl.sizes import PROTOCOLS, Cut, cut_of
from genie.collectives.nccl.tuning import COLLNET_CHAIN, COLLNET_DIRECT, COLLNET_MEMBERS_MAX, NO_COSTS, Costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from genie.collectives.template import Template

CHAIN_CHUNK_MAX_BYTES = 256 << 10
# A chunk is halved down to this size while a channel has fewer chunks than this number times the depth.
CHUNKS_AND_LEAST_BYTES = {
    COLLNET_DIRECT: ((64, 128 << 10), (8, 32 << 10)),
    COLLNET_CHAIN: ((64, 128 << 10), (8, 64 << 10), (1, 32 << 10)),
}


def has_collnet(nodes: int, local: int) -> bool:
    """Whether NCCL uses CollNet for a group of so many nodes with so many members each."""
    return nodes > 1 and local <= COLLNET_MEMBERS_MAX


def collnet_cut(algorithm: str, size_bytes: int, channels: int, local: int, buffer_bytes: int) -> Cut:
    """Chunks of a channel, smaller where it has few of them."""
    cut = cut_of("all_reduce", algorithm, PROTOCOLS["simple"], buffer_bytes)
    chain = algorithm == COLLNET_CHAIN
    chunk = min(cut.chunk_bytes, CHAIN_CHUNK_MAX_BYTES) if chain else cut.chunk_bytes
    depth = local if chain else min(local, 2)
    for chunks, least_bytes in CHUNKS_AND_LEAST_BYTES[algorithm]:
        while size_bytes // (channels * chunk) < depth * chunks and chunk > least_bytes:
            chunk //= 2
    return replace(cut, chunk_bytes=chunk)


@cache
def collnet_template(algorithm: str, at: Member, channels: int, loops: int, cut: Cut, costs: Costs) -> Template:
    """The template of a member; the last block is that of the words."""
    words = channels * loops
    pieces = []
    for channel in range(at.place, channels, at.local):
        leaders = [node * at.local + channel % at.local for node in range(at.nodes)]
        steps = _steps(leaders, at.node, loops, cut.window)
        data = np.arange(len(steps.action)) < 2 * loops
        steps.block_base[:] = np.where(data, channel * loops, words)
        pieces.append((channel, steps if costs == NO_COSTS else replace(steps, times=_times(steps, data, costs))))
    name = f"nccl {algorithm}"
    template = with_words(name, at, pieces, channels, (words + 1, words), relative=False, costs=costs)
    return replace(template, credit=np.zeros_like(template.credit))  # a switch needs no clear-to-send


def _steps(leaders: Sequence[int], node: int, loops: int, window: int) -> Steps:
    """Chunks to the next leader and from the one before, then the words of a dissemination barrier."""
    nodes = len(leaders)
    rows: list[Row] = []
    for loop in range(loops):  # a chunk leaves once the sum of the chunk a buffer before it is back
        full = (2 * (loop - window) + 1,) if loop >= window else ()
        rows.append((SEND, leaders[(node + 1) % nodes], loop, full))
        rows.append((RECV, leaders[node - 1], loop, full))
    came = list(range(max(2 * (loops - window), 0) + 1, 2 * loops, 2))  # the last ones may have no bytes
    heard = list(came)
    away = 1
    while away < nodes:
        rows.append((SEND, leaders[(node + away) % nodes], 0, tuple(heard)))
        rows.append((RECV, leaders[node - away], 0, came))
        heard.append(len(rows) - 1)
        away *= 2
    return steps_of(rows)


def _times(steps: Steps, data: NDArray[np.bool_], costs: Costs) -> StepTimes:
    sends = (steps.action == SEND) & data
    first = sends & (steps.deps < 0).all(axis=1)
    ends_ps = np.where(sends, costs.send_ps, np.where(data, costs.receive_ps, 0))
    return StepTimes(
        ends_ps + np.where(first, costs.hops * costs.hop_ps, 0),
        np.where(first, costs.hops * costs.hop_ps_per_kib, 0),
        np.where(sends, costs.work_ps_per_kib, 0),
    )
