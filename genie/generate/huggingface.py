"""Reading `config.json` of HuggingFace models: keys by model type. Unknown types and missing keys are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from genie.errors import UsageError
from genie.generate.model import Attention, Experts, LatentAttention, Model
from genie.inputs.content import ContentError, read_text

SIZE_MAX = 1 << 31  # of a dimension
Value = TypeVar("Value", int, bool)


class _Keys:
    """The keys of a configuration, with checked types."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, where

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def integer(self, key: str, otherwise: int | None = None) -> int:
        """Return a positive integer, or one from 0 where `otherwise` is 0."""
        value = self._values.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if value is None:
            raise UsageError(f"{self.where}: has no {key}, which a model of type {self.family} needs")
        least = 0 if otherwise == 0 else 1
        if type(value) is not int or not least <= value <= SIZE_MAX:
            raise UsageError(f"{self.where}: {key} is {value!r}: give an integer from {least} to {SIZE_MAX}")
        return value

    def share(self, key: str, otherwise: float) -> float:
        """Return a number from 0 to 1."""
        value = self._values.get(key)
        if value is None:
            return otherwise
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise UsageError(f"{self.where}: {key} is {value!r}: give a number from 0 to 1")
        return float(value)

    def flag(self, key: str, *, otherwise: bool) -> bool:
        value = self._values.get(key)
        if value is None:
            return otherwise
        if type(value) is not bool:
            raise UsageError(f"{self.where}: {key} is {value!r}: give true or false")
        return value

    @property
    def family(self) -> str:
        return str(self._values.get("model_type"))


def read_config(path: Path) -> Model:
    """Return the model of a `config.json`. Raises UsageError."""
    try:
        values = json.loads(read_text(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ContentError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: is not a JSON object: give a model's config.json")
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return model_of(values, name, str(path))


def model_of(values: Mapping[str, Any], name: str, where: str) -> Model:
    """Return the model of a configuration's keys. `where`: its place, for errors. Raises UsageError."""
    family = values.get("model_type")
    if family is None:
        raise UsageError(f"{where}: has no model_type: give a HuggingFace config.json of a language model")
    if family not in _READERS:
        raise UsageError(f"{where}: model_type {family!r} is not supported: one of {', '.join(sorted(_READERS))} is")
    keys = _Keys(values, where)
    model = replace(_READERS[family](keys), name=name)
    _check(model, where)
    return model


def _check(model: Model, where: str) -> None:
    attention, experts = model.attention, model.experts
    if attention.heads % attention.key_value_heads:
        raise UsageError(
            f"{where}: num_attention_heads {attention.heads} is not a multiple of num_key_value_heads "
            f"{attention.key_value_heads}"
        )
    if experts is not None and experts.per_token > experts.count:
        raise UsageError(f"{where}: {experts.per_token} experts per token are more than the {experts.count} there are")


def _dense(keys: _Keys) -> Model:
    """Return a model with the keys of the Llama family."""
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    bias = keys.flag("attention_bias", otherwise=False)
    attention = Attention(
        heads=heads,
        key_value_heads=keys.integer("num_key_value_heads", heads),
        head_dim=keys.integer("head_dim", _divided(keys, hidden, heads)),
        input_bias=bias,
        output_bias=bias,
        dropout=keys.share("attention_dropout", 0.0) > 0,
    )
    return Model(
        name="",
        family=keys.family,
        layers=keys.integer("num_hidden_layers"),
        hidden=hidden,
        vocabulary=keys.integer("vocab_size"),
        context=keys.integer("max_position_embeddings", 4096),
        attention=attention,
        width=keys.integer("intermediate_size"),
        bias=keys.flag("mlp_bias", otherwise=False),
        tied=keys.flag("tie_word_embeddings", otherwise=False),
    )


def _divided(keys: _Keys, hidden: int, heads: int) -> int:
    if not keys.has("head_dim") and hidden % heads:
        raise UsageError(f"{keys.where}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    return max(1, hidden // heads)


def _llama(keys: _Keys) -> Model:
    return _dense(keys)


def _qwen2(keys: _Keys) -> Model:
    model = _dense(keys)
    return replace(model, attention=replace(model.attention, input_bias=True, output_bias=False))


def _qwen3(keys: _Keys) -> Model:
    model = _dense(keys)
    return replace(model, attention=replace(model.attention, head_norm=True))


def _qwen3_moe(keys: _Keys) -> Model:
    model = _qwen3(keys)
    if keys.has("mlp_only_layers") and keys._values["mlp_only_layers"]:
        raise UsageError(f"{keys.where}: mlp_only_layers is not supported: leave it empty")
    step = keys.integer("decoder_sparse_step", 1)
    experts = Experts(
        count=keys.integer("num_experts"),
        per_token=keys.integer("num_experts_per_tok"),
        width=keys.integer("moe_intermediate_size"),
        first_layer=step - 1,
        every=step,
    )
    return replace(model, experts=experts)


def _mixtral(keys: _Keys) -> Model:
    width = keys.integer("intermediate_size")
    experts = Experts(keys.integer("num_local_experts"), keys.integer("num_experts_per_tok"), width)
    return replace(_dense(keys), experts=experts, width=0)


def _gpt_oss(keys: _Keys) -> Model:
    model = _dense(keys)
    experts = Experts(
        count=keys.integer("num_local_experts"),
        per_token=keys.integer("num_experts_per_tok"),
        width=keys.integer("intermediate_size"),
        router_bias=True,
        bias=True,
    )
    attention = replace(model.attention, input_bias=True, output_bias=True, sinks=True)
    return replace(model, attention=attention, experts=experts, width=0)


def _deepseek(keys: _Keys) -> Model:
    heads = keys.integer("num_attention_heads")
    latent = LatentAttention(
        query_rank=keys.integer("q_lora_rank", 0),
        key_value_rank=keys.integer("kv_lora_rank"),
        plain_dim=keys.integer("qk_nope_head_dim"),
        rotary_dim=keys.integer("qk_rope_head_dim"),
        value_dim=keys.integer("v_head_dim"),
    )
    attention = Attention(heads, heads, latent.plain_dim + latent.rotary_dim, latent=latent)
    width = keys.integer("moe_intermediate_size")
    experts = Experts(
        count=keys.integer("n_routed_experts"),
        per_token=keys.integer("num_experts_per_tok"),
        width=width,
        shared_width=width * keys.integer("n_shared_experts", 0),
        first_layer=keys.integer("first_k_dense_replace", 0),
        every=keys.integer("moe_layer_freq", 1),
        router_bias=keys.family == "deepseek_v3",  # the correction of its scores
    )
    further = keys.integer("num_nextn_predict_layers", 0)
    return replace(_dense(keys), attention=attention, experts=experts, prediction_layers=further)


def _gpt2(keys: _Keys) -> Model:
    """GPT-2 and GPT-3: LayerNorm, learned positions, biases, and a feed-forward part without a gate."""
    hidden, heads = keys.integer("n_embd"), keys.integer("n_head")
    context = keys.integer("n_positions")
    dropout = keys.share("attn_pdrop", 0.1) > 0
    return Model(
        name="",
        family=keys.family,
        layers=keys.integer("n_layer"),
        hidden=hidden,
        vocabulary=keys.integer("vocab_size"),
        context=context,
        attention=Attention(
            heads, heads, _divided(keys, hidden, heads), input_bias=True, output_bias=True, dropout=dropout
        ),
        width=keys.integer("n_inner", 4 * hidden),
        gated=False,
        bias=True,
        norm="layer",
        positions=context,
        tied=keys.flag("tie_word_embeddings", otherwise=True),
    )


_READERS: dict[str, Callable[[_Keys], Model]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_oss": _gpt_oss,
    "gpt2": _gpt2,
}
FAMILIES = tuple(sorted(_READERS))
