"""Swim lanes of a simulation's page: all ranks of as many iterations as the page has room for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from genie.page.lanes import COARSER, SHORTEST_PART, Packed, Slice, fitting, lane_slices, packed, size_of
from simtwin.report.critical_path import slices_of
from simtwin.report.rank_time import NETWORK_KINDS, recorded_ranks, rows_of_ranks, strips

if TYPE_CHECKING:
    from genie.record import Run
    from simtwin.report.digest import Digest
    from simtwin.report.rank_time import RankTime

FEW_RANKS = 32  # with swim lanes while the filter chooses no ranks
STRIPS_MAX = 128  # rows of the overview of all ranks
STRIP_BINS = 400


def timelines(run: Run, spent: RankTime, ends_ns: dict[int, int], digest: Digest, bytes_max: int) -> dict[str, Any]:
    """Return the lanes of the longest iteration, and of others as long as there is room.

    - `first`: the longest iteration; its last row is the critical path, if `has_path`.
    - `ranks`: those with lanes; `few`: those that are drawn while the filter chooses none.
    - `coarser`: how much longer merged nodes are than usual.
    - `iterations`: iteration → packed slices, and with many ranks `strips`: a row for each of `strip_ranks`.
    """
    import polars as pl

    first = digest.longest
    played = run.timeline.filter(pl.col("iteration") == first)
    every = sorted(played["rank"].unique().to_list())
    few = every
    if len(every) > FEW_RANKS:
        # Evenly spaced ranks, and the one that ends last.
        last = played.sort("end_ns", descending=True)["rank"][0]
        few = sorted({last, *(every[at] for at in np.linspace(0, len(every) - 1, FEW_RANKS // 2).astype(int))})
    has_strips = few is not every and recorded_ranks(run) == int(run.info["ranks"])
    rows = rows_of_ranks(len(every), STRIPS_MAX)

    def slices(iteration: int, ranks: list[int], coarser: int) -> list[Slice]:
        row = {rank: at for at, rank in enumerate(ranks)}
        own = run.timeline.filter(pl.col("iteration") == iteration)
        found = lane_slices(own, row, 0, dict.fromkeys(NETWORK_KINDS, 1), coarser)
        if iteration == first:
            found += slices_of(digest.path, len(ranks), ends_ns.get(first, 0) * coarser // SHORTEST_PART)
        return found

    def of(iteration: int, drawing: Packed) -> Packed:
        drawing["end"] = max(ends_ns.get(iteration, 0), 1)
        if has_strips:
            drawing["strips"] = strips(spent, iteration, drawing["end"], rows, STRIP_BINS)
        return drawing

    tries = [(every, coarser) for coarser in COARSER] + [(few, COARSER[-1])]
    drawing, at = fitting([partial(slices, first, *each) for each in tries], bytes_max)
    kept = {first: of(first, drawing)}
    left = bytes_max - size_of(kept[first])
    for iteration in (it for it in ends_ns if it != first):
        other = of(iteration, packed(slices(iteration, *tries[at])))
        left -= size_of(other)
        if left < 0:
            break
        kept[iteration] = other
    ranks, coarser = tries[at]
    return {
        "first": first,
        "has_path": bool(digest.path),
        "ranks": ranks,
        "few": few,
        "coarser": coarser,
        "iterations": {str(iteration): kept[iteration] for iteration in sorted(kept)},
        "strip_ranks": [[row[0], row[-1]] for row in rows] if has_strips else [],
    }
