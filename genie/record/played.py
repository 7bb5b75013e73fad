"""Facts of a run, of either world, that pages, notebooks and sentences share."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl


class Played(Protocol):
    """The parts of a run that both a run folder and a simulation in memory have."""

    info: dict[str, Any]
    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]


def workload_name(run: Played) -> str:
    """Return the name of a run's workload, without its folders."""
    return PurePath(str(run.info.get("workload") or "")).name or "a workload"


def has_packets(run: Played) -> bool:
    """Return whether the level plays packets, which can be marked, paused and dropped."""
    return str(run.info.get("level", "packet")).startswith("packet")


def iteration_ends(run: Played) -> dict[int, int]:
    """Return iteration → when its last node ended, or it was stopped, in ns, in the order of iterations."""
    import polars as pl

    ends = run.timeline.group_by("iteration").agg(pl.max_horizontal("start_ns", "end_ns").max()).sort("iteration")
    result = {int(iteration): int(end) for iteration, end in ends.iter_rows()}
    if (stopped := run.info.get("stopped_iteration")) is not None:
        result[stopped] = max(result.get(stopped, 0), int(run.info.get("stopped_at_ns") or 0))
    return result
