"""Settings for the conversion of collectives into messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from genie.collectives.msccl.algorithm import PREFIX, load_msccl
from genie.collectives.nccl.shape import NcclShape, choose_nccl
from genie.inputs.spelling import option
from genie.plan.classes import plan_classes
from genie.workload.graph import Kind, Op, Workload, WorkloadError

CHOICES_MAX = 1000  # in run.json


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
    ranks_per_node: int = 1  # without NCCL's messages: for algorithms that know nodes

    @property
    def node_ranks(self) -> int:
        """Ranks of a node."""
        return self.ranks_per_node if self.nccl is None else self.nccl.ranks_per_node

    @property
    def msccl_files(self) -> dict[str, str]:
        """Operation -> path of its MSCCL file."""
        return {op: name.removeprefix(PREFIX) for op, name in self.algorithms.items() if name.startswith(PREFIX)}

    def facts(self) -> dict[str, Any]:
        """Settings for run.json that two runs must share to be compared."""
        if self.nccl is None:
            nodes = {"ranks_per_node": self.ranks_per_node} if self.ranks_per_node > 1 else {}
            own = {"channels": self.channels, "credit": self.credit, "algorithms": self.algorithms}
            return {"wire": "plain", **own, **nodes}
        facts = {"wire": "nccl", **asdict(self.nccl)}
        facts |= {"protocols": list(facts["protocols"]), "tuner": list(facts["tuner"])}  # as JSON has them
        if self.nccl.server is None:  # nothing chooses among protocols
            del facts["server"], facts["protocols"], facts["tuner"]
        for name in ("allowed", "collnet"):
            if not facts[name]:
                del facts[name]
        return facts


def choices_of(workload: Workload, lowering: Lowering) -> list[Mapping[str, str | int]]:
    """Return NCCL's choice for each operation, group size and size in bytes, for run.json; [] without GPUs.

    Collectives whose bytes are given by member have no size, and are left out.
    """
    shape = lowering.nccl
    if shape is None or shape.server is None:
        return []
    found: dict[tuple[str, int, int, int], Mapping[str, str | int]] = {}
    for own in plan_classes(workload):
        for binding in own.bindings:
            if binding.kind != Kind.COLL or binding.size_bytes <= 0:
                continue
            ranks = workload.groups[int(own.groups[0, binding.column])].ranks
            op, size = Op(binding.op).name.lower(), binding.size_bytes
            local = members_per_node(ranks, shape.ranks_per_node)
            key = (op, len(ranks), local, size)
            if op == "barrier" or len(ranks) < 2 or key in found or len(found) >= CHOICES_MAX:
                continue
            choice = choose_nccl(op, len(ranks), size, shape, local)
            found[key] = {
                "op": op, "members": len(ranks), "members_on_server": local, "size_bytes": size,
                "algorithm": choice.algorithm, "protocol": choice.protocol, "channels": choice.channels,
            }  # fmt: skip
    return list(found.values())


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


def unequal_groups(workload: Workload, ranks_per_node: int) -> str:
    """Groups with several ranks on a node whose data inside nodes is sent over the network, in words; "" if none.

    Groups without a collective count only where the workload is known by its shape alone.
    """
    found = [
        (at, group.name)
        for at, group in enumerate(workload.groups)
        if members_per_node(group.ranks, ranks_per_node) == 1
        and len({rank // ranks_per_node for rank in group.ranks}) < len(group.ranks)
    ]
    if found and workload.ranks:
        graphs = {id(graph): graph for graph in workload.ranks.values()}.values()
        used = {group for graph in graphs for group in np.unique(graph.group[graph.kind == Kind.COLL]).tolist()}
        found = [(at, name) for at, name in found if at in used]
    if not found:
        return ""
    first = found[0][1]
    which = f"group {first} has" if len(found) == 1 else f"{len(found)} groups, such as {first}, have"
    return (
        f"{which} unequal numbers of ranks on nodes of {ranks_per_node}, or ranks out of order: data between their "
        "ranks of one node crosses the network too"
    )


def members_per_node(ranks: Sequence[int], ranks_per_node: int) -> int:
    """Number of a group's members on each node, if all nodes have as many and they are in order; otherwise 1.

    With 1 every hop crosses the fabric.
    """
    nodes = [rank // ranks_per_node for rank in ranks]
    local = nodes.count(nodes[0]) if nodes else 1
    alike = all(len(set(nodes[at : at + local])) == 1 for at in range(0, len(nodes), local))
    return local if alike and len(nodes) == local * len(set(nodes)) else 1
