"""Level `analytic`: costs of a workload's collectives and messages by closed forms.

The nodes of a plan share few distinct costs. `cost_keys` lists them, and a `CostModel` gives the time of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from genie.plan.build import TIME_MAX_PS
from genie.plan.classes import Binding, PlanClass
from genie.workload.graph import Kind, Op, Workload

MESSAGE = "message"  # from `ranks[0]` to `ranks[1]`, as an operation


class CostKey(NamedTuple):
    """A collective or a message. `size_bytes` is as in genie/workload/graph.py."""

    op: str
    ranks: tuple[int, ...]
    size_bytes: int
    root: int = 0  # position


class CostModel(Protocol):
    """Times of collectives and messages once all of their ranks have arrived."""

    def prepare(self, keys: Sequence[CostKey]) -> None:
        """Compute everything about the network that these keys need, whatever their sizes are."""

    def cost_ps(self, key: CostKey) -> int: ...

    def acknowledgement_ps(self, key: CostKey) -> int:
        """Return the time from a message's arrival until its sender has the acknowledgement, in ps."""


@dataclass(frozen=True)
class CostKeys:
    """Distinct keys, and the key of each binding of each rank's class; -1 for a receive's."""

    keys: list[CostKey]
    of_binding: list[NDArray[np.int32]]  # by rank: (bindings,)


def cost_keys(workload: Workload, classes: Sequence[PlanClass]) -> CostKeys:
    """Return the keys of all ranks, which `classes` hold.

    With uneven splits the size is that of even ones with as many bytes between the rank and the others. Of the bytes
    that it sends and those that it receives, the larger number counts.
    """
    number: dict[CostKey, int] = {}
    of_rank: dict[int, NDArray[np.int32]] = {}
    for each in classes:
        columns = np.full((len(each.ranks), len(each.bindings)), -1, np.int32)
        for at, binding in enumerate(each.bindings):
            if binding.kind == Kind.SEND:
                pairs = zip(each.ranks.tolist(), each.peers[:, binding.column].tolist(), strict=True)
                keys = [CostKey(MESSAGE, pair, max(binding.size_bytes, 0)) for pair in pairs]
                columns[:, at] = [number.setdefault(key, len(number)) for key in keys]
            elif binding.kind == Kind.COLL:
                groups, of_class = np.unique(each.groups[:, binding.column], return_inverse=True)
                keys = [_key_of(workload, each, binding, group) for group in groups.tolist()]
                found = np.array([number.setdefault(key, len(number)) for key in keys], np.int32)
                columns[:, at] = found[of_class.reshape(-1)]
        of_rank |= zip(each.ranks.tolist(), columns, strict=True)
    return CostKeys(list(number), [of_rank[rank] for rank in sorted(of_rank)])


def _key_of(workload: Workload, own: PlanClass, binding: Binding, group: int) -> CostKey:
    members, size_bytes = workload.groups[group].ranks, max(binding.size_bytes, 0)
    if (splits := own.template.splits.get(binding.row)) is not None:
        positions = np.flatnonzero(np.isin(members, own.ranks))
        moved = max(int(np.sum(each) - np.asarray(each)[positions].min()) for each in splits)
        size_bytes = -(-moved * len(members) // max(len(members) - 1, 1))
    return CostKey(Op(binding.op).name.lower(), members, size_bytes, binding.root)


def costs_of(model: CostModel, keys: Sequence[CostKey]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return costs in ps, (keys,), and the times of acknowledgements after them, (keys,); at most TIME_MAX_PS each."""
    return (
        np.array([min(model.cost_ps(key), TIME_MAX_PS) for key in keys], np.int64),
        np.array([min(model.acknowledgement_ps(key), TIME_MAX_PS) for key in keys], np.int64),
    )
