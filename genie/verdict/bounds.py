"""Upper bounds of a pass: by how much each NIC or link may still be slower than its peers, and which are not judged."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.verdict.evidence import upper_median
from genie.verdict.links import TIER_MIN
from genie.verdict.series import PEERS_MIN, Series, against_peers, phase_column, standardise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from genie.verdict.align import Aligned
    from genie.verdict.links import KnownPaths
    from genie.verdict.model import Suspect

NAMED_MAX = 8
_OPPOSITE = {"egress": "ingress", "ingress": "egress"}


@dataclass(frozen=True)
class NotJudged:
    """A direction in which a rank moved payload and that has no bound of its slow-down."""

    rank: int
    direction: str
    reason: str
    otherwise: bool  # the rank was judged in the other direction

    @property
    def name(self) -> str:
        return f"rank {self.rank} {self.direction}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the NICs that are not accused."""

    upper: dict[str, float | None]  # "rank 3 egress" -> 95 % upper bound of the slow-down; None: too few units
    little: tuple[str, ...]  # NICs of `upper` with so little traffic that they have only this bound and no test
    not_judged: tuple[NotJudged, ...]
    slow: tuple[str, ...] = ()  # NICs of `upper` that are slower than their peers, about by the practical size or more


def bounds_of(aligned: Aligned, series: dict[str, Series], accused: set[tuple[str, int]], practical: float) -> Bounds:
    """95 % upper bounds of each NIC's slow-down in each direction in which it moved payload, without the accused.

    A rank that moves little is left out of the tests, which need all ranks to be equally noisy. Its bound needs only
    its own noise.
    """
    upper = upper_bounds(series, accused)
    little: list[str] = []
    unknown: list[tuple[int, str, str]] = []
    own = _OwnBounds(aligned)
    for direction, part in series.items():
        for rank in sorted(aligned.moved[direction]):
            name = f"rank {rank} {direction}"
            if name in upper or (direction, rank) in accused:
                continue
            bound, reason = own.of(rank, direction, part)
            if reason:
                unknown.append((rank, direction, reason))
            else:
                upper[name] = bound
                little.append(name)
    known = {*upper, *(f"rank {rank} {direction}" for direction, rank in accused)}
    not_judged = [
        NotJudged(rank, direction, reason, otherwise=f"rank {rank} {_OPPOSITE[direction]}" in known)
        for rank, direction, reason in unknown
    ]
    return Bounds(upper, tuple(little), tuple(not_judged), tuple(_slow(series, upper.keys(), practical)))


def _slow(series: dict[str, Series], names: Collection[str], practical: float) -> Iterator[str]:
    """The NICs whose median slow-down is at least the practical size, and surely above zero."""
    error = 0.05 / max(1, len(names))
    for direction, part in series.items():
        for column, rank in enumerate(part.members):
            if len(part.members) < 3 or f"rank {rank} {direction}" not in names:
                continue
            values = against_peers(part, [column])
            if np.expm1(np.median(values)) >= practical and upper_median(-values, 1 - error) < 0:
                yield f"rank {rank} {direction}"


def upper_bounds(series: dict[str, Series], accused: set[tuple[str, int]]) -> dict[str, float | None]:
    """95 % upper bound of the slow-down relative to its peers of each NIC in the series, without the accused."""
    result: dict[str, float | None] = {}
    for direction, part in series.items():
        if len(part.members) < 3:
            continue
        for column, rank in enumerate(part.members):
            if (direction, rank) not in accused:
                result[f"rank {rank} {direction}"] = _upper(against_peers(part, [column]))
    return result


def _upper(values: NDArray[np.float64]) -> float | None:
    bound = upper_median(values)
    return float(np.expm1(bound)) if np.isfinite(bound) else None


class _OwnBounds:
    """Bounds of ranks that are in no series: their transfers relative to peers' of the same collective or size."""

    def __init__(self, aligned: Aligned) -> None:
        self._aligned = aligned
        self._transfers: pl.DataFrame | None = None

    def of(self, rank: int, direction: str, part: Series) -> tuple[float | None, str]:
        """(upper bound or None with too few units, "") or (None, why there is no bound)."""
        peers = [peer for peer in part.members if peer != rank]
        if len(peers) < 2:
            return None, "no peers"
        if self._transfers is None:
            self._transfers = standardise(phase_column(self._aligned.transfers))
        end = "src" if direction == "egress" else "dst"
        mine = self._transfers.filter(pl.col(end) == rank)
        if mine.is_empty():
            return None, "none of its transfers can be compared with the twin's"
        values = _beside(mine, self._transfers.filter(pl.col(end).is_in(peers)), end)
        return (_upper(values), "") if len(values) else (None, "no peer moves messages like its own")


def _beside(mine: pl.DataFrame, theirs: pl.DataFrame, end: str) -> NDArray[np.float64]:
    """(u,) ln slow-down of a rank's transfers relative to its peers, averaged by bytes; a value for each unit with
    data.

    The baseline is the median of the peers in the same collective. Where the collective has few of them, it is the
    median of the peers' transfers of the same size.
    """
    together, alike = ["iteration", "group", "item"], ["iteration", "bin"]
    middle = pl.col("ratio").median()
    of_collective = (
        theirs.filter(pl.col("item") >= 0)
        .group_by(together)
        .agg(middle.alias("of_collective"), pl.len().alias("count"), pl.col(end).n_unique().alias("ranks"))
        .filter((pl.col("count") >= PEERS_MIN - 1) & (pl.col("ranks") >= 2))
    )
    of_size = (
        theirs.group_by(alike)
        .agg(middle.alias("of_size"), pl.col(end).n_unique().alias("ranks"))
        .filter(pl.col("ranks") >= 2)
    )
    excess, size = pl.col("ratio") - pl.coalesce("of_collective", "of_size"), pl.col("size_bytes")
    table = (
        mine.join(of_collective.drop("count", "ranks"), on=together, how="left", nulls_equal=True)
        .join(of_size.drop("ranks"), on=alike, how="left")
        .filter(pl.col("of_collective").is_not_null() | pl.col("of_size").is_not_null())
        .group_by("iteration", "phase")
        .agg(((excess * size).sum() / size.sum()).alias("value"))
    )
    return table["value"].to_numpy()


@dataclass(frozen=True)
class JudgedLinks:
    """Bounds of the links between switches, and the links without one."""

    upper: dict[str, float | None]  # link -> bound below the practical size
    unsure: tuple[str, ...]  # tested, with a bound at or above the practical size
    slow: tuple[str, ...]  # of `unsure`: measured at or above it, but neither rejected nor explained by a suspect
    few: tuple[str, ...]  # used by too few pairs of ranks to be told from the ends of their paths
    untested: tuple[str, ...]  # too few links in their tier, or too little traffic
    unfilled: tuple[str, ...]  # the traffic leaves a part of their rate free: a slower link would not show
    accused: tuple[str, ...]  # suspects, and links that the data cannot tell from one
    same: tuple[tuple[str, ...], ...]  # links that end-to-end data cannot tell apart
    problem: str  # why no link is judged

    def to_dict(self) -> dict[str, Any]:
        return {
            "unsure": list(self.unsure),
            "slow": list(self.slow),
            "not_identifiable": [*self.few, *self.untested],
            "unfilled": list(self.unfilled),
            "same_paths": [list(links) for links in self.same],
            "problem": self.problem,
        }

    def notes(self) -> list[str]:
        """Warnings; none where paths are not known."""
        result = []
        if self.problem:
            result.append(f"links are not accused, only ends: {self.problem}")
        if self.unsure:
            result.append(f"links that may be slower than their peers, by this run's noise: {named(list(self.unsure))}")
        if self.same:
            groups = named([" = ".join(links) for links in self.same])
            result.append(f"links that carry the same paths and look the same from their ends: {groups}; probes "
                          "(--trace-paths) or the switches' counters tell them apart")  # fmt: skip
        return result


def judged_links(
    known_paths: KnownPaths,
    tiers: dict[str, Series],
    suspects: list[Suspect],
    practical: float,
    filled: frozenset[str] | None = None,
) -> JudgedLinks:
    """95 % upper bounds of the links between switches, without the suspects' columns.

    `filled`: links whose slowness would show; None where that is not known, and each link counts as filled.
    """
    accused = {link for suspect in suspects for link in suspect.links}
    upper: dict[str, float | None] = {}
    unsure: list[str] = []
    unfilled: list[str] = []
    slow: list[str] = []
    suspected: list[str] = []
    tested: set[int] = set()
    for part in tiers.values():
        tested.update(part.members if len(part.members) >= TIER_MIN else ())
    for column in (column for column in known_paths.columns if column.number in tested):
        if accused & set(column.links):
            suspected += column.links
            continue
        part = tiers[column.tier]
        values = against_peers(part, [part.column(column.number)])
        bound = _upper(values)
        slow += column.links if np.expm1(np.median(values)) >= practical else ()
        for link in column.links:
            if bound is None or bound >= practical:
                unsure.append(link)
            elif filled is not None and link not in filled:
                unfilled.append(link)
            else:
                upper[f"link {link}"] = bound
    if filled is not None:
        unfilled += [link for links in known_paths.of_nic.values() for link in links if link not in filled]
    few = [link for column in known_paths.few for link in column.links]
    untested = [link for column in known_paths.columns if column.number not in tested for link in column.links]
    untested = [link for link in untested if link not in accused]
    same = tuple(column.links for column in known_paths.columns if len(column.links) > 1)
    return JudgedLinks(
        upper,
        tuple(unsure),
        tuple(slow),
        tuple(few),
        tuple(untested),
        tuple(unfilled),
        tuple(suspected),
        same,
        known_paths.problem,
    )


def named(items: list[str]) -> str:
    """The first NAMED_MAX items, and how many more there are."""
    more = f" and {len(items) - NAMED_MAX} more" if len(items) > NAMED_MAX else ""
    return ", ".join(items[:NAMED_MAX]) + more


def reasons_named(not_judged: list[NotJudged]) -> str:
    """`rank 0 ingress (no peers)`; ranks with the same reason are listed together."""
    by_reason: dict[str, list[str]] = {}
    for entry in not_judged:
        by_reason.setdefault(entry.reason, []).append(entry.name)
    return "; ".join(f"{named(names)} ({reason})" for reason, names in by_reason.items())
