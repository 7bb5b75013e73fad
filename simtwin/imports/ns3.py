"""Experiments of ns-3's RDMA model (HPCC's tree and those made from it) as a fabric and a workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.plan.build import build_plan
from genie.workload.build import RankBuilder
from genie.workload.generate import GROUP_NAME
from genie.workload.graph import Group, Kind, Workload, WorkloadError
from simtwin.fabric_schema import Fabric
from simtwin.imports.ns3_files import Flow, read_flows, read_topology
from simtwin.imports.ns3_model import check_fabric, model_fabric
from simtwin.imports.words import Configuration, ForeignFileError


@dataclass(frozen=True)
class Experiment:
    """What an experiment is in the twin."""

    fabric: Fabric
    workload: Workload
    flows: tuple[Flow, ...]
    notes: tuple[str, ...]  # where the twin's model differs, and what was not read


def read_experiment(config: Path) -> Experiment:
    """Read a configuration and the files that it names, beside it or in the folder above. Raises ForeignFileError."""
    keys = Configuration(config)
    topology = read_topology(keys.file("TOPOLOGY_FILE"))
    flows = read_flows(keys.file("FLOW_FILE"), topology)
    notes = list(topology.notes)
    pairs = [(flow.source, flow.target) for flow in flows]
    fabric = model_fabric(keys, topology, pairs, notes, config.stem)
    workload = _workload(flows, len(topology.hosts))
    check_fabric(keys, topology, fabric)
    try:
        build_plan(workload)
    except WorkloadError as wrong:
        raise ForeignFileError(f"{keys.path}: makes what the twin cannot play: {wrong}") from wrong
    return Experiment(fabric, workload, flows, tuple(notes))


def _workload(flows: tuple[Flow, ...], hosts: int) -> Workload:
    """Each flow a message, sent at its time."""
    workload = Workload("flows", hosts, [Group(GROUP_NAME, tuple(range(hosts)))], {})
    builders = [RankBuilder(rank) for rank in range(hosts)]
    for number, flow in enumerate(flows):
        wait: tuple[int, ...] = ()
        builder = builders[flow.source]
        if flow.start_ns > 0:
            wait = (
                builder.add(3 * number, f"before flow {number}", Kind.COMP, duration_ns=flow.start_ns, stream=number),
            )
        # A stream of its own: flows do not wait for each other.
        for end, kind, other, after in (
            (flow.source, Kind.SEND, flow.target, wait),
            (flow.target, Kind.RECV, flow.source, ()),
        ):
            builders[end].add(
                3 * number + (1 if kind == Kind.SEND else 2),
                f"flow {number}",
                kind,
                after,
                size_bytes=flow.size_bytes,
                peer=other,
                tag=number,
                stream=number,
            )
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    return workload
