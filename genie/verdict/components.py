"""What can be accused: each rank's NIC in each direction, hosts and switches with several ranks, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.series import Series


@dataclass(frozen=True)
class Attachment:
    """How a rank hangs on the fabric; names from the run's hosts, or by its number."""

    rank: int
    host: str
    nic: str
    link: str
    switch: str


def attachments(live: Run, twin: Run, ranks: list[int]) -> dict[int, Attachment]:
    """Names of every rank's host, NIC, link and switch, "" where no run says."""
    named: dict[int, dict[str, Any]] = {}
    for info in (twin.info, live.info):
        for entry in info.get("hosts") or []:
            if isinstance(entry, dict) and "rank" in entry:
                kept = {key: value for key, value in entry.items() if value}
                named.setdefault(int(entry["rank"]), {}).update(kept)
    result = {}
    for rank in ranks:
        entry = named.get(rank, {})
        result[rank] = Attachment(rank, *(str(entry.get(key, "")) for key in ("host", "nic", "link", "switch")))
    return result


@dataclass(frozen=True)
class Component:
    """Transfers that share something: `kind` nic, path, host or switch; `direction` egress or ingress."""

    kind: str
    direction: str
    ranks: tuple[int, ...]
    peer: int = -1  # the receiver of a path

    def touches(self) -> pl.Expr:
        """Which transfers pass it."""
        end = "src" if self.direction == "egress" else "dst"
        mine = pl.col(end).is_in(list(self.ranks))
        return mine & (pl.col("dst") == self.peer) if self.kind == "path" else mine


def components(series: dict[str, Series], attached: dict[int, Attachment]) -> list[Component]:
    """All hypotheses that are tested: single NICs, then sets of ranks that share a host or a switch."""
    result = []
    for direction, part in series.items():
        if len(part.ranks) < 2:
            continue
        result += [Component("nic", direction, (rank,)) for rank in part.ranks]
        for kind in ("host", "switch"):
            sets: dict[str, list[int]] = {}
            for rank in part.ranks:
                name = getattr(attached[rank], kind)
                if name:
                    sets.setdefault(name, []).append(rank)
            result += [
                Component(kind, direction, tuple(members))
                for members in sets.values()
                if 2 <= len(members) <= len(part.ranks) - 2
            ]
    return result
