"""Memory of a rank: parameters, gradients, the optimizer's state, and the activations of micro-batches under way."""

from __future__ import annotations

from dataclasses import dataclass

from genie.generate.parameters import Part
from genie.generate.step import Step
from genie.generate.training import BF16_BYTES, MASK_BYTES, Training

MASTER_BYTES = 12  # master copy and two moments of Adam, for each parameter


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank of the pipeline."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    micro_batches: int  # under way at most, of all its stages

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations


def memory_of(step: Step, rank: int) -> Memory:
    """Return the memory of a rank of the pipeline. Buffers, fragmentation and the loss are left out."""
    training, degrees = step.training, step.training.degrees
    own = sorted({action.stage for action in step.schedule.actions[rank]})
    parts = sum((part for stage in own for part in step.parameters_of_stage(stage)), Part())
    shards = degrees.shard or degrees.same_parameters
    total = parts.own + parts.experts
    shared = parts.own // shards + parts.experts // degrees.expert_data
    sharding = training.sharding
    held, stages = _under_way(step, rank)
    activations = sum(
        count * len(step.layers_of_stage[stage]) * _layer_bytes(step, stage) for stage, count in stages.items()
    )
    return Memory(
        parameters=BF16_BYTES * (shared if training.shards_parameters else total),
        gradients=training.gradient_bytes * (total if sharding in ("none", "zero1") else shared),
        optimizer=MASTER_BYTES * (total if sharding == "none" else shared),
        activations=activations,
        micro_batches=held,
    )


def _under_way(step: Step, rank: int) -> tuple[int, dict[int, int]]:
    """Return how many forward passes wait for their backward pass at most, and those of each stage then."""
    now: dict[int, int] = {}
    most: tuple[int, dict[int, int]] = (0, {})
    for action in step.schedule.actions[rank]:
        if action.what == "F":
            now[action.stage] = now.get(action.stage, 0) + 1
        elif action.what != "B":  # the gradients of weights need the activations too
            now[action.stage] -= 1
        if sum(now.values()) > most[0]:
            most = sum(now.values()), dict(now)
    return most


def _layer_bytes(step: Step, stage: int) -> int:
    """Return the activations that a layer keeps for its backward pass: inputs of products, norms and attention."""
    training, model = step.training, step.training.model
    tokens, hidden = training.own_tokens, model.hidden
    if training.recompute == "full":
        return BF16_BYTES * tokens * hidden
    attention = model.attention
    query, value = attention.query_width, attention.value_width
    key_value = query + value if attention.latent else 2 * attention.key_value_heads * attention.head_dim
    width = 4 * hidden + query + key_value + value  # two norms, two inputs of products
    inputs = 3 if model.gated else 2
    layer = step.layers_of_stage[stage][-1] if step.layers_of_stage[stage] else 0
    if model.experts is not None and model.has_experts(layer):
        experts = model.experts
        width += experts.per_token * (hidden + inputs * experts.width) + inputs * experts.shared_width
    else:
        width += inputs * model.width
    spread = training.tokens / training.degrees.tensor
    kept = BF16_BYTES * (width if training.scatters else width * training.degrees.tensor) * spread
    return round(kept + _score_bytes(training))


def _score_bytes(training: Training) -> int:
    """Return what separate kernels of attention keep: the softmax; with dropout, its mask and its output too."""
    if training.kernels == "fused" or training.recompute != "none":
        return 0
    attention = training.model.attention
    scores = training.micro_batch * attention.heads // training.degrees.tensor * training.sequence**2
    return (2 * BF16_BYTES + MASK_BYTES if attention.dropout else BF16_BYTES) * scores
