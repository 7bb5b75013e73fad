"""Data of a report's figures, bounded in size whatever the size of the run."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.page import filter_data, members_of
from genie.page.lanes import COARSER, Packed, Slice, fitting, lane_slices, packed, size_of
from genie.page.words import amount
from genie.verdict.align import align
from genie.verdict.series import phase_column, standardise

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.decompose import Collective
    from genie.verdict.model import Suspect, Verdict

PARTS_MAX = 40  # bars in one figure
PARTS_BYTES_MAX = 400_000  # over all iterations
PAIR_BYTES_MIN = 1024  # mean of a pair's transfers: smaller ones show the hosts' wake-ups, not the network
PAIR_RANKS_MAX = 128


def page_data(verdict: Verdict, live: Run, twin: Run) -> dict[str, Any]:
    """Data of all figures but the timelines, under the names that the page's script reads."""
    window = suspect_window(verdict)
    ranks = sorted(set(live.timeline["rank"].to_list()))
    return {
        "view": filter_data(
            ranks,
            members_of(live.timeline),
            [it.iteration for it in verdict.iterations],
            any("->" in it for it in verdict.upper_bound)
            or any(links_to_choose(it) for it in (*verdict.suspects, *verdict.known)),
        ),
        "iterations": [
            {
                "iteration": item.iteration,
                "ratio": round(item.ratio, 4),
                "measured": item.measured_bytes_per_s / 1e9,
                "simulated": item.simulated_bytes_per_s / 1e9,
            }
            for item in verdict.iterations
        ],
        "ranks": ranks,
        "accused": sorted({rank for suspect in verdict.suspects for rank in suspect.ranks}),
        "window": window,
        "windowLabel": window_label(verdict),
        "parts": parts(verdict),
        "pairs": pairs(verdict, live, twin),
    }


def links_to_choose(suspect: Suspect) -> list[str]:
    """Links that a click on a suspect chooses; none where it has ranks, which it chooses instead."""
    return [] if suspect.ranks else suspect.links


def suspect_window(verdict: Verdict) -> list[int] | None:
    """[first, last] iteration in which the first suspect was slow; None without suspects or judged iterations."""
    judged = [item.iteration for item in verdict.iterations]
    if not verdict.suspects or not judged:
        return None
    first = verdict.suspects[0]
    last = judged[-1] if first.until_iteration is None else first.until_iteration
    return [first.since_iteration, last]


def window_label(verdict: Verdict) -> str:
    """Label of the shaded window in the figure."""
    if not verdict.suspects:
        return ""
    first = verdict.suspects[0]
    who = f"{first.name} slow"
    judged = [item.iteration for item in verdict.iterations]
    if first.until_iteration is not None:
        return f"{who} in iterations {first.since_iteration} to {first.until_iteration}"
    return (
        f"{who} throughout" if first.since_iteration <= judged[0] else f"{who} since iteration {first.since_iteration}"
    )


def collective_title(item: Collective) -> str:
    """A collective's name on the page."""
    size = amount(item.size_bytes) if item.size_bytes else ""
    return " · ".join(part for part in (item.op, size, f"group {item.group} #{item.seq}") if part)


Bar = list[int]  # place in `bars`, mean wait, wire in the twin and measured time (ns), last rank or -1


def _bar(place: int, items: list[Collective]) -> Bar:
    """Medians over the given occurrences of one collective."""
    return [
        place,
        int(median(sum(i.wait_ns) / len(i.wait_ns) for i in items)),
        int(median(i.wire_ns for i in items)),
        int(median(i.measured_ns for i in items)),
        items[0].last_rank if len(items) == 1 else -1,
    ]


def parts(verdict: Verdict) -> dict[str, Any]:
    """Bars of the collectives with most time, at most PARTS_MAX of them.

    - `bars`: [title, group] of each, the largest median excess first.
    - `choices`: "median", "before", "during" or an iteration → bars. Later iterations without room are left out.
    """
    groups: dict[tuple[str, int], list[Collective]] = {}
    for item in verdict.collectives:
        groups.setdefault((item.group, item.seq), []).append(item)
    largest = sorted(groups, key=lambda key: -max(i.measured_ns + abs(i.excess_ns) for i in groups[key]))[:PARTS_MAX]
    order = sorted(largest, key=lambda key: -median(item.excess_ns for item in groups[key]))
    place = {key: at for at, key in enumerate(order)}
    result = {"median": [_bar(at, groups[key]) for key, at in place.items()]}
    window = suspect_window(verdict)
    if window and window[0] > verdict.iterations[0].iteration:
        for choice, inside in (("before", False), ("during", True)):
            chosen = {
                at: [i for i in groups[key] if (window[0] <= i.iteration <= window[1]) == inside]
                for key, at in place.items()
            }
            result[choice] = [_bar(at, items) for at, items in chosen.items() if items]
    left = PARTS_BYTES_MAX
    by_iteration: dict[int, list[Bar]] = {}
    for item in verdict.collectives:
        if (item.group, item.seq) in place:
            by_iteration.setdefault(item.iteration, []).append(_bar(place[item.group, item.seq], [item]))
    for iteration, bars in sorted(by_iteration.items()):
        left -= size_of(bars)
        if left < 0:
            break
        result[str(iteration)] = sorted(bars)
    return {"bars": [[collective_title(groups[key][0]), key[0]] for key in order], "choices": result}


def lanes(verdict: Verdict, live: Run, twin: Run, bytes_max: int) -> dict[str, Any]:
    """Slices of both worlds for as many iterations as `bytes_max` holds, the most telling ones first.

    The first iteration has coarser slices where it would not fit, and then fewer ranks: the accused, then the first.
    """
    judged = [item.iteration for item in verdict.iterations] or sorted(set(live.timeline["iteration"].to_list()))[-1:]
    window = suspect_window(verdict)
    telling = [window[0], max(judged[0], window[0] - 1)] if window else []
    order = list(dict.fromkeys([*telling, judged[-1], *judged]))
    accused = [rank for suspect in verdict.suspects for rank in suspect.ranks]
    by_need = list(dict.fromkeys([*accused, *sorted(set(live.timeline["rank"].to_list()))]))
    follow = bool(twin.info.get("follow", False))
    simulated = sorted(set(twin.timeline["iteration"].to_list()))

    def slices(iteration: int, ranks: list[int], coarser: int) -> list[Slice]:
        row = {rank: index for index, rank in enumerate(ranks)}
        beside = iteration if follow else simulated[0]
        return [
            each
            for world, (run, number) in enumerate(((live, iteration), (twin, beside)))
            for each in lane_slices(
                run.timeline.filter(pl.col("iteration") == number), row, lane=world, coarser=coarser
            )
        ]

    tries = [(sorted(by_need), coarser) for coarser in COARSER]
    while len(tries[-1][0]) > 1:
        tries.append((sorted(by_need[: len(tries[-1][0]) // 2]), COARSER[-1]))
    first, at = fitting([partial(slices, order[0], *each) for each in tries], bytes_max)
    kept: dict[int, Packed] = {order[0]: first}
    left = bytes_max - size_of(first)
    for iteration in order[1:]:
        drawing = packed(slices(iteration, *tries[at]))
        left -= size_of(drawing)
        if left < 0:
            break
        kept[iteration] = drawing
    return {
        "lanes": {str(iteration): kept[iteration] for iteration in sorted(kept)},
        "lane_ranks": tries[at][0],
        "lane_first": str(order[0]),
        "lane_coarser": tries[at][1],
    }


def rank_times(live: Run, twin: Run, iteration: int) -> list[list[int]]:
    """Rows of an iteration: rank, and for each world the time in computation and in collectives and the end, in ns.

    A twin that does not follow the live run has one iteration for all.
    """
    number = iteration if twin.info.get("follow", False) else min(twin.timeline["iteration"].to_list(), default=0)
    took = pl.col("end_ns") - pl.col("start_ns")
    worlds = [
        run.timeline.filter((pl.col("iteration") == at) & (pl.col("end_ns") >= pl.col("start_ns")))
        .group_by("rank")
        .agg(
            took.filter(pl.col("kind").is_in(["comp", "mem"])).sum().alias("computing"),
            took.filter(pl.col("kind") == "coll").sum().alias("collectives"),
            pl.col("end_ns").max(),
        )
        for run, at in ((live, iteration), (twin, number))
    ]
    return [list(row) for row in worlds[0].join(worlds[1], on="rank", suffix="_twin").sort("rank").iter_rows()]


def pairs(verdict: Verdict, live: Run, twin: Run) -> dict[str, Any]:
    """Rank × rank: median excess (fraction) of the transfers, in the first suspect's window if there is one.

    Null where nothing was sent (count 0), or too little to judge.
    """
    transfers = phase_column(align(live, twin).transfers)
    window = suspect_window(verdict)
    if window:
        transfers = transfers.filter(pl.col("iteration").is_between(window[0], window[1]))
    ranks = sorted(set(transfers["src"].to_list()) | set(transfers["dst"].to_list()))
    if len(ranks) > PAIR_RANKS_MAX:
        accused = [rank for suspect in verdict.suspects for rank in suspect.ranks]
        ranks = sorted(set(list(dict.fromkeys([*accused, *ranks]))[:PAIR_RANKS_MAX]))
    column = {rank: index for index, rank in enumerate(ranks)}
    excess: list[list[float | None]] = [[None] * len(ranks) for _ in ranks]
    count = [[0] * len(ranks) for _ in ranks]
    # For a pair with large and small messages, the large ones decide: each is weighted by its time in the twin.
    table = (
        standardise(transfers)
        .group_by("src", "dst", "bin")
        .agg(
            pl.col("excess").median(),
            pl.col("twin_busy").sum().alias("weight"),
            pl.len().alias("count"),
            pl.col("size_bytes").sum(),
        )
        .group_by("src", "dst")
        .agg(
            (pl.col("excess") * pl.col("weight")).sum() / pl.col("weight").sum(),
            pl.col("count").sum(),
            pl.col("size_bytes").sum(),
        )
        .with_columns(pl.col("size_bytes") >= PAIR_BYTES_MIN * pl.col("count"))
    )
    for src, dst, value, number, enough in table.iter_rows():
        if src in column and dst in column:
            if enough:
                excess[column[src]][column[dst]] = round(float(np.expm1(value)), 4)
            count[column[src]][column[dst]] = number
    return {"ranks": ranks, "excess": excess, "count": count}
