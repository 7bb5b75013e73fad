"""Warnings about counters that grew and should not have: their meaning and what to do.

The meanings are data, in meanings.toml beside this file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from genie.live.counters.devices import RDMA

SOFTROCE = "softroce"
SENDERS_NAMED = 3  # of refused packets, in a warning
# Consequences of lost packets: not judged where a fault plan injects losses.
OF_LOSSES = ("timeouts", "retransmitted", "out_of_sequence")
OF_SPRAYING = ("out_of_sequence",)


@dataclass(frozen=True)
class Meaning:
    """An entry of meanings.toml: the meaning of a counter."""

    grows: str  # yes, may or no
    meaning: str
    severity: int = 0  # 3 is the worst
    do: str = ""
    share_of: str = ""
    share_min: float = 0.0


@dataclass(frozen=True)
class CounterWarning:
    """A warning about a counter that grew and should not have, on one device or in the same way on several."""

    severity: int
    host: str
    device: str  # the device on which it grew most
    counter: str
    grew: int  # on that device
    devices: int  # the number of devices on which it grew
    text: str


@cache
def meanings() -> dict[str, dict[str, Meaning]]:
    """Return driver -> counter name, or a pattern of names -> meaning."""
    text = (files("genie.live.counters") / "meanings.toml").read_text()
    return {
        driver: {name: Meaning(**entry) for name, entry in table.items()}
        for driver, table in tomllib.loads(text).items()
    }


def meaning_of(kind: str, driver: str, counter: str) -> Meaning | None:
    """Return the meaning of a device's counter; None when it is unknown."""
    tables = (SOFTROCE,) if kind == SOFTROCE else (driver, "port") if kind == RDMA else ("interface", "ethtool")
    for table in (meanings().get(name, {}) for name in tables):
        if counter in table:
            return table[counter]
        for pattern, meaning in table.items():
            if "*" in pattern and fnmatchcase(counter, pattern):
                return meaning
    return None


def warnings_of(
    ranks: Iterable[Mapping[str, int] | None],
    hosts: list[str],
    devices: Iterable[Mapping[str, Any]],
    senders: Iterable[Iterable[Sequence[Any]]] = (),
    addresses: Sequence[str] = (),
    *,
    sprayed: bool = False,
) -> list[dict[str, Any]]:
    """Return the warnings as counters.json holds them, the worst first.

    `ranks`: by rank, the counters of its transport; None if lost. `hosts`, `addresses`: by rank. `devices`: from
    Watched.counted(). `senders`: by rank, from Transport.refused_senders(). `sprayed`: packets overtake each other.
    """
    came_from = _senders(senders, addresses)
    by_rank = list(ranks)
    lost = any(counters and counters.get("injected_losses") for counters in by_rank)
    explained = OF_LOSSES if lost else OF_SPRAYING if sprayed else ()
    places: list[tuple[str, str, str, str, Mapping[str, int]]] = [
        (SOFTROCE, SOFTROCE, hosts[rank], f"rank {rank}", counters) for rank, counters in enumerate(by_rank) if counters
    ]
    places += [(each["kind"], each["driver"], each["host"], each["device"], each["counters"]) for each in devices]
    found: dict[tuple[str, str, str], list[tuple[int, str, str]]] = {}
    known: dict[tuple[str, str, str], Meaning] = {}
    for kind, driver, host, device, counters in places:
        for counter, grew in counters.items():
            meaning = meaning_of(kind, driver, counter) if grew > 0 else None
            if meaning is None or meaning.grows != "no" or (kind == SOFTROCE and counter in explained):
                continue
            if meaning.share_of and grew < meaning.share_min * counters.get(meaning.share_of, 0):
                continue
            known[kind, driver, counter] = meaning
            found.setdefault((kind, driver, counter), []).append((grew, host, device))
    warnings = [
        _warn(known[key], key[2], grown_on, came_from.get(key[2], "") if key[0] == SOFTROCE else "")
        for key, grown_on in found.items()
    ]
    return [
        asdict(warning) for warning in sorted(warnings, key=lambda each: (-each.severity, -each.grew, each.counter))
    ]


def _senders(senders: Iterable[Iterable[Sequence[Any]]], addresses: Sequence[str]) -> dict[str, str]:
    """Return counter -> its senders by the addresses in their datagrams, those of most packets first."""
    packets: dict[str, dict[str, int]] = {}
    for of_rank in senders:
        for counter, address, port, count in of_rank:
            ranks = [str(rank) for rank, known in enumerate(addresses) if known == address]
            of = f", the address of rank {' and '.join(ranks)}" if 0 < len(ranks) <= 4 else ""
            name = f"{address} port {port}{of}"
            packets.setdefault(counter, {}).setdefault(name, 0)
            packets[counter][name] += count
    said = {}
    for counter, of_counter in packets.items():
        most = sorted(of_counter.items(), key=lambda each: (-each[1], each[0]))
        more = f", and {len(most) - SENDERS_NAMED} more" if len(most) > SENDERS_NAMED else ""
        said[counter] = "; ".join(f"{count} from {name}" for name, count in most[:SENDERS_NAMED]) + more
    return said


def _warn(meaning: Meaning, counter: str, grown_on: list[tuple[int, str, str]], senders: str) -> CounterWarning:
    grew, host, device = max(grown_on, key=lambda each: each[0])
    others = len(grown_on) - 1
    where = f"{host} {device.replace(':', ' port ')}" + (f" and {others} other{'s' * (others > 1)}" if others else "")
    total = f", by {sum(each[0] for each in grown_on)} in all" if others else ""
    means = f"{meaning.meaning}: {senders}" if senders else meaning.meaning
    text = f"{where}: {counter} grew by {grew}{total} ({means}): {meaning.do}"
    return CounterWarning(meaning.severity, host, device, counter, grew, len(grown_on), text)
