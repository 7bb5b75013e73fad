"""Tiers of links between switches, judged as a whole where paths are unknown and no single link can be judged.

A tier is judged by the pairs of ranks whose packets cross it. A slow link slows a pair, whichever links of the tier the
pair's packets take.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from genie.verdict.by_tier.wiring import Wiring
from genie.verdict.evidence import upper_median
from genie.verdict.series import phase_column, standardise

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.align import Aligned

ECMP = "ecmp"  # load balancing that keeps a flow on one path
MISSED_MAX = 0.01  # probability that hashing leaves a link of a tier without a flow
ASIDE_MIN = 3  # pairs that do not cross a tier, needed for a comparison with those that do
NOT_SAID = "the twin's record does not say which links are between switches: simulate again"
Pair = tuple[int, int]


@dataclass(frozen=True)
class Between:
    """The fabric's links between switches, from the twin's record."""

    tiers: dict[str, tuple[str, ...]]  # "links 1-2" -> names
    edges: frozenset[str]  # switches next to hosts
    crossed: dict[str, frozenset[Pair]]  # tier -> pairs of ranks whose packets cross it; empty where unknown
    spreads: bool  # the packets of one flow take several paths
    problem: str = ""  # why the links are unknown

    @property
    def links(self) -> list[str]:
        return [link for links in self.tiers.values() for link in links]


def between_switches(twin: Run) -> Between:
    """The links between switches and the pairs of ranks that cross them.

    Records of older versions name no tiers; then the names of links and hosts decide, if they can.
    """
    tiers: dict[str, list[str]] = defaultdict(list)
    joined: dict[bool, set[str]] = {True: set(), False: set()}
    of_link: dict[str, str] = {}
    named = _tier_of_each(twin)
    for name, tier in named or []:
        joined[tier is not None].update(name.split("->"))
        if tier is not None:
            tiers[tier].append(name)
            of_link[name] = tier
    crossed: dict[str, set[Pair]] = defaultdict(set)
    for tier, pairs in (twin.counters.get("crossed") or {}).items():
        for pair in pairs:
            source, _, target = pair.partition("->")
            crossed[tier].add((int(source), int(target)))
    if twin.paths is not None:
        for source, target, link in twin.paths.select("src", "dst", "link").unique().iter_rows():
            if link in of_link:
                crossed[of_link[link]].add((source, target))
    return Between(
        {tier: tuple(links) for tier, links in sorted(tiers.items())},
        frozenset(joined[True] & joined[False]),
        {tier: frozenset(pairs) for tier, pairs in crossed.items()},
        str(twin.info.get("load_balancing", ECMP)) != ECMP,
        NOT_SAID if named is None else "",
    )


def _tier_of_each(twin: Run) -> list[tuple[str, str | None]] | None:
    """(link, tier) of all links; None where the record does not name them."""
    entries = twin.counters.get("links") or []
    if not entries:
        switches = {entry.get("switch", "") for entry in twin.info.get("hosts") or []}
        return [] if len(switches) < 2 else None
    if any("tier" in entry for entry in entries):
        return [(entry["link"], entry.get("tier")) for entry in entries]
    wiring = Wiring(twin)
    tiers = wiring.tiers()
    return None if tiers is None else list(zip(wiring.links, tiers, strict=True))


def judged_tiers(aligned: Aligned, twin: Run, between: Between, practical: float) -> dict[str, str]:
    """Tier -> why it is not judged; "" where it is, and no pair that crosses it is slower by the practical size."""
    bounds, wiring = _Bounds(aligned), Wiring(twin)
    return {tier: _problem(tier, aligned, twin, between, wiring, bounds, practical) for tier in between.tiers}


def _problem(
    tier: str, aligned: Aligned, twin: Run, between: Between, wiring: Wiring, bounds: _Bounds, practical: float
) -> str:
    moved = set(aligned.transfers.select("src", "dst").unique().rows())
    crossing = moved & between.crossed.get(tier, frozenset())
    if not crossing:
        return "no rank's traffic crosses it" if between.crossed else "which traffic crosses it is not known"
    if between.edges - _edges(twin, crossing, 0) or between.edges - _edges(twin, crossing, 1):
        return "traffic crosses it from and to some switches only"
    if not between.spreads:
        missed, link, able = wiring.rarest(between.tiers[tier], crossing, between.links)
        if missed > MISSED_MAX:
            links = len(between.tiers[tier])
            few = f"{len(crossing)} pairs of ranks are too few to surely cross all {links} of its links"
            return f"{few}: {able} can take {link}"
    worst: tuple[float, Pair] | None = None
    for pair in sorted(crossing):
        bound = bounds.of(pair)
        if not np.isfinite(bound):
            return f"too few repetitions of the traffic from rank {pair[0]} to rank {pair[1]}"
        worst = max(worst or (bound, pair), (bound, pair))
    assert worst is not None
    if worst[0] >= np.log1p(practical):
        (bound, (source, target)) = worst
        return f"rank {source} to rank {target} may be up to {100 * np.expm1(bound):.0f} % slower than its peers"
    aside = bounds.beside(crossing)
    if aside >= np.log1p(practical):
        return "its traffic may be slower than traffic that does not cross it"
    return ""


def _edges(twin: Run, pairs: set[Pair], end: int) -> set[str]:
    """Switches next to the ranks at one end of these pairs (`end` 0: senders, 1: receivers)."""
    switch = {entry["rank"]: entry.get("switch", "") for entry in twin.info.get("hosts") or []}
    return {switch.get(pair[end], "") for pair in pairs}


class _Bounds:
    """95 % upper bounds of ln(slow-down) of pairs of ranks, relative to similar transfers."""

    def __init__(self, aligned: Aligned) -> None:
        size = pl.col("size_bytes")
        self._table = (
            standardise(phase_column(aligned.transfers))
            .group_by("iteration", "phase", "src", "dst")
            .agg(((pl.col("excess") * size).sum() / size.sum()).alias("value"), size.sum())
            .sort("iteration", "phase", "src", "dst")
        )
        self._values = {
            (int(key[0]), int(key[1])): part["value"].to_numpy()
            for key, part in self._table.group_by("src", "dst", maintain_order=True)
        }

    def of(self, pair: Pair) -> float:
        """Bound of one pair; infinite with too few units."""
        return upper_median(self._values[pair])

    def beside(self, crossing: set[Pair]) -> float:
        """Bound of a tier's traffic relative to traffic that does not cross it; minus infinity with too little of the
        latter.
        """
        number = pl.col("src").cast(pl.Int64) * 2**32 + pl.col("dst")
        inside = number.is_in([src * 2**32 + dst for src, dst in sorted(crossing)])
        if len(self._values) - len(crossing) < ASIDE_MIN:
            return -np.inf
        size = pl.col("size_bytes")
        table = (
            self._table.with_columns(inside.alias("inside"))
            .group_by("iteration", "phase", "inside")
            .agg((pl.col("value") * size).sum() / size.sum())
            .pivot("inside", index=["iteration", "phase"], values="value")
            .drop_nulls()
        )
        if not {"true", "false"} <= set(table.columns):
            return -np.inf
        return upper_median((table["true"] - table["false"]).to_numpy())
