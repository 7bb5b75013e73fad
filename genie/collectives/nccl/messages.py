"""Grouped sends and receives as NCCL has them: all-to-all, gather and scatter.

Messages cross the network in chunks. Inside a node a one-byte word replaces the message, and takes the time that the
node's links take for all data of a member.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from genie.collectives.algorithms import SEND, Steps, no_steps
from genie.collectives.lower import LoweringError
from genie.collectives.nccl import steps as n
from genie.collectives.nccl.nodes import WORD_BYTES, Edge, Member, template_of, with_delay
from genie.collectives.nccl.sizes import STEPS, message_chunks
from genie.collectives.nccl.tuning import NO_COSTS, RING, SIMPLE, Costs, Server, Tuner
from genie.collectives.sizes import split_table, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from genie.collectives.template import Template

P2P = "p2p"
_Pair: TypeAlias = "tuple[int, int, int, int]"  # send to, its block, receive from, its block
MESSAGES_AT_ONCE = 8  # pairs of a grouped operation that communicate at the same time


def costs_of_messages(op: str, server: Server, members: int, local: int, size_bytes: int) -> Costs:
    """Costs of grouped sends and receives, which use the protocol Simple.

    `finish_ps`: of all data between the members of a node, as if each of them had an even share.
    """
    tuner = Tuner(server, "all_gather", members, local, 1)
    share = size_bytes if op == "gather" else size_bytes / members
    inside_us = tuner.scale_up_us(RING, SIMPLE) + share * (local - 1) / (1000 * tuner.scale_up_gb_per_s)
    return replace(tuner.costs_of_messages(), finish_ps=round(inside_us * 1_000_000) if local > 1 else 0)


def bytes_of_messages(
    op: str, at: Member, size_bytes: int, splits: tuple[ArrayLike, ArrayLike] | None
) -> NDArray[np.int64]:
    """(blocks,) bytes of a member's messages; of an all-to-all to each other and from each. Raises LoweringError."""
    if splits is None:
        return table(op, 2 * at.members if op == "all_to_all" else at.members, at.members, at.position, size_bytes)
    if op != "all_to_all":
        raise LoweringError(f"{op}: split sizes are for all_to_all only")
    try:
        return split_table(at.members, splits)
    except ValueError as error:
        raise LoweringError(str(error)) from None


def lower_messages(
    op: str, at: Member, whole: NDArray[np.int64], chunk_bytes: int, root: int, relays: bool, costs: Costs
) -> tuple[Template, NDArray[np.int64]]:
    """Template and size table. `whole`: (blocks,) bytes of messages. `relays`: by the NIC on the receiver's rail."""
    if at.local > 1:
        # All data of a gather or scatter goes to the root or comes from it.
        to_root = op != "all_to_all" and at.position != root
        other = np.full(len(whole), root) if to_root else np.arange(len(whole)) % at.members
        inside = other // at.local == at.node
        whole = np.where(inside & (whole > 0), WORD_BYTES, whole)
    sizes = message_chunks(whole, chunk_bytes)
    where = at if at.local > 1 or op != "all_to_all" else Member(at.members, 0)
    template = _message_template(op, where, len(sizes), len(whole), root, relays and at.local > 1, costs)
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
    begun: list[Steps] = []
    inside: list[Steps] = []
    edges: list[Edge] = []
    if costs != NO_COSTS and at.local > 1:  # on a channel of their own, so that no message waits behind their time
        own, pairs = (_ends(pairs, at, inside=each) for each in (True, False))
        inside = [with_delay(n.messages([own], 1, STEPS, rows), costs.finish_ps)] if own else []
    if op != "all_to_all" or not relays:
        sent = _side_by_side(pairs, chunks, rows)
    else:
        words, sent = _relayed(at, chunks, rows)
        begun = [words]
        begins = np.flatnonzero((sent.action == SEND) & (sent.deps < 0).all(axis=1))
        heard = np.flatnonzero(words.action != SEND)
        edges = [((1, np.repeat(begins, len(heard))), (0, np.tile(heard, len(begins))))]
    for steps in (*begun, sent, *inside) if op == "all_to_all" else ():  # data from member j is in block members + j
        steps.block_base[steps.action != SEND] += members
    network_ps = costs.send_ps + costs.receive_ps
    numbered = [(0, steps) for steps in begun] + [(0, with_delay(sent, network_ps))] + [(1, steps) for steps in inside]
    blocks, before, after = (chunks * rows, chunks), len(begun), len(inside)
    return template_of(
        "nccl p2p", members, numbered, edges, blocks, relative=relative, before=before, after=after, costs=costs
    )


def _ends(pairs: Sequence[_Pair], at: Member, *, inside: bool) -> list[_Pair]:
    """The pairs with the sends and receives inside the member's node only, or with the others only."""

    def kept(member: int) -> int:
        return member if member != n.NOBODY and (member // at.local == at.node) == inside else n.NOBODY

    found = [(kept(to), out, kept(source), into) for to, out, source, into in pairs]
    return [pair for pair in found if (pair[0], pair[2]) != (n.NOBODY, n.NOBODY)]


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
