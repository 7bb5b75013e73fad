"""Numbers of parameters: of a model, and of one rank's part of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from genie.generate.model import Attention, Experts, Model


@dataclass(frozen=True)
class LayerParameters:
    """Parameters of one layer. Those of `attention` and `dense` are split by tensor parallelism, norms are not."""

    attention: int
    attention_whole: int  # of the attention, that every tensor-parallel rank has
    norms: int
    dense: int = 0  # of a dense layer's projections
    dense_whole: int = 0  # its output bias
    router: int = 0
    expert: int = 0  # of one expert
    expert_whole: int = 0  # its output bias
    shared: int = 0  # expert that every token crosses
    experts: int = 0

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        dense = self.attention + self.attention_whole + self.norms + self.dense + self.dense_whole
        return dense + self.router + self.shared + self.experts * (self.expert + self.expert_whole)


@dataclass(frozen=True)
class ModelParameters:
    """Parameters of a model by part."""

    embedding: int
    positions: int
    layers: tuple[LayerParameters, ...]
    final_norm: int
    head: int  # 0: tied to the embedding
    prediction: int  # layers that predict further tokens

    @property
    def main(self) -> int:
        """All parameters but those of the layers that predict further tokens."""
        return self.embedding + self.positions + sum(each.total for each in self.layers) + self.final_norm + self.head

    @property
    def total(self) -> int:
        """All parameters."""
        return self.main + self.prediction


Matrix = tuple[int, int]  # rows and columns of a parameter, as PyTorch stores it: rows are outputs


@dataclass(frozen=True)
class Part:
    """Parameters of a rank that are reduced together: those that all ranks have, and its experts'."""

    own: int = 0
    experts: int = 0
    replicated: int = 0  # of `own`: the same on all tensor-parallel ranks
    tensors: tuple[Matrix, ...] = ()  # of `own`

    def __add__(self, other: Part) -> Part:
        return Part(
            self.own + other.own,
            self.experts + other.experts,
            self.replicated + other.replicated,
            self.tensors + other.tensors,
        )

    def share_by_rows(self, members: int) -> int:
        """Return the parameters of one of `members` ranks that share the rows of each tensor, padding counted."""
        return sum(-(-rows // members) * columns for rows, columns in self.tensors)


def parameters_of(model: Model) -> ModelParameters:
    """Return the numbers of parameters of a model."""
    norm = norm_of(model)
    embedding = model.vocabulary * model.hidden
    layers = tuple(layer_of(model, layer) for layer in range(model.layers))
    # A projection of two hidden states into one, a norm before each, a layer and its last norm (DeepSeek-V3, 2.2).
    further = 2 * model.hidden**2 + 3 * norm + (layers[-1].total if layers else 0)
    return ModelParameters(
        embedding=embedding,
        positions=model.positions * model.hidden,
        layers=layers,
        final_norm=norm,
        head=0 if model.tied else embedding,
        prediction=model.prediction_layers * further,
    )


def norm_of(model: Model) -> int:
    """Return the parameters of a norm over the hidden dimension."""
    return model.hidden * (2 if model.norm == "layer" else 1)


def layer_of(model: Model, layer: int) -> LayerParameters:
    """Return the numbers of parameters of a layer."""
    split, whole = _attention(model.attention, model.hidden)
    norms = 2 * norm_of(model)
    if model.experts is not None and model.experts.has(layer):
        return LayerParameters(split, whole, norms, **_mixture(model.experts, model.hidden, model.gated))
    up = 2 if model.gated else 1
    dense = (up + 1) * model.hidden * model.width + (up * model.width if model.bias else 0)
    return LayerParameters(split, whole, norms, dense=dense, dense_whole=model.hidden if model.bias else 0)


def _attention(attention: Attention, hidden: int) -> tuple[int, int]:
    """Return the parameters that tensor parallelism splits, and those that every rank has."""
    output = attention.value_width * hidden
    output_bias = hidden if attention.output_bias else 0
    if latent := attention.latent:
        queries = (latent.query_rank or hidden) * attention.query_width
        down = hidden * latent.query_rank + latent.query_rank if latent.query_rank else 0
        down += hidden * (latent.key_value_rank + latent.rotary_dim) + latent.key_value_rank
        keys_and_values = latent.key_value_rank * attention.heads * (latent.plain_dim + latent.value_dim)
        return queries + keys_and_values + output, down + output_bias
    width = (attention.heads + 2 * attention.key_value_heads) * attention.head_dim
    split = hidden * width + output + (width if attention.input_bias else 0)
    split += attention.heads if attention.sinks else 0
    return split, output_bias + (2 * attention.head_dim if attention.head_norm else 0)


def _mixture(experts: Experts, hidden: int, gated: bool) -> dict[str, int]:
    up = 2 if gated else 1
    return {
        "router": experts.count * hidden + (experts.count if experts.router_bias else 0),
        "expert": (up + 1) * hidden * experts.width + (up * experts.width if experts.bias else 0),
        "expert_whole": hidden if experts.bias else 0,
        "shared": (up + 1) * hidden * experts.shared_width + (hidden if experts.shared_gate else 0),
        "experts": experts.count,
    }


def matrices_of(model: Model, layer: int, tensor: int) -> tuple[Matrix, ...]:
    """Return the parameters of a layer on one of `tensor` tensor-parallel ranks, without experts."""
    hidden, experts = model.hidden, model.experts
    found = [*_attention_matrices(model.attention, hidden, tensor), *norms_of(model), *norms_of(model)]
    if experts is None or not experts.has(layer):
        found += _feed_forward(hidden, model.width // tensor, gated=model.gated, bias=model.bias)
        return tuple(found + ([(hidden, 1)] if model.bias else []))
    found += [(experts.count, hidden)] + ([(experts.count, 1)] if experts.router_bias else [])
    if experts.shared_width:
        found += _feed_forward(hidden, experts.shared_width // tensor, gated=model.gated, bias=False)
    return tuple(found + ([(1, hidden // tensor)] if experts.shared_gate else []))


def norms_of(model: Model) -> list[Matrix]:
    """Return the parameters of a norm: a weight, and a bias of a LayerNorm."""
    return [(model.hidden, 1)] * (2 if model.norm == "layer" else 1)


def _feed_forward(hidden: int, width: int, *, gated: bool, bias: bool) -> list[Matrix]:
    up = 2 if gated else 1
    return [*[(width, hidden)] * up, (hidden, width), *[(width, 1)] * (up if bias else 0)]


def _attention_matrices(attention: Attention, hidden: int, tensor: int) -> list[Matrix]:
    found = [(hidden, attention.value_width // tensor)] + ([(hidden, 1)] if attention.output_bias else [])
    queries = attention.query_width // tensor
    if latent := attention.latent:
        rank, inner = latent.key_value_rank, attention.heads * (latent.plain_dim + latent.value_dim) // tensor
        down = [(latent.query_rank, hidden), (latent.query_rank, 1)] if latent.query_rank else []
        compressed = [(rank + latent.rotary_dim, hidden), (rank, 1), (inner, rank)]
        return [*found, *down, (queries, latent.query_rank or hidden), *compressed]
    heads = [queries, *[attention.key_value_heads * attention.head_dim // tensor] * 2]
    found += [(rows, hidden) for rows in heads]
    found += [(rows, 1) for rows in heads] if attention.input_bias else []
    found += [(attention.heads // tensor, 1)] if attention.sinks else []
    return found + ([(attention.head_dim, 1)] * 2 if attention.head_norm else [])
