"""Tensor-parallel places of a step's operators.

Two layers with only elementwise operators between them form a pair. The first is split by columns, the second by rows,
and an all-reduce adds up what the second computes. Another layer is split by columns, and an all-gather joins its
output.
"""

from __future__ import annotations

from enum import Enum, auto

from genie.extrapolate.step import PER_CHANNEL, Stage, TracedOperator, TracedStep

SPLIT = ("conv", "linear")
COUNTER_BYTES = 8  # an operator on so few bytes counts steps: it is not between two layers


class Role(Enum):
    """Share of a tensor-parallel rank in a forward operator."""

    WHOLE = auto()
    COLUMN = auto()  # a part of the output, which the row layer of the pair takes
    BETWEEN = auto()  # elementwise, on the part
    ROW = auto()  # a part of the input; the sum over ranks is the output
    GATHER = auto()  # a part of the output, which is gathered

    @property
    def is_split(self) -> bool:
        return self is not Role.WHOLE


def roles_of(step: TracedStep, tensor: int) -> dict[int, Role]:
    """Return the roles of forward operators by place."""
    forward = [at for at, each in enumerate(step.operators) if each.stage is Stage.FORWARD]
    roles = dict.fromkeys(forward, Role.WHOLE)
    if tensor == 1:
        return roles
    layers = [at for at in forward if step.operators[at].kind in SPLIT and step.operators[at].parameters]
    paired = -1
    for number, at in enumerate(layers):
        if at <= paired or not _divides(step.operators[at], 0, tensor):
            continue
        roles[at] = Role.GATHER
        after = layers[number + 1] if number + 1 < len(layers) else None
        if after is None:
            continue
        between = [place for place in forward if at < place < after]
        same = step.operators[at].kind == step.operators[after].kind
        if same and _divides(step.operators[after], 1, tensor) and all(_passes(step.operators[p]) for p in between):
            roles |= {at: Role.COLUMN, after: Role.ROW} | dict.fromkeys(between, Role.BETWEEN)
            paired = after
    return roles


def _divides(each: TracedOperator, side: int, tensor: int) -> bool:
    shape = each.parameters[0].shape
    return len(shape) > side and shape[side] % tensor == 0


def _passes(each: TracedOperator) -> bool:
    """Whether an operator works on each channel alone."""
    if each.kind in ("add", "mul"):
        return sum(tensor.size_bytes for tensor in each.inputs) <= 2 * COUNTER_BYTES
    return each.kind in PER_CHANNEL
