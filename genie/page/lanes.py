"""Slices of swim lanes, bounded in number whatever the size of the run, and packed for a page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

SHORTEST_PART = 2000  # of an iteration: nodes shorter than this part are merged with their neighbours
COARSER = (1, 4, 16)  # times as long: merging for a page without room for shorter nodes
NAME_LETTERS_MAX = 80
TIME_STEPS = 1_000_000  # of an iteration: the resolution of packed times
MIXED = ""  # group of merged nodes of several groups

# Lane, row, kind, start, end, time when all had arrived (ns), name, group ("" for none).
Slice = list[Any]
Packed = dict[str, Any]


def all_there_ns() -> pl.Expr:
    """Return the time at which all members of a collective had started; of other nodes, that of their own start."""
    import polars as pl

    last = pl.col("start_ns").max().over("iteration", "group", "seq")
    return pl.when(pl.col("kind") == "coll").then(last).otherwise(pl.col("start_ns"))


def lane_slices(
    timeline: pl.DataFrame, row_of_rank: Mapping[int, int], lane: int = 0,
    lane_of_kind: Mapping[str, int] | None = None, coarser: int = 1,
) -> list[Slice]:  # fmt: skip
    """The actions of the ranks in one iteration, as slices. `timeline`: rows of all ranks, as run folders have it.

    `lane`: the lane of kinds that `lane_of_kind` lacks.

    A node shorter than a 2000th of the iteration is merged with others; `coarser` makes this time so much longer. They
    have the same rank and kind, and begin in the same 2000th.
    """
    import polars as pl

    if timeline.is_empty():
        return []
    shortest = max(int(timeline["end_ns"].to_numpy().max()) * coarser // SHORTEST_PART, 1)
    table = timeline.with_columns(there_ns=all_there_ns()).filter(
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
            pl.when(pl.col("group").n_unique() == 1).then(pl.col("group").first()).alias("group"),
            pl.len().alias("nodes"),
        )
        .with_columns(start_ns=pl.col("first_ns"))
    )
    columns = ["rank", "kind", "op", "name", "start_ns", "end_ns", "there_ns", "nodes", "group"]
    rows = pl.concat([long.select(columns), short.select(columns)]).sort("rank", "start_ns", "end_ns")
    result: list[Slice] = []
    lanes = lane_of_kind or {}
    for rank, kind, op, name, start, end, all_there, nodes, group in rows.iter_rows():
        named = f"{op} ({name})" if op and name and op not in name else name or op or kind
        if nodes > 1:
            named = f"{nodes} short nodes of kind {kind}"
        where = [lanes.get(kind, lane), row_of_rank[rank]]
        result.append([*where, kind, start, end, all_there, named[:NAME_LETTERS_MAX], group or MIXED])
    return result


def packed(slices: Iterable[Slice]) -> Packed:
    """Slices as lanes.js unpacks them.

    - `end`: the last end in ns; `unit`: ns of a unit of time.
    - `words`: [kind, name, group] of slices, each once.
    - `lanes`: [lane, row, numbers]. A slice has four numbers. The first is the time from the last end to its start.
      Then come its length, the part of that until all had arrived, and its place in `words`.
    """
    every = list(slices)
    end = max((it[4] for it in every), default=1)
    unit = max(end // TIME_STEPS, 1)
    words: dict[tuple[str, str, str], int] = {}
    lanes: dict[tuple[int, int], list[int]] = defaultdict(list)
    ended: dict[tuple[int, int], int] = defaultdict(int)
    for lane, row, kind, start, stop, there, name, group in every:
        first, last = start // unit, stop // unit
        waited = min(max(there // unit - first, 0), last - first)
        place = words.setdefault((kind, name, group), len(words))
        lanes[lane, row] += [first - ended[lane, row], last - first, waited, place]
        ended[lane, row] = last
    return {
        "end": end,
        "unit": unit,
        "words": [list(it) for it in words],
        "lanes": [[lane, row, numbers] for (lane, row), numbers in sorted(lanes.items())],
    }


def size_of(data: Any) -> int:
    """Bytes of data in a page."""
    return len(json.dumps(data, separators=(",", ":")))


def fitting(makers: Sequence[Callable[[], list[Slice]]], bytes_max: int) -> tuple[Packed, int]:
    """The first of several drawings that fits, with its place; the last one where none fits."""
    last = len(makers) - 1
    for at, make in enumerate(makers):
        drawing = packed(make())
        if at == last or size_of(drawing) <= bytes_max:
            return drawing, at
    raise ValueError("no drawing to choose from")
