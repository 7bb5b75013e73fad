"""A layer, the embedding and the head in one rank's program: forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

from genie.compute.operators import gemm, memory
from genie.generate.attention_layer import AttentionLayer
from genie.generate.degrees import Domain
from genie.generate.linear import Linear
from genie.generate.mixture import FeedForward, Mixture
from genie.generate.program import Program, Stream
from genie.generate.training import BF16_BYTES, FP32_BYTES, Training
from genie.workload.graph import Op


@dataclass(frozen=True)
class Half:
    """Parts of a backward pass: gradients of the input, of the weights, or both."""

    inputs: bool = True
    weights: bool = True


class Layers:
    """All that a rank plays of a model."""

    def __init__(self, training: Training, program: Program, expert_place: int = 0) -> None:
        self.training, self.program = training, program
        model = training.model
        self._linear = Linear(training, program)
        self._attention = AttentionLayer(training, program, self._linear)
        self._dense = FeedForward(training, program, self._linear, model.width, "mlp") if model.width else None
        self._mixture = Mixture(training, program, self._linear, model.experts, expert_place) if model.experts else None

    def forward(self, layer: int) -> None:
        """A layer's forward pass."""
        self._attention.forward()
        self._add("attention residual")
        self._norm("feed-forward norm", 2)
        self._feed_forward(layer).forward()
        self._add("feed-forward residual")

    def backward(self, layer: int, half: Half) -> None:
        """A layer's backward pass, with what is recomputed before it."""
        recompute = self.training.recompute
        if half.inputs and recompute == "full":
            self.forward(layer)
        self._feed_forward(layer).backward(inputs=half.inputs, weights=half.weights)
        if half.inputs:
            self._norm("feed-forward norm gradient", 3)
            self._add("feed-forward residual gradient")
        again = recompute == "selective"
        self._attention.backward(inputs=half.inputs, weights=half.weights, again=again)
        if half.inputs:
            self._add("attention residual gradient")

    def embedding_forward(self) -> None:
        """Rows of the embedding; each tensor-parallel rank has a part of the vocabulary."""
        training, program = self.training, self.program
        program.compute(memory("embedding", 2 * BF16_BYTES * training.tokens * training.model.hidden))
        op = Op.REDUCE_SCATTER if training.scatters and not training.model.positions else Op.ALL_REDUCE
        program.wait_for(
            program.collective(
                "add embeddings", op, Domain.TENSOR, training.activation_bytes, Stream.TENSOR, "2 b s h / c"
            )
        )

    def embedding_backward(self) -> None:
        """The gradient of the embedding."""
        training, program = self.training, self.program
        if training.scatters:
            size_bytes = training.activation_bytes // training.degrees.tensor
            name = "gather embedding gradients"
            program.wait_for(program.collective(name, Op.ALL_GATHER, Domain.TENSOR, size_bytes, Stream.TENSOR, "2 T h"))
        program.compute(memory("embedding gradient", 2 * FP32_BYTES * training.tokens * training.model.hidden))

    def head_forward(self) -> None:
        """The last norm, the logits, and the loss, for which tensor-parallel ranks add up three numbers a token."""
        training, program = self.training, self.program
        self._norm("final norm", 2)
        self._linear.column_forward("logits", training.model.hidden, self._own_vocabulary)
        for what in ("largest logits", "own logits", "sums of exponentials"):
            program.compute(memory(f"loss, {what}", BF16_BYTES * training.tokens * self._own_vocabulary))
            size_bytes = FP32_BYTES * training.tokens
            name = f"add {what}"
            program.wait_for(
                program.collective(name, Op.ALL_REDUCE, Domain.TENSOR, size_bytes, Stream.TENSOR, "4 b s / c")
            )

    def head_backward(self, half: Half) -> None:
        """The gradients of the loss, the logits and the last norm."""
        training = self.training
        if half.inputs:
            self.program.compute(memory("loss gradient", 2 * BF16_BYTES * training.tokens * self._own_vocabulary))
        self._linear.column_backward(
            "logits", training.model.hidden, self._own_vocabulary, inputs=half.inputs, weights=half.weights
        )
        if half.inputs:
            self._norm("final norm gradient", 3)

    def prediction_forward(self, layer: int) -> None:
        """A layer that predicts one more token, with its projection and the shared head."""
        hidden = self.training.model.hidden
        self.embedding_forward()
        self.program.compute(gemm("prediction projection", self.training.own_tokens, 2 * hidden, hidden))
        self.forward(layer)
        self.head_forward()

    def prediction_backward(self, layer: int, half: Half) -> None:
        """Its gradients."""
        hidden, tokens = self.training.model.hidden, self.training.own_tokens
        self.head_backward(half)
        self.backward(layer, half)
        name = "prediction projection"
        if half.inputs:
            self.program.compute(gemm(f"{name} input gradient", tokens, hidden, 2 * hidden))
        if half.weights:
            self.program.compute(gemm(f"{name} weight gradient", 2 * hidden, tokens, hidden, "bf16", FP32_BYTES))
            self.embedding_backward()

    @property
    def _own_vocabulary(self) -> int:
        return self.training.vocabulary // self.training.degrees.tensor

    def _feed_forward(self, layer: int) -> FeedForward | Mixture:
        if self._mixture is not None and self.training.model.has_experts(layer):
            return self._mixture.of_layer(layer)
        assert self._dense is not None
        return self._dense

    def _add(self, name: str) -> None:
        """Add two hidden states, where no other kernel does it."""
        if self.training.kernels == "separate":
            self._norm(name, 3)

    def _norm(self, name: str, times: int) -> None:
        size_bytes = times * BF16_BYTES * self.training.own_tokens * self.training.model.hidden
        self.program.compute(memory(name, size_bytes))
