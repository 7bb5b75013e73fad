"""Settings for the conversion of collectives into messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from genie.collectives.msccl.algorithm import PREFIX, load_msccl
from genie.collectives.nccl.shape import NcclShape
from genie.inputs.spelling import option
from genie.workload.graph import Workload, WorkloadError


@dataclass(frozen=True)
class Lowering:
    """Lowering settings.

    `nccl`: NCCL's messages. Without it, each step of the algorithms in `genie.collectives.lower` is one message.
    """

    channels: int = 1
    credit: bool = False
    # Operation -> algorithm, or "msccl:" and the path of an MSCCL file; other operations choose by size.
    algorithms: dict[str, str] = field(default_factory=dict)
    nccl: NcclShape | None = None

    @property
    def msccl_files(self) -> dict[str, str]:
        """Operation -> path of its MSCCL file."""
        return {op: name.removeprefix(PREFIX) for op, name in self.algorithms.items() if name.startswith(PREFIX)}

    def facts(self) -> dict[str, Any]:
        """Settings for run.json that two runs must share to be compared."""
        if self.nccl is None:
            return {"wire": "plain", "channels": self.channels, "credit": self.credit, "algorithms": self.algorithms}
        facts = {"wire": "nccl", **asdict(self.nccl)}
        if self.nccl.server is None:  # nothing chooses among protocols
            del facts["server"], facts["protocols"]
        return facts


def check_groups(lowering: Lowering, workload: Workload) -> None:
    """Raise WorkloadError for an MSCCL file that fits no group of the workload, and MscclError."""
    for op, path in lowering.msccl_files.items():
        members = load_msccl(path).file.members
        sizes = sorted({len(group.ranks) for group in workload.groups})
        if sizes and members not in sizes:  # a bench's settings exist before its workload
            raise WorkloadError(
                f"{path}: is for {members} members, and {workload.name} has groups of {', '.join(map(str, sizes))} "
                f"only: leave {option('algorithm')} {op}={path} out"
            )


def members_per_node(ranks: Sequence[int], ranks_per_node: int) -> int:
    """Number of a group's members on each node, if all nodes have as many and they are in order; otherwise 1.

    With 1 every hop crosses the fabric.
    """
    nodes = [rank // ranks_per_node for rank in ranks]
    local = nodes.count(nodes[0]) if nodes else 1
    alike = all(len(set(nodes[at : at + local])) == 1 for at in range(0, len(nodes), local))
    return local if alike and len(nodes) == local * len(set(nodes)) else 1
