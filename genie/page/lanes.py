"""Slices of swim lanes, bounded in number whatever the size of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

SHORTEST_PART = 2000  # of an iteration: nodes shorter than this part are merged with their neighbours
NAME_LETTERS_MAX = 80

Slice = list[Any]  # lane, row, kind, start, end, time when all had arrived (ns), name: as lanes.js draws them


def lane_slices(
    timeline: pl.DataFrame, row_of_rank: Mapping[int, int], lane: int = 0, lane_of_kind: Mapping[str, int] | None = None
) -> list[Slice]:
    """The actions of the ranks in one iteration, as slices. `timeline`: rows of all ranks, as run folders have it.

    `lane`: the lane of kinds that `lane_of_kind` lacks.

    A node shorter than a 2000th of the iteration is merged with others. They have the same rank and kind, and begin in
    the same 2000th.
    """
    import polars as pl

    if timeline.is_empty():
        return []
    shortest = max(int(timeline["end_ns"].to_numpy().max()) // SHORTEST_PART, 1)
    there = pl.when(pl.col("kind") == "coll").then(pl.col("start_ns").max().over("group", "seq"))
    table = timeline.with_columns(there_ns=there.otherwise(pl.col("start_ns"))).filter(
        pl.col("rank").is_in(list(row_of_rank)) & (pl.col("kind") != "meta") & (pl.col("end_ns") >= pl.col("start_ns"))
    )
    is_short = pl.col("end_ns") - pl.col("start_ns") < shortest
    long = table.filter(~is_short).with_columns(nodes=pl.lit(1, pl.UInt32))
    short = (
        table.filter(is_short & (pl.col("end_ns") > pl.col("start_ns")))
        .group_by("rank", "kind", pl.col("start_ns") // shortest)
        .agg(
            pl.col("start_ns").min().alias("first_ns"),
            pl.col("end_ns", "there_ns").max(),
            pl.col("op", "name").first(),
            pl.len().alias("nodes"),
        )
        .with_columns(start_ns=pl.col("first_ns"))
    )
    columns = ["rank", "kind", "op", "name", "start_ns", "end_ns", "there_ns", "nodes"]
    rows = pl.concat([long.select(columns), short.select(columns)]).sort("rank", "start_ns", "end_ns")
    result: list[Slice] = []
    lanes = lane_of_kind or {}
    for rank, kind, op, name, start, end, all_there, nodes in rows.iter_rows():
        named = f"{op} ({name})" if op and name and op not in name else name or op or kind
        if nodes > 1:
            named = f"{nodes} short nodes of kind {kind}"
        result.append([lanes.get(kind, lane), row_of_rank[rank], kind, start, end, all_there, named[:NAME_LETTERS_MAX]])
    return result
