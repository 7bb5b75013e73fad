"""Which ranks form which group in AICB's and SimAI's workloads.

Ranks are numbered tensor-parallel first, as SimAI numbers them (aliyun/SimAI, MockNcclGroup.cc): a tensor group is
consecutive ranks; members of a data group are as far apart as there are data groups. Members in a row of a data group
are an expert group, and those of one place in their expert groups an expert-data group. (With pipelines SimAI's expert
groups cross its data groups; these do not.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Group, WorkloadError


class Domain(Enum):
    """The group that a communication is among. The values are the names of their groups in the groups file."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    EXPERT_DATA = "dp_ep"
    EXPERT_TENSOR = "ep_tp"
    ALL = "all"


DOMAINS = list(Domain)


@dataclass(frozen=True)
class Parallelism:
    """How many ranks there are, and how many of them share what."""

    ranks: int
    tensor: int
    pipeline: int
    expert: int

    @property
    def data(self) -> int:
        return self.ranks // (self.tensor * self.pipeline)

    def check(self) -> None:
        """Raises WorkloadError if the numbers do not fit each other."""
        if self.ranks % (self.tensor * self.pipeline):
            raise WorkloadError(
                f"{self.ranks} ranks are no multiple of tensor {self.tensor} x pipeline {self.pipeline}: "
                "give other --ranks, --tensor-parallel or --pipeline-parallel"
            )
        if self.data % self.expert:
            raise WorkloadError(
                f"{self.data} ranks of data parallelism are no multiple of expert {self.expert}: give another "
                "--expert-parallel"
            )

    def members(self, domain: Domain) -> int:
        """Ranks in each group of a kind."""
        return {
            Domain.TENSOR: self.tensor,
            Domain.DATA: self.data,
            Domain.EXPERT: self.expert,
            Domain.EXPERT_DATA: self.data // self.expert,
            Domain.EXPERT_TENSOR: self.expert * self.tensor,
            Domain.ALL: self.ranks,
        }[domain]

    def group_of(self, domain: Domain) -> NDArray[np.int64]:
        """(ranks,) the number of each rank's group among those of a kind."""
        # Turns of a data group, and the place that all its members share.
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
        """All groups of a kind, by number; together they have every rank once."""
        number = self.group_of(domain)
        by_group = np.argsort(number, kind="stable").reshape(-1, self.members(domain))
        whole = len(by_group) == 1
        return [
            Group(domain.value if whole else f"{domain.value}{index}", tuple(members.tolist()))
            for index, members in enumerate(by_group)
        ]
