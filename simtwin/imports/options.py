"""What a reader of fabrics is given, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.units import Duration, Rate
from simtwin.fabric.schema import Fabric


@dataclass(frozen=True)
class ImportOptions:
    """What a file may leave open, as the command line says it; None and () say nothing."""

    conf: Path | None = None  # configuration beside a topology
    servers: int | None = None  # of the kind that the file describes
    spines: int | None = None
    nic_rate: Rate | None = None
    nvlink_rate: Rate | None = None  # of a GPU, to NVSwitches
    nic: tuple[str, ...] = ()  # bus ids
    delay: Duration | None = None  # of the network's cables

    @property
    def given(self) -> list[str]:
        return [name for name in self.__dataclass_fields__ if getattr(self, name) not in (None, ())]


@dataclass(frozen=True)
class Imported:
    """A fabric, and in sentences what was not in the file, what was not understood, and where the twin differs."""

    fabric: Fabric
    notes: tuple[str, ...]
