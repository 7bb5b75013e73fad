"""Localization of faults: the parts of the network common to paths that fail and to no path that works.

A pure set cover. A part is one direction of a host's link, or of a link between routers that traces have shown. A part
is a candidate when all paths across it fail; the one that explains most comes first. Paths that no part explains are
reported pair by pair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Path = tuple[int, int, int]  # source, target, index of the UDP source port
Kind = Literal["all", "from", "to", "link", "pair", "path"]
Part = tuple[Kind, int | str]  # the key is a rank, or the address at which a link ends
NOTHING: Part = ("all", "")
SEEN_SHARE = 0.75


@dataclass(frozen=True)
class Blame:
    """A part of the network that explains failing paths, and those paths."""

    kind: Kind
    paths: tuple[Path, ...]
    ranks: tuple[int, ...] = ()  # the host of "from" and "to"; both hosts of "pair" and "path"
    links: tuple[str, ...] = ()  # addresses at which the links end; several when no path distinguishes them


class Layout:
    """All tested paths, and the parts that they cross."""

    def __init__(
        self,
        stations: Sequence[int],
        paths: int,
        traces: Mapping[Path, Sequence[str]],
        apart: Collection[tuple[int, int]] = (),
    ) -> None:
        """`traces`: by path, the addresses at which its links end; "" unknown. `apart`: pairs that were not tested."""
        self.stations, self.paths = tuple(stations), paths
        others = len(self.stations) - 1
        self._pairs: Counter[Part] = Counter({("from", rank): others for rank in stations})
        self._pairs.update({("to", rank): others for rank in stations})
        self._pairs.subtract(part for source, target in apart for part in self.ends(source, target))
        self._tried = len(self.stations) * others - len(apart)
        # The first link is the source host's own.
        self.links = {path: tuple(hop for hop in hops[1:] if hop) for path, hops in traces.items()}
        longest: Counter[tuple[int, int]] = Counter()
        for path, hops in traces.items():
            longest[path[:2]] = max(longest[path[:2]], len(hops))
        self.partial = {path for path, hops in traces.items() if "" in hops[1:] or len(hops) < longest[path[:2]]}
        self.crossing = Counter(link for links in self.links.values() for link in set(links))

    @property
    def total(self) -> int:
        """The number of paths."""
        return self._tried * self.paths

    @staticmethod
    def ends(source: int, target: int) -> list[Part]:
        """Return the directions of hosts' links that a pair's packets cross."""
        return [("from", source), ("to", target)]

    def parts(self, path: Path) -> list[Part]:
        """Return the parts that a path crosses."""
        links: list[Part] = [("link", link) for link in set(self.links.get(path, ()))]
        return [*self.ends(path[0], path[1]), *links]

    def is_traced(self, path: Path) -> bool:
        """Whether all links of a path are known."""
        return path in self.links and path not in self.partial

    def size(self, part: Part) -> int:
        """Return the number of paths that cross a part."""
        return self.crossing[str(part[1])] if part[0] == "link" else self._pairs[part] * self.paths


def blame(failing: Collection[Path], layout: Layout) -> list[Blame]:
    """Return the causes that explain the failing paths, those of most paths first."""
    if not failing:
        return []
    if len(failing) == layout.total and len(layout.stations) > 2:
        return [Blame("all", tuple(sorted(failing)))]
    of_part: dict[Part, set[Path]] = defaultdict(set)
    for path in failing:
        for part in layout.parts(path):
            of_part[part].add(path)
    guilty = {part: paths for part, paths in of_part.items() if len(paths) == layout.size(part)}
    if len(layout.stations) == 2:  # a host and its only peer cannot be distinguished
        guilty = {part: paths for part, paths in guilty.items() if part[0] == "link"}
    left, found = set(failing), []
    while left:
        part = max(guilty, key=lambda part: (len(guilty[part] & left), part[0] != "link", str(part)), default=NOTHING)
        if not (explained := guilty.get(part, set()) & left):
            break
        alike = [other for other, paths in guilty.items() if paths == guilty[part]]
        if part[0] == "link":
            links = tuple(sorted(str(key) for kind, key in alike if kind == "link"))
            found.append(Blame("link", tuple(sorted(explained)), links=links))
        else:
            found.append(Blame(part[0], tuple(sorted(explained)), ranks=(int(part[1]),)))
        left -= explained
    return found + _pairs(left, layout.paths)


def unseen(causes: Sequence[Blame], layout: Layout, others: Mapping[Path, Sequence[str]]) -> list[Blame]:
    """Add links to causes that only traces of other packets between the same hosts have shown.

    A router that drops a packet does not report it: the link to it is visible only by packets that pass. `others`:
    traces of packets that pass, which take other paths. Pairs that have such links in common become one cause.
    """
    links: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for path, hops in others.items():
        known = links[path[:2]]
        known += [hop for hop in hops[1:] if hop and hop not in layout.crossing and hop not in known]

    def common(paths: Iterable[Path]) -> tuple[str, ...]:
        pairs = {path[:2] for path in paths}
        found = Counter(link for pair in pairs for link in links[pair])
        # Between a few pairs all other packets may avoid a link by chance.
        return tuple(link for link, count in found.items() if count >= SEEN_SHARE * len(pairs))

    whole = [
        replace(cause, links=cause.links + common(cause.paths)) if cause.kind == "link" else cause
        for cause in causes
        if cause.kind not in ("pair", "path")
    ]
    pairs = [cause for cause in causes if cause.kind in ("pair", "path")]
    paths = tuple(sorted(path for cause in pairs for path in cause.paths))
    shared = common(paths)
    return [*whole, Blame("link", paths, links=shared)] if shared else [*whole, *pairs]


def _pairs(failing: Iterable[Path], paths: int) -> list[Blame]:
    by_pair: dict[tuple[int, int], list[Path]] = defaultdict(list)
    for path in sorted(failing):
        by_pair[path[:2]].append(path)
    found = [Blame("pair" if len(each) == paths else "path", tuple(each), ranks=pair) for pair, each in by_pair.items()]
    return sorted(found, key=lambda each: (-len(each.paths), each.ranks))
