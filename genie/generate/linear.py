"""Linear layers that tensor parallelism splits: their products and collectives (Korthikanti et al. 2022).

With sequence parallelism a column-parallel layer gathers its input and scatters that input's gradient. A row-parallel
one scatters its output and gathers that output's gradient. Without it, tensor-parallel ranks add up by all-reduces.
"""

from __future__ import annotations

from genie.compute.operators import gemm
from genie.generate.degrees import Domain
from genie.generate.program import Program, Stream
from genie.generate.training import BF16_BYTES, Training
from genie.workload.graph import Op


class Linear:
    """The linear layers of one rank's program. Widths are those of the whole layer unless called `own`."""

    def __init__(self, training: Training, program: Program) -> None:
        self.training, self.program = training, program
        self._tensor = training.degrees.tensor
        self._dtype = "fp8" if training.fp8 else "bf16"

    def column_forward(self, name: str, width_in: int, own_width_out: int) -> None:
        """A layer whose output is split."""
        self._gather(f"{name} input", width_in)
        self.program.compute(gemm(name, self.training.tokens, width_in, own_width_out, self._dtype))

    def column_backward(self, name: str, width_in: int, own_width_out: int, *, inputs: bool, weights: bool) -> None:
        """Its gradients: of the input, of the weights, or of both.

        The input is gathered again beside the product of the input's gradient, whose collective runs beside the
        product of the weights' gradient.
        """
        program, tokens = self.program, self.training.tokens
        gathered = self._gathered(f"{name} input", width_in) if weights else None
        reduced = None
        if inputs:
            program.compute(gemm(f"{name} input gradient", tokens, own_width_out, width_in, self._dtype))
            reduced = self._reduced(f"{name} input gradient", width_in)
        if weights:
            program.wait_for(gathered)
            program.compute(gemm(f"{name} weight gradient", width_in, tokens, own_width_out, self._dtype, 4))
        program.wait_for(reduced)

    def row_forward(self, name: str, own_width_in: int, width_out: int) -> None:
        """A layer whose input is split."""
        self.program.compute(gemm(name, self.training.tokens, own_width_in, width_out, self._dtype))
        self.program.wait_for(self._reduced(f"{name} output", width_out))

    def row_backward(self, name: str, own_width_in: int, width_out: int, *, inputs: bool, weights: bool) -> None:
        """Its gradients. The gathered gradient of the output stays for the gradient of the weights."""
        program, tokens = self.program, self.training.tokens
        if inputs:
            self._gather(f"{name} output gradient", width_out)
            program.compute(gemm(f"{name} input gradient", tokens, width_out, own_width_in, self._dtype))
        if weights:
            program.compute(gemm(f"{name} weight gradient", own_width_in, tokens, width_out, self._dtype, 4))

    def _gather(self, name: str, width: int) -> None:
        self.program.wait_for(self._gathered(name, width))

    def _gathered(self, name: str, width: int) -> int | None:
        if not self.training.scatters:
            return None
        size_bytes = BF16_BYTES * self.training.own_tokens * width
        return self.program.collective(
            f"gather {name}", Op.ALL_GATHER, Domain.TENSOR, size_bytes, Stream.TENSOR, f"2 T {self._letter(width)}"
        )

    def _reduced(self, name: str, width: int) -> int | None:
        op, verb = (Op.REDUCE_SCATTER, "scatter") if self.training.scatters else (Op.ALL_REDUCE, "add")
        size_bytes = BF16_BYTES * self.training.tokens * width
        formula = f"2 b s {self._letter(width)} / c"
        return self.program.collective(f"{verb} {name}", op, Domain.TENSOR, size_bytes, Stream.TENSOR, formula)

    def _letter(self, width: int) -> str:
        return "h" if width == self.training.model.hidden else "w"
