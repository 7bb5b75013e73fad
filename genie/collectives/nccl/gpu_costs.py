"""Costs of a collective that GPUs cause by themselves, apart from the times that links limit.

NCCL's model takes the least of several bandwidths. A time of bytes that the links inside a server limit is theirs, and
otherwise the GPU's.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

from genie.collectives.nccl.messages import P2P, costs_of_messages
from genie.collectives.nccl.shape import NcclShape, choose_nccl
from genie.collectives.nccl.tuning import NO_COSTS, Choice, Costs, Tuner


class GpuCosts(NamedTuple):
    """Costs of the GPUs alone, and those with the links inside servers. Neither has a time that NICs limit."""

    alone: Costs
    with_links: Costs


def gpu_costs(op: str, members: int, size_bytes: int, shape: NcclShape, local: int) -> GpuCosts:
    """Return the costs of the choice for a collective; arguments as in choose_nccl()."""
    choice = choose_nccl(op, members, size_bytes, shape, local)
    if shape.server is None or choice.costs == NO_COSTS:
        return GpuCosts(NO_COSTS, NO_COSTS)
    server = replace(shape.server, nic_gb_per_s=inf)
    if choice.algorithm == P2P:
        alone, with_links = (costs_of_messages(op, server, members, local, size) for size in (0, size_bytes))
        return GpuCosts(alone, with_links)
    whole_bytes = size_bytes * members if op == "all_gather" else size_bytes
    tuner = Tuner(server, op, members, local, shape.channels)
    with_links = _costs(tuner, choice, whole_bytes)
    fast = _costs(replace(tuner, links_limit=False), choice, whole_bytes)
    hop, work = with_links.hop_ps_per_kib, with_links.work_ps_per_kib
    # Inside one server NCCL's model gives one time, of latencies and of bytes.
    limited = with_links.finish_ps != fast.finish_ps
    finish_ps = _costs(tuner, choice, 0).finish_ps if limited else with_links.finish_ps
    alone = replace(
        with_links,
        hop_ps_per_kib=hop if hop == fast.hop_ps_per_kib else 0,
        work_ps_per_kib=work if work == fast.work_ps_per_kib else 0,
        finish_ps=finish_ps,
    )
    return GpuCosts(alone, with_links)


def _costs(tuner: Tuner, choice: Choice, whole_bytes: int) -> Costs:
    found = tuner.choose_only(whole_bytes, choice.algorithm, choice.protocol, choice.channels)
    assert found is not None  # it is a choice of this tuner
    return found.costs
