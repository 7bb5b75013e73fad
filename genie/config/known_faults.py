"""Files of known faults: components whose faults somebody is mending already."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from genie.config.strict_toml import Document
from genie.errors import UsageError
from genie.inputs.spelling import option

FaultKind = Literal["rate", "intermittent", "loss", "delay", "mtu", "dscp", "ecn", "unreachable", "congestion"]


class KnownFault(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One [[known]] table. `component`: a link, a cable, a switch, a host, or `rank 3`."""

    component: Annotated[str, Meta(min_length=1, description='a link, cable, switch, host, or "rank 3"')]
    fault: FaultKind | None = None  # None: any
    note: str = ""


class KnownFile(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A file of known faults, as written."""

    known: Annotated[list[KnownFault], Meta(min_length=1, description="tables [[known]], one a component")]


def load_known(path: Path) -> tuple[KnownFault, ...]:
    """Read a file of known faults. Raises SettingsError."""
    return tuple(Document.open(path).convert(KnownFile).known)


def check_components(
    known: Sequence[KnownFault], path: Path, nodes: Collection[str], links: Sequence[str], ranks: int
) -> None:
    """Raises UsageError for a component that the fabric does not have."""
    ends = [link.split("->") for link in links]
    allowed = {*nodes, *links, *(f"rank {rank}" for rank in range(ranks))}
    allowed |= {name for one, other in ends for name in (f"{one}-{other}", f"{other}-{one}")}
    for number, fault in enumerate(known, 1):
        if fault.component not in allowed:
            raise UsageError(
                f"{option('known')} {path}: [[known]] number {number}: {fault.component!r} is no component of this "
                "fabric: give a link, cable, switch, host, or a rank such as 'rank 3'"
            )
