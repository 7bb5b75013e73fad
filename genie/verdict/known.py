"""Known faults: a file of components whose faults somebody is mending already. They are reported, and fail no run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from genie.config.strict_toml import Document
from genie.errors import UsageError
from genie.verdict.links import cable_of
from genie.verdict.model import Suspect

FaultKind = Literal["rate", "intermittent", "loss", "delay", "mtu", "dscp", "ecn", "unreachable", "congestion"]


class KnownFault(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One [[known]] table. `component`: a link, a cable, a switch, a host, or `rank 3`."""

    component: Annotated[str, Meta(min_length=1, description='a link, cable, switch, host, or "rank 3"')]
    fault: (
        Literal["rate", "intermittent", "loss", "delay", "mtu", "dscp", "ecn", "unreachable", "congestion"] | None
    ) = None  # None: any
    note: str = ""


class KnownFile(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A file of known faults, as written."""

    known: Annotated[list[KnownFault], Meta(min_length=1, description="tables [[known]], one a component")]


@dataclass(frozen=True)
class Known:
    """The known faults of a run."""

    faults: tuple[KnownFault, ...] = ()

    def of(self, suspect: Suspect) -> KnownFault | None:
        """Return the known fault that explains a suspect; None if none does."""
        names = _names(suspect)
        for fault in self.faults:
            if not names.isdisjoint({fault.component, *_turned(fault.component)}) and fault.fault in (
                None,
                suspect.fault,
            ):
                return fault
        return None


def _names(suspect: Suspect) -> set[str]:
    """Return the names of a suspect: its own, those of its cables, and a switch or host that all its links touch."""
    names = {suspect.name, *(f"rank {rank}" for rank in suspect.ranks)}
    if suspect.links:
        for own in (suspect.links, [cable_of(link) for link in suspect.links]):
            names |= set(own) if len(set(own)) == 1 else set()
        names |= set.intersection(*(set(link.split("->")) for link in suspect.links))
    return names


def _turned(cable: str) -> list[str]:
    """Return a cable's name from its other end; node names may have hyphens."""
    parts = cable.split("-")
    return ["-".join([*parts[at:], *parts[:at]]) for at in range(1, len(parts))] if "->" not in cable else []


def load_known(path: Path) -> Known:
    """Read a file of known faults. Raises SettingsError."""
    return Known(tuple(Document.open(path).convert(KnownFile).known))


def check_components(known: Known, path: Path, nodes: Collection[str], links: Sequence[str], ranks: int) -> None:
    """Raises UsageError for a component that the fabric does not have."""
    allowed = {*nodes, *links, *(cable_of(link) for link in links), *(f"rank {rank}" for rank in range(ranks))}
    for number, fault in enumerate(known.faults, 1):
        if allowed.isdisjoint({fault.component, *_turned(fault.component)}):
            raise UsageError(
                f"--known {path}: [[known]] number {number}: {fault.component!r} is no component of this fabric: give "
                "a link, cable, switch, host, or a rank such as 'rank 3'"
            )
