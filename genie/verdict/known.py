"""Suspects whose faults are known: they are reported, and fail no run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genie.verdict.links import cable_of
from genie.verdict.model import Suspect


@dataclass(frozen=True)
class KnownFault:
    """A component with a known fault. `fault`: its kind; None: any."""

    component: str
    fault: str | None = None
    note: str = ""


def explanation_of(suspect: Suspect, known: Sequence[KnownFault]) -> KnownFault | None:
    """Return the known fault that explains a suspect; None if none does."""
    names = _names(suspect)
    return next((each for each in known if each.component in names and each.fault in (None, suspect.fault)), None)


def _names(suspect: Suspect) -> set[str]:
    """Return the names of a suspect: its own, those of its cable, and a switch or host that all its links touch."""
    names = {suspect.name, *(f"rank {rank}" for rank in suspect.ranks)}
    ends = [link.split("->") for link in suspect.links if "->" in link]
    if len({cable_of(link) for link in suspect.links}) == 1:
        names |= set(suspect.links) if len(suspect.links) == 1 else set()
        names |= {name for one, other in ends for name in (f"{one}-{other}", f"{other}-{one}")}
    return names | (set.intersection(*map(set, ends)) if ends else set())
