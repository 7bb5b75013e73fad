"""Operators of a step: operations and memory traffic are those of published closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genie.compute.operators import Timed
from genie.errors import UsageError
from genie.generate.degrees import Degrees
from genie.generate.huggingface import model_of
from genie.generate.memory import memory_of
from genie.generate.step import Step
from genie.generate.training import KERNELS, Recompute, Training
from genie.workload.graph import Kind, RankGraph

LAYERS, HIDDEN, HEADS, SEQUENCE, VOCABULARY, MICRO_BATCH = 2, 768, 12, 512, 5120, 3
GPT = {
    "model_type": "gpt2", "n_layer": LAYERS, "n_embd": HIDDEN, "n_head": HEADS, "n_positions": SEQUENCE,
    "vocab_size": VOCABULARY,
}  # fmt: skip


def graph(tensor: int = 2, config: dict[str, Any] | None = None, **more: Any) -> RankGraph:
    model = model_of(GPT | (config or {}), "gpt", "config.json")
    training = Training(model, Degrees(tensor, tensor=tensor), SEQUENCE, MICRO_BATCH, sharding="none", **more)
    return Step(training, lambda _: Timed(1, "drawn")).graph(0)[0]


def operations(own: RankGraph) -> int:
    return int(own.num_ops[own.kind == Kind.COMP].sum())


def moved(own: RankGraph, name: str) -> list[int]:
    return [int(own.tensor_bytes[row]) for row, each in enumerate(own.name) if each == name]


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_operations_of_separate_kernels_are_the_published_ones(tensor: int) -> None:
    """Korthikanti et al. 2022, equations 7 and 8, and their factor of full recompute."""
    b, s, h, v = MICRO_BATCH, SEQUENCE, HIDDEN, VOCABULARY
    layers = 24 * b * s * h * h * LAYERS + 4 * b * s * s * h * LAYERS  # forward
    scores, logits = 4 * b * s * s * h * LAYERS, 2 * b * s * h * v
    found = {
        recompute: operations(graph(tensor, kernels="separate", recompute=recompute)) * tensor
        for recompute in ("none", "selective", "full")
    }
    assert found["none"] == 3 * (layers + logits)
    assert found["selective"] == found["none"] + scores
    assert found["full"] == found["none"] + layers


def test_a_fused_kernel_computes_the_half_that_the_mask_leaves() -> None:
    """Forward 4 b s² h of separate kernels become half; backward 8 become 2.5 times that half."""
    scores = MICRO_BATCH * SEQUENCE**2 * HIDDEN * LAYERS
    assert operations(graph(1, kernels="separate")) - operations(graph(1)) == (4 + 8) * scores - (2 + 5) * scores


def test_separate_kernels_move_scores_and_residuals_through_memory() -> None:
    own = graph(2, kernels="separate")
    scores, state = MICRO_BATCH * HEADS // 2 * SEQUENCE**2, MICRO_BATCH * SEQUENCE * HIDDEN // 2
    assert moved(own, "attention softmax") == [2 * 2 * scores] * LAYERS
    assert moved(own, "attention dropout") == [(2 * 2 + 1) * scores] * LAYERS
    assert moved(own, "attention softmax gradient") == [3 * 2 * scores] * LAYERS
    for name in ("attention residual", "feed-forward residual"):
        assert moved(own, name) == moved(own, f"{name} gradient") == [3 * 2 * state] * LAYERS
    whole = graph(2, kernels="separate", sequence_parallel=False)
    assert moved(whole, "attention residual") == [3 * 2 * 2 * state] * LAYERS


def test_dropout_is_that_of_the_configuration() -> None:
    assert not moved(graph(config={"attn_pdrop": 0.0}, kernels="separate"), "attention dropout")
    llama = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "vocab_size": VOCABULARY, "intermediate_size": 1024,
    }  # fmt: skip
    assert not model_of(llama, "l", "c").attention.dropout
    assert model_of(llama | {"attention_dropout": 0.1}, "l", "c").attention.dropout
    with pytest.raises(UsageError, match=r"attn_pdrop is 2: give a number from 0 to 1"):
        model_of(GPT | {"attn_pdrop": 2}, "gpt", "config.json")


@pytest.mark.parametrize(("recompute", "kept"), [("none", 5), ("selective", 0), ("full", 0)])
def test_scores_are_kept_unless_they_are_computed_again(recompute: Recompute, kept: int) -> None:
    """Korthikanti et al. 2022, equation 1: 5 a s² b bytes of a layer."""
    model = model_of(GPT, "gpt", "config.json")
    fused, separate = (
        memory_of(Step(Training(model, Degrees(2, tensor=2), SEQUENCE, MICRO_BATCH, recompute=recompute,
                                kernels=kernels), lambda _: Timed(1, "drawn")), 0).activations
        for kernels in KERNELS
    )  # fmt: skip
    assert separate - fused == kept * MICRO_BATCH * HEADS // 2 * SEQUENCE**2 * LAYERS


def test_kernels_change_no_collective() -> None:
    fused, separate = graph(), graph(kernels="separate")
    for own in (fused, separate):
        assert (own.kind == Kind.COLL).any()
    columns = [own.size_bytes[own.kind == Kind.COLL] for own in (fused, separate)]
    assert np.array_equal(*columns)


def test_separate_kernels_refuse_context_parallelism() -> None:
    model = model_of(GPT, "gpt", "config.json")
    with pytest.raises(UsageError, match="--kernels separate with --cp 2"):
        Training(model, Degrees(2, context=2), SEQUENCE, kernels="separate")
