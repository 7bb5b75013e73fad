"""The feed-forward part of one layer: dense, or a mixture of experts with the exchange of tokens."""

from __future__ import annotations

from math import comb

from genie.compute.operators import Operator, gemm, grouped_gemm, memory
from genie.generate.degrees import Domain
from genie.generate.linear import Linear
from genie.generate.model import Experts
from genie.generate.program import Program, Stream
from genie.generate.training import BF16_BYTES, FP32_BYTES, Training
from genie.workload.graph import Op

COUNT_BYTES = 8  # of the number of tokens for an expert
SCALE_BYTES, SCALED = 4, 128  # DeepEP's FP8: a scale for so many values
SCALE = (1 + SCALE_BYTES / SCALED) / BF16_BYTES  # bytes of a dispatched value over those in BF16


class FeedForward:
    """A dense feed-forward part in one rank's program. `width`: of the whole hidden layer."""

    def __init__(self, training: Training, program: Program, linear: Linear, width: int, name: str) -> None:
        self.training, self.program, self.linear, self.name = training, program, linear, name
        self.hidden = training.model.hidden
        self.own_width = width // training.degrees.tensor
        self.inputs = 2 if training.model.gated else 1  # matrices in front of the activation

    def forward(self) -> None:
        """Two linear layers with the activation between them."""
        self.linear.column_forward(f"{self.name} in", self.hidden, self.inputs * self.own_width)
        self.program.compute(self._activation("activation", 1))
        self.linear.row_forward(f"{self.name} out", self.own_width, self.hidden)

    def backward(self, *, inputs: bool, weights: bool) -> None:
        """Gradients."""
        self.linear.row_backward(f"{self.name} out", self.own_width, self.hidden, inputs=inputs, weights=weights)
        if inputs:
            self.program.compute(self._activation("activation gradient", 2))
        width_out = self.inputs * self.own_width
        self.linear.column_backward(f"{self.name} in", self.hidden, width_out, inputs=inputs, weights=weights)

    def _activation(self, what: str, times: int) -> Operator:
        return memory(
            f"{self.name} {what}", times * BF16_BYTES * self.training.tokens * (self.inputs + 1) * self.own_width
        )


class Mixture:
    """A mixture of experts in one rank's program. `place`: the rank's position in its expert-parallel group."""

    def __init__(self, training: Training, program: Program, linear: Linear, experts: Experts, place: int) -> None:
        self.training, self.program, self.experts, self.place = training, program, experts, place
        degrees = training.degrees
        self.hidden, self.tokens = training.model.hidden, training.own_tokens
        self.copies = self.tokens * experts.per_token  # of the rank's tokens, sent; as many arrive
        self.own_experts = experts.count // degrees.expert
        self.own_width = experts.width // degrees.expert_tensor
        self.inputs = 2 if training.model.gated else 1
        self._sent_to: list[int] = []  # tokens for each expert-parallel rank, where they differ
        self.expected_ranks = ranks_of_a_token(experts.count, experts.per_token, degrees.expert)
        self.shared = (
            FeedForward(training, program, linear, experts.shared_width, "shared expert")
            if experts.shared_width
            else None
        )

    def of_layer(self, layer: int) -> Mixture:
        """Route the tokens as in this layer; return the mixture."""
        routing, members = self.training.routing, self.training.degrees.expert
        if routing is not None and members > 1:
            number = (layer - self.experts.first_layer) // self.experts.every  # among the layers with experts
            counts = routing.counts(number, self.experts.count, self.tokens, self.experts.per_token)
            self._sent_to = counts.reshape(members, -1).sum(axis=1).tolist()
        return self

    def forward(self) -> None:
        """Router, dispatch, experts, and the combination of their outputs."""
        program = self.program
        program.compute(gemm("router", self.tokens, self.hidden, self.experts.count, "bf16", FP32_BYTES))
        self._dispatch("dispatch", gradient=False)
        if self.shared is not None:
            self.shared.forward()
        for name, k, n in self._products():
            program.compute(grouped_gemm(name, self.own_experts, self._a_expert, k, n, self._dtype))
        self._combine("combine", gradient=False)

    def backward(self, *, inputs: bool, weights: bool) -> None:
        """Gradients: the combination's exchange backwards, the experts', the dispatch's exchange backwards."""
        program = self.program
        if inputs:
            self._combine("combine gradient", gradient=True)
        if self.shared is not None:
            self.shared.backward(inputs=inputs, weights=weights)
        for name, k, n in reversed(self._products()):
            if inputs:
                product = grouped_gemm(f"{name} input gradient", self.own_experts, self._a_expert, n, k, self._dtype)
                program.compute(product)
            if weights:
                product = grouped_gemm(f"{name} weight gradient", self.own_experts, k, self._a_expert, n, self._dtype)
                program.compute(product)
        if inputs:
            self._dispatch("dispatch gradient", gradient=True)
            program.compute(gemm("router input gradient", self.tokens, self.experts.count, self.hidden))
        if weights:
            program.compute(gemm("router weight gradient", self.hidden, self.tokens, self.experts.count, "bf16", 4))

    @property
    def _dtype(self) -> str:
        return "fp8" if self.training.fp8 else "bf16"

    @property
    def _a_expert(self) -> int:
        """Tokens for each expert of the rank, of all ranks that its tensor-parallel peers gather."""
        degrees = self.training.degrees
        received = self._sent_to[self.place] * degrees.expert if self._sent_to else self.copies * degrees.expert_tensor
        return max(1, received // self.own_experts)

    def _products(self) -> list[tuple[str, int, int]]:
        return [
            ("experts in", self.hidden, self.inputs * self.own_width),
            ("experts out", self.own_width, self.hidden),
        ]

    def _dispatch(self, name: str, *, gradient: bool) -> None:
        """Tokens go to their experts; of the gradient, the gradients of what arrived go back."""
        how = self.training.dispatch
        members = self.training.degrees.members(Domain.TOKENS)
        if how == "all-gather":
            token_bytes = BF16_BYTES * self.tokens * self.hidden
            chosen = self.tokens * self.experts.count  # probabilities, and which experts are chosen
            if gradient:
                self._exchange(name, Op.REDUCE_SCATTER, Domain.TOKENS, members * token_bytes, "2 T h e")
                probabilities = members * FP32_BYTES * chosen
                self._exchange(f"{name}, probabilities", Op.REDUCE_SCATTER, Domain.TOKENS, probabilities, "4 T E e")
            else:
                self._exchange(name, Op.ALL_GATHER, Domain.TOKENS, token_bytes, "2 T h")
                size_bytes = (FP32_BYTES + 1) * chosen
                self._exchange(f"{name}, probabilities", Op.ALL_GATHER, Domain.TOKENS, size_bytes, "5 T E")
            return
        if gradient:
            self._in_experts(name, Op.REDUCE_SCATTER)
        elif how == "all-to-all":
            counts = COUNT_BYTES * self.experts.count
            self._exchange(f"{name}, counts", Op.ALL_GATHER, Domain.TOKENS, counts, "8 E")
        if self._sent_to:
            self._exchange_unevenly(name, BF16_BYTES * self.hidden, "2 T k h", back=gradient)
            self._exchange_unevenly(f"{name}, probabilities", FP32_BYTES, "4 T k", back=gradient)
            return
        self._exchange(name, Op.ALL_TO_ALL, Domain.EXPERT, *self._sent(gradient=gradient))
        sent, letter = (self.copies, "k") if how == "all-to-all" else (round(self.tokens * self.expected_ranks), "R")
        name_of_weights = f"{name}, probabilities"
        self._exchange(name_of_weights, Op.ALL_TO_ALL, Domain.EXPERT, FP32_BYTES * sent, f"4 T {letter}")
        if not gradient:
            self._in_experts(name, Op.ALL_GATHER)

    def _combine(self, name: str, *, gradient: bool) -> None:
        members = self.training.degrees.members(Domain.TOKENS)
        if self.training.dispatch == "all-gather":
            token_bytes = BF16_BYTES * self.tokens * self.hidden
            if gradient:
                self._exchange(name, Op.ALL_GATHER, Domain.TOKENS, token_bytes, "2 T h")
            else:
                self._exchange(name, Op.REDUCE_SCATTER, Domain.TOKENS, members * token_bytes, "2 T h e")
            return
        if not gradient:
            self._in_experts(name, Op.REDUCE_SCATTER)
        if self._sent_to:
            self._exchange_unevenly(name, BF16_BYTES * self.hidden, "2 T k h", back=not gradient)
            return
        self._exchange(name, Op.ALL_TO_ALL, Domain.EXPERT, *self._sent(gradient=True))
        if gradient:
            self._in_experts(name, Op.ALL_GATHER)

    def _sent(self, *, gradient: bool) -> tuple[int, str]:
        """Return size and formula of the tokens that a rank sends.

        A copy goes to each expert, with DeepEP one to each rank that has any of them.
        """
        if self.training.dispatch == "deepep":
            plain = BF16_BYTES * self.hidden * self.tokens * self.expected_ranks
            scaled = self.training.fp8 and not gradient
            return round(plain * (SCALE if scaled else 1)), f"{'(1 + 4/128)' if scaled else '2'} T R h"
        return BF16_BYTES * self.hidden * self.copies, "2 T k h"

    def _in_experts(self, name: str, op: Op) -> None:
        """Ranks that share an expert gather their tokens, and scatter its output."""
        received_bytes = BF16_BYTES * self.hidden * self.copies
        members = self.training.degrees.expert_tensor if op is Op.REDUCE_SCATTER else 1
        formula = "2 T k h" if members == 1 else "2 T k h --etp"
        self._exchange(f"{name}, of an expert's ranks", op, Domain.EXPERT_TENSOR, members * received_bytes, formula)

    def _exchange_unevenly(self, name: str, token_bytes: int, formula: str, *, back: bool) -> None:
        """Send each rank the tokens for its experts; `back`: return what arrived."""
        sent = [token_bytes * count for count in self._sent_to]
        received = [sent[self.place]] * len(sent)  # all ranks send alike
        splits = (received, sent) if back else (sent, received)
        self.program.wait_for(
            self.program.collective(
                name, Op.ALL_TO_ALL, Domain.EXPERT, sum(splits[0]), Stream.EXPERT, formula, splits=splits
            )
        )

    def _exchange(self, name: str, op: Op, domain: Domain, size_bytes: int, formula: str) -> None:
        self.program.wait_for(self.program.collective(name, op, domain, size_bytes, Stream.EXPERT, formula))


def ranks_of_a_token(experts: int, per_token: int, ranks: int) -> float:
    """Return the expected number of ranks that have any of a token's experts, which are drawn evenly."""
    without = comb(experts - experts // ranks, per_token) / comb(experts, per_token)
    return ranks * (1 - without)
