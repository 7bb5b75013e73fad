"""Options of the twin's levels."""

from __future__ import annotations

from pathlib import Path

from genie.job.resolve import Play, UsageError
from genie.record import warn
from simtwin.imports.fabric_files import ASTRA_SUFFIXES
from simtwin.levels.analytic import CostModel
from simtwin.levels.astra.costs import read_costs
from simtwin.levels.names import ANALYTIC, ASTRA_SIM, BUILT_LEVELS, FLOW, LEVELS, MODELS, PACKET, SHARINGS, Level


def check_level(level: str, *, judged: bool = False) -> None:
    """Refuse levels that are not there, by name; `judged`: and those that a verdict cannot be built on."""
    if level not in LEVELS:
        raise UsageError(f"--level {level}: must be one of {', '.join(LEVELS)}")
    if level not in BUILT_LEVELS:
        raise UsageError(f"--level {level} is not built yet; built: {', '.join(BUILT_LEVELS)}")
    if judged and level != PACKET:
        raise UsageError(f"--level {level}: a verdict needs every packet: leave it out, or use genie simulate")


def level_of(level: str, sharing: str, model: str) -> Level:
    """The level with its variants, which other levels do not have. Raises UsageError."""
    check_level(level)
    for option, given, known, owner in (("--sharing", sharing, SHARINGS, FLOW), ("--model", model, MODELS, ANALYTIC)):
        if given not in known:
            raise UsageError(f"{option} {given}: must be one of {', '.join(known)}")
        if given != known[0] and level != owner:
            raise UsageError(f"{option} {given}: is for --level {owner}")
    return Level(level, sharing, model)


def model_of(play: Play, level: Level, system: Path | None, logical: Path | None, ranks: int) -> CostModel | None:
    """Another simulator's costs from its files; None: our own. Raises UsageError and AstraError."""
    if level.model != ASTRA_SIM:
        if given := [name for name, path in (("--system", system), ("--logical", logical)) if path is not None]:
            raise UsageError(f"{given[0]}: is for --model {ASTRA_SIM}")
        return None
    if play.fabric is None or play.fabric.suffix not in ASTRA_SUFFIXES or system is None:
        raise UsageError(f"--model {ASTRA_SIM}: give --fabric NETWORK.yml and --system SYSTEM.json, as it reads them")
    costs, notes = read_costs(play.fabric, system, logical, ranks)
    for note in notes:
        warn(note)
    return costs
