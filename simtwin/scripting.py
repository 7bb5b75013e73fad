"""The fabric for scripts: loaded, made and changed by the keys of its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from genie.config.strict_toml import Tables
from simtwin.fabric import schema
from simtwin.fabric.reading import FabricError, changed_fabric, fabric_from
from simtwin.imports.fabric_files import read_fabric_file
from simtwin.notebook import headline_of_fabric, in_one_line


class Fabric(schema.Fabric, kw_only=True, frozen=True):
    """A fabric file as its tables. Each method raises FabricError."""

    def __repr__(self) -> str:
        return in_one_line(self)

    def _repr_html_(self) -> str:
        return headline_of_fabric(self)

    @classmethod
    def load(cls, path: str | Path) -> Fabric:
        """Read and check a fabric file, or one of ASTRA-sim's networks (.yml).

        path: of the file.
        Raises FabricError and ForeignFileError.
        """
        return _scripted(read_fabric_file(Path(path)))

    @classmethod
    def make(cls, **tables: Any) -> Fabric:
        """Make a fabric of a file's tables: `make(topology={"kind": "leaf-spine", ...}, link={"rate": "100Gb/s"})`.

        tables: name -> table, with the keys and units of a fabric file.
        Raises FabricError.
        """
        return _scripted(fabric_from(Tables(tables, "the fabric", FabricError)))

    def replace(self, changes: Mapping[str, Any]) -> Fabric:
        """Return the fabric with other values at dotted keys; None removes a key.

        For example `replace({"switch.shared_buffer": "8MiB"})`.

        changes: dotted key -> value, with the units of a fabric file.
        Raises FabricError.
        """
        return _scripted(changed_fabric(self, changes))

    def with_control(self, name: str, **parameters: Any) -> Fabric:
        """Return the fabric with another congestion control: its defaults, or the given parameters of [congestion].

        name: of the control, such as "dcqcn".
        parameters: keys of [congestion], with the units of a fabric file.
        Raises FabricError.
        """
        table = {"kind": name, **parameters} if parameters else None
        return self.replace({"congestion": table, "transport.congestion": name})


def _scripted(fabric: schema.Fabric) -> Fabric:
    return Fabric(**structs.asdict(fabric))
