"""The attention of one layer: projections, and the exchange of keys and values of context parallelism."""

from __future__ import annotations

from genie.compute.operators import Operator, attention, gemm, grouped_gemm, memory
from genie.generate.degrees import Domain
from genie.generate.linear import Linear
from genie.generate.program import Program, Stream
from genie.generate.training import BF16_BYTES, MASK_BYTES, Training
from genie.workload.graph import Op

BACKWARD_PASSES = 2.5  # floating-point operations of attention's backward pass over those of its forward pass


class AttentionLayer:
    """Attention in one rank's program."""

    def __init__(self, training: Training, program: Program, linear: Linear) -> None:
        self.training, self.program, self.linear = training, program, linear
        model, tensor = training.model, training.degrees.tensor
        self.own, self.hidden = model.attention, model.hidden
        self.heads = self.own.heads // tensor
        if latent := self.own.latent:
            self.key_value_heads = self.heads
            self.query_dim, self.value_dim = latent.plain_dim + latent.rotary_dim, latent.value_dim
        else:
            self.key_value_heads = max(1, self.own.key_value_heads // tensor)
            self.query_dim = self.value_dim = self.own.head_dim
        self._ring_tag = 0

    @property
    def _key_value_bytes(self) -> int:
        """Keys and values of a micro-batch on a rank."""
        return BF16_BYTES * self.training.tokens * self.key_value_heads * (self.query_dim + self.value_dim)

    def forward(self) -> None:
        """Norm, projections, attention, and the projection of its output."""
        program, training = self.program, self.training
        program.compute(memory("attention norm", 2 * BF16_BYTES * training.own_tokens * self.hidden))
        self._inputs_forward()
        self.core_forward()
        self.linear.row_forward("attention projection", self.heads * self.value_dim, self.hidden)

    def backward(self, *, inputs: bool, weights: bool, again: bool) -> None:
        """Gradients. `again`: attention itself is played forward first, because its scores were not kept."""
        if inputs and again:
            self.core_forward()
        self.linear.row_backward(
            "attention projection", self.heads * self.value_dim, self.hidden, inputs=inputs, weights=weights
        )
        if inputs:
            self._core_backward()
        self._inputs_backward(inputs=inputs, weights=weights)
        if inputs:
            tokens = self.training.own_tokens
            self.program.compute(memory("attention norm gradient", 3 * BF16_BYTES * tokens * self.hidden))

    # -- queries, keys and values ----------------------------------------------------------------------------

    def _parts(self) -> list[tuple[str, int, int]]:
        """Return the column-parallel projections: name, width of the input, width of the output on a rank."""
        latent = self.own.latent
        if latent is None:
            width = (self.heads + 2 * self.key_value_heads) * self.query_dim
            return [("attention qkv", self.hidden, width)]
        keys_and_values = self.heads * (latent.plain_dim + latent.value_dim)
        return [
            ("attention queries", latent.query_rank or self.hidden, self.heads * self.query_dim),
            ("attention keys and values", latent.key_value_rank + latent.rotary_dim, keys_and_values),
        ]

    @property
    def _compressed(self) -> int:
        """Width of all that is compressed for each token; 0 without latent attention."""
        latent = self.own.latent
        return 0 if latent is None else latent.query_rank + latent.key_value_rank + latent.rotary_dim

    def _inputs_forward(self) -> None:
        # All tensor-parallel ranks have the compressing matrices; each compresses its own tokens.
        if self._compressed:
            self.program.compute(gemm("attention compress", self.training.own_tokens, self.hidden, self._compressed))
        for name, width_in, width_out in self._parts():
            self.linear.column_forward(name, width_in, width_out)

    def _inputs_backward(self, *, inputs: bool, weights: bool) -> None:
        for name, width_in, width_out in reversed(self._parts()):
            self.linear.column_backward(name, width_in, width_out, inputs=inputs, weights=weights)
        if self._compressed:
            tokens, name = self.training.own_tokens, "attention compress"
            if inputs:
                self.program.compute(gemm(f"{name} input gradient", tokens, self._compressed, self.hidden))
            if weights:
                self.program.compute(gemm(f"{name} weight gradient", self.hidden, tokens, self._compressed, "bf16", 4))

    # -- attention itself ------------------------------------------------------------------------------------

    def core_forward(self) -> None:
        """Attention, with the exchange of context parallelism."""
        self._core("attention", 1.0, backward=False)

    def _core_backward(self) -> None:
        self._core("attention gradient", BACKWARD_PASSES, backward=True)

    def _core(self, name: str, passes: float, *, backward: bool) -> None:
        training, program = self.training, self.program
        members, exchange = training.degrees.context, training.context_exchange
        queries = training.sequence // members
        batch, keys, heads = training.micro_batch, training.sequence, self.heads
        if training.kernels == "separate":
            self._parts_backward() if backward else self._parts_forward()
        elif members == 1:
            program.compute(attention(name, batch, queries, keys, heads, self.query_dim, self.value_dim, passes))
        elif exchange == "ring":
            self._ring(name, passes, backward=backward)
        elif exchange == "all-gather":
            self._in_context("gather keys and values", Op.ALL_GATHER, self._key_value_bytes)
            program.compute(attention(name, batch, queries, keys, heads, self.query_dim, self.value_dim, passes))
            if backward:
                size_bytes = members * self._key_value_bytes
                name = "scatter key and value gradients"
                self._in_context(name, Op.REDUCE_SCATTER, size_bytes, "2 b s w / t")
        else:
            token_bytes = BF16_BYTES * training.tokens
            output = token_bytes * self.heads * self.value_dim
            sent = {
                "queries": token_bytes * self.heads * self.query_dim,
                "keys": token_bytes * self.key_value_heads * self.query_dim,
                "values": token_bytes * self.key_value_heads * self.value_dim,
            }
            if backward:
                self._in_context("exchange output gradient", Op.ALL_TO_ALL, output)
            else:
                for what, size_bytes in sent.items():
                    self._in_context(f"exchange {what}", Op.ALL_TO_ALL, size_bytes)
            own = max(1, heads // members)
            program.compute(attention(name, batch, keys, keys, own, self.query_dim, self.value_dim, passes))
            if backward:
                for what, size_bytes in sent.items():
                    self._in_context(f"exchange {what} gradient", Op.ALL_TO_ALL, size_bytes)
            else:
                self._in_context("exchange output", Op.ALL_TO_ALL, output)

    # Separate kernels compute all scores, also those that the mask discards, and move them through memory.

    def _parts_forward(self) -> None:
        tokens, program = self.training.sequence, self.program
        program.compute(self._products("attention scores", tokens, self.query_dim, tokens))
        program.compute(memory("attention softmax", 2 * BF16_BYTES * self._scores))
        if self.own.dropout:
            program.compute(memory("attention dropout", (2 * BF16_BYTES + MASK_BYTES) * self._scores))
        program.compute(self._products("attention values", tokens, tokens, self.value_dim))

    def _parts_backward(self) -> None:
        tokens, program = self.training.sequence, self.program
        program.compute(self._products("attention value gradient", tokens, tokens, self.value_dim))
        program.compute(self._products("attention score gradient", tokens, self.value_dim, tokens))
        if self.own.dropout:
            program.compute(memory("attention dropout gradient", (2 * BF16_BYTES + MASK_BYTES) * self._scores))
        program.compute(memory("attention softmax gradient", 3 * BF16_BYTES * self._scores))
        for what in ("query", "key"):
            program.compute(self._products(f"attention {what} gradient", tokens, tokens, self.query_dim))

    @property
    def _scores(self) -> int:
        """Scores of a micro-batch on a rank."""
        return self.training.micro_batch * self.heads * self.training.sequence**2

    def _products(self, name: str, m: int, k: int, n: int) -> Operator:
        """A product for each sequence and head."""
        return grouped_gemm(name, self.training.micro_batch * self.heads, m, k, n)

    def _in_context(self, name: str, op: Op, size_bytes: int, formula: str = "2 b s w / (c t)") -> None:
        self.program.wait_for(self.program.collective(name, op, Domain.CONTEXT, size_bytes, Stream.CONTEXT, formula))

    def _ring(self, name: str, passes: float, *, backward: bool) -> None:
        """Keys and values go round; each rank attends to what it holds, while the next part is on its way."""
        training, program = self.training, self.program
        members = training.degrees.context
        queries = training.sequence // members
        for step in range(members):
            part = attention(
                name, training.micro_batch, queries, queries, self.heads, self.query_dim, self.value_dim, passes
            )
            received = self._pass_on("keys and values") if step < members - 1 else None
            program.compute(part)
            if backward and step:
                program.wait_for(self._pass_on("key and value gradients"))
            program.wait_for(received)

    def _pass_on(self, what: str) -> int:
        """Send to the next rank of the ring, and receive from the previous one."""
        degrees, program = self.training.degrees, self.program
        before, after = ring_columns(degrees.pipeline)
        tag = self._ring_tag
        self._ring_tag += 1
        so_far = [program.last_compute] if program.last_compute >= 0 else []
        size_bytes = self._key_value_bytes
        formula = "2 b s w / (c t)"
        program.send(f"send {what}", after, size_bytes, tag, Stream.CONTEXT, formula, [*so_far, *program.awaited])
        return program.receive(f"receive {what}", before, size_bytes, tag, awaited=False)


def ring_columns(stages: int) -> tuple[int, int]:
    """Return the columns of peers that hold the previous and the next rank of the context-parallel ring."""
    return stages, stages + 1
