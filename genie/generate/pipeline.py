"""Pipeline schedules: the order in which each rank plays forward and backward passes. Pure.

An action is `2F0`: the forward pass of micro-batch 0 through stage 2. Stages are chunks of layers, numbered through the
whole model. B is a backward pass as far as the gradient of its input, W the gradients of weights, BW both.
Notation and file format are those of PyTorch's torch.distributed.pipelining.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from genie.errors import UsageError
from genie.inputs.content import ContentError, read_text

Pass = Literal["F", "B", "W", "BW"]
NAMES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe-v")
_ACTION = re.compile(r"(\d{1,6})(F|BW|B|W|I)(\d{1,6})")
_MESSAGE = re.compile(r"\d{1,6}(SEND|RECV)_[FB]\d{1,6}")
ACTIONS_MAX = 4_000_000


@dataclass(frozen=True, order=True)
class Action:
    """A pass of one micro-batch through one stage."""

    stage: int
    what: Pass
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.what}{self.micro_batch}"


@dataclass(frozen=True)
class Schedule:
    """The actions of each rank of a pipeline, in order."""

    name: str
    actions: tuple[tuple[Action, ...], ...]
    micro_batches: int

    @property
    def ranks(self) -> int:
        return len(self.actions)

    @cached_property
    def stages(self) -> int:
        """Chunks of layers, of all ranks."""
        return 1 + max(action.stage for own in self.actions for action in own)

    def rank_of_stage(self) -> list[int]:
        """Return the rank of each stage. Raises UsageError if ranks share one, or none has it."""
        found: dict[int, int] = {}
        for rank, own in enumerate(self.actions):
            for stage in {action.stage for action in own}:
                if found.setdefault(stage, rank) != rank:
                    raise UsageError(f"schedule {self.name}: ranks {found[stage]} and {rank} both play stage {stage}")
        for stage in range(self.stages):
            if stage not in found:
                raise UsageError(f"schedule {self.name}: no rank plays stage {stage} of {self.stages}")
        return [found[stage] for stage in range(self.stages)]


def schedule_of(name: str, ranks: int, chunks: int, micro_batches: int) -> Schedule:
    """Return a schedule by name. `chunks`: of each rank. Raises UsageError where it cannot be."""
    if name not in _MAKERS:
        raise UsageError(f"--schedule {name}: give a CSV file, or one of {', '.join(NAMES)}")
    made = [_MAKERS[name](rank, ranks, chunks, micro_batches) for rank in range(ranks)]
    return Schedule(name, tuple(map(tuple, made)), micro_batches)


def _gpipe(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[Action]:
    _need(chunks == 1, "gpipe", f"--vp {chunks}", "has one chunk a rank")
    forward = [Action(rank, "F", at) for at in range(micro_batches)]
    return [*forward, *(Action(rank, "BW", at) for at in range(micro_batches))]


def _one_forward_one_backward(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[Action]:
    _need(chunks == 1, "1f1b", f"--vp {chunks}", "has one chunk a rank: give --schedule interleaved")
    forward = [Action(rank, "F", at) for at in range(micro_batches)]
    backward = [Action(rank, "BW", at) for at in range(micro_batches)]
    return _woven(forward, backward, min(ranks - rank - 1, micro_batches))


def _interleaved(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[Action]:
    """Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    _need(chunks > 1, "interleaved", f"--vp {chunks}", "needs two chunks a rank, or more")
    _need(
        micro_batches % ranks == 0, "interleaved", f"{micro_batches} micro-batches", f"needs a multiple of --pp {ranks}"
    )
    warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
    forward, backward = _in_rounds(rank, ranks, chunks, micro_batches, ranks)
    return _woven(forward, backward, min(warm_up, len(forward)))


def _zero_bubble(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[Action]:
    """Backward passes in two parts, so that gradients of weights fill the bubbles (Qi et al. 2023, arXiv 2401.10241).

    Rank r plays the gradients of weights r passes late.
    """
    rounds = max(1, micro_batches // ranks)
    _need(micro_batches % rounds == 0, "zero-bubble", f"{micro_batches} micro-batches", f"needs a multiple of {rounds}")
    a_round = micro_batches // rounds
    warm_up = (chunks - 1) * a_round + ranks - rank - 1
    forward, backward = _in_rounds(rank, ranks, chunks, micro_batches, a_round)
    warm_up = min(warm_up, len(forward))
    found, late = forward[:warm_up], rank
    for number, action in enumerate(backward):
        found += forward[warm_up + number : warm_up + number + 1]
        found.append(Action(action.stage, "B", action.micro_batch))
        if number >= late:
            done = backward[number - late]
            found.append(Action(done.stage, "W", done.micro_batch))
    rest = backward[max(0, len(backward) - late) :]
    return [*found, *(Action(action.stage, "W", action.micro_batch) for action in rest)]


def _dualpipe_v(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[Action]:
    """Two chunks a rank in the form of a V: rank r has stages r and 2 * ranks - 1 - r (DeepSeek-V3, DualPipeV)."""
    _need(chunks == 2, "dualpipe-v", f"--vp {chunks}", "has two chunks a rank: give --vp 2")
    _need(
        micro_batches >= 2 * ranks, "dualpipe-v", f"{micro_batches} micro-batches", f"needs 2 x --pp {ranks}, or more"
    )
    stage = (rank, 2 * ranks - 1 - rank)
    next_of = {"F": [0, 0], "B": [0, 0]}
    pending: list[Action] = []  # gradients of weights that wait for a bubble
    found: list[Action] = []

    def play(what: Literal["F", "B"], chunk: int, *, weights: bool = True) -> None:
        at = next_of[what][chunk]
        next_of[what][chunk] += 1
        if what == "B" and not weights:
            pending.append(Action(stage[chunk], "W", at))
        found.append(Action(stage[chunk], "BW" if what == "B" and weights else what, at))

    for _ in range(2 * (ranks - rank - 1)):
        play("F", 0)
    for _ in range(rank + 1):
        play("F", 0)
        play("F", 1)
    for _ in range(ranks - rank - 1):
        play("B", 1, weights=False)
        found.append(pending.pop(0))
        play("F", 1)
    for _ in range(micro_batches - 2 * ranks + rank + 1):
        play("F", 0)
        play("B", 1)
        play("F", 1)
        play("B", 0)
    for _ in range(ranks - rank - 1):
        play("B", 1)
        play("F", 1)
        play("B", 0)
    for number in range(rank + 1):
        late = number >= (rank + 1) // 2
        play("B", 1, weights=not late)
        late = late or (number == (rank + 1) // 2 - 1 and rank % 2 == 0)
        play("B", 0, weights=not late)
    for _ in range(ranks - rank - 1):
        if pending:
            found.append(pending.pop(0))
        play("B", 0, weights=False)
    return [*found, *pending]


_MAKERS: dict[str, Callable[[int, int, int, int], list[Action]]] = dict(
    zip(NAMES, (_gpipe, _one_forward_one_backward, _interleaved, _zero_bubble, _dualpipe_v), strict=True)
)


def _need(is_met: bool, name: str, given: str, why: str) -> None:
    if not is_met:
        raise UsageError(f"--schedule {name}: {why}, and not {given}")


def _in_rounds(
    rank: int, ranks: int, chunks: int, micro_batches: int, a_round: int
) -> tuple[list[Action], list[Action]]:
    """Return forward and backward passes: for each round of micro-batches all chunks in turn, and backwards."""
    forward, backward = [], []
    for first in range(0, micro_batches, a_round):
        for chunk in range(chunks):
            for at in range(first, first + a_round):
                forward.append(Action(rank + chunk * ranks, "F", at))
                backward.append(Action(rank + (chunks - 1 - chunk) * ranks, "BW", at))
    return forward, backward


def _woven(forward: Sequence[Action], backward: Sequence[Action], warm_up: int) -> list[Action]:
    """Return the warm-up's forward passes, then one forward and one backward pass in turn, then the rest."""
    found = list(forward[:warm_up])
    for number, action in enumerate(backward):
        found += [*forward[warm_up + number : warm_up + number + 1], action]
    return found


def read_schedule(path: Path) -> Schedule:
    """Read a CSV file: a row a rank, in order. Messages are left out, as they follow from the passes.

    Raises UsageError with the line and the column.
    """
    try:
        rows = read_text(path).splitlines()
    except OSError as error:
        raise UsageError(f"--schedule {path}: cannot be read: {error.strerror}") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise UsageError(f"--schedule {path}: {error}") from error
    actions = []
    for line, row in enumerate(rows, 1):
        own = []
        for column, cell in enumerate(row.split(","), 1):
            text = cell.strip()
            match = _ACTION.fullmatch(text)
            if match:
                what: Pass = "B" if match[2] == "I" else match[2]  # type: ignore[assignment]
                own.append(Action(int(match[1]), what, int(match[3])))
            elif text and not _MESSAGE.fullmatch(text):
                raise UsageError(f"{path}:{line}: column {column}: {text!r} is no action such as 0F0, 2BW1 or 2SEND_F0")
        if own:
            actions.append(tuple(own))
    if not actions:
        raise UsageError(f"--schedule {path}: has no actions")
    micro_batches = 1 + max(action.micro_batch for own in actions for action in own)
    split = {(action.stage, action.micro_batch) for own in actions for action in own if action.what == "W"}
    whole = tuple(
        tuple(
            Action(action.stage, "BW", action.micro_batch)
            if action.what == "B" and (action.stage, action.micro_batch) not in split
            else action
            for action in own
        )
        for own in actions
    )
    found = Schedule(str(path), whole, micro_batches)
    played(found)
    return found


def played(schedule: Schedule) -> list[list[Action | None]]:
    """Play a schedule, each action taking one turn; return the actions of each rank by turn, None where it waits.

    Raises UsageError for an action that is played twice, or missing, and for a deadlock.
    """
    rank_of = schedule.rank_of_stage()
    last = schedule.stages - 1
    done: dict[Action, int] = {}  # action -> turn after which it is done
    turns: list[list[Action | None]] = [[] for _ in schedule.actions]
    at = [0] * schedule.ranks
    turn = 0
    while any(at[rank] < len(own) for rank, own in enumerate(schedule.actions)):
        now: list[Action] = []
        for rank, own in enumerate(schedule.actions):
            action = own[at[rank]] if at[rank] < len(own) else None
            if action is None:
                continue
            if action in done:
                raise UsageError(f"schedule {schedule.name}: rank {rank} plays {action} twice")
            if all(need in done for need in _needs(action, last, done)):
                now.append(action)
                at[rank] += 1
                turns[rank].append(action)
            else:
                turns[rank].append(None)
        if not now:
            raise UsageError(_deadlock(schedule, at, done, last, rank_of))
        turn += 1
        for action in now:
            done[action] = turn
            if action.what == "BW":
                done[Action(action.stage, "B", action.micro_batch)] = turn
                done[Action(action.stage, "W", action.micro_batch)] = turn
    for stage in range(schedule.stages):
        for micro_batch in range(schedule.micro_batches):
            for what in ("F", "B", "W"):
                if Action(stage, what, micro_batch) not in done:
                    raise UsageError(f"schedule {schedule.name}: {stage}{what}{micro_batch} is missing")
    return turns


def _needs(action: Action, last: int, done: dict[Action, int]) -> list[Action]:
    """Return the actions that must end before this one."""
    stage, at = action.stage, action.micro_batch
    if action.what == "F":
        return [Action(stage - 1, "F", at)] if stage else []
    if action.what == "W":
        return [Action(stage, "B", at)]
    return [Action(stage, "F", at), *([Action(stage + 1, "B", at)] if stage < last else [])]


def _deadlock(schedule: Schedule, at: Sequence[int], done: dict[Action, int], last: int, rank_of: Sequence[int]) -> str:
    rank = next(rank for rank, own in enumerate(schedule.actions) if at[rank] < len(own))
    action = schedule.actions[rank][at[rank]]
    need = next(need for need in _needs(action, last, done) if need not in done)
    other = rank_of[need.stage]
    before = schedule.actions[other][at[other]] if at[other] < len(schedule.actions[other]) else None
    where = f"which rank {other} plays after {before}" if before not in (None, need) else f"which rank {other} lacks"
    return f"schedule {schedule.name}: deadlock: rank {rank}: {action} waits for {need}, {where}"


def as_csv(schedule: Schedule) -> str:
    """Return the schedule as a file, with empty cells for the turns in which a rank waits."""
    rows = played(schedule)
    return "".join(",".join("" if action is None else str(action) for action in row) + "\n" for row in rows)
