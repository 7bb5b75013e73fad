"""Which ranks send and receive: one for each address that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genie.live.check.settings import CheckSettings, Facts
from genie.live.path_mtu import HEADER_BYTES, MTUS, version_of


def stations_of(settings: CheckSettings, facts: Sequence[Facts]) -> list[int]:
    """The first rank of each address, but for those whose address is not theirs alone, or cannot be used."""
    taken = {rank for rank, _ in duplicates(settings, facts)}
    found: dict[str, int] = {}
    for rank, address in enumerate(settings.addresses):
        own = facts[rank]
        if own.interface and own.is_up and not own.roce_port and rank not in taken:
            found.setdefault(address, rank)
    return sorted(found.values())


def duplicates(settings: CheckSettings, facts: Sequence[Facts]) -> Iterator[tuple[int, int]]:
    """Ranks whose address another machine of the job has too, with a rank of that machine."""
    for rank, address in enumerate(settings.addresses):
        own = facts[rank]
        if not own.interface or own.interface == "lo":
            continue
        for other, theirs in enumerate(facts):
            if theirs.machine != own.machine and any(address in each for each in theirs.addresses.values()):
                yield rank, other
                break


def mtu_of(settings: CheckSettings, facts: Facts, rank: int) -> int:
    """The largest path MTU of RoCE that a rank's interface carries, at most the settings'; 0 none."""
    most = settings.mtu or MTUS[0]
    room = facts.mtu_bytes - HEADER_BYTES[version_of(settings.addresses[rank])]
    return next((mtu for mtu in MTUS if mtu <= min(room, most)), 0)
