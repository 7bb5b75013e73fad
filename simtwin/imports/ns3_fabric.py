"""Topology files of ns-3's RDMA model and of SimAI as fabrics, with or without their configuration."""

from __future__ import annotations

from pathlib import Path

from simtwin.fabric.schema import Fabric
from simtwin.imports.ns3_files import TopologyFile, read_simai_topology, read_topology
from simtwin.imports.ns3_model import check_fabric, model_fabric
from simtwin.imports.options import Imported, ImportOptions
from simtwin.imports.words import Configuration


def read_ns3(path: Path, options: ImportOptions) -> Imported:
    """Read ns-3's topology. Raises ForeignFileError."""
    return _fabric(read_topology(path), options)


def read_simai(path: Path, options: ImportOptions) -> Imported:
    """Read SimAI's topology.

    NVSwitches are bridges: switches inside a server neither mark nor pause. Raises ForeignFileError.
    """
    return _fabric(read_simai_topology(path), options)


def _fabric(topology: TopologyFile, options: ImportOptions) -> Imported:
    name, notes = topology.path.stem, list(topology.notes)
    keys = None if options.conf is None else Configuration(options.conf)
    if keys is None:
        fabric = Fabric(name=name[:64], topology=topology.explicit())
        notes.append(
            "frames are RoCEv2's, buffers unlimited, without ECN, PFC and congestion control: --conf reads the "
            "simulator's configuration"
        )
    else:
        fabric = model_fabric(keys, topology, None, notes, name)
    check_fabric(keys, topology, fabric)
    return Imported(fabric, tuple(notes))
