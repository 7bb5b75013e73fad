"""Genie: test the network of an ML training cluster without its GPUs.

For scripts and notebooks, the names in __all__ read recorded runs and judge them. `simtwin` simulates.

    import genie

    verdict = genie.diff("runs/mine/live", "runs/mine/twin")
    print(verdict.line(), [suspect.name for suspect in verdict.suspects])

The module behind a name is imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie.config.strict_toml import SettingsError
    from genie.errors import GenieError, UsageError
    from genie.figures import Figure
    from genie.record import RecordError, Run
    from genie.scripting import diff, load_run
    from genie.verdict import Suspect, Verdict, VerdictError

__version__ = "0.1.0"  # of the wheel too, and of the native code beside it
__all__ = [
    "Figure",
    "GenieError",
    "RecordError",
    "Run",
    "SettingsError",
    "Suspect",
    "UsageError",
    "Verdict",
    "VerdictError",
    "diff",
    "load_run",
]

_MODULES = {
    "Figure": "genie.figures",
    "GenieError": "genie.errors",
    "RecordError": "genie.record",
    "Run": "genie.record",
    "SettingsError": "genie.config.strict_toml",
    "Suspect": "genie.verdict",
    "UsageError": "genie.errors",
    "Verdict": "genie.verdict",
    "VerdictError": "genie.verdict",
    "diff": "genie.scripting",
    "load_run": "genie.scripting",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # type checkers see the names above, and refuse others

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'genie' has no attribute '{name}'")
        return getattr(import_module(_MODULES[name]), name)
