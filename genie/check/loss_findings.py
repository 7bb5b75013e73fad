"""Which parts of the network lose packets, from how many of each path's were lost. Pure.

Every path that crosses a lossy part loses some, and by chance one that does not. So the part is blamed under which the
losses are likeliest (the gain in log likelihood over stray ones everywhere), its paths are set aside, and the rest is
looked at again.

The threshold is for 2,000 packets of a host's direction (losses.HOST_PACKETS): strays of 1 in 100,000 make five losses
in one direction out of 10^11 times, and a loss of 1 % makes fewer than five in one of 60,000 (Poisson). A half of a
percent is missed in 3 % of checks. Where more packets cross a part, five may be strays: hence the share.
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
STRAY = 1e-5  # share of the packets that sound networks may lose
ALL_SHARE = 0.75  # of all packets; no part of a network with several hosts is crossed by as many
RANKING = {"pair": 0, "link": 1, "from": 2, "to": 2}  # of parts that explain the same


@dataclass(frozen=True)
class Lossy:
    """A part of the network that loses packets."""

    blame: Blame
    parts: frozenset[Part]  # it, and those that no path tells from it
    sent: int
    lost: int


@dataclass(frozen=True)
class _Unit:
    """Packets that take the same way."""

    path: Path
    parts: frozenset[Part]
    sent: int
    lost: int
    is_partial: bool = False  # it may cross links that are not among the parts


def lossy_parts(tallies: Sequence[Tally], layout: Layout) -> list[Lossy]:
    """Parts that lose packets, the likeliest first."""
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
    """Paths where traces have shown what they cross; otherwise pairs."""
    is_traced = bool(layout.links)
    for each in tallies:
        pair = (each.source, each.target)
        ends = [] if len(layout.stations) == 2 else layout.ends(*pair)  # two hosts cannot be told apart
        counts = enumerate(each.lost) if is_traced else [(-1, sum(each.lost))]
        for path, lost in counts:
            links: list[Part] = [("link", link) for link in layout.links.get((*pair, path), ())]
            is_partial = (*pair, path) in layout.partial or (*pair, path) not in layout.links
            parts = frozenset([*ends, *links, _pair_part(*pair)])
            yield _Unit((*pair, path), parts, each.sent * (1 if is_traced else len(each.lost)), lost, is_partial)


def _pair_part(source: int, target: int) -> Part:
    return "pair", f"{source} {target}"


def _likeliest(units: Sequence[_Unit]) -> Lossy | None:
    """The part under which the losses are likeliest; None when none loses enough."""
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
    # Answers to traces get lost too: two links are not told apart by paths of which not all is known.
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
    """Of the log likelihood (Poisson), when a part has a share of losses of its own instead of the strays'."""
    return lost * log(lost / (sent * STRAY)) - (lost - sent * STRAY)


# -- what follows for rates ----------------------------------------------------------------------------------


def lossy_ends(found: Sequence[Lossy]) -> set[tuple[str, int]]:
    """Both directions of hosts of which one loses packets: an acknowledgement that is lost slows a sender too."""
    hosts = {rank for each in found if each.blame.kind in ("from", "to") for rank in each.blame.ranks}
    return {(direction, rank) for rank in hosts for direction in ("from", "to")}


def is_hampered(flow: Flow, found: Sequence[Lossy], layout: Layout) -> bool:
    """Do a flow's packets, or the acknowledgements of them, cross a part that loses packets?"""
    guilty = {part for each in found for part in each.parts}
    pairs = [(flow.source, flow.target), (flow.target, flow.source)]
    if any(_pair_part(*pair) in guilty for pair in pairs):
        return True
    paths = range(layout.paths) if flow.path < 0 else [flow.path]
    return any(not guilty.isdisjoint(layout.parts((*pair, path))) for pair in pairs for path in paths)


# -- what is said --------------------------------------------------------------------------------------------


def loss_findings(found: Sequence[Lossy], names: Names) -> Iterator[str]:
    """One of each part; of both directions of one where both lose packets."""
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
            "ends of that way (ethtool -S, the switch ports), clean or change its cable and transceivers"
        )


def _other_direction(one: Lossy, found: Collection[Lossy]) -> Lossy | None:
    """The same part the other way, where there is only one that it can be."""
    ways = [each for each in found if _ends(each.blame) == _ends(one.blame, turned=True)]
    alike = [each for each in found if _ends(each.blame) == _ends(one.blame)]
    return ways[0] if len(ways) == len(alike) == 1 else None


def _ends(cause: Blame, *, turned: bool = False) -> object:
    """What a direction of a part is known by."""
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
