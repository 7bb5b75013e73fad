"""Rates that probes reached after a run, as evidence on links that the run's own traffic could not judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import comb, log1p
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from msgspec import Meta, Struct, convert

from genie.page.words import percent, rate
from genie.record.reading import read_object
from genie.record.waits import WATCHED_MAX, LinkWaits
from genie.verdict.bounds import Bounds, JudgedLinks, named
from genie.verdict.links import cable_of
from genie.verdict.model import Suspect
from genie.verdict.probed.doubt import with_doubt_of_acknowledgements
from genie.verdict.probed.faults import ProbedFault, fault_suspects

ROUNDS_MIN = 3  # measurements of a path, for a result
BEST_MIN = 0.85  # of the expected rate: where no path reaches it, hosts are too busy, or slow, to show anything
SLOW_SHARE = 0.8  # of a slow path's measurements are below the limit
UNSTEADY_OWN_MIN, UNSTEADY_MIN = 2, 3  # slow rounds of a path, and of both directions of its cables
UNSTEADY_CHANCE, UNSTEADY_ODDS = 0.02, 0.001
UNSTEADY_BELOW = 0.87  # of the round's best path
LONG_SHARE = 0.5  # of the longest time until a train is answered
QUEUES_MIN, QUEUES_SHARE = 2, 0.6  # trains that found a queue before a link, and their share of those that found any
QUEUE_MIN_NS, QUEUE_RATIO = 1_000_000, 3.0  # of the queue before a slow link: its least time, and over any other
# Traffic that does not cross a slow link waits for traffic that does: it is accused only if it is nearly as slow.
VICTIMS_SHARE = 0.7  # of the probed slow-down (both logarithms)
VICTIMS_LEAST = 0.25  # slow-down, where probes have found loss or delay: by how much these slow the traffic is unknown
UNEVEN_MIN, UNEVEN_TIMES = 0.5, 5.0  # range of a path's rates over their median, and over that of sound paths
SLOWING = ("loss", "delay", "unreachable")


@dataclass(frozen=True)
class ProbedPath:
    """Flows over some links, and the shares that they reached, one for each round of measurements."""

    links: tuple[str, ...]
    flows: int
    expected_bps: float
    shares: tuple[float, ...]  # of the expected rate
    beside: tuple[float, ...]  # of the share of the round's best path: the load of the hosts cancels
    queue_at: str = ""  # the link before which packets queue while the flows run; "" where that is not known
    at_times: bool = False  # slow in some rounds, which chance does not explain
    others: tuple[str, ...] = ()  # links that some flow crosses and none fills
    back: tuple[tuple[str, ...], ...] = ()  # of each flow: the links that its acknowledgements cross

    @property
    def share(self) -> float:
        return median(self.beside)


@dataclass(frozen=True)
class Probes:
    """All paths that were probed."""

    paths: tuple[ProbedPath, ...] = ()
    faults: tuple[ProbedFault, ...] = ()
    host_links: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # link -> (direction, rank) of its NIC
    between: frozenset[str] = frozenset()  # links between switches that probes have crossed
    waits: tuple[LinkWaits, ...] = ()  # over links that are slow, or that the run accuses
    unwatched: tuple[str, ...] = ()  # further such links

    def passed(self, practical: float) -> dict[str, float]:
        """Link -> upper bound of its slow-down, for links on a path that reached its rate."""
        found: dict[str, float] = {}
        for path in self.paths:
            bound = max(0.0, 1 / path.share - 1) if path.share > 0 else float("inf")
            if bound < practical and not path.at_times:
                for link in path.links:
                    found[link] = min(bound, found.get(link, bound))
        return found

    def uneven(self, practical: float) -> dict[str, tuple[float, float]]:
        """Link -> least and greatest rate of a slow path over it, b/s, if they differ more than those of sound paths.

        The rate of a slow link is as steady as that of a sound one. Traffic of others leaves now more, now less.
        """
        every_slow = self.slow(practical)
        slow = [path for path in every_slow if not path.at_times]
        sound = [_range(path.shares) for path in self.paths if path not in every_slow]
        least = max([UNEVEN_MIN, *(UNEVEN_TIMES * each for each in sound)])
        return {
            link: (min(path.shares) * path.expected_bps, max(path.shares) * path.expected_bps)
            for path in slow
            if _range(path.shares) > least
            for link in path.links
        }

    def unnoticed(self) -> str:
        """Return the number of measurements behind a pass, in words; "" without rates."""
        rounds = min((len(path.beside) for path in self.paths), default=0)
        links = {link for path in self.paths for link in path.links}
        return (
            f"a link that is slow at times may pass: probes measured {len(links)} links {rounds} times"
            if rounds
            else ""
        )

    def not_watched(self) -> str:
        """Return the slow links on which traffic of others could not be seen, in words; "" if there are none."""
        if not self.unwatched:
            return ""
        return (
            f"probes did not watch these links for traffic of others: {named(list(self.unwatched))}; they watch "
            f"{WATCHED_MAX} links at most, and each beside a path that avoids all of them"
        )

    def slow(self, practical: float) -> list[ProbedPath]:
        """Paths that are slower than the best one in nearly all rounds, the slowest first."""
        limit, passed = 1 / (1 + practical), self.passed(practical)
        found = [
            path
            for path in self.paths
            if (
                path.at_times
                or (path.share < limit and sum(each < limit for each in path.beside) >= SLOW_SHARE * len(path.beside))
            )
            and not set(path.links) <= set(passed)
        ]
        return sorted(found, key=lambda path: path.share)


def _range(shares: Sequence[float]) -> float:
    middle = median(shares)
    return (max(shares) - min(shares)) / middle if middle > 0 else 0.0


class _Test(Struct):
    """A path in the run.json of a probe."""

    links: list[str]
    flows: list[Any]
    expected_bps: Annotated[float, Meta(ge=0, le=1e15)]
    rates_bps: list[Annotated[float, Meta(ge=0, le=1e15)]]
    beside: list[str] = []
    hops_ns: list[int] = []
    trains_ns: list[list[int]] = []
    full_ns: int = 0
    others: list[str] = []
    back: list[list[str]] = []


class _Info(Struct):
    tests: list[_Test] = []
    faults: list[ProbedFault] = []
    host_links: dict[str, tuple[str, int]] = {}
    crossed: list[str] = []
    waits: list[LinkWaits] = []
    unwatched: list[str] = []


def read_probes(path: Path) -> Probes:
    """Return the measurements of a probe's run.json. Raises RecordError."""
    return probes_of(read_object(path, _Info))


def probes_of(info: dict[str, Any]) -> Probes:
    """Return the measurements of a probe; rates only of the rounds in which some path came near its rate."""
    host_links = {str(link): (str(own[0]), int(own[1])) for link, own in info.get("host_links", {}).items()}
    other = Probes(
        (),
        convert(info.get("faults", []), tuple[ProbedFault, ...]),
        host_links,
        frozenset(info.get("crossed", [])) - set(host_links),
        convert(info.get("waits", []), tuple[LinkWaits, ...]),
        tuple(info.get("unwatched", [])),
    )
    tests = [test for test in info.get("tests", []) if test["expected_bps"] > 0 and test["links"]]
    rounds = min((len(test["rates_bps"]) for test in tests), default=0)
    best = [max(test["rates_bps"][at] / test["expected_bps"] for test in tests) for at in range(rounds)]
    kept = [at for at in range(rounds) if best[at] >= BEST_MIN]
    if len(kept) < ROUNDS_MIN:
        return other
    paths = []
    for test in tests:
        shares = [test["rates_bps"][at] / test["expected_bps"] for at in kept]
        paths.append(
            ProbedPath(
                tuple(test["links"]),
                len(test["flows"]),
                test["expected_bps"],
                tuple(shares),
                tuple(share / best[at] for share, at in zip(shares, kept, strict=True)),
                queue_at(test.get("beside") or [], test.get("hops_ns") or [])
                or queue_often_at(test.get("beside") or [], test.get("trains_ns") or [], test.get("full_ns") or 0),
                others=tuple(test.get("others") or ()),
                back=tuple(tuple(each) for each in test.get("back") or ()),
            )
        )
    return replace(other, paths=tuple(with_unsteady(paths)))


def with_unsteady(paths: Sequence[ProbedPath]) -> list[ProbedPath]:
    """Return the paths, with those marked that are slow in some rounds, which chance does not explain.

    The two directions of the same cables count together: most faults slow both. Chance: a path is slow as often as the
    other paths are, and at least in UNSTEADY_CHANCE of the rounds.
    """
    slow = [sum(each < UNSTEADY_BELOW for each in path.beside) for path in paths]
    cables = [{cable_of(link) for link in path.links} for path in paths]
    found = []
    for number, path in enumerate(paths):
        rounds = len(path.beside)
        # Paths that share a cable with this one are no witnesses.
        others = [at for at, each in enumerate(cables) if not cables[number] & each]
        usual = sum(slow[at] for at in others) / max(1, sum(len(paths[at].beside) for at in others))
        chance = min(1.0, max(usual, UNSTEADY_CHANCE))
        both = [at for at, each in enumerate(cables) if each == cables[number]]
        of_both = sum(slow[at] for at in both), sum(len(paths[at].beside) for at in both)
        is_slow = slow[number] >= UNSTEADY_OWN_MIN and of_both[0] >= UNSTEADY_MIN
        is_unsteady = is_slow and _odds(*of_both, chance) < UNSTEADY_ODDS and slow[number] < SLOW_SHARE * rounds
        found.append(replace(path, at_times=is_unsteady))
    return found


def _odds(slow: int, rounds: int, chance: float) -> float:
    """Return the probability of so many slow rounds, or more."""
    return sum(comb(rounds, k) * chance**k * (1 - chance) ** (rounds - k) for k in range(slow, rounds + 1))


def queue_often_at(links: Sequence[str], trains_ns: Sequence[Sequence[int]], full_ns: int = 0) -> str:
    """Return the link before which packets queued in most of the trains that found a long queue.

    "" where no link stands out. `trains_ns`: see queue_at() for each. While the path is fast, its first shared link has
    a queue of its own, which is shorter than `full_ns`.
    """
    ends_ns = sorted((max(train) for train in trains_ns if train), reverse=True)
    longest = ends_ns[min(QUEUES_MIN, len(ends_ns)) - 1] if ends_ns else 0  # not one late answer's
    long = [train for train in trains_ns if train and max(train) >= max(LONG_SHARE * longest, full_ns)]
    found = Counter(link for train in long if (link := queue_at(links, train)))
    if not found:
        return ""
    link, times = found.most_common(1)[0]
    return link if times >= QUEUES_MIN and times >= QUEUES_SHARE * found.total() else ""


def relative_to(before: Probes, after: Probes) -> Probes:
    """Return the later probes with each path beside its own rate before; paths that were not probed before go."""
    known = {frozenset(path.links): path for path in before.paths if path.share > 0}
    return Probes(
        tuple(
            replace(
                path,
                expected_bps=earlier.share * path.expected_bps,
                shares=tuple(each / earlier.share for each in path.shares),
                beside=tuple(each / earlier.share for each in path.beside),
            )
            for path in after.paths
            if (earlier := known.get(frozenset(path.links))) is not None
        ),
        waits=after.waits,
        unwatched=after.unwatched,
    )


def queue_at(links: Sequence[str], hops_ns: Sequence[int]) -> str:
    """Return the link of a path before which its packets queue; "" where no link stands out.

    `hops_ns`: the time until each router answered while flows filled the path. Router k comes after links 0 to k.
    """
    grown = {
        links[at]: later - sooner
        for at, (sooner, later) in enumerate(pairwise(hops_ns), start=1)
        if min(sooner, later) >= 0
    }
    if len(grown) < len(hops_ns) - 1 or not grown:
        return ""
    *others, most = sorted(grown.values())
    if most < QUEUE_MIN_NS or (others and most < QUEUE_RATIO * max(others[-1], 0)):
        return ""
    return next(link for link, time in grown.items() if time == most)


@dataclass(frozen=True)
class SlowLinks:
    """A link or a cable that probes have found slow, with the links that they cannot tell from it."""

    name: str
    links: tuple[str, ...]  # directed
    also: tuple[str, ...]
    paths: tuple[ProbedPath, ...]

    @property
    def slow_down(self) -> float:
        return 1 / min(min(path.beside) if path.at_times else path.share for path in self.paths) - 1


def slow_links(probes: Probes, practical: float) -> list[SlowLinks]:
    """The slow links, the slowest first. Two directions of one cable between switches are one.

    A path whose queue was not found is explained by a cable whose queue was, if it crosses one: one fault is likelier
    than two.
    """
    passed = probes.passed(practical)
    by_cable: dict[str, list[tuple[ProbedPath, list[str]]]] = {}
    slow = _without_explained(probes, passed, practical)
    doubtful_of = {path: [link for link in path.links if link not in passed] for path in slow}
    located = {cable_of(path.queue_at) for path, doubtful in doubtful_of.items() if path.queue_at in doubtful}
    for path, doubtful in doubtful_of.items():
        named = path.queue_at if path.queue_at in doubtful else ""
        first = named or next((link for link in doubtful if cable_of(link) in located), doubtful[0])
        links = [first, *(link for link in doubtful if link != first)]
        place = links[0] if links[0] in probes.host_links else cable_of(links[0])
        by_cable.setdefault(place, []).append((path, links))
    found = []
    for cable, entries in by_cable.items():
        accused = tuple(dict.fromkeys(own[0] for _, own in entries))
        unsure = (link for path, own in entries if path.queue_at != own[0] for link in own[1:])
        found.append(
            SlowLinks(
                cable if len(accused) > 1 else accused[0],
                accused,
                tuple(link for link in dict.fromkeys(unsure) if link not in accused),
                tuple(path for path, _ in entries),
            )
        )
    return found


def _without_explained(probes: Probes, passed: Collection[str], practical: float) -> list[ProbedPath]:
    """The slow paths, without those that a slow link explains that they cross and do not fill.

    A slow NIC slows the flows of its host over links between switches, and a slow link those of sound NICs.
    """
    slow = probes.slow(practical)
    of_nics = [path for path in slow if set(path.links) & probes.host_links.keys()]
    nics = {link for path in of_nics if set(path.others) <= set(passed) for link in path.links if link not in passed}
    between = [path for path in slow if path not in of_nics and not nics & set(path.others)]
    links = {link for path in between for link in path.links if link not in passed}
    return [path for path in slow if path in between or (path in of_nics and not links & set(path.others))]


def with_probed_nics(bounds: Bounds, probes: Probes, practical: float) -> Bounds:
    """The bounds of NICs, with those of NICs that reached their rate in probes."""
    found = probes.passed(practical)
    passed = {f"rank {own[1]} {own[0]}": found[link] for link, own in probes.host_links.items() if link in found}
    upper = dict(bounds.upper)
    for name in passed.keys() & (upper.keys() | {each.name for each in bounds.not_judged}):
        before = upper.get(name)
        upper[name] = passed[name] if before is None else min(before, passed[name])
    return Bounds(
        upper,
        tuple(name for name in bounds.little if name not in passed),
        tuple(each for each in bounds.not_judged if each.name not in passed),
        tuple(name for name in bounds.slow if name not in passed),
    )


def with_probes(links: JudgedLinks, probes: Probes, practical: float) -> JudgedLinks:
    """The judged links, with those that probes settle."""
    passed = {link: bound for link, bound in probes.passed(practical).items() if link not in links.accused}
    slow = {link for each in slow_links(probes, practical) for link in (*each.links, *each.also)}
    slow |= {link for fault in probes.faults for link in fault.links} & set(probes.between)
    # A link whose path is slow because of another link on it has not reached its own rate: it stays open.

    def left(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in passed and name not in slow)

    return replace(
        links,
        upper={**links.upper, **{f"link {link}": bound for link, bound in passed.items()}},
        unsure=left(links.unsure),
        slow=left(links.slow),
        few=left(links.few),
        untested=left(links.untested),
        unfilled=left(links.unfilled),
        accused=(*links.accused, *sorted(slow - set(links.accused))),
    )


def suspects_from(probes: Probes, practical: float) -> list[Suspect]:
    """The parts of the network that probes have found faulty: faults of other kinds first, then slow links."""
    others = fault_suspects(probes.faults, probes.host_links)
    lossy = {link for each in others if each.fault in ("loss", "unreachable") for link in each.links}
    slow = [each for each in _slow_suspects(probes, practical) if not lossy & set(each.links)]
    return [*others, *slow]


def _share_when_slow(path: ProbedPath, practical: float) -> float:
    below = [beside for beside in path.beside if beside < 1 / (1 + practical)]
    return median(below) if path.at_times and below else path.share


def _slow_suspects(probes: Probes, practical: float) -> list[Suspect]:
    found: list[Suspect] = []
    for slow in slow_links(probes, practical):
        path = min(slow.paths, key=lambda each: each.share)
        below = [share for share, beside in zip(path.shares, path.beside, strict=True) if beside < 1 / (1 + practical)]
        low, share = len(below), median(below if path.at_times else path.shares)
        carried = f"{rate(share * path.expected_bps)} of {rate(path.expected_bps)}"
        of = f"{low} of {len(path.beside)}"
        carries = f"is slow at times: {carried} in {of} probes" if path.at_times else f"carries {carried} in probes"
        direction, rank = probes.host_links.get(slow.links[0], ("", -1))
        who = f"rank {rank}: its NIC or link ({slow.name})" if direction else f"link {slow.name}"
        evidence = (
            f"{who} {carries} after the run; {path.flows} flows at once, below "
            f"{percent(1 / (1 + practical))} of the best path in {of} rounds"
        )
        if path.queue_at:
            evidence += f"; packets queue before {path.queue_at}"
        suspect = Suspect(
            kind="nic" if direction else "link",
            name=slow.name,
            ranks=[rank] if direction else [],
            score=0.0,
            evidence=evidence,
            also=list(slow.also),
            direction="both" if len(slow.links) > 1 else "one way",
            slow_down=slow.slow_down,
            since_iteration=0,
            until_iteration=None,
            hits=[low, len(path.beside)],
            links=list(slow.links),
            fault="intermittent" if path.at_times else "rate",
        )
        backs = [(_share_when_slow(path, practical), path.back) for path in slow.paths]
        found.append(with_doubt_of_acknowledgements(suspect, backs, probes.waits))
    return found


def with_probed_suspects(known: Sequence[Suspect], probed: Sequence[Suspect]) -> list[Suspect]:
    """Suspects of probes, and those of the run's traffic that are not the same links or victims of a slow link."""
    links = {link for suspect in probed for link in suspect.links}
    if not probed:
        return list(known)
    least = VICTIMS_SHARE * max(log1p(suspect.slow_down) for suspect in probed)
    if any(suspect.fault in SLOWING for suspect in probed):
        least = max(least, log1p(VICTIMS_LEAST))
    others = [each for each in known if not links & {*each.links, *each.also} and log1p(each.slow_down) >= least]
    return [*probed, *others]
