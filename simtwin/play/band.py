"""The band of an iteration's time: the twin plays the workload with shorter and with longer compute times too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genie.plan.build import Slots
from genie.plan.lowering import Lowering
from genie.workload.classes import RankViews
from genie.workload.graph import Kind, RankGraph, Workload
from simtwin.play.twin import Simulation, Twin
from simtwin.play.watching import Watch

BAND = (0.85, 1.15)  # compute times that are scaled from another GPU, or fitted, are 15 % wrong in publications


def with_compute_times(workload: Workload, factor: float) -> Workload:
    """Return the workload with all durations of compute and memory nodes times a factor, rounded to whole ns."""
    ranks: Mapping[int, RankGraph]
    if isinstance(workload.ranks, RankViews):
        classes = workload.ranks.classes
        ranks = replace(classes, templates=tuple(_scaled(graph, factor) for graph in classes.templates)).view()
    else:
        ranks = {rank: _scaled(graph, factor) for rank, graph in workload.ranks.items()}
    return replace(workload, ranks=ranks)


def has_compute(workload: Workload) -> bool:
    """Whether any node computes for a time, which the band would scale."""
    views = workload.ranks
    graphs = views.classes.templates if isinstance(views, RankViews) else views.values()
    return any(bool((graph.duration_ns[_computes(graph)] > 0).any()) for graph in graphs)


def band_of(
    twin: Twin,
    workload: Workload,
    *,
    iterations: Sequence[int],
    slots: Slots | None = None,
    lowering: Lowering | None = None,
    watch: Watch | None = None,
) -> list[dict[str, Any]] | None:
    """Play all iterations at each factor of BAND; return `compute_scale` and `ends_ns` of each, for run.json.

    None: the watch has stopped it. Raises SimulationError.
    """
    watch = replace(watch or Watch(), series=None, played=None)
    found = []
    for factor in BAND:
        if watch.begins is not None:
            watch.begins(f"compute times x {factor:g}: ")
        scaled = with_compute_times(workload, factor)
        played = twin.play(scaled, slots=slots, lowering=lowering, iterations=iterations, watch=watch)
        if played.stopped is not None:
            return None
        found.append({"compute_scale": factor, "ends_ns": _ends_ns(played)})
    return found


def _scaled(graph: RankGraph, factor: float) -> RankGraph:
    known = _computes(graph) & (graph.duration_ns > 0)
    durations_ns = np.where(known, np.rint(graph.duration_ns * factor), graph.duration_ns)
    return replace(graph, duration_ns=durations_ns.astype(np.int64))


def _computes(graph: RankGraph) -> NDArray[np.bool_]:
    return np.isin(graph.kind, (Kind.COMP, Kind.MEM))


def _ends_ns(played: Simulation) -> list[int]:
    import polars as pl

    ends = played.timeline.group_by("iteration").agg(pl.col("end_ns").max()).sort("iteration")
    return [int(end) for end in ends["end_ns"]]
