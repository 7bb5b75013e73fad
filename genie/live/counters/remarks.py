"""A sentence for each counter that grew and should not have: what it means and what to do.

What counters mean is data, in meanings.toml beside this file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from genie.live.counters.devices import RDMA

SOFTROCE = "softroce"
# What follows from lost packets: not judged where a fault plan has lost some.
OF_LOSSES = ("timeouts", "retransmitted", "out_of_sequence")


@dataclass(frozen=True)
class Meaning:
    """What a counter is, as meanings.toml has it."""

    grows: str  # yes, may or no
    meaning: str
    severity: int = 0  # 3 is the worst
    do: str = ""
    share_of: str = ""
    share_min: float = 0.0


@dataclass(frozen=True)
class Remark:
    """A counter that grew and should not have, on one device or, alike, on several."""

    severity: int
    host: str
    device: str  # where it grew most
    counter: str
    grew: int  # there
    devices: int  # on so many it grew
    text: str


@cache
def meanings() -> dict[str, dict[str, Meaning]]:
    """Driver -> counter, or a pattern for some -> what it means."""
    text = (files("genie.live.counters") / "meanings.toml").read_text()
    return {
        driver: {name: Meaning(**entry) for name, entry in table.items()}
        for driver, table in tomllib.loads(text).items()
    }


def meaning_of(kind: str, driver: str, counter: str) -> Meaning | None:
    """What a counter of a device means; None when nothing is known of it."""
    tables = (SOFTROCE,) if kind == SOFTROCE else (driver, "port") if kind == RDMA else ("interface", "ethtool")
    for table in (meanings().get(name, {}) for name in tables):
        if counter in table:
            return table[counter]
        for pattern, meaning in table.items():
            if "*" in pattern and fnmatchcase(counter, pattern):
                return meaning
    return None


def remarks_of(
    ranks: Iterable[Mapping[str, int] | None], hosts: list[str], devices: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Remarks as counters.json has them, the worst first.

    `ranks`: by rank, what its transport has counted; `hosts`: by rank; `devices`: as Watched.counted() gives them.
    """
    by_rank = list(ranks)
    lost = any(counters and counters.get("injected_losses") for counters in by_rank)
    places: list[tuple[str, str, str, str, Mapping[str, int]]] = [
        (SOFTROCE, SOFTROCE, hosts[rank], f"rank {rank}", counters) for rank, counters in enumerate(by_rank) if counters
    ]
    places += [(each["kind"], each["driver"], each["host"], each["device"], each["counters"]) for each in devices]
    found: dict[tuple[str, str, str], list[tuple[int, str, str]]] = {}
    known: dict[tuple[str, str, str], Meaning] = {}
    for kind, driver, host, device, counters in places:
        for counter, grew in counters.items():
            meaning = meaning_of(kind, driver, counter) if grew > 0 else None
            if meaning is None or meaning.grows != "no" or (kind == SOFTROCE and lost and counter in OF_LOSSES):
                continue
            if meaning.share_of and grew < meaning.share_min * counters.get(meaning.share_of, 0):
                continue
            known[kind, driver, counter] = meaning
            found.setdefault((kind, driver, counter), []).append((grew, host, device))
    remarks = [_remark(known[key], key[2], grown_on) for key, grown_on in found.items()]
    return [asdict(remark) for remark in sorted(remarks, key=lambda each: (-each.severity, -each.grew, each.counter))]


def _remark(meaning: Meaning, counter: str, grown_on: list[tuple[int, str, str]]) -> Remark:
    grew, host, device = max(grown_on, key=lambda each: each[0])
    others = len(grown_on) - 1
    where = f"{host} {device.replace(':', ' port ')}" + (f" and {others} other{'s' * (others > 1)}" if others else "")
    total = f", by {sum(each[0] for each in grown_on)} in all" if others else ""
    text = f"{where}: {counter} grew by {grew}{total} ({meaning.meaning}): {meaning.do}"
    return Remark(meaning.severity, host, device, counter, grew, len(grown_on), text)
