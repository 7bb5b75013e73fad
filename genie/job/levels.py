"""The twin's level, from options."""

from __future__ import annotations

from genie.errors import UsageError
from genie.job.option import check_choices
from genie.job.options import TrafficOptions, TwinOptions
from genie.job.warnings import warn
from simtwin.imports.fabric_files import ASTRA_SUFFIXES
from simtwin.levels.analytic import CostModel
from simtwin.levels.astra.costs import read_costs
from simtwin.levels.names import ANALYTIC, ASTRA_SIM, FLOW, LEVELS, MODELS, PACKET_LEVELS, SHARINGS, Level


def check_level(level: str, *, judged: bool = False) -> None:
    """Raises UsageError for a level that does not exist; with `judged`, also for one that no verdict can use."""
    if level not in LEVELS:
        raise UsageError(f"--level {level}: must be one of {', '.join(LEVELS)}")
    if judged and level not in PACKET_LEVELS:
        raise UsageError(f"--level {level}: a verdict needs every packet: leave it out, or use genie simulate")


def level_of(twin: TwinOptions) -> Level:
    """Return the level with its variants. Raises UsageError, also for a variant of another level."""
    check_level(twin.level)
    check_choices(twin)
    for option, given, known, owner in (
        ("--sharing", twin.sharing, SHARINGS, FLOW),
        ("--model", twin.model, MODELS, ANALYTIC),
    ):
        if given != known[0] and twin.level != owner:
            raise UsageError(f"{option} {given}: is for --level {owner}")
    return Level(twin.level, twin.sharing, twin.model)


def model_of(twin: TwinOptions, traffic: TrafficOptions, ranks: int) -> CostModel | None:
    """Return another simulator's costs from its files, None for Genie's own. Raises UsageError and AstraError."""
    if twin.model != ASTRA_SIM:
        given = [name for name, path in (("--system", twin.system), ("--logical", twin.logical)) if path is not None]
        if given:
            raise UsageError(f"{given[0]}: is for --model {ASTRA_SIM}")
        return None
    if traffic.fabric is None or traffic.fabric.suffix not in ASTRA_SUFFIXES or twin.system is None:
        raise UsageError(f"--model {ASTRA_SIM}: give --fabric NETWORK.yml and --system SYSTEM.json, as it reads them")
    costs, notes = read_costs(traffic.fabric, twin.system, twin.logical, ranks)
    for note in notes:
        warn(note)
    return costs
