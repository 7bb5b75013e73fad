"""Meaning of each operation, independent of any algorithm: the contents of all blocks before and after.

The checkers compare with this. A block's content is a pair: the piece of data, and the number of contributions of each
member. The numbers are one integer with `COUNT_BITS` bits per member (adding contents adds counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from genie.collectives.template import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from genie.collectives.template import Template

COUNT_BITS = 16
Content: TypeAlias = "tuple[tuple[int, ...], int]"  # (piece of data, contributions)


class CheckError(Exception):
    """A template set that does not do its operation; the message names the place and the problem."""


class Lane(NamedTuple):
    """Messages of one direction between two members on one channel; they stay in order."""

    source: int
    target: int
    channel: int

    def __str__(self) -> str:
        return f"{self.source}->{self.target} channel {self.channel}"


class Step(NamedTuple):
    """A step of a template, for one member."""

    position: int
    number: int
    action: int
    lane: Lane
    block: int
    size_bytes: int
    message: bool  # False: skipped at both ends, because the block has no bytes
    credit: bool
    deps: tuple[int, ...]
    source: int = -1  # in a step inside the member, the block that is read; -1: the message
    after_sends: tuple[int, ...] = ()  # sends that must have started first
    bundled: tuple[int, ...] = ()  # blocks of the message, where it has several

    @property
    def sends(self) -> bool:
        return self.action == Action.SEND

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks that the step sends or writes."""
        return self.bundled or (self.block,)

    def __str__(self) -> str:
        return f"member {self.position} step {self.number} ({Action(self.action).name} block {self.block}, {self.lane})"


def expand(templates: Sequence[Template], sizes: Sequence[NDArray[np.int64]]) -> list[list[Step]]:
    """Steps of every member. Raises CheckError if a template is malformed or does not fit the group."""
    return [_expand(template, sizes[at], at, len(templates)) for at, template in enumerate(templates)]


def _expand(template: Template, sizes: NDArray[np.int64], position: int, members: int) -> list[Step]:
    if template.members != members or len(sizes) != template.blocks:
        raise CheckError(f"member {position}: its template does not fit the group or its size table")
    columns = (template.action, template.peer, template.block_base, template.block, template.channel, template.credit)
    if any(len(column) != len(template) for column in columns) or len(template.dep_start) != len(template) + 1:
        raise CheckError(f"member {position}: its template's columns differ in length")
    bounds, deps, table = template.dep_start.tolist(), template.deps.tolist(), sizes.tolist()
    bundled = _bundled_blocks(template, table, position)
    steps = []
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (action, peer, base, block, channel, credit) in enumerate(rows):
        if not (0 <= peer < members and 0 <= channel < template.channels) or action > Action.REDUCE:
            raise CheckError(f"member {position} step {number}: no such peer, channel or action")
        if template.relative:
            if not 0 <= block < members:
                raise CheckError(f"member {position} step {number}: relative block {block} out of range")
            peer, block = (position + peer) % members, (position + block) % members
        if peer == position or not 0 <= base + block < template.blocks:
            raise CheckError(f"member {position} step {number}: its peer is itself, or it has no such block")
        needed = tuple(deps[bounds[number] : bounds[number + 1]])
        if needed and not 0 <= min(needed) <= max(needed) < number:
            raise CheckError(f"member {position} step {number}: depends on a step that is not before it")
        size = table[base + block]
        message = size > 0 or template.empty_messages
        lane = Lane(position, peer, channel) if action == Action.SEND else Lane(peer, position, channel)
        blocks = bundled.get(base + block, ())
        steps.append(
            Step(position, number, action, lane, base + block, size, message, bool(credit), needed, bundled=blocks)
        )
    return steps


def _bundled_blocks(template: Template, table: list[int], position: int) -> dict[int, tuple[int, ...]]:
    """Blocks of each bundle's rows. Raises CheckError if a row is not as large as its blocks."""
    members, own = template.members, template.own_blocks
    found = {}
    for bundle in template.bundles:
        if not (own <= bundle.first <= template.blocks - members and 0 <= bundle.source <= own - members):
            raise CheckError(f"member {position}: a bundle without rows, or of blocks that it does not have")
        for row in range(bundle.first, bundle.first + members):
            blocks = bundle.blocks(row, members)
            if len(set(blocks)) < bundle.count or table[row] != sum(table[block] for block in blocks):
                raise CheckError(f"member {position} row {row}: is not as large as its blocks {blocks}")
            found[row] = blocks
    return found


def sent_content(step: Step, held: Sequence[Content | None]) -> list[Content]:
    """Content of each block that a send takes from the blocks of its member. Raises CheckError if one has none yet."""
    found = [content for block in step.blocks if (content := held[block]) is not None]
    if len(found) < len(step.blocks):
        raise CheckError(f"{step}: sends a block that it does not have yet")
    return found


@dataclass(frozen=True)
class Meaning:
    """One collective of one group: `rows` blocks on each of `channels`."""

    op: str
    members: int
    rows: int
    channels: int
    root: int = 0

    @cached_property
    def everyone(self) -> int:
        """One contribution of each member."""
        return sum(1 << (COUNT_BITS * member) for member in range(self.members))

    def before(self, position: int) -> list[Content | None]:
        """Contents of the member's blocks when it starts; None: not written yet."""
        return self._contents(position, self._before)

    def after(self, position: int) -> list[Content | None]:
        """Required contents of the member's blocks at the end; None: any."""
        return self._contents(position, self._after)

    def _contents(self, position: int, rule: Callable[[int, int, int], Content | None]) -> list[Content | None]:
        blocks = [(channel, row) for channel in range(self.channels) for row in range(self.rows)]
        return [rule(position, channel, row) for channel, row in blocks]

    def _before(self, position: int, channel: int, row: int) -> Content | None:
        own = 1 << (COUNT_BITS * position)
        match self.op:
            case "all_reduce" | "reduce" | "reduce_scatter":
                holds = True
            case "all_gather" | "gather":
                holds = row == position
            case "broadcast" | "scatter":
                holds = position == self.root
            case "all_to_all":
                return ((channel, position, row), own) if row < self.members else None
            case _:
                return (channel, row), 0
        return ((channel, row), own) if holds else None

    def _after(self, position: int, channel: int, row: int) -> Content | None:
        def origin(member: int) -> Content:
            return (channel, row), 1 << (COUNT_BITS * member)

        match self.op:
            case "all_reduce":
                return (channel, row), self.everyone
            case "reduce":
                return ((channel, row), self.everyone) if position == self.root else None
            case "reduce_scatter":
                return ((channel, row), self.everyone) if row == position else None
            case "all_gather":
                return origin(row)
            case "gather":
                return origin(row) if position == self.root else None
            case "broadcast":
                return origin(self.root)
            case "scatter":
                return origin(self.root) if row == position else None
            case "all_to_all":
                source = row - self.members
                if source < 0 or source == position:  # a member's own part does not move
                    return None
                return (channel, source, position), 1 << (COUNT_BITS * source)
            case _:
                return None

    def receive(self, step: Step, held: Content | None, message: Content) -> Content:
        """The block's content after the step has received `message`."""
        if step.action == Action.RECV or self.op == "barrier":
            return message
        if held is None or held[0] != message[0]:
            raise CheckError(f"{step}: reduces piece {message[0]} into {held and held[0]}")
        return held[0], held[1] + message[1]

    def compare(self, position: int, blocks: Sequence[Content | None], sizes: NDArray[np.int64]) -> None:
        """Raise CheckError unless the member's blocks with bytes have the required contents."""
        for block, wanted in enumerate(self.after(position)):
            if wanted is None or sizes[block] == 0 or blocks[block] == wanted:
                continue
            found = blocks[block]
            if found is None or found[0] != wanted[0]:
                raise CheckError(f"member {position} block {block}: holds piece {found and found[0]}, not {wanted[0]}")
            counts = [[(it[1] >> (COUNT_BITS * m)) & 0xFFFF for m in range(self.members)] for it in (found, wanted)]
            raise CheckError(f"member {position} block {block}: contributions {counts[0]}, not {counts[1]}")


def check_sizes(
    meaning: Meaning, sizes: Sequence[NDArray[np.int64]], size_bytes: int, splits: NDArray[np.int64] | None
) -> None:
    """Raise CheckError unless the blocks of each member cover its buffer exactly. `splits`: (members, members) bytes i
    -> j.
    """
    for position, table in enumerate(sizes):
        if (table < 0).any():
            raise CheckError(f"member {position}: a block of negative size")
        rows = table[: meaning.channels * meaning.rows].reshape(meaning.channels, meaning.rows).sum(axis=0)
        if meaning.op == "barrier":
            right = not rows.any()
        elif meaning.op in ("all_gather", "gather"):
            right = bool((rows == size_bytes).all())
        elif meaning.op == "all_to_all":
            sent = rows[: meaning.members]
            right = int(sent.sum()) == size_bytes if splits is None else bool((sent == splits[position]).all())
        else:
            right = int(rows.sum()) == size_bytes
        if not right:
            raise CheckError(f"member {position}: its blocks hold {rows.tolist()} B, which is not its buffer")
