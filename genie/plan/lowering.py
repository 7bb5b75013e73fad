"""How collectives become messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from genie.collectives.nccl import NcclShape


@dataclass(frozen=True)
class Lowering:
    """`nccl`: NCCL's messages; without it one message a step of the algorithms in `genie.collectives.lower`."""

    channels: int = 1
    credit: bool = False
    algorithms: dict[str, str] = field(default_factory=dict)  # operation -> algorithm; the others choose by size
    nccl: NcclShape | None = None

    def facts(self) -> dict[str, Any]:
        """For run.json: what two runs must have in common to be compared."""
        if self.nccl is None:
            return {"wire": "plain", "channels": self.channels, "credit": self.credit, "algorithms": self.algorithms}
        return {"wire": "nccl", **asdict(self.nccl)}


def members_per_node(ranks: Sequence[int], ranks_per_node: int) -> int:
    """How many members of a group each node has, if all have as many and they are in order; otherwise 1.

    With 1 every hop crosses the fabric.
    """
    nodes = [rank // ranks_per_node for rank in ranks]
    local = nodes.count(nodes[0]) if nodes else 1
    alike = all(len(set(nodes[at : at + local])) == 1 for at in range(0, len(nodes), local))
    return local if alike and len(nodes) == local * len(set(nodes)) else 1
