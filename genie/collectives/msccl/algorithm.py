"""MSCCL's algorithms as templates: a file is read once, proven, and lowered for each member.

A chunk is one message. MSCCL's interpreter takes large chunks in parts, each of which goes through all steps. A GPU's
local actions on its own chunks take no time. The protocol's flags are not sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.check import prove_steps
from genie.collectives.lower import LoweringError, column
from genie.collectives.meaning import COUNT_BITS, CheckError, Content, Lane, Meaning, Step
from genie.collectives.msccl.file import MscclError, MscclFile, read_msccl
from genie.collectives.msccl.moves import Local, Move, layout_of, moves_of
from genie.collectives.template import Action, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PREFIX = "msccl:"  # prefix of a file's path in place of an algorithm's name

# The proof stores the order of every two moves: 12,000 moves take 100 MB and some seconds.
PROVED_MOVES_MAX = 12_000
PROVED_BLOCKS_MAX = 1 << 20


@dataclass(frozen=True, eq=False)
class MscclAlgorithm:
    """A file and the moves that it gives to each member."""

    file: MscclFile
    moves: list[list[Move]]  # by member
    blocks: list[int]  # by member
    notes: list[str]  # one line each: unknown parts, and a note if the proof was skipped

    def chunk_bytes(self, size_bytes: int) -> int:
        """Bytes of a chunk in a collective of `size_bytes` (convention: genie/workload/graph.py).

        -1: the size does not divide into equal chunks of whole bytes; MSCCL leaves such a collective to NCCL.
        """
        whole = size_bytes * (self.file.members if self.file.op == "all_gather" else 1)
        return -1 if whole % self.file.chunks else whole // self.file.chunks

    def fits(self, members: int, size_bytes: int, root: int = 0, even: bool = True) -> bool:
        """Whether it can play such a collective of its operation. Other collectives go as without it."""
        return members == self.file.members and root == 0 and even and self.chunk_bytes(size_bytes) > 0


@cache
def load_msccl(path: str) -> MscclAlgorithm:
    """Read, lower and prove a file. Raises MscclError, and OSError if it cannot be opened."""
    return lower_file(read_msccl(path))


def lower_file(file: MscclFile) -> MscclAlgorithm:
    """Lower and prove an algorithm.

    Raises MscclError for a wait that never ends, messages that do not match, a race, or a wrong result.
    """
    found = [moves_of(file, position) for position in range(file.members)]
    moves, blocks = [each for each, _ in found], [count for _, count in found]
    total = sum(len(each) for each in moves)
    notes = list(file.notes)
    if total <= PROVED_MOVES_MAX and sum(blocks) <= PROVED_BLOCKS_MAX:
        members = [_steps(position, each) for position, each in enumerate(moves)]
        sizes = [np.ones(count, np.int64) for count in blocks]  # all chunks are equally large; one byte is enough
        meaning = None
        if file.op != "custom":
            meaning = MscclMeaning(file.op, file.members, file.chunks, 1, file=file, blocks=blocks)
        try:
            prove_steps(meaning, members, sizes, eager=True, in_order=False)
        except CheckError as error:
            raise MscclError(f"{file.where}: is not a correct {file.op}: {_with_lines(str(error), moves)}") from None
    else:
        notes.append(f"{total} chunks moved among {sum(blocks)}: too many to prove that it is a correct {file.op}")
    return MscclAlgorithm(file, moves, blocks, notes)


def _with_lines(text: str, moves: Sequence[Sequence[Move]]) -> str:
    """The checker's message, with lines of the file in place of steps of members."""
    return re.sub(
        r"member (\d+) step (\d+)", lambda at: f"line {moves[int(at[1])][int(at[2])].line} of gpu {at[1]}", text
    )


@cache
def msccl_template(algorithm: MscclAlgorithm, position: int) -> Template:
    """Sends and receives of the member at `position`. There are no credits: a send is over once it is copied."""
    moves = algorithm.moves[position]
    deps_of = _without_local_moves(moves)
    kept = [move for move in moves if not isinstance(move.action, Local)]
    starts = np.cumsum([0, *(len(deps) for deps in deps_of)])
    return Template(
        algorithm=f"{PREFIX}{algorithm.file.name}",
        members=algorithm.file.members,
        channels=1 + max((move.channel for move in kept), default=0),
        relative=False,
        blocks=algorithm.blocks[position],
        parts=1,
        action=column(np.array([move.action for move in kept], np.int64), np.uint8),
        peer=column(np.array([move.peer for move in kept], np.int64), np.int32),
        block_base=column(np.zeros(len(kept), np.int64), np.int32),
        block=column(np.array([move.block for move in kept], np.int64), np.int32),
        channel=column(np.array([move.channel for move in kept], np.int64), np.uint8),
        credit=column(np.zeros(len(kept), np.int64), np.uint8),
        dep_start=column(starts, np.int32),
        deps=column(np.array([dep for deps in deps_of for dep in deps], np.int64), np.int32),
    )


def lower_msccl(
    op: str, path: str, members: int, position: int, size_bytes: int, root: int = 0, even: bool = True
) -> tuple[str, Template, NDArray[np.int64]] | None:
    """Algorithm, template and size table of a member; None where the file does not fit (`MscclAlgorithm.fits`).

    Raises LoweringError for a file of another operation, and MscclError.
    """
    algorithm = load_msccl(path)
    if algorithm.file.op != op:
        raise LoweringError(f"{path} is an algorithm for {algorithm.file.op}, not for {op}")
    if not algorithm.fits(members, size_bytes, root, even):
        return None
    template = msccl_template(algorithm, position)
    return template.algorithm, template, np.full(template.blocks, algorithm.chunk_bytes(size_bytes), np.int64)


def _without_local_moves(moves: Sequence[Move]) -> list[list[int]]:
    """Dependencies among the messages; a local move is over as soon as the moves that it waits for are."""
    stands_for: list[frozenset[int]] = []
    kept: list[list[int]] = []
    for move in moves:
        deps: frozenset[int] = frozenset().union(*(stands_for[dep] for dep in move.deps))
        if isinstance(move.action, Local):
            stands_for.append(deps)
        else:
            stands_for.append(frozenset({len(kept)}))
            kept.append(sorted(deps))
    return kept


def _steps(position: int, moves: Sequence[Move]) -> list[Step]:
    """The moves of a member as steps for the checker."""
    steps = []
    for number, move in enumerate(moves):
        local = isinstance(move.action, Local)
        ends = (position, move.peer) if move.action is Action.SEND else (move.peer, position)
        lane = Lane(*((position, position) if local else ends), move.channel)
        action = (Action.RECV if move.action is Local.COPY else Action.REDUCE) if local else move.action
        steps.append(
            Step(
                position,
                number,
                int(action),
                lane,
                move.block,
                1,
                not local,
                False,
                move.deps,
                move.source,
                move.after_sends,
            )
        )
    return steps


@dataclass(frozen=True, kw_only=True)
class MscclMeaning(Meaning):
    """Meaning of an operation on the blocks of an MSCCL algorithm."""

    file: MscclFile
    blocks: Sequence[int]  # number of each member's blocks

    def before(self, position: int) -> list[Content | None]:
        """The member's input."""
        share = self.rows // self.members
        own = 1 << (COUNT_BITS * position)
        held = range(self.rows)
        contents: list[Content]
        match self.op:
            case "all_gather":
                contents = [((position * share + chunk,), own) for chunk in range(share)]
            case "all_to_all":
                contents = [((position, chunk), own) for chunk in held]
            case _:
                contents = [((chunk,), own) for chunk in held if self.op != "broadcast" or position == self.root]
        return self._in_blocks(position, "i", contents)

    def after(self, position: int) -> list[Content | None]:
        """The member's output."""
        share = self.rows // self.members
        contents: list[Content] = []
        for chunk in range(share if self.op == "reduce_scatter" else self.rows):
            source, part = divmod(chunk, max(share, 1))
            match self.op:
                case "all_gather":
                    contents.append(((chunk,), 1 << (COUNT_BITS * source)))
                case "all_to_all":
                    contents.append(((source, position * share + part), 1 << (COUNT_BITS * source)))
                case "broadcast":
                    contents.append(((chunk,), 1 << (COUNT_BITS * self.root)))
                case "reduce_scatter":
                    contents.append(((position * share + chunk,), self.everyone))
                case _:
                    if self.op != "reduce" or position == self.root:
                        contents.append(((chunk,), self.everyone))
        return self._in_blocks(position, "o", contents)

    def _in_blocks(self, position: int, buffer: str, contents: Sequence[Content]) -> list[Content | None]:
        layout = layout_of(self.file, position)
        blocks: list[Content | None] = [None] * self.blocks[position]
        for chunk, content in enumerate(contents):
            blocks[layout.block(buffer, chunk)] = content
        return blocks
