"""The twin: fabric files, topologies, levels and the simulators; for scripts and notebooks the names in __all__.

    import simtwin

    fabric = simtwin.Fabric.load("fabric.toml").with_control("hpcc")
    run = simtwin.simulate(fabric, simtwin.incast(fabric, "1MiB"))
    print(run.completion_s, run.flow_completion, run.links)

The module behind a name is imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie.config.strict_toml import SettingsError
    from genie.record import RecordError
    from genie.workload.graph import WorkloadError
    from simtwin.api import (
        OptionError,
        Options,
        collective,
        incast,
        load_workload,
        permutation,
        poisson,
        simulate,
    )
    from simtwin.fabric.reading import FabricError
    from simtwin.imports.words import ForeignFileError
    from simtwin.notebook import fct_figure
    from simtwin.play.simulated import Simulated
    from simtwin.play.twin import SimulationError
    from simtwin.scripting import Fabric

__all__ = [
    "Fabric",
    "FabricError",
    "ForeignFileError",
    "OptionError",
    "Options",
    "RecordError",
    "SettingsError",
    "Simulated",
    "SimulationError",
    "WorkloadError",
    "collective",
    "fct_figure",
    "incast",
    "load_workload",
    "permutation",
    "poisson",
    "simulate",
]

_MODULES = {
    "Fabric": "simtwin.scripting",
    "FabricError": "simtwin.fabric.reading",
    "ForeignFileError": "simtwin.imports.words",
    "RecordError": "genie.record",
    "SettingsError": "genie.config.strict_toml",
    "Simulated": "simtwin.play.simulated",
    "SimulationError": "simtwin.play.twin",
    "WorkloadError": "genie.workload.graph",
    "fct_figure": "simtwin.notebook",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers see the names above, and refuse others

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'simtwin' has no attribute '{name}'")
        return getattr(import_module(_MODULES.get(name, "simtwin.api")), name)
