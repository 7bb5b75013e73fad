"""All-reduce of nodes with several members each: a reduce-scatter inside, an all-reduce between, an all-gather inside.

Each phase is a ring. The buffer has a slice for each place in a node, and a slice a block for each node. Inside a node
a message is a slice. Between nodes it is a block, and the members at each place have a ring of their own. A network
between nodes thus carries, of each member, its slice only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.algorithms import CREDIT_WINDOW, RECV, REDUCE, SEND, Row, steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genie.collectives.algorithms import Steps


def hierarchical_all_reduce(members: int, position: int, local: int, credit: bool) -> Steps:
    """Steps of a member; `local`: members of each node, in order. Block k of slice s is s * nodes + k."""
    nodes, (node, place) = members // local, divmod(position, local)
    ring = _Rings(credit)
    inside = (node * local + (place + 1) % local, node * local + (place - 1) % local)
    between = ((position + local) % members, (position - local) % members)

    def piece(which: int) -> tuple[int, bool]:
        return which % local * nodes, nodes > 1

    def block(which: int) -> tuple[int, bool]:
        return place * nodes + which % nodes, False

    reduced: list[int] = []  # receives that the next send waits for
    for round_ in range(local - 1):
        ring.send(inside[0], piece(place - 1 - round_), reduced)
        reduced = [ring.receive(REDUCE, inside[1], piece(place - 2 - round_))]
    own, last = reduced, list(reduced)
    for round_ in range(nodes - 1):
        ring.send(between[0], block(node - 1 - round_), own + last)
        last = [ring.receive(REDUCE, between[1], block(node - 2 - round_))]
    whole = list(own + last if nodes > 1 else own)
    for round_ in range(nodes - 1):
        ring.send(between[0], block(node - round_), own + last)
        last = [ring.receive(RECV, between[1], block(node - 1 - round_))]
        whole += last
    last = []
    for round_ in range(local - 1):  # no slice passes the member's own, which may come from other nodes later
        ring.send(inside[0], piece(place - round_), whole + last)
        last = [ring.receive(RECV, inside[1], piece(place - 1 - round_))]
    return ring.steps(members, nodes)


class _Rings:
    """Steps that are added in order; messages of slices are bundles of blocks."""

    def __init__(self, credit: bool) -> None:
        self.credit = credit
        self.rows: list[Row] = []
        self.is_slice: list[bool] = []
        self.received: dict[int, list[int]] = {}  # by peer

    def send(self, peer: int, what: tuple[int, bool], after: Sequence[int]) -> None:
        self._add(SEND, peer, what, sorted(set(after)))

    def receive(self, action: int, peer: int, what: tuple[int, bool]) -> int:
        before = self.received.setdefault(peer, [])
        # As in a ring: a block without bytes is done at once, and waiting for a whole window keeps credits in order.
        full = before[: 1 - CREDIT_WINDOW][-CREDIT_WINDOW:] if self.credit else []
        before.append(len(self.rows))
        self._add(action, peer, what, full)
        return before[-1]

    def _add(self, action: int, peer: int, what: tuple[int, bool], after: Sequence[int]) -> None:
        self.rows.append((action, peer, what[0], after))
        self.is_slice.append(what[1])

    def steps(self, members: int, nodes: int) -> Steps:
        bases = np.where(np.array(self.is_slice, bool), members, 0)
        runs = ((0, 1, nodes),) if any(self.is_slice) else ()
        return replace(steps_of(self.rows), block_base=bases.astype(np.int64), runs=runs)
