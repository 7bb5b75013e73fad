"""The fabric as scripts have it: read, made and changed by the keys of its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from genie.config.strict_toml import Tables
from simtwin.fabric import schema
from simtwin.fabric.reading import FabricError, changed_fabric, fabric_from
from simtwin.imports.fabric_files import read_fabric_file


class Fabric(schema.Fabric, kw_only=True, frozen=True):
    """A fabric file: its tables. Each method raises FabricError."""

    @classmethod
    def load(cls, path: str | Path) -> Fabric:
        """Read and check a fabric file, or one of ASTRA-sim's networks (.yml)."""
        return _scripted(read_fabric_file(Path(path)))

    @classmethod
    def make(cls, **tables: Any) -> Fabric:
        """A fabric of a file's tables and values: `make(topology={"kind": "leaf-spine", ...}, link={"rate": ...})`."""
        return _scripted(fabric_from(Tables(tables, "the fabric", FabricError)))

    def replace(self, changes: Mapping[str, Any]) -> Fabric:
        """With other values at dotted keys: `replace({"switch.shared_buffer": "8MiB"})`; None leaves one out."""
        return _scripted(changed_fabric(self, changes))

    def with_control(self, name: str, **parameters: Any) -> Fabric:
        """With another congestion control: its defaults, or the parameters of [congestion]."""
        table = {"kind": name, **parameters} if parameters else None
        return self.replace({"congestion": table, "transport.congestion": name})


def _scripted(fabric: schema.Fabric) -> Fabric:
    return Fabric(**structs.asdict(fabric))
