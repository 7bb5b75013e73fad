"""PAT: all-gather and reduce-scatter along binomial trees, for any number of members (Jeaugey, "PAT", 2025).

The offset of a block is the number of places from a member to the block's owner. In an all-gather a member gets the
block at an offset from the member 2^d further, where d is the offset's lowest set bit. A block thus travels far first
and near last, and most messages are near. A reduce-scatter sends the same messages backwards.

`trees` of these trees are walked side by side, and a message has up to `batch` blocks. Short blocks go in messages of
many, so that the rounds are as many as the number of members has bits. Long ones go alone, with few of them in buffers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from genie.collectives.algorithms import CREDIT_WINDOW, RECV, REDUCE, SEND, Row, Run, Steps, steps_of
from genie.collectives.template import Bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Aggregation:
    """Trees that are walked side by side, and blocks of a message at most; both are powers of two."""

    trees: int
    batch: int


class Message(NamedTuple):
    """Blocks at `first`, `first + stride`, ..., seen from the end that is further from their owners."""

    first: int
    stride: int
    blocks: int
    distance: int  # places between its ends


def aggregation(members: int, blocks_of_step: int, depth: int = 1) -> Aggregation:
    """Aggregation where `blocks_of_step` blocks fit into a message, and `depth` messages into a buffer."""
    trees = 1
    while trees < members // 2 and blocks_of_step // trees >= 2:
        trees *= 2
    batch = trees
    while trees < members // 2 and depth > 1:
        trees, depth = 2 * trees, depth // 2
    return Aggregation(trees, batch)


def whole_aggregation(members: int) -> Aggregation:
    """Aggregation of the fewest rounds: one message of each distance."""
    trees = max(1 << (members - 1).bit_length() >> 1, 1)
    return Aggregation(trees, trees)


@cache
def messages(op: str, members: int, how: Aggregation) -> tuple[Message, ...]:
    """Messages that each member sends, in order."""
    spacing = (1 << (members - 1).bit_length()) // how.trees
    roots: list[Message] = []  # from one block to the first block of each tree
    scale = how.trees // 2
    while scale:
        roots += _runs(scale * spacing, 2 * scale * spacing, how.trees // (2 * scale), members, how.batch)
        scale //= 2
    gathers = op == "all_gather"
    order = _far_first(spacing) if gathers else reversed(range(1, spacing))
    inside = [message for near in order for message in _runs(near, spacing, how.trees, members, how.batch)]
    return tuple(roots + inside if gathers else inside + roots[::-1])


def _runs(first: int, stride: int, count: int, members: int, batch: int) -> Iterator[Message]:
    """Messages with the blocks of as many offsets, without those beyond the group."""
    for start in range(first, first + count * stride, batch * stride):
        present = len(range(start, min(members, first + count * stride, start + batch * stride), stride))
        if present:
            yield Message(start, stride, present, first & -first)


def _far_first(spacing: int, offset: int = 0) -> Iterator[int]:
    """Offsets below `spacing`, each followed by those that it leads to, the furthest first."""
    reach = (offset & -offset or spacing) // 2
    while reach:
        yield offset + reach
        yield from _far_first(spacing, offset + reach)
        reach //= 2


@cache
def steps_of_pat(op: str, members: int, how: Aggregation, parts: int, window: int, in_order: bool) -> Steps:
    """Steps of one channel; blocks and peers are relative to the member's position.

    `parts`: of each block, one after the other. `window`: receives from one peer for which credits are out; 0: all.
    `in_order`: a send waits for what the sends before it wait for, as on a GPU that works on one message at a time.
    Without it, each peer must get one message only.
    """
    gathers = op == "all_gather"
    rows: list[Row] = []
    bases: list[int] = []
    runs: dict[Run, int] = {}
    received: dict[int, list[int]] = defaultdict(list)  # distance -> receives
    awaited: dict[int, int] = {}  # distance -> last receive that a send waited for
    for part in range(parts):
        came: dict[int, list[tuple[int, int]]] = defaultdict(list)  # offset -> (distance, receive)
        for far, stride, count, distance in messages(op, members, how):
            base = part * members
            if count > 1:
                base = (parts + runs.setdefault((base, stride, count), len(runs))) * members
            near = far - distance
            sent, kept = (near, far) if gathers else (far, near)
            needed = awaited if in_order else {}
            for at in range(count):
                for lane, step in came[sent + at * stride]:
                    needed[lane] = max(needed.get(lane, -1), step)
            towards = -distance if gathers else distance
            lane_steps = received[distance]
            cleared = (lane_steps[-window],) if 0 < window <= len(lane_steps) else ()
            rows.append((SEND, towards % members, sent, sorted(needed.values())))
            rows.append((RECV if gathers else REDUCE, -towards % members, kept, cleared))
            bases += [base, base]
            lane_steps.append(len(rows) - 1)
            for at in range(count):
                came[kept + at * stride].append((distance, len(rows) - 1))
    return replace(steps_of(rows), block_base=np.array(bases, np.int64), runs=tuple(runs))


def whole_pat(op: str, members: int, credit: bool) -> Steps:
    """As few rounds as the number of members has bits, each with one message."""
    return steps_of_pat(op, members, whole_aggregation(members), 1, int(credit) * CREDIT_WINDOW, in_order=False)


def on_channel(
    steps: Steps, own: int, members: int, channel: int, channels: int
) -> tuple[NDArray[np.int64], list[Bundle]]:
    """Block bases of a channel's steps, and their bundles. `own`: blocks of a channel without bundles.

    The blocks of all channels come before all bundles.
    """
    first = channels * own + channel * len(steps.runs) * members
    bases = np.where(steps.block_base < own, steps.block_base + channel * own, steps.block_base - own + first)
    bundles = [
        Bundle(first + number * members, source + channel * own, stride, count)
        for number, (source, stride, count) in enumerate(steps.runs)
    ]
    return bases, bundles


def with_bundles(bundles: tuple[Bundle, ...], members: int, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of the blocks, and then of the bundles of these blocks."""
    rows, place = [sizes], np.arange(members)
    for bundle in bundles:
        steps = np.arange(bundle.count)[:, None] * bundle.stride
        rows.append(sizes[bundle.source + (place + steps) % members].sum(axis=0))
    return np.concatenate(rows)
