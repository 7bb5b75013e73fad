"""From transfers to series: how much longer than in the twin each rank's transfers took, unit by unit.

A unit is one phase of one iteration: a stretch of the graph in which every rank sends enough to be judged. A big
iteration gives several, so that a few iterations are evidence enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from genie.verdict.align import Aligned

PHASES_MAX = 4
DIRECTIONS = ("egress", "ingress")


@dataclass(frozen=True)
class Series:
    """ln(measured / twin) of the time with a message outstanding, summed over a rank's transfers of a unit."""

    direction: str  # egress: transfers from the rank; ingress: transfers to it
    ranks: list[int]  # (n,) those with transfers in every unit
    iteration: NDArray[np.int64]  # (u,) of each unit, ascending
    values: NDArray[np.float64]  # (u, n)

    def column(self, rank: int) -> int:
        return self.ranks.index(rank)

    def relative(self) -> NDArray[np.float64]:
        """(u, n) beside the median over ranks: what the twin misjudges for all alike cancels."""
        result: NDArray[np.float64] = self.values - np.median(self.values, axis=1, keepdims=True)
        return result


def phase_column(transfers: pl.DataFrame) -> pl.DataFrame:
    """`transfers` with columns `item`, its collective (-1: a single message), and `phase`: consecutive items of about
    equal time in the twin, enough of it per rank.
    """
    items = (
        transfers.group_by("group", "order")
        .agg(pl.col("twin_busy").sum().alias("weight"), pl.col("twin_post").min().alias("at"))
        .with_columns(
            # Single messages have no common order over ranks: they are one item.
            pl.when(pl.col("group") == "").then(-1).otherwise(pl.col("order")).alias("item")
        )
    )
    merged = (
        items.group_by("group", "item")
        .agg(pl.col("weight").sum(), pl.col("at").min())
        .sort("at", "group", "item")
        .with_columns(((pl.col("weight").cum_sum() - pl.col("weight") / 2) / pl.col("weight").sum()).alias("middle"))
    )
    keyed = transfers.with_columns(pl.when(pl.col("group") == "").then(-1).otherwise(pl.col("order")).alias("item"))
    for phases in range(PHASES_MAX, 0, -1):
        phase = merged.select(
            "group", "item", (pl.col("middle") * phases).floor().cast(pl.Int64).clip(0, phases - 1).alias("phase")
        )
        result = keyed.join(phase, on=["group", "item"], how="left")
        if phases == 1 or _balanced(result, phases):
            return result
    raise AssertionError("one phase is always balanced")


def _balanced(transfers: pl.DataFrame, phases: int) -> bool:
    """Every rank has at least half of an even share of its time in every phase, in both directions."""
    for end in ("src", "dst"):
        share = transfers.group_by(end, "phase").agg(pl.col("twin_busy").sum())
        share = share.with_columns((pl.col("twin_busy") / pl.col("twin_busy").sum().over(end)).alias("share"))
        if share.height < phases * share[end].n_unique() or float(share["share"].min()) < 0.5 / phases:  # type: ignore[arg-type]
            return False
    return True


def rank_series(transfers: pl.DataFrame, direction: str) -> Series:
    """The series of one direction from transfers with a `phase`; ranks that miss a unit are left out."""
    end = "src" if direction == "egress" else "dst"
    table = (
        transfers.group_by("iteration", "phase", end)
        .agg((pl.col("live_busy").sum() / pl.col("twin_busy").sum()).log().alias("value"))
        .sort("iteration", "phase", end)
    )
    ranks = sorted(table[end].unique().to_list())
    units = table.select("iteration", "phase").unique().sort("iteration", "phase")
    values = np.full((units.height, len(ranks)), np.nan)
    row = {key: index for index, key in enumerate(units.iter_rows())}
    column = {rank: index for index, rank in enumerate(ranks)}
    for iteration, phase, rank, value in table.iter_rows():
        values[row[(iteration, phase)], column[rank]] = value
    whole = ~np.isnan(values).any(axis=0)
    return Series(
        direction,
        [rank for rank, keep in zip(ranks, whole, strict=True) if keep],
        units["iteration"].to_numpy().astype(np.int64),
        values[:, whole],
    )


def both_directions(aligned: Aligned) -> dict[str, Series]:
    """Egress and ingress series of a run."""
    transfers = phase_column(aligned.transfers)
    return {direction: rank_series(transfers, direction) for direction in DIRECTIONS}


def against_peers(series: Series, members: Sequence[int]) -> NDArray[np.float64]:
    """(u,) mean of the member columns minus the median of all others."""
    chosen = np.isin(np.arange(len(series.ranks)), list(members))
    result: NDArray[np.float64] = series.values[:, chosen].mean(axis=1) - np.median(series.values[:, ~chosen], axis=1)
    return result
