"""Components that may be accused: NICs in each direction, hosts, switches and links, with their names."""

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
    """Names of a rank's place on the fabric, from both runs; "" where neither run records one."""

    rank: int
    host: str  # on the fabric
    nic: str
    link: str
    switch: str
    machine: str  # that ran the rank; one machine may play many hosts of the fabric


def attachments(live: Run, twin: Run, ranks: list[int]) -> dict[int, Attachment]:
    """Names of each rank's place. The twin knows the fabric, the live run its machines."""
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
    """A part of the fabric that some transfers share.

    `kind` is nic, path, host, switch or link. `direction` is egress or ingress, or the tier for links between switches.
    """

    kind: str
    direction: str
    ranks: tuple[int, ...]
    peer: int = -1  # receiver of a path
    name: str = ""  # of a host, switch or link
    columns: tuple[int, ...] = ()  # of links between switches
    pairs: frozenset[tuple[int, int]] = frozenset()  # pairs of ranks whose transfers pass these links
    alike: tuple[tuple[str, str], ...] = ()  # (kind, name) of other components with the same columns

    @property
    def members(self) -> tuple[int, ...]:
        """The component's columns in its series."""
        return self.columns or self.ranks

    def touches(self) -> pl.Expr:
        """Expression for the transfers that pass the component."""
        if self.columns:
            number = pl.col("src").cast(pl.Int64) * 2**32 + pl.col("dst")
            return number.is_in([src * 2**32 + dst for src, dst in sorted(self.pairs)])
        end = "src" if self.direction == "egress" else "dst"
        mine = pl.col(end).is_in(list(self.ranks))
        return mine & (pl.col("dst") == self.peer) if self.kind == "path" else mine

    def delays(self) -> pl.Expr:
        """Expression for transfers that pass the component, or whose measured times may include acknowledgements that
        pass it.

        An acknowledgement takes the path of its receiver's own transfers to the sender. `one_way` removes its time
        where it can.
        """
        if self.columns:
            back = replace(self, pairs=frozenset((dst, src) for src, dst in self.pairs))
        elif self.kind == "path":
            back = replace(self, ranks=(self.peer,), peer=self.ranks[0])
        else:
            back = replace(self, direction="ingress" if self.direction == "egress" else "egress")
        return self.touches() | ((pl.col("messages") > 1) & back.touches())


def components(series: dict[str, Series], attached: dict[int, Attachment], known_paths: KnownPaths) -> list[Component]:
    """All hypotheses to test.

    NICs come first, then hosts and switches with several ranks. Links, cables with both directions, and switches
    without hosts follow.
    """
    result = []
    for direction, part in series.items():
        if direction not in DIRECTIONS:
            result += _between_switches(part, known_paths)
            continue
        if len(part.members) < 2:
            continue
        result += [Component("nic", direction, (rank,)) for rank in part.members]
        known: set[tuple[int, ...]] = set()
        for kind, key in (("host", "host"), ("host", "machine"), ("switch", "switch")):
            sets: dict[str, list[int]] = {}
            for rank in part.members:
                if name := str(getattr(attached[rank], key)):
                    sets.setdefault(name, []).append(rank)
            found = [Component(kind, direction, tuple(m), name=n) for n, m in sets.items()]
            found = [c for c in found if 2 <= len(c.ranks) <= len(part.members) - 2 and c.ranks not in known]
            known.update(c.ranks for c in found)
            result += found
    return result


def _between_switches(part: Series, known_paths: KnownPaths) -> list[Component]:
    """Components of one tier. Links with the same columns are one component."""
    if len(part.members) < TIER_MIN:
        return []
    columns = [column for column in known_paths.columns if column.number in part.members]
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
            if 2 <= len(numbers) <= len(part.members) - 2:
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
    """The parts of a component, each alone: NICs of a host or switch, columns of a cable or switch."""
    if component.columns and known_paths is not None:
        columns = [column for column in known_paths.columns if column.number in component.columns]
        return [Component("link", component.direction, (), -1, "", (it.number,), it.pairs) for it in columns]
    return [Component("nic", component.direction, (rank,)) for rank in component.ranks]


def of_few(known_paths: KnownPaths | None) -> list[Component]:
    """Links with too few paths to be accused, which may explain the same transfers."""
    return [_of_column(column) for column in (known_paths.few if known_paths else ())]


def pointed_at(component: Component, known_paths: KnownPaths) -> Component:
    """A component of links under the name of the link that probes point at; other names remain where probes do not
    decide.
    """
    if not component.columns:
        return component
    every = ((component.kind, component.name), *component.alike)
    name, is_sure = likeliest([name for _, name in every], component.columns, known_paths)
    first, *others = sorted(every, key=lambda it: it[1] != name)
    return replace(component, kind=first[0], name=name, alike=() if is_sure else tuple(others))


def other_way(component: Component, known_paths: KnownPaths) -> Component | None:
    """The other direction of a link that probes point at, where they point at that direction too."""
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
    """A cable: both directions as one component."""
    columns = tuple(sorted({column for link in links for column in link.columns}))
    pairs = frozenset(pair for link in links for pair in link.pairs)
    return replace(links[0], name=cable_of(links[0].name), columns=columns, pairs=pairs, alike=())
