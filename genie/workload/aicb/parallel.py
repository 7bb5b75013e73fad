"""Ranks of each group in AICB's and SimAI's workloads.

Ranks are numbered tensor-parallel first, as in SimAI (aliyun/SimAI, MockNcclGroup.cc). A tensor group is consecutive
ranks; neighbours in a data group are as far apart as there are data groups. Consecutive members of a data group form an
expert group. Members with the same position in their expert groups form an expert-data group. (With pipelines SimAI's
expert groups cross its data groups; these do not.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Group, WorkloadError


class Domain(Enum):
    """Kind of group for a communication. The values are the names of the groups in the groups file."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    EXPERT_DATA = "dp_ep"
    EXPERT_TENSOR = "ep_tp"
    ALL = "all"


DOMAINS = list(Domain)


@dataclass(frozen=True)
class Parallelism:
    """Number of ranks, and the degrees of parallelism."""

    ranks: int
    tensor: int
    pipeline: int
    expert: int

    @property
    def data(self) -> int:
        return self.ranks // (self.tensor * self.pipeline)

    def check(self) -> None:
        """Raise WorkloadError if the numbers do not fit together."""
        if self.ranks % (self.tensor * self.pipeline):
            raise WorkloadError(
                f"{self.ranks} ranks are not a multiple of tensor {self.tensor} x pipeline {self.pipeline}: "
                "give other --ranks, --tensor-parallel or --pipeline-parallel"
            )
        if self.data % self.expert:
            raise WorkloadError(
                f"{self.data} ranks of data parallelism are not a multiple of expert {self.expert}: give another "
                "--expert-parallel"
            )

    def members(self, domain: Domain) -> int:
        """Number of ranks in each group of a kind."""
        return {
            Domain.TENSOR: self.tensor,
            Domain.DATA: self.data,
            Domain.EXPERT: self.expert,
            Domain.EXPERT_DATA: self.data // self.expert,
            Domain.EXPERT_TENSOR: self.expert * self.tensor,
            Domain.ALL: self.ranks,
        }[domain]

    def group_of(self, domain: Domain) -> NDArray[np.int64]:
        """(ranks,) number of each rank's group among the groups of a kind."""
        # Each rank's position in its data group, and the number of that group.
        rank: NDArray[np.int64] = np.arange(self.ranks)
        turn, place = rank // (self.tensor * self.pipeline), rank % (self.tensor * self.pipeline)
        match domain:
            case Domain.TENSOR:
                return rank // self.tensor
            case Domain.DATA:
                return place
            case Domain.EXPERT:
                return turn // self.expert * self.tensor * self.pipeline + place
            case Domain.EXPERT_DATA:
                return turn % self.expert * self.tensor * self.pipeline + place
            case Domain.EXPERT_TENSOR:
                return turn // self.expert * self.pipeline + place // self.tensor
            case Domain.ALL:
                return 0 * rank

    def groups(self, domain: Domain) -> list[Group]:
        """All groups of a kind, by number; together they contain every rank once."""
        number = self.group_of(domain)
        by_group = np.argsort(number, kind="stable").reshape(-1, self.members(domain))
        whole = len(by_group) == 1
        return [
            Group(domain.value if whole else f"{domain.value}{index}", tuple(members.tolist()))
            for index, members in enumerate(by_group)
        ]
