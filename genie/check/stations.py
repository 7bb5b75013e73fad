"""The ranks that send and receive (stations): one for each trustworthy address."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import permutations

from genie.check.settings import CheckSettings, Facts, Pair, pair_of
from genie.live.paths.icmp import version_of
from genie.live.paths.mtu import HEADER_BYTES, MTUS


def stations_of(settings: CheckSettings, facts: Sequence[Facts]) -> list[int]:
    """Return the first rank of each address, without duplicate or unusable addresses."""
    taken = {rank for rank, _ in duplicates(settings, facts)}
    found: dict[str, int] = {}
    for rank, address in enumerate(settings.addresses):
        own = facts[rank]
        if own.interface and own.is_up and not own.roce_port and rank not in taken:
            found.setdefault(address, rank)
    return sorted(found.values())


def duplicates(settings: CheckSettings, facts: Sequence[Facts]) -> Iterator[tuple[int, int]]:
    """Yield ranks with a duplicate address, each with a rank of another machine that has it too."""
    for rank, address in enumerate(settings.addresses):
        own = facts[rank]
        if not own.interface or own.interface == "lo":
            continue
        for other, theirs in enumerate(facts):
            if theirs.machine != own.machine and any(address in each for each in theirs.addresses.values()):
                yield rank, other
                break


def rails_of(stations: Sequence[int], facts: Sequence[Facts]) -> dict[int, int]:
    """Return by station its index among those of its host; all 0 in a job of one host."""
    if len({facts[rank].machine for rank in stations}) == 1:
        return dict.fromkeys(stations, 0)
    seen: Counter[str] = Counter()
    rails = {}
    for rank in stations:
        rails[rank] = seen[facts[rank].machine]
        seen[facts[rank].machine] += 1
    return rails


def local_pairs(stations: Sequence[int], facts: Sequence[Facts]) -> set[Pair]:
    """Return ordered pairs of stations on one host, whose packets do not leave it; none in a job of one host."""
    if len({facts[rank].machine for rank in stations}) == 1:
        return set()
    return {pair for pair in permutations(stations, 2) if facts[pair[0]].machine == facts[pair[1]].machine}


def rails_apart(stations: Sequence[int], facts: Sequence[Facts], lost: Collection[Pair]) -> set[Pair]:
    """Return pairs on different rails between which no packet passes for any host: such rails are separate networks.

    `lost`: pairs on all of whose paths everything is lost.
    """
    rails, local = rails_of(stations, facts), local_pairs(stations, facts)
    between: dict[Pair, list[Pair]] = defaultdict(list)
    for pair in permutations(stations, 2):
        if pair not in local and rails[pair[0]] != rails[pair[1]]:
            between[pair_of(rails[pair[0]], rails[pair[1]])].append(pair)
    return {pair for pairs in between.values() if set(pairs) <= set(lost) for pair in pairs}


def mtu_of(settings: CheckSettings, facts: Facts, rank: int) -> int:
    """Return the largest RoCE path MTU that a rank's interface carries, at most the settings'; 0: none."""
    most = settings.mtu or MTUS[0]
    room = facts.mtu_bytes - HEADER_BYTES[version_of(settings.addresses[rank])]
    return next((mtu for mtu in MTUS if mtu <= min(room, most)), 0)
