"""Options and results of a reader of fabrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.units import Duration, Rate
from simtwin.fabric.schema import Fabric


@dataclass(frozen=True)
class ImportOptions:
    """Options for values that a file lacks, from the command line; None and () mean not given."""

    conf: Path | None = None  # configuration beside a topology
    servers: int | None = None  # of the kind in the file
    spines: int | None = None
    nic_rate: Rate | None = None
    nvlink_rate: Rate | None = None  # of a GPU, to the NVSwitches
    nic: tuple[str, ...] = ()  # bus ids
    delay: Duration | None = None  # of the network's cables

    @property
    def given(self) -> list[str]:
        return [name for name in self.__dataclass_fields__ if getattr(self, name) not in (None, ())]


@dataclass(frozen=True)
class Imported:
    """A fabric, and notes about missing values, unknown content and differences of the twin."""

    fabric: Fabric
    notes: tuple[str, ...]
