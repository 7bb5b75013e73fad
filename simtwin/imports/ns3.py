"""Experiments of ns-3's RDMA model (HPCC's tree and its derivatives) as a fabric and a workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.plan.build import build_plan
from genie.workload.flows import Flow, workload_of
from genie.workload.graph import Workload, WorkloadError
from simtwin.fabric.schema import Fabric
from simtwin.imports.ns3_files import read_flows, read_topology
from simtwin.imports.ns3_model import check_fabric, model_fabric
from simtwin.imports.words import Configuration, ForeignFileError


@dataclass(frozen=True)
class Experiment:
    """An experiment in the twin: a fabric and a workload."""

    fabric: Fabric
    workload: Workload
    flows: tuple[Flow, ...]
    notes: tuple[str, ...]  # differences of the twin's model, and content that was not read


def read_experiment(config: Path) -> Experiment:
    """Read a configuration and the files that it names, beside it or in the folder above. Raises ForeignFileError."""
    keys = Configuration(config)
    topology = read_topology(keys.file("TOPOLOGY_FILE"))
    flows = read_flows(keys.file("FLOW_FILE"), topology)
    notes = list(topology.notes)
    pairs = [(flow.source, flow.target) for flow in flows]
    fabric = model_fabric(keys, topology, pairs, notes, config.stem)
    workload = workload_of("flows", len(topology.hosts), flows)
    check_fabric(keys, topology, fabric)
    try:
        build_plan(workload)
    except WorkloadError as wrong:
        raise ForeignFileError(f"{keys.path}: makes what the twin cannot play: {wrong}") from wrong
    return Experiment(fabric, workload, flows, tuple(notes))
