"""The settings of a training step beside the model and the degrees of parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genie.errors import UsageError
from genie.generate.degrees import Degrees
from genie.generate.model import Model
from genie.generate.routing import Routing

Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Recompute = Literal["none", "selective", "full"]
ContextExchange = Literal["ring", "all-gather", "ulysses"]
Dispatch = Literal["all-to-all", "all-gather", "deepep"]
Kernels = Literal["fused", "separate"]
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
EXCHANGES: tuple[ContextExchange, ...] = ("ring", "all-gather", "ulysses")
DISPATCHES: tuple[Dispatch, ...] = ("all-to-all", "all-gather", "deepep")
KERNELS: tuple[Kernels, ...] = ("fused", "separate")
ZERO: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")
SEQUENCE_DEFAULT = 4096  # tokens
BF16_BYTES, FP32_BYTES, MASK_BYTES = 2, 4, 1  # the last: of dropout
SIZE_MAX = 1 << 31


@dataclass(frozen=True)
class Training:
    """Settings of a step. Raises UsageError where they contradict each other."""

    model: Model
    degrees: Degrees
    sequence: int  # tokens
    micro_batch: int = 1  # sequences
    micro_batches: int = 1  # of each replica in a step
    schedule: str = ""  # "": gpipe without a pipeline, else 1f1b or interleaved; or a CSV file
    sequence_parallel: bool = True
    sharding: Sharding = "zero1"
    recompute: Recompute = "none"
    kernels: Kernels = "fused"  # separate: a kernel for each part of attention, and for each residual addition
    context_exchange: ContextExchange = "ring"
    dispatch: Dispatch = "all-to-all"
    fp8: bool = False  # matrix products, and the tokens that DeepEP dispatches
    gradient_bytes: int = FP32_BYTES
    overlap_gradients: bool = True
    routing: Routing | None = None  # of tokens to experts; None: evenly
    vocabulary_multiple: int = 1  # of the padded vocabulary a tensor-parallel rank

    def __post_init__(self) -> None:
        self.degrees.check_model(self.model)
        for option, value in (("--sequence", self.sequence), ("--micro-batch", self.micro_batch),
                              ("--micro-batches", self.micro_batches)):  # fmt: skip
            if not 1 <= value <= SIZE_MAX:
                raise UsageError(f"{option} {value}: give 1 to {SIZE_MAX}")
        context, tensor = self.degrees.context, self.degrees.tensor
        if self.sequence % (2 * context if context > 1 else 1):
            raise UsageError(
                f"--sequence {self.sequence} is not a multiple of {2 * context} (twice --cp {context}: each rank has a "
                "chunk of both halves)"
            )
        if self.scatters and self.tokens % tensor:
            raise UsageError(
                f"{self.tokens} tokens of a micro-batch on a rank are not a multiple of --tp {tensor}: give another "
                "--sequence, or --no-sequence-parallel"
            )
        heads = self.model.attention.heads
        if self.context_exchange == "ulysses" and context > 1 and heads // tensor % context:
            raise UsageError(
                f"--context-exchange ulysses: --cp {context} does not divide the {heads // tensor} attention heads of "
                "a rank"
            )
        if self.kernels == "separate" and context > 1:
            raise UsageError(
                f"--kernels separate with --cp {context}: only fused attention is split by context: leave one out"
            )
        if self.routing is not None and (self.model.experts is None or self.dispatch != "all-to-all"):
            why = "has no experts" if self.model.experts is None else f"--dispatch {self.dispatch} sends evenly"
            raise UsageError(f"--routing: {self.model.name}: {why}: leave it out, or give --dispatch all-to-all")
        if self.routing is not None and self.degrees.expert_tensor > 1:
            raise UsageError(
                f"--routing with --etp {self.degrees.expert_tensor}: give --etp 1, or leave one of them out"
            )
        if self.degrees.shard and not self.shards_parameters:
            raise UsageError("--hsdp shards parameters: give --fsdp or --zero 3 with it")
        if self.shards_parameters and self.degrees.pipeline > 1 and self.sharding == "zero3":
            raise UsageError("--zero 3 with --pp is no combination that frameworks offer: give --fsdp, or --zero 1")

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank."""
        return self.micro_batch * self.sequence // self.degrees.context

    @property
    def scatters(self) -> bool:
        """Whether tensor-parallel ranks share the tokens between the parts that tensor parallelism splits."""
        return self.sequence_parallel and self.degrees.tensor > 1

    @property
    def own_tokens(self) -> int:
        """Tokens of a micro-batch on a rank, outside of these parts."""
        return self.tokens // self.degrees.tensor if self.scatters else self.tokens

    @property
    def activation_bytes(self) -> int:
        """A hidden state for each token of a micro-batch on a rank."""
        return BF16_BYTES * self.tokens * self.model.hidden

    @property
    def boundary_bytes(self) -> int:
        """A message between pipeline stages."""
        return BF16_BYTES * self.own_tokens * self.model.hidden

    @property
    def shards_parameters(self) -> bool:
        """Whether each rank holds a part of the parameters between uses."""
        return self.sharding in ("zero3", "fsdp")

    @property
    def is_skewed(self) -> bool:
        """Whether expert-parallel ranks get different numbers of tokens."""
        return self.routing is not None and self.degrees.expert > 1

    @property
    def vocabulary(self) -> int:
        """Size of the padded vocabulary."""
        unit = self.vocabulary_multiple * self.degrees.tensor
        return -(-self.model.vocabulary // unit) * unit


def default_sequence(model: Model) -> int:
    """Return the tokens of a sequence where none are given."""
    return min(SEQUENCE_DEFAULT, model.context)


def default_micro_batches(degrees: Degrees) -> int:
    """Return the micro-batches of a step where none are given: two for each pipeline stage."""
    return 2 * degrees.pipeline if degrees.pipeline > 1 else 1


def sharding_of(zero: int | None, *, fsdp: bool) -> Sharding:
    """Return how data-parallel ranks share the optimizer's state and the parameters. Raises UsageError."""
    if fsdp and zero is not None:
        raise UsageError(f"--fsdp and --zero {zero}: give one of them")
    return "fsdp" if fsdp else ZERO[1 if zero is None else zero]
