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
    """How a rank hangs on the fabric: names from the runs, "" where none says."""

    rank: int
    host: str  # on the fabric
    nic: str
    link: str
    switch: str
    machine: str  # that ran it: one may stand for many hosts of the fabric


def attachments(live: Run, twin: Run, ranks: list[int]) -> dict[int, Attachment]:
    """Names of every rank's place. The twin knows the fabric, the live run its machines."""
    fabric, machines = _by_rank(twin), _by_rank(live)
    result = {}
    for rank in ranks:
        own, seen = fabric.get(rank, {}), machines.get(rank, {})
        host, nic, link, switch = (
            str(own.get(key) or seen.get(key) or "") for key in ("host", "nic", "link", "switch")
        )
        result[rank] = Attachment(rank, host, nic, link, switch, machine=str(seen.get("host") or host))
    return result


def _by_rank(run: Run) -> dict[int, dict[str, Any]]:
    entries = run.info.get("hosts") or []
    return {int(entry["rank"]): entry for entry in entries if isinstance(entry, dict) and "rank" in entry}


@dataclass(frozen=True)
class Component:
    """Transfers that share something: `kind` nic, path, host or switch; `direction` egress or ingress."""

    kind: str
    direction: str
    ranks: tuple[int, ...]
    peer: int = -1  # the receiver of a path
    name: str = ""  # of a host or switch

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
        known: set[tuple[int, ...]] = set()
        for kind, key in (("host", "host"), ("host", "machine"), ("switch", "switch")):
            sets: dict[str, list[int]] = {}
            for rank in part.ranks:
                if name := str(getattr(attached[rank], key)):
                    sets.setdefault(name, []).append(rank)
            found = [Component(kind, direction, tuple(m), name=n) for n, m in sets.items()]
            found = [c for c in found if 2 <= len(c.ranks) <= len(part.ranks) - 2 and c.ranks not in known]
            known.update(c.ranks for c in found)
            result += found
    return result
