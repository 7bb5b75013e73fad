"""How collectives become messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from genie.collectives.msccl.algorithm import PREFIX, load_msccl
from genie.collectives.nccl.shape import NcclShape
from genie.workload.graph import Workload, WorkloadError


@dataclass(frozen=True)
class Lowering:
    """`nccl`: NCCL's messages; without it one message a step of the algorithms in `genie.collectives.lower`."""

    channels: int = 1
    credit: bool = False
    # Operation -> algorithm, or "msccl:" and the path of an MSCCL file; the others choose by size.
    algorithms: dict[str, str] = field(default_factory=dict)
    nccl: NcclShape | None = None

    @property
    def msccl_files(self) -> dict[str, str]:
        """Operation -> path of its MSCCL file."""
        return {op: name.removeprefix(PREFIX) for op, name in self.algorithms.items() if name.startswith(PREFIX)}

    def facts(self) -> dict[str, Any]:
        """For run.json: what two runs must have in common to be compared."""
        if self.nccl is None:
            return {"wire": "plain", "channels": self.channels, "credit": self.credit, "algorithms": self.algorithms}
        return {"wire": "nccl", **asdict(self.nccl)}


def check_groups(lowering: Lowering, workload: Workload) -> None:
    """Raises WorkloadError for an MSCCL file that no group of the workload could ever use, and MscclError."""
    for op, path in lowering.msccl_files.items():
        members = load_msccl(path).file.members
        sizes = sorted({len(group.ranks) for group in workload.groups})
        if sizes and members not in sizes:  # a bench's workload comes later than its settings
            raise WorkloadError(
                f"{path}: is for {members} members, and {workload.name} has groups of {', '.join(map(str, sizes))} "
                f"only: leave --algorithm {op}={path} out"
            )


def members_per_node(ranks: Sequence[int], ranks_per_node: int) -> int:
    """How many members of a group each node has, if all have as many and they are in order; otherwise 1.

    With 1 every hop crosses the fabric.
    """
    nodes = [rank // ranks_per_node for rank in ranks]
    local = nodes.count(nodes[0]) if nodes else 1
    alike = all(len(set(nodes[at : at + local])) == 1 for at in range(0, len(nodes), local))
    return local if alike and len(nodes) == local * len(set(nodes)) else 1
