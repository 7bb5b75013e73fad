"""Coverage: how many NICs and links between switches a run has judged, which ones it has not, and why.

A component is judged if the run accuses it, or shows that it is not slower than its peers by the practical size. A NIC
counts with its cable and its switch port, in each direction in which its rank moves payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from genie.verdict.bounds import named
from genie.verdict.links import PATHS_MIN, TIER_MIN
from genie.verdict.series import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genie.record import Run
    from genie.verdict.align import Aligned
    from genie.verdict.bounds import Bounds, JudgedLinks
    from genie.verdict.by_tier.tiers import Between
    from genie.verdict.links import KnownPaths

Require = Literal["links", "nics", "none"]
LINKS = "links between switches"
NO_PAYLOAD = "no payload sent or received"
NOT_CROSSED = "no traffic between ranks crosses them"
FEW_PAIRS = f"fewer than {PATHS_MIN} pairs of ranks use them"
UNTESTED = f"fewer than {TIER_MIN} links of their tier carry enough traffic to be compared"
UNFILLED = "the traffic leaves a part of their rate free, so that a slower link would not show"
TOO_NOISY = "too noisy"
NOT_APART = "look slower than their peers, but not surely"


@dataclass(frozen=True)
class Part:
    """One kind of component, with its counts."""

    name: str
    judged: int
    total: int  # 0: unknown
    not_judged: dict[str, tuple[str, ...]] = field(default_factory=dict)  # reason -> names
    names: tuple[str, ...] = ()  # of the judged ones

    @property
    def is_whole(self) -> bool:
        return self.judged == self.total and not self.not_judged

    def words(self) -> str:
        return f"{self.judged} of {self.total or 'an unknown number of'} {self.name}"

    def reasons(self) -> str:
        """`leaf0->spine0, leaf0->spine1 (fewer than 3 pairs of ranks use them), ...`"""
        return ", ".join(f"{named(list(names))} ({why})" for why, names in self.not_judged.items())

    def to_dict(self) -> dict[str, Any]:
        return {"judged": self.judged, "total": self.total, "not_judged": self.not_judged}


@dataclass(frozen=True)
class Coverage:
    """Counts for a headline."""

    nics: Part
    links: Part | None = None  # between switches; None: the fabric has none
    by_tier: str = ""  # why tiers are counted instead of links
    one_way: int = 0  # judged NICs that moved payload in one direction only
    partly_used: tuple[str, ...] = ()  # judged NICs whose rate the traffic does not use in full

    def words(self) -> str:
        """`8 of 8 NICs and 0 of 8 links between switches judged`."""
        nics = self.nics.words()
        if self.one_way:
            nics += f" ({self.one_way} in the one direction that {'it uses' if self.one_way == 1 else 'they use'})"
        if self.partly_used:
            nics += f" ({len(self.partly_used)} not at full rate: a slower one may not show)"
        return f"{nics} and {self.links.words()} judged" if self.links else f"{nics} judged"

    def default(self) -> Require:
        """Coverage that a pass needs by default: all that the fabric has."""
        return "links" if self.links else "nics"

    def lacking(self, require: Require) -> list[Part]:
        """The required parts that are not fully judged."""
        parts = [] if require == "none" else [self.nics]
        if require == "links" and self.links is not None:
            parts.append(self.links)
        return [part for part in parts if not part.is_whole]

    @property
    def is_whole(self) -> bool:
        return not self.lacking("links")

    @property
    def is_empty(self) -> bool:
        return self.nics.judged == 0 and (self.links is None or self.links.judged == 0)


@dataclass(frozen=True)
class Nics:
    """NICs that are judged, by direction."""

    judged: frozenset[tuple[str, int]]  # (direction, rank)
    moved: dict[str, frozenset[int]]
    accused: frozenset[int] = frozenset()  # ranks of accused NICs, in either direction

    def is_judged(self, rank: int) -> bool:
        if rank in self.accused:
            return True
        used = [direction for direction in DIRECTIONS if rank in self.moved.get(direction, ())]
        return bool(used) and all((direction, rank) in self.judged for direction in used)

    def is_partly_used(self, rank: int, filled: frozenset[tuple[str, int]]) -> bool:
        """Whether a direction of a NIC that is not accused is used below its rate."""
        used = [direction for direction in DIRECTIONS if rank in self.moved.get(direction, ())]
        return rank not in self.accused and not all((direction, rank) in filled for direction in used)

    def directions(self, rank: int) -> int:
        return sum(rank in self.moved.get(direction, ()) for direction in DIRECTIONS)


def nics_of(aligned: Aligned, bounds: Bounds, suspected: set[tuple[str, int]], practical: float) -> Nics:
    """NICs that passed or are accused.

    `suspected`: (direction, rank) of NICs that are suspects themselves; the rivals of a suspect count as not judged.
    """
    passed = {
        (direction, rank)
        for direction, ranks in aligned.moved.items()
        for rank in ranks
        if (bound := bounds.upper.get(f"rank {rank} {direction}")) is not None and bound < practical
    }
    return Nics(frozenset(passed | suspected), aligned.moved, frozenset(rank for _, rank in suspected))


def coverage_of(
    live: Run, aligned: Aligned, bounds: Bounds, nics: Nics, links: JudgedLinks, known_paths: KnownPaths,
    between: Between, tiers: dict[str, str], filled: frozenset[tuple[str, int]] | None = None,
) -> Coverage:  # fmt: skip
    """Coverage of a run.

    `tiers`: tier -> why it is not judged, where single links cannot be. `filled`: (direction, rank) of NICs whose rate
    the traffic uses in full; None where that is not known.
    """
    ranks = range(max(int(live.info.get("ranks") or 0), 1 + max(aligned.ranks, default=-1)))
    missing: dict[str, list[str]] = {}
    reasons = {(entry.direction, entry.rank): entry.reason for entry in bounds.not_judged}
    for rank in (rank for rank in ranks if not nics.is_judged(rank)):
        unknown = [d for d in DIRECTIONS if rank in aligned.moved.get(d, ()) and (d, rank) not in nics.judged]
        why = next((reasons[d, rank] for d in unknown if (d, rank) in reasons), TOO_NOISY if unknown else NO_PAYLOAD)
        if any(f"rank {rank} {d}" in bounds.slow for d in unknown):
            why = NOT_APART
        missing.setdefault(why, []).append(f"rank {rank}")
    judged = [rank for rank in ranks if nics.is_judged(rank)]
    one_way = sum(nics.directions(rank) == 1 for rank in judged)
    part = Part("NICs", len(judged), len(ranks), _frozen(missing), tuple(f"rank {rank}" for rank in judged))
    partly_used = (
        () if filled is None else tuple(f"rank {rank}" for rank in judged if nics.is_partly_used(rank, filled))
    )
    of_nics = Coverage(part, None, "", one_way, partly_used)
    if between.problem:
        return replace(of_nics, links=Part(LINKS, 0, 0, {between.problem: (LINKS,)}))
    if not between.tiers and not known_paths.columns and not known_paths.few:
        return of_nics
    if tiers:
        return replace(of_nics, links=_by_tier(tiers), by_tier=links.problem or _unknown(between))
    return replace(of_nics, links=_by_link(nics, links, known_paths, between))


def _unknown(between: Between) -> str:
    return "the fabric spreads the packets of a flow over paths" if between.spreads else "the run's paths are not known"


def _by_tier(tiers: dict[str, str]) -> Part:
    what = f"tier{'s' if len(tiers) > 1 else ''} of links between switches"
    missing: dict[str, list[str]] = {}
    for tier, why in tiers.items():
        if why:
            missing.setdefault(why, []).append(tier)
    passed = tuple(tier for tier, why in tiers.items() if not why)
    return Part(what, len(passed), len(tiers), _frozen(missing), passed)


def _by_link(nics: Nics, links: JudgedLinks, known_paths: KnownPaths, between: Between) -> Part:
    owner = {link: key for key, names in known_paths.of_nic.items() for link in names}
    seen = [link for column in (*known_paths.columns, *known_paths.few) for link in column.links]
    every = list(dict.fromkeys([*between.links, *seen]))
    passed = {name.removeprefix("link ") for name in links.upper}
    known = {
        **dict.fromkeys(links.untested, UNTESTED),
        **dict.fromkeys(links.few, FEW_PAIRS),
        **dict.fromkeys(links.unfilled, UNFILLED),
        **dict.fromkeys(links.unsure, TOO_NOISY),
    }
    judged: list[str] = []
    missing: dict[str, list[str]] = {}
    for link in every:
        is_of_judged_nic = owner.get(link) in nics.judged and link not in links.unfilled
        if link in passed or link in links.accused or is_of_judged_nic:
            judged.append(link)
            continue
        default = "they carry one rank's traffic, whose NIC is not judged" if link in owner else NOT_CROSSED
        missing.setdefault(known.get(link, default), []).append(link)
    return Part(LINKS, len(judged), len(every), _frozen(missing), tuple(judged))


def _frozen(missing: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {why: tuple(names) for why, names in missing.items()}


def unjudged(parts: Iterable[Part]) -> str:
    """Components of these parts that are not judged, with the reasons."""
    return "; ".join(f"not judged: {reasons}" for part in parts if (reasons := part.reasons()))
