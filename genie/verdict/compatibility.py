"""Checks that the twin is a twin of this run: ranks, lowering, collectives, messages, and the run that it followed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from genie.page.words import upper_bound
from genie.record import RecordError

if TYPE_CHECKING:
    from genie.record import Run


class VerdictError(RecordError):
    """The two runs cannot be compared; the message says why and what to do."""


LOWERING_OPTIONS = {
    "wire": "--wire",
    "channels": "--channels",
    "credit": "--credit",
    "algorithms": "--algorithm",
    "ranks_per_node": "--ranks-per-node",
    "slice_delay_ns": "--slice-delay",
}


def check_settings(live: Run, twin: Run) -> None:
    """Raise VerdictError when the recorded settings of the two runs differ.

    Only settings that both runs record are compared. The workload's path is not: a folder that was moved holds the same
    traces.
    """
    for run, world, command in ((live, "live", "run"), (twin, "twin", "simulate")):
        if (is_world := run.info.get("world", world)) != world:
            raise VerdictError(
                f"{run.path}: is a run of the {is_world} world; genie diff takes the folder of genie run first, then "
                f"that of genie simulate, and this one must be of genie {command}"
            )
    if twin.info.get("complete") is False:
        raise VerdictError(
            f"{twin.path}: the simulation did not end ({twin.info.get('problem')}); simulate to the end for a verdict"
        )
    ran, simulated = live.info.get("ranks"), twin.info.get("ranks")
    if ran is not None and simulated is not None and ran != simulated:
        raise VerdictError(
            f"{twin.path}: simulates {simulated} ranks and {live.path} ran {ran}; simulate the run's own workload again"
        )
    lowered, assumed = live.info.get("lowering"), twin.info.get("lowering")
    if isinstance(lowered, dict) and isinstance(assumed, dict):
        for key in sorted(set(lowered) & set(assumed), key=lambda name: (name != "wire", name)):
            if lowered[key] != assumed[key]:
                option = LOWERING_OPTIONS.get(key, "NCCL variables")
                raise VerdictError(
                    f"{twin.path}: simulated with {key} {_shown(assumed[key])} and {live.path} ran with "
                    f"{_shown(lowered[key])}; simulate again with the same {option} as the run"
                )
    used, played = live.info.get("algorithms"), twin.info.get("algorithms")
    if isinstance(used, dict) and isinstance(played, dict) and used != played:
        raise VerdictError(
            f"{twin.path}: simulated with algorithms {_shown(played)} and {live.path} ran with {_shown(used)}; "
            "simulate again with the same --algorithm as the run"
        )


def _shown(value: Any) -> str:
    """`{"all_reduce": "ring"}` → `all_reduce=ring`."""
    if isinstance(value, dict):
        return " ".join(f"{key}={value[key]}" for key in sorted(value)) or "by size"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def check_nodes(live: Run, twin: Run, iteration: int, twin_iteration: int) -> None:
    """Raise VerdictError unless both worlds communicate alike in an iteration that ended in both.

    Alike: the same ranks take part in the same collectives and messages of the same sizes.
    """
    ran, simulated = communication(live, iteration), communication(twin, twin_iteration)
    on = ["rank", "kind", "group", "order"]
    both = ran.join(simulated, on=on, how="full", nulls_equal=True, suffix="_twin", coalesce=True)
    differs = (
        (pl.col("there").is_null() | pl.col("there_twin").is_null())
        | pl.col("op").ne_missing(pl.col("op_twin"))
        | (pl.col("size_bytes") != pl.col("size_bytes_twin"))
    )
    wrong = both.filter(differs).sort(*on)
    if wrong.is_empty():
        return
    row = wrong.row(0, named=True)
    what = f"collective {row['order']} of group {row['group']!r}" if row["kind"] == "coll" else f"node {row['order']}"
    here = f"{row['op'] or row['kind']} of {row['size_bytes']} bytes" if row["there"] else "missing"
    there = f"{row['op_twin'] or row['kind']} of {row['size_bytes_twin']} bytes" if row["there_twin"] else "missing"
    raise VerdictError(
        f"{twin.path}: simulates another workload than {live.path} ran: on rank {row['rank']}, {what} is {there} "
        f"and was {here}; simulate the run's own workload again"
    )


def communication(run: Run, iteration: int) -> pl.DataFrame:
    """A row for each rank's collective, send or receive of an iteration."""
    kinds = ["coll", "send", "recv"]
    return run.timeline.filter((pl.col("iteration") == iteration) & pl.col("kind").is_in(kinds)).select(
        "rank",
        "kind",
        "group",
        pl.when(pl.col("kind") == "coll")
        .then(pl.col("seq").cast(pl.Int64))
        .otherwise(pl.col("node_id").cast(pl.Int64))
        .alias("order"),
        "op",
        "size_bytes",
        pl.lit(True).alias("there"),
    )


def check_followed(live: Run, twin: Run, iterations: list[int]) -> None:
    """Raise VerdictError when the twin followed another run.

    A rank's first communication of an iteration starts at the same nanosecond in the twin and in the run that it
    followed, whatever the fabric. Later ones may be delayed by earlier ones. The recorded path proves nothing: it is as
    the user wrote it.
    """
    ran, simulated = _first_starts(live, iterations), _first_starts(twin, iterations)
    both = ran.join(simulated, on=["iteration", "rank"], suffix="_twin")
    same = both.filter(pl.col("start_ns") == pl.col("start_ns_twin")).height
    if 2 * same < both.height:
        raise VerdictError(f"{twin.path}: followed another run than {live.path}; simulate with --follow {live.path}")


def _first_starts(run: Run, iterations: list[int]) -> pl.DataFrame:
    """(iteration, rank, start_ns) of each rank's first communication in an iteration."""
    moving = pl.col("kind").is_in(["coll", "send", "recv"]) & pl.col("iteration").is_in(iterations)
    return run.timeline.filter(moving).group_by("iteration", "rank").agg(pl.col("start_ns").min())


def bound_of_estimates(run: Run) -> float:
    """The bound of a simulation's estimates, as a share; 0 without estimates, infinite where an end has no bound."""
    if not (run.info.get("skip") or {}).get("estimates"):
        return 0.0
    bound = run.info.get("error_bound")
    return math.inf if bound is None else float(bound)


def estimates_of(twin: Run) -> list[str]:
    """A warning where the simulated times may be apart from those of level packet, none where they are its times."""
    advice = "simulate at level packet+skip without --skip-error for a verdict"
    bound = bound_of_estimates(twin)
    if math.isinf(bound):
        return [f"twin: with --skip-error, and not all ends have a bound, as others began or ended later; {advice}"]
    if bound > 0:
        moved = (
            f"ends of the messages that it moved are estimated to be within {upper_bound(bound)} of those of packets"
        )
        return [f"twin: with --skip-error, {moved}; {advice}"]
    if twin.info.get("error_bound", 0.0) is None:
        level = twin.info.get("level")
        return [f"twin: level {level} simulates no packets, and its error has no bound; {advice}"]
    return []
