"""A small decoder-only transformer whose layers are split over a tensor-parallel group, and its training text.

The split is Megatron-LM's (Shoeybi et al., arXiv 1909.08053). The first linear layer of a block is split by columns,
the second by rows, so a block needs one all-reduce forward and one backward. Sharding over the data-parallel group is
left to PyTorch's `fully_shard` in `capture.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of one rank's batch."""

    vocabulary: int = 1024
    width: int = 128
    heads: int = 4
    layers: int = 4
    sequence: int = 64
    batch: int = 8  # sequences of one data-parallel rank


@dataclass(frozen=True)
class Split:
    """The tensor-parallel group, and the random numbers of this rank's part of the split weights."""

    group: dist.ProcessGroup
    generator: torch.Generator


class _EnterSplit(torch.autograd.Function):
    """Identity forward; backward, the sum of the group's gradients (Megatron's f)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _LeaveSplit(torch.autograd.Function):
    """The sum of the group's partial results forward; identity backward (Megatron's g)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class SplitLinear(nn.Module):
    """A linear layer without bias, of which this rank has `outputs` rows and `inputs` columns."""

    def __init__(self, inputs: int, outputs: int, full_inputs: int, split: Split) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, generator=split.generator) * full_inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


class Attention(nn.Module):
    """Causal self-attention over this rank's heads."""

    def __init__(self, shape: Shape, split: Split) -> None:
        super().__init__()
        self.group = split.group
        self.heads = shape.heads // split.group.size()
        width = shape.width // split.group.size()
        self.query_key_value = SplitLinear(shape.width, 3 * width, shape.width, split)
        self.output = SplitLinear(width, shape.width, shape.width, split)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, _ = x.shape
        x = self.query_key_value(_EnterSplit.apply(x, self.group))
        query, key, value = x.view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = self.output(x.transpose(1, 2).reshape(batch, sequence, -1))
        return _LeaveSplit.apply(x, self.group)


class FeedForward(nn.Module):
    """Two linear layers with a GELU between, this rank's columns of the first and rows of the second."""

    def __init__(self, shape: Shape, split: Split) -> None:
        super().__init__()
        self.group = split.group
        hidden = 4 * shape.width // split.group.size()
        self.up = SplitLinear(shape.width, hidden, shape.width, split)
        self.down = SplitLinear(hidden, shape.width, 4 * shape.width, split)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.up(_EnterSplit.apply(x, self.group)))
        return _LeaveSplit.apply(self.down(x), self.group)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a layer norm and around a residual."""

    def __init__(self, shape: Shape, split: Split) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape, split)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape, split)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Token and position embeddings, the layers, and a head that shares the token embedding's weight."""

    def __init__(self, shape: Shape, split: Split) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * 0.02)
        self.positions = nn.Parameter(torch.randn(shape.sequence, shape.width) * 0.02)
        self.layers = nn.ModuleList(Layer(shape, split) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, text: Tensor) -> Tensor:
        """(batch, sequence) token numbers → (batch, sequence, vocabulary) scores of the next token."""
        x = functional.embedding(text, self.tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.tokens)


class Text:
    """Endless text in an artificial language: each token has four successors, so that there is something to learn."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        language = torch.Generator().manual_seed(0)
        self.successors = torch.randint(shape.vocabulary, (shape.vocabulary, 4), generator=language)
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self) -> Tensor:
        """(batch, sequence + 1) token numbers."""
        count = self.shape.batch
        text = [torch.randint(self.shape.vocabulary, (count,), generator=self.generator)]
        for _ in range(self.shape.sequence):
            text.append(self.successors[text[-1], torch.randint(4, (count,), generator=self.generator)])
        return torch.stack(text, dim=1)
