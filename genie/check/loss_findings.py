"""Localization of packet loss from the number of lost packets on each path. Pure.

Every path across a lossy part loses some packets, and a path that avoids it may lose some by chance. So the most likely
part is chosen, by the gain in log likelihood over stray losses everywhere. Its paths are set aside, and the rest is
searched again.

The threshold is for 2,000 packets of a host's direction (losses.HOST_PACKETS), by the Poisson distribution. Strays of 1
in 100,000 make five losses in one direction out of 10^11 times. A loss of 1 % makes fewer than five in one of 60,000; a
loss of half a percent is missed in 3 % of checks. Where more packets cross a part, five may be strays: hence the share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import log

from genie.check.blame import Blame, Layout, Part, Path
from genie.check.names import Names
from genie.check.settings import Flow, Tally

LOST_MIN, SHARE_MIN = 5, 0.001
STRAY = 1e-5  # share of packets that a sound network may lose
ALL_SHARE = 0.75  # of all packets; no part of a network with several hosts is crossed by so many
RANKING = {"pair": 0, "link": 1, "from": 2, "to": 2}  # of parts that explain equally much


@dataclass(frozen=True)
class Lossy:
    """A part of the network that loses packets."""

    blame: Blame
    parts: frozenset[Part]  # it, and those that no path distinguishes from it
    sent: int
    lost: int


@dataclass(frozen=True)
class _Unit:
    """Packets that take the same path."""

    path: Path
    parts: frozenset[Part]
    sent: int
    lost: int
    is_partial: bool = False  # it may cross links that are not among the parts


def lossy_parts(tallies: Sequence[Tally], layout: Layout) -> list[Lossy]:
    """Return the parts that lose packets, the most likely first."""
    if sum(sum(each.lost) for each in tallies) < LOST_MIN:
        return []
    left, found = list(_units(tallies, layout)), []
    sent_in_all, lost_in_all = sum(each.sent for each in left), sum(each.lost for each in left)
    while (next_one := _likeliest(left)) is not None:
        found.append(next_one)
        pairs = {path[:2] for path in next_one.blame.paths if next_one.blame.kind == "link"}
        left = [
            each
            for each in left
            if each.parts.isdisjoint(next_one.parts) and not (each.is_partial and each.path[:2] in pairs)
        ]
    if len(found) > 1 and sum(each.sent for each in found) > ALL_SHARE * sent_in_all:
        parts = frozenset(part for each in found for part in each.parts)
        return [Lossy(Blame("all", ()), parts, sent_in_all, lost_in_all)]
    return found


def _units(tallies: Sequence[Tally], layout: Layout) -> Iterator[_Unit]:
    """Yield paths where traces have shown their links; otherwise pairs."""
    is_traced = bool(layout.links)
    for each in tallies:
        pair = (each.source, each.target)
        ends = [] if len(layout.stations) == 2 else layout.ends(*pair)  # two hosts cannot be distinguished
        counts = enumerate(each.lost) if is_traced else [(-1, sum(each.lost))]
        for path, lost in counts:
            links: list[Part] = [("link", link) for link in layout.links.get((*pair, path), ())]
            is_partial = (*pair, path) in layout.partial or (*pair, path) not in layout.links
            parts = frozenset([*ends, *links, _pair_part(*pair)])
            yield _Unit((*pair, path), parts, each.sent * (1 if is_traced else len(each.lost)), lost, is_partial)


def _pair_part(source: int, target: int) -> Part:
    return "pair", f"{source} {target}"


def _likeliest(units: Sequence[_Unit]) -> Lossy | None:
    """Return the part under which the losses are most likely; None when none loses enough."""
    sent: Counter[Part] = Counter()
    lost: Counter[Part] = Counter()
    for each in units:
        for part in each.parts:
            sent[part] += each.sent
            lost[part] += each.lost
    gains = {part: _gain(lost[part], sent[part]) for part in lost if lost[part] >= _threshold(sent[part])}
    if not gains:
        return None
    best = max(gains, key=lambda part: (gains[part], RANKING[part[0]], str(part[1])))
    crossing = defaultdict(set)
    for number, each in enumerate(units):
        for part in each.parts & gains.keys():
            crossing[part].add(number)
    # Answers to traces get lost too: links are not distinguished by paths that are known only in part.
    unsure = {number for number, each in enumerate(units) if each.is_partial and best[0] == "link"}
    known = crossing[best] - unsure
    alike = frozenset(part for part in gains if part[0] == best[0] and known and crossing[part] - unsure == known)
    alike |= {best}
    paths = tuple(
        each.path for each in sorted(units, key=lambda each: (not each.lost, each.path)) if best in each.parts
    )
    if best[0] == "link":
        cause = Blame("link", paths, links=tuple(sorted(str(key) for _, key in alike)))
    else:
        cause = Blame(best[0], paths, ranks=tuple(int(rank) for rank in str(best[1]).split()))
    return Lossy(cause, alike, sent[best], lost[best])


def _threshold(sent: int) -> float:
    return max(LOST_MIN, SHARE_MIN * sent)


def _gain(lost: int, sent: int) -> float:
    """Return the gain in log likelihood (Poisson) when a part has its own loss share instead of the strays'."""
    return lost * log(lost / (sent * STRAY)) - (lost - sent * STRAY)


# -- exclusions from rates -----------------------------------------------------------------------------------


def lossy_ends(found: Sequence[Lossy]) -> set[tuple[str, int]]:
    """Return both directions of hosts of which one is lossy: a lost ACK slows a sender too."""
    hosts = {rank for each in found if each.blame.kind in ("from", "to") for rank in each.blame.ranks}
    return {(direction, rank) for rank in hosts for direction in ("from", "to")}


def is_hampered(flow: Flow, found: Sequence[Lossy], layout: Layout) -> bool:
    """Return whether a flow's packets, or their ACKs, cross a part that loses packets."""
    guilty = {part for each in found for part in each.parts}
    pairs = [(flow.source, flow.target), (flow.target, flow.source)]
    if any(_pair_part(*pair) in guilty for pair in pairs):
        return True
    paths = range(layout.paths) if flow.path < 0 else [flow.path]
    return any(not guilty.isdisjoint(layout.parts((*pair, path))) for pair in pairs for path in paths)


# -- texts ---------------------------------------------------------------------------------------------------


def loss_findings(found: Sequence[Lossy], names: Names) -> Iterator[str]:
    """Yield one finding for each part; one for both directions of a part when both lose packets."""
    left = list(found)
    while left:
        one = left.pop(0)
        back = _other_direction(one, found)
        sent, lost = one.sent, one.lost
        if back in left:
            left.remove(back)
            sent, lost = sent + back.sent, lost + back.lost
            where = _both_ways(one.blame, back.blame, names)
        else:
            where = names.where(one.blame)
        yield (
            f"{where}: lost {lost:,} of {sent:,} packets ({100 * lost / sent:.2g} %): see the errors and drops at both "
            "ends of that path (ethtool -S, the switch ports), clean or change its cable and transceivers"
        )


def _other_direction(one: Lossy, found: Collection[Lossy]) -> Lossy | None:
    """Return the same part in the opposite direction, where it is unambiguous; else None."""
    ways = [each for each in found if _ends(each.blame) == _ends(one.blame, turned=True)]
    alike = [each for each in found if _ends(each.blame) == _ends(one.blame)]
    return ways[0] if len(ways) == len(alike) == 1 else None


def _ends(cause: Blame, *, turned: bool = False) -> object:
    """Return a key of a part's direction; with `turned`, of the opposite direction."""
    if cause.kind in ("from", "to"):
        return ("to" if (cause.kind == "from") == turned else "from"), cause.ranks
    if cause.kind == "pair":
        return cause.kind, cause.ranks[::-1] if turned else cause.ranks
    sides = [frozenset(path[0] for path in cause.paths), frozenset(path[1] for path in cause.paths)]
    return (cause.kind, *(sides[::-1] if turned else sides))


def _both_ways(one: Blame, back: Blame, names: Names) -> str:
    if one.kind == "link":
        return f"{names.where(one)}, and the other way over {names.links(back.links)}"
    if one.kind == "pair":
        return f"between {names.rank(one.ranks[0])} and {names.rank(one.ranks[1])}"
    return f"between {names.rank(one.ranks[0])} and all others"
