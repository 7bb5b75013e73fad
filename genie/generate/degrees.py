"""Degrees of parallelism, and each rank's place: the order of ranks is Megatron's, tp-cp-ep-dp-pp.

Attention splits the ranks of a stage into tp x cp x dp, experts split the same ranks into etp x ep x edp.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from genie.errors import UsageError
from genie.generate.model import Model

RANKS_MAX = 1 << 20


class Domain(IntEnum):
    """Kinds of groups. A rank is in at most one group of each."""

    TENSOR = 0
    CONTEXT = 1
    DATA = 2  # ranks with the same parameters: data parallel, and context parallel
    EXPERT = 3
    EXPERT_TENSOR = 4
    EXPERT_DATA = 5  # ranks with the same experts
    TOKENS = 6  # expert-tensor and expert-parallel ranks together: they share the numbers of tokens
    MODEL = 7  # all ranks with parts of one replica
    SHARD = 8  # of hybrid sharding: ranks that share one copy of the parameters
    REPLICA = 9  # of hybrid sharding: ranks with the same shard
    ENDS = 10  # first and last pipeline stage: they share a tied embedding
    WORLD = 11


@dataclass(frozen=True)
class Degrees:
    """Degrees of parallelism of a job. Raises UsageError where they do not multiply out."""

    ranks: int
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    virtual: int = 1  # chunks of layers on each stage
    expert: int = 1
    expert_tensor: int = 1
    shard: int = 0  # of hybrid sharding; 0: all data-parallel ranks

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= RANKS_MAX:
            raise UsageError(f"--gpus {self.ranks}: give 1 to {RANKS_MAX}")
        named = {
            "--tp": self.tensor, "--cp": self.context, "--pp": self.pipeline, "--vp": self.virtual,
            "--ep": self.expert, "--etp": self.expert_tensor,
        }  # fmt: skip
        for option, value in named.items():
            if value < 1:
                raise UsageError(f"{option} {value}: give 1 or more")
        replica = self.tensor * self.context * self.pipeline
        if self.ranks % replica:
            raise UsageError(
                f"--gpus {self.ranks} is not a multiple of {replica} (--tp {self.tensor} x --cp {self.context} x "
                f"--pp {self.pipeline})"
            )
        experts = self.expert * self.expert_tensor
        if self.stage % experts:
            raise UsageError(
                f"a stage has {self.stage} ranks (--gpus {self.ranks} / --pp {self.pipeline}), which is not a multiple "
                f"of {experts} (--ep {self.expert} x --etp {self.expert_tensor})"
            )
        if self.virtual > 1 and self.pipeline == 1:
            raise UsageError(f"--vp {self.virtual}: needs a pipeline: give --pp 2 or more")
        if self.shard and self.same_parameters % self.shard:
            raise UsageError(
                f"--hsdp {self.shard}: is not a divisor of the {self.same_parameters} ranks with the same parameters"
            )

    @property
    def stage(self) -> int:
        """Ranks of a pipeline stage."""
        return self.ranks // self.pipeline

    @property
    def data(self) -> int:
        """Data-parallel replicas."""
        return self.stage // (self.tensor * self.context)

    @property
    def same_parameters(self) -> int:
        """Ranks with the same parameters of attention."""
        return self.data * self.context

    @property
    def expert_data(self) -> int:
        """Ranks with the same experts."""
        return self.stage // (self.expert * self.expert_tensor)

    def words(self) -> str:
        """`tp8 cp1 pp16 dp128`, with what else is not 1."""
        parts = [f"tp{self.tensor}", f"cp{self.context}", f"pp{self.pipeline}", f"dp{self.data}"]
        more = {"vp": self.virtual, "ep": self.expert, "etp": self.expert_tensor}
        return " ".join([*parts, *(f"{name}{value}" for name, value in more.items() if value > 1)])

    def members(self, domain: Domain) -> int:
        """Members of a group."""
        return {
            Domain.TENSOR: self.tensor,
            Domain.CONTEXT: self.context,
            Domain.DATA: self.same_parameters,
            Domain.EXPERT: self.expert,
            Domain.EXPERT_TENSOR: self.expert_tensor,
            Domain.EXPERT_DATA: self.expert_data,
            Domain.TOKENS: self.expert * self.expert_tensor,
            Domain.MODEL: self.tensor * self.pipeline,
            Domain.SHARD: self.shard or self.same_parameters,
            Domain.REPLICA: self.same_parameters // (self.shard or self.same_parameters),
            Domain.ENDS: min(2, self.pipeline),
            Domain.WORLD: self.ranks,
        }[domain]

    def check_model(self, model: Model) -> None:
        """Raises UsageError for a model that these degrees cannot split."""
        attention = model.attention
        _divides("--tp", self.tensor, attention.heads, "attention heads")
        if attention.latent is None and self.tensor <= attention.key_value_heads:
            _divides("--tp", self.tensor, attention.key_value_heads, "key-value heads")
        elif attention.latent is None:
            _divides("--tp", attention.key_value_heads, self.tensor, "tensor-parallel ranks", what="key-value heads")
        if model.width:
            _divides("--tp", self.tensor, model.width, "columns of the feed-forward part")
        if model.experts is None and self.expert * self.expert_tensor > 1:
            raise UsageError(f"--ep {self.expert} --etp {self.expert_tensor}: {model.name} has no experts")
        if model.experts is not None:
            _divides("--ep", self.expert, model.experts.count, "experts")
            _divides("--etp", self.expert_tensor, model.experts.width, "columns of an expert")
        if model.layers < self.pipeline * self.virtual:
            raise UsageError(
                f"{model.name} has {model.layers} layers, fewer than the {self.pipeline * self.virtual} chunks of "
                f"--pp {self.pipeline} x --vp {self.virtual}"
            )


def _divides(option: str, divisor: int, value: int, things: str, what: str = "") -> None:
    if value % divisor:
        raise UsageError(f"{option} {divisor}{f' ({what})' if what else ''} does not divide {value} {things}")


@dataclass(frozen=True)
class Grid:
    """Each rank's place in a job. Arrays have one entry a rank."""

    degrees: Degrees

    @cached_property
    def stage_of(self) -> NDArray[np.int64]:
        """The rank's pipeline stage."""
        return np.arange(self.degrees.ranks) // self.degrees.stage

    @cached_property
    def _in_stage(self) -> NDArray[np.int64]:
        return np.arange(self.degrees.ranks) % self.degrees.stage

    def at_stage(self, stage: int) -> NDArray[np.int64]:
        """Return for each rank the rank at the same place of another stage."""
        return self._in_stage + stage * self.degrees.stage

    def groups_of(self, domain: Domain) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
        """Return the members of all groups of a kind, and the number of each rank's group; -1: it is in none."""
        key = self._key_of(domain)
        inside = np.flatnonzero(key >= 0)
        order = inside[np.argsort(key[inside], kind="stable")]
        _, first = np.unique(key[order], return_index=True)
        members = [tuple(part.tolist()) for part in np.split(order, first[1:])] if len(order) else []
        number = np.full(len(key), -1, np.int64)
        number[order] = np.repeat(np.arange(len(members)), np.diff([*first, len(order)]))
        return members, number

    def _key_of(self, domain: Domain) -> NDArray[np.int64]:
        """Return a number that the members of a group share, -1 for ranks in none."""
        degrees, inside, stage = self.degrees, self._in_stage, self.stage_of
        tensor, context = degrees.tensor, degrees.context
        experts = degrees.expert * degrees.expert_tensor
        size = degrees.stage
        if domain is Domain.TENSOR:
            own = inside // tensor
        elif domain is Domain.CONTEXT:
            own = inside // (tensor * context) * tensor + inside % tensor
        elif domain is Domain.DATA:
            own = inside % tensor
        elif domain is Domain.EXPERT_TENSOR:
            own = inside // degrees.expert_tensor
        elif domain is Domain.EXPERT:
            own = inside // experts * degrees.expert_tensor + inside % degrees.expert_tensor
        elif domain is Domain.TOKENS:
            own = inside // experts
        elif domain is Domain.EXPERT_DATA:
            own = inside % experts
        elif domain is Domain.SHARD:
            own = inside // tensor // degrees.members(Domain.SHARD) * tensor + inside % tensor
        elif domain is Domain.REPLICA:
            own = inside // tensor % degrees.members(Domain.SHARD) * tensor + inside % tensor
        elif domain is Domain.MODEL:
            return inside // tensor
        elif domain is Domain.WORLD:
            return np.zeros(degrees.ranks, np.int64)
        else:
            return np.where((stage == 0) | (stage == degrees.pipeline - 1), inside, -1)
        return stage * size + own
