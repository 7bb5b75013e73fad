"""The architecture of a transformer, as far as its parameters, its compute and its communication depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["rms", "layer"]  # RMSNorm has a weight, LayerNorm a weight and a bias


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: keys and values, and queries, are compressed to a few dimensions (DeepSeek-V2)."""

    query_rank: int  # 0: queries are not compressed
    key_value_rank: int
    plain_dim: int  # of a head, without rotary position
    rotary_dim: int  # of a head; keys share it
    value_dim: int  # of a head


@dataclass(frozen=True)
class Attention:
    """Multi-head or grouped-query attention; with `latent` its dimensions decide."""

    heads: int
    key_value_heads: int
    head_dim: int
    input_bias: bool = False  # of queries, keys and values
    output_bias: bool = False
    head_norm: bool = False  # one weight of `head_dim` for queries and one for keys
    sinks: bool = False  # a learned logit for each head
    dropout: bool = False  # of the scores
    latent: LatentAttention | None = None

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        if self.latent is not None:
            return self.heads * (self.latent.plain_dim + self.latent.rotary_dim)
        return self.heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of all heads' outputs together."""
        return self.heads * (self.head_dim if self.latent is None else self.latent.value_dim)


@dataclass(frozen=True)
class Experts:
    """Layers whose feed-forward part is a mixture of experts."""

    count: int
    per_token: int
    width: int  # of an expert's hidden layer
    shared_width: int = 0  # of the expert that every token crosses; 0: there is none
    first_layer: int = 0  # layers before it are dense
    every: int = 1  # each how many layers from there on
    router_bias: bool = False
    bias: bool = False  # of an expert's projections
    shared_gate: bool = False  # a weight that scales the shared expert's output

    def has(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return layer >= self.first_layer and (layer - self.first_layer) % self.every == 0


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer."""

    name: str
    family: str  # `model_type` of its configuration
    layers: int
    hidden: int
    vocabulary: int
    context: int  # tokens, at most
    attention: Attention
    width: int  # of a dense layer's hidden layer; 0: all layers have experts
    gated: bool = True
    bias: bool = False  # of a dense layer's projections
    norm: Norm = "rms"
    positions: int = 0  # learned position embeddings
    tied: bool = False  # one matrix for embedding and output
    experts: Experts | None = None
    prediction_layers: int = 0  # further layers that predict one more token each (DeepSeek-V3)

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward part is a mixture of experts."""
        return self.experts is not None and self.experts.has(layer)
