"""Data of a report's figures, bounded in size whatever the size of the run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.page.lanes import Slice, lane_slices
from genie.page.words import amount
from genie.verdict.align import align
from genie.verdict.series import phase_column, standardise

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.decompose import Collective
    from genie.verdict.model import Verdict

PARTS_MAX = 40  # bars in one figure
LANE_RANKS_MAX = 32
SLICES_MAX = 24_000  # over all kept iterations
PAIR_BYTES_MIN = 1024  # mean of a pair's transfers: smaller ones show the hosts' wake-ups, not the network
PAIR_RANKS_MAX = 128


def page_data(verdict: Verdict, live: Run, twin: Run) -> dict[str, Any]:
    """Data of all figures, under the names that the page's script reads."""
    window = suspect_window(verdict)
    data: dict[str, Any] = {
        "iterations": [
            {
                "iteration": item.iteration,
                "ratio": round(item.ratio, 4),
                "measured": item.measured_bytes_per_s / 1e9,
                "simulated": item.simulated_bytes_per_s / 1e9,
            }
            for item in verdict.iterations
        ],
        "ranks": len(set(live.timeline["rank"].to_list())),
        "accused": sorted({rank for suspect in verdict.suspects for rank in suspect.ranks}),
        "window": window,
        "windowLabel": window_label(verdict),
        "parts": parts(verdict),
    }
    data |= lanes(verdict, live, twin)
    data["pairs"] = pairs(verdict, live, twin)
    return data


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


def _part(name: str, items: list[Collective]) -> dict[str, Any]:
    """Medians over the given occurrences of one collective, in ns."""
    return {
        "name": name,
        "wait": int(median(sum(i.wait_ns) / len(i.wait_ns) for i in items)),
        "wire": int(median(i.wire_ns for i in items)),
        "measured": int(median(i.measured_ns for i in items)),
        "last": items[0].last_rank if len(items) == 1 else -1,
    }


def parts(verdict: Verdict) -> dict[str, list[dict[str, Any]]]:
    """Choice ("median", or an iteration) → bars, at most PARTS_MAX of them, the largest median excess first."""
    groups: dict[tuple[str, int], list[Collective]] = {}
    for item in verdict.collectives:
        groups.setdefault((item.group, item.seq), []).append(item)
    largest = sorted(groups, key=lambda key: -max(i.measured_ns + abs(i.excess_ns) for i in groups[key]))[:PARTS_MAX]
    order = sorted(largest, key=lambda key: -median(item.excess_ns for item in groups[key]))
    place = {key: at for at, key in enumerate(order)}
    result = {"median": [_part(collective_title(groups[key][0]), groups[key]) for key in order]}
    window = suspect_window(verdict)
    if window and window[0] > verdict.iterations[0].iteration:
        for choice, inside in (("before", False), ("during", True)):
            chosen = {
                key: [i for i in groups[key] if (window[0] <= i.iteration <= window[1]) == inside] for key in order
            }
            result[choice] = [_part(collective_title(items[0]), items) for items in chosen.values() if items]
    shown = (item for item in verdict.collectives if (item.group, item.seq) in place)
    for item in sorted(shown, key=lambda item: (item.iteration, place[item.group, item.seq])):
        result.setdefault(str(item.iteration), []).append(_part(collective_title(item), [item]))
    return result


def lanes(verdict: Verdict, live: Run, twin: Run) -> dict[str, Any]:
    """Slices of both worlds for as many iterations as the page can hold, the most telling ones first."""
    judged = [item.iteration for item in verdict.iterations] or sorted(set(live.timeline["iteration"].to_list()))[-1:]
    window = suspect_window(verdict)
    telling = [window[0], max(judged[0], window[0] - 1)] if window else []
    order = list(dict.fromkeys([*telling, judged[-1], *judged]))
    accused = [rank for suspect in verdict.suspects for rank in suspect.ranks]
    ranks = sorted(set(live.timeline["rank"].to_list()))
    if len(ranks) > LANE_RANKS_MAX:
        ranks = sorted(set(list(dict.fromkeys([*accused, *ranks]))[:LANE_RANKS_MAX]))
    row = {rank: index for index, rank in enumerate(ranks)}
    follow = bool(twin.info.get("follow", False))
    simulated = sorted(set(twin.timeline["iteration"].to_list()))
    kept: dict[str, Any] = {}
    total = 0
    for iteration in order:
        slices: list[Slice] = []
        beside = iteration if follow else simulated[0]
        for world, (run, number) in enumerate(((live, iteration), (twin, beside))):
            played = run.timeline.filter(pl.col("iteration") == number)
            slices += lane_slices(played, row, lane=world)
        total += len(slices)
        if kept and total > SLICES_MAX:
            break
        kept[str(iteration)] = {"end": max((s[4] for s in slices), default=1), "slices": slices}
    shown = dict(sorted(kept.items(), key=lambda entry: int(entry[0])))
    return {"lanes": shown, "lane_ranks": ranks, "lane_first": str(order[0])}


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
