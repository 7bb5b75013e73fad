"""Fabric files of Genie and of ASTRA-sim."""

from __future__ import annotations

from pathlib import Path

from simtwin.fabric.reading import load_fabric
from simtwin.fabric.schema import Fabric
from simtwin.imports.astra.fabric import read_fabric

ASTRA_SUFFIXES = (".yml", ".yaml")


def read_fabric_file(path: Path) -> Fabric:
    """Read a fabric file, or one of ASTRA-sim's network files as a fabric."""
    return read_fabric(path)[0] if path.suffix in ASTRA_SUFFIXES else load_fabric(path)
