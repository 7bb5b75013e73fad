"""Ranks whose nodes and messages a simulation records: all, or of a large job one of each class."""

from __future__ import annotations

from genie.plan.build import Plan

# Of all ranks; of more, one rank a class is recorded.
RECORDED_NODES_MAX = 8_000_000
RECORDED_TRANSFERS_MAX = 4_000_000


def is_large(plan: Plan) -> bool:
    """Whether of a plan one rank a class is recorded."""
    nodes = sum(len(each.ranks) * len(each.template) for each in plan.classes)
    return nodes > RECORDED_NODES_MAX or plan.transfers > RECORDED_TRANSFERS_MAX


def first_of_each_class(plan: Plan) -> list[int]:
    """Return the first rank of each class, ascending."""
    return sorted(int(each.ranks[0]) for each in plan.classes)
