"""A training step on one GPU: its operators with their measured times, in the order in which they ran."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from genie.workload.graph import WorkloadError


class Stage(Enum):
    """Part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "optimizer"


@dataclass(frozen=True)
class Tensor:
    """A tensor of an operator. `number`: of the tensor in its trace; -1: not in the trace."""

    shape: tuple[int, ...]
    element_bytes: int
    number: int = -1

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes


@dataclass(frozen=True)
class TracedOperator:
    """An operator: its kernels' time, and its tensors, as far as the trace has them."""

    name: str
    stage: Stage
    time_ns: int
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    parameters: tuple[Tensor, ...] = ()
    buffers: tuple[Tensor, ...] = ()  # of a batch norm, which data-parallel ranks share
    forward: int = -1  # of a backward operator: its forward operator's place in the step

    @property
    def kind(self) -> str:
        """The name without its namespace, case, digits and underscores: conv, linear, relu, convolutionbackward."""
        return kind_of(self.name)

    @property
    def parameter_bytes(self) -> int:
        return sum(each.size_bytes for each in self.parameters)


@dataclass(frozen=True)
class TracedStep:
    """All operators of a step. `gpu`: as the trace names it; empty: it does not."""

    path: Path
    batch: int
    gpu: str
    operators: tuple[TracedOperator, ...]

    def time_ns(self, stage: Stage | None = None) -> int:
        """Return the time of all kernels, or of one stage's."""
        return sum(each.time_ns for each in self.operators if stage in (None, each.stage))

    @property
    def parameter_bytes(self) -> int:
        return sum(each.parameter_bytes for each in self.operators if each.stage is Stage.FORWARD)


# Kinds of operators whose inputs after the first are parameters, by position: first and last (excluded).
PARAMETERS = {
    "conv": (1, 3), "linear": (1, 3), "addmm": (0, 0), "batchnorm": (1, 3), "layernorm": (1, 3), "groupnorm": (1, 3),
    "rmsnorm": (1, 2), "embedding": (0, 1),
}  # fmt: skip
BUFFERS = {"batchnorm": (3, 5)}
# Words of a backward operator -> kind of the forward operator.
BACKWARD_WORDS = {
    "convolution": "conv", "addmm": "linear", "mm": "linear", "linear": "linear", "batchnorm": "batchnorm",
    "layernorm": "layernorm", "groupnorm": "groupnorm", "rmsnorm": "rmsnorm", "embedding": "embedding", "relu": "relu",
    "gelu": "gelu", "silu": "silu", "dropout": "dropout", "maxpool": "maxpool", "adaptiveavgpool": "adaptiveavgpool",
    "avgpool": "avgpool", "softmax": "softmax", "nllloss": "crossentropyloss", "mean": "adaptiveavgpool", "add": "add",
}  # fmt: skip
ELEMENTWISE = frozenset({"relu", "gelu", "silu", "dropout", "add", "mul", "sigmoid", "tanh", "hardtanh"})
PER_CHANNEL = ELEMENTWISE | {"maxpool", "avgpool", "adaptiveavgpool", "batchnorm"}


def kind_of(name: str) -> str:
    """Return an operator's kind."""
    plain = name.rpartition(": ")[2].rpartition("::")[2].lower()
    plain = re.sub(r"[123]d|withindices|[\d_]", "", plain)
    return {"nativelayernorm": "layernorm", "cudnnbatchnorm": "batchnorm", "nativebatchnorm": "batchnorm"}.get(
        plain, plain
    )


def split_inputs(kind: str, inputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the parameters and the buffers among an operator's inputs."""
    first, last = PARAMETERS.get(kind, (0, 0))
    start, end = BUFFERS.get(kind, (0, 0))
    return tuple(inputs[first:last]), tuple(inputs[start:end])


def paired(operators: Sequence[TracedOperator]) -> tuple[TracedOperator, ...]:
    """Return the operators, each backward one with its forward one.

    Backward passes run in the opposite order: each takes the last forward operator of its kind that is left.
    """
    left: dict[str, list[int]] = {}
    for at, each in enumerate(operators):
        if each.stage is Stage.FORWARD:
            left.setdefault(each.kind, []).append(at)
    last = max((at for at, each in enumerate(operators) if each.stage is Stage.FORWARD), default=-1)
    found = []
    for each in operators:
        if each.stage is Stage.BACKWARD:
            kind = next((kind for word, kind in BACKWARD_WORDS.items() if word in each.kind), "")
            if left.get(kind):
                last = left[kind].pop()
            each = replace(each, forward=last, parameters=_own_parameters(operators, last, kind))
        found.append(each)
    return tuple(found)


def _own_parameters(operators: Sequence[TracedOperator], at: int, kind: str) -> tuple[Tensor, ...]:
    return operators[at].parameters if at >= 0 and operators[at].kind == kind else ()


def checked(step: TracedStep) -> TracedStep:
    """Return the step. Raises WorkloadError for one that cannot be extrapolated."""
    if not step.operators or not step.time_ns():
        raise WorkloadError(f"{step.path}: has no kernels of operators: give the profile of a training step on a GPU")
    if not any(each.parameters for each in step.operators):
        raise WorkloadError(
            f"{step.path}: no operator has a weight: record shapes (torch.profiler.profile(record_shapes=True))"
        )
    if not any(each.stage is Stage.BACKWARD for each in step.operators):
        raise WorkloadError(f"{step.path}: has no backward pass: give the profile of a whole training step")
    return step
