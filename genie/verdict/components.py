"""Components to accuse: each rank's NIC in each direction, hosts and switches with several ranks, and their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from genie.verdict.links import STRETCH_MIN, TIER_MIN, cable_of, likeliest
from genie.verdict.series import DIRECTIONS

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.links import Column, KnownPaths
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
    """Transfers that share something: `kind` nic, path, host, switch or link; `direction` egress, ingress or, of what
    lies between switches, the tier.
    """

    kind: str
    direction: str
    ranks: tuple[int, ...]
    peer: int = -1  # the receiver of a path
    name: str = ""  # of a host, switch or link
    columns: tuple[int, ...] = ()  # of links between switches
    pairs: frozenset[tuple[int, int]] = frozenset()  # that pass them
    alike: tuple[tuple[str, str], ...] = ()  # kind and name of what else has the same columns

    @property
    def members(self) -> tuple[int, ...]:
        """Its columns in its series."""
        return self.columns or self.ranks

    def touches(self) -> pl.Expr:
        """Which transfers pass it."""
        if self.columns:
            number = pl.col("src").cast(pl.Int64) * 2**32 + pl.col("dst")
            return number.is_in([src * 2**32 + dst for src, dst in sorted(self.pairs)])
        end = "src" if self.direction == "egress" else "dst"
        mine = pl.col(end).is_in(list(self.ranks))
        return mine & (pl.col("dst") == self.peer) if self.kind == "path" else mine

    def delays(self) -> pl.Expr:
        """Which transfers pass it, or have acknowledgements that do and that their times may hold (`one_way`).

        An acknowledgement goes as its receiver's own transfers to the sender do.
        """
        if self.columns:
            back = replace(self, pairs=frozenset((dst, src) for src, dst in self.pairs))
        elif self.kind == "path":
            back = replace(self, ranks=(self.peer,), peer=self.ranks[0])
        else:
            back = replace(self, direction="ingress" if self.direction == "egress" else "egress")
        return self.touches() | ((pl.col("messages") > 1) & back.touches())


def components(series: dict[str, Series], attached: dict[int, Attachment], known_paths: KnownPaths) -> list[Component]:
    """All hypotheses that are tested: single NICs, then sets of ranks that share a host or a switch; then links between
    switches, cables with both directions, and switches without hosts.
    """
    result = []
    for direction, part in series.items():
        if direction not in DIRECTIONS:
            result += _between_switches(part, known_paths)
            continue
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


def _between_switches(part: Series, known_paths: KnownPaths) -> list[Component]:
    """Of one tier. What has the same columns is one component."""
    if len(part.ranks) < TIER_MIN:
        return []
    columns = [column for column in known_paths.columns if column.number in part.ranks]
    result = [_of_column(column) for column in columns]
    cables: dict[str, set[int]] = {}
    switches: dict[str, set[int]] = {}
    for column in columns:
        for link in column.links:
            a, _, b = link.partition("->")
            cables.setdefault(cable_of(link), set()).add(column.number)
            for switch in {a, b} - known_paths.edges:
                switches.setdefault(switch, set()).add(column.number)
    named: dict[tuple[int, ...], list[tuple[str, str]]] = {}
    for kind, sets in (("link", cables), ("switch", switches)):
        for name, numbers in sets.items():
            if 2 <= len(numbers) <= len(part.ranks) - 2:
                named.setdefault(tuple(sorted(numbers)), []).append((kind, name))
    for members, names in named.items():
        pairs = frozenset(pair for column in columns if column.number in members for pair in column.pairs)
        (kind, name), *others = names
        result.append(Component(kind, part.direction, (), -1, name, members, pairs, tuple(others)))
    return result


def _of_column(column: Column) -> Component:
    first, *others = column.links
    alike = tuple(("link", other) for other in others)
    return Component("link", column.tier, (), -1, first, (column.number,), column.pairs, alike)


def singles_of(component: Component, known_paths: KnownPaths | None) -> list[Component]:
    """The NICs of a host or switch, the columns of a cable or switch: each alone."""
    if component.columns and known_paths is not None:
        columns = [column for column in known_paths.columns if column.number in component.columns]
        return [Component("link", component.direction, (), -1, "", (it.number,), it.pairs) for it in columns]
    return [Component("nic", component.direction, (rank,)) for rank in component.ranks]


def of_few(known_paths: KnownPaths | None) -> list[Component]:
    """Links that are never accused, because too few paths show them, and may explain the same."""
    return [_of_column(column) for column in (known_paths.few if known_paths else ())]


def pointed_at(component: Component, known_paths: KnownPaths) -> Component:
    """A component of links named as what probes point at, and the others only where they do not."""
    if not component.columns:
        return component
    every = ((component.kind, component.name), *component.alike)
    name, is_sure = likeliest([name for _, name in every], component.columns, known_paths)
    first, *others = sorted(every, key=lambda it: it[1] != name)
    return replace(component, kind=first[0], name=name, alike=() if is_sure else tuple(others))


def other_way(component: Component, known_paths: KnownPaths) -> Component | None:
    """The other direction of a link that probes point at, where they point at that too."""
    a, arrow, b = component.name.partition("->")
    back = f"{b}->{a}"
    column = next((column for column in known_paths.columns if back in column.links), None)
    if not arrow or component.alike or len(component.columns) != 1 or column is None:
        return None
    least = max(STRETCH_MIN, known_paths.stretch.get(component.name, 0.0) / 2)
    if column.number in component.columns or known_paths.stretch.get(back, 0.0) < least:
        return None
    return Component("link", column.tier, (), -1, back, (column.number,), column.pairs)


def cable(*links: Component) -> Component:
    """Both directions as one."""
    columns = tuple(sorted({column for link in links for column in link.columns}))
    pairs = frozenset(pair for link in links for pair in link.pairs)
    return replace(links[0], name=cable_of(links[0].name), columns=columns, pairs=pairs, alike=())
