"""Series: how much longer than in the twin each rank's transfers took, unit by unit.

A unit is one phase of one iteration: a stretch of the graph in which every rank sends enough to be judged. A large
iteration has several, so that a few iterations are evidence enough.
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
PEERS_MIN = 6  # transfers that a collective needs, for their median to be each one's baseline
TRAFFIC_SHARE_MIN = 0.25  # of the median rank's bytes: a rank with less is not compared with the others
DIRECTIONS = ("egress", "ingress")


@dataclass(frozen=True)
class Series:
    """ln(measured / twin) of the time with a message outstanding, per rank and unit.

    A value is the mean over a rank's transfers of a unit, weighted by bytes, each relative to the median of similar
    transfers. The twin's errors that all of them share cancel.
    """

    direction: str  # egress: transfers from the rank; ingress: transfers to it
    members: list[int]  # (n,) with transfers in every unit: ranks, or numbers of columns of links
    iteration: NDArray[np.int64]  # (u,) iteration of each unit, ascending
    values: NDArray[np.float64]  # (u, n)

    def column(self, member: int) -> int:
        """Return the column of a rank, or of the links with this number."""
        return self.members.index(member)

    def relative(self) -> NDArray[np.float64]:
        """(u, n) values relative to the median over ranks; the twin's errors that all ranks share cancel."""
        result: NDArray[np.float64] = self.values - np.median(self.values, axis=1, keepdims=True)
        return result


def phase_column(transfers: pl.DataFrame) -> pl.DataFrame:
    """`transfers` with two more columns, `item` and `phase`.

    `item` is the transfer's collective, or -1 for a single message. `phase` numbers stretches of consecutive items of
    about equal bytes. Each has enough bytes per rank, because small messages say more about the hosts than about the
    network.
    """
    if transfers.is_empty():
        return transfers.with_columns(item=pl.lit(0, pl.Int64), phase=pl.lit(0, pl.Int64))
    items = (
        transfers.group_by("group", "order")
        .agg(pl.col("size_bytes").sum().alias("weight"), pl.col("twin_post").min().alias("at"))
        .with_columns(
            # Single messages have no order that all ranks share: they are one item.
            pl.when(pl.col("group").is_null()).then(-1).otherwise(pl.col("order")).alias("item")
        )
    )
    merged = (
        items.group_by("group", "item")
        .agg(pl.col("weight").sum(), pl.col("at").min())
        .sort("at", "group", "item")
        .with_columns(((pl.col("weight").cum_sum() - pl.col("weight") / 2) / pl.col("weight").sum()).alias("middle"))
    )
    keyed = transfers.with_columns(pl.when(pl.col("group").is_null()).then(-1).otherwise(pl.col("order")).alias("item"))
    for phases in range(PHASES_MAX, 0, -1):
        phase = merged.select(
            "group", "item", (pl.col("middle") * phases).floor().cast(pl.Int64).clip(0, phases - 1).alias("phase")
        )
        result = keyed.join(phase, on=["group", "item"], how="left", nulls_equal=True)
        if phases == 1 or _balanced(result, phases):
            return result
    raise AssertionError("one phase is always balanced")


def _balanced(transfers: pl.DataFrame, phases: int) -> bool:
    """Whether each rank has at least half of an even share of its bytes in each phase, in both directions."""
    for end in ("src", "dst"):
        part = transfers.group_by(end, "phase").agg(pl.col("size_bytes").sum())
        share = (part["size_bytes"] / part.select(pl.col("size_bytes").sum().over(end)).to_series()).to_numpy()
        if part.height < phases * part[end].n_unique() or float(share.min()) < 0.5 / phases:
            return False
    return True


def standardise(transfers: pl.DataFrame) -> pl.DataFrame:
    """Add columns `ratio`, ln(measured / twin), `bin`, a class of similar sizes, and `excess`.

    `excess` is `ratio` less the median of its collective in its iteration, or of its size class where a collective has
    few transfers.
    """
    peers = pl.len().over("iteration", "group", "item")
    return transfers.with_columns(
        (pl.col("live_busy") / pl.col("twin_busy")).log().alias("ratio"),
        pl.col("size_bytes").log(16).floor().cast(pl.Int64).alias("bin"),
    ).with_columns(
        pl.when((peers >= PEERS_MIN) & (pl.col("item") >= 0))
        .then(pl.col("ratio") - pl.col("ratio").median().over("iteration", "group", "item"))
        .otherwise(pl.col("ratio") - pl.col("ratio").median().over("iteration", "bin"))
        .alias("excess")
    )


def rank_series(transfers: pl.DataFrame, direction: str, raw: bool = False) -> Series:
    """The series of one direction from standardised transfers with a `phase`; `raw`: ratios without a baseline.

    Ranks that miss a unit are left out. So are ranks with little traffic compared with the others, because only their
    noise would be compared.
    """
    end = "src" if direction == "egress" else "dst"
    slower, size = pl.col("ratio" if raw else "excess"), pl.col("size_bytes")
    table = (
        transfers.group_by("iteration", "phase", end)
        .agg(((slower * size).sum() / size.sum()).alias("value"), size.sum().alias("weight"))
        .with_columns((pl.col("weight") / pl.col("weight").median().over("iteration", "phase")).alias("share"))
        .with_columns(pl.col("share").median().over("phase", end).alias("share"))
        .filter(pl.col("share").min().over(end) >= TRAFFIC_SHARE_MIN)
        .select("iteration", "phase", end, "value")
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
    transfers = standardise(phase_column(aligned.transfers))
    return {direction: rank_series(transfers, direction) for direction in DIRECTIONS}


def fleet_series(aligned: Aligned) -> Series:
    """Egress series without a baseline, for the gate on the whole fleet."""
    return rank_series(standardise(phase_column(aligned.transfers)), "egress", raw=True)


def against_peers(series: Series, members: Sequence[int]) -> NDArray[np.float64]:
    """(u,) mean of the member columns minus the median of all others."""
    chosen = np.isin(np.arange(len(series.members)), list(members))
    result: NDArray[np.float64] = series.values[:, chosen].mean(axis=1) - np.median(series.values[:, ~chosen], axis=1)
    return result
