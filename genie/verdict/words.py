"""Text of findings: names on the fabric, evidence, and components that the data cannot tell apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from genie.page.words import amount, duration, percent
from genie.verdict.components import cable
from genie.verdict.links import cable_of, stands_for
from genie.verdict.model import Carrier, Cost, Suspect

if TYPE_CHECKING:
    from genie.verdict.align import Aligned
    from genie.verdict.components import Attachment, Component
    from genie.verdict.links import KnownPaths
    from genie.verdict.locate import Finding

OWN_PARTS = ("link ", "the link of ", "its ")  # beginnings of the names of a NIC's cable and port
REST_MIN = 0.005  # of a cost: less is lost in rounding
LEAST_SHOWN = 0.01  # a smaller fraction of an iteration is not told from noise, and not divided


def cost_in_words(cost: Cost) -> str:
    """`iterations take 16 % longer (+104 ms); +96.8 ms of it in all_reduce #1 (2 MiB), +7.2 ms elsewhere`."""
    if cost.iteration_ns == 0:
        return "iterations of this job are not slower"
    if cost.fraction < LEAST_SHOWN:
        return f"iterations take less than {percent(LEAST_SHOWN)} longer"
    text = f"iterations take {percent(cost.fraction)} longer (+{duration(cost.iteration_ns)})"
    if not cost.carriers:
        return text
    first, others = cost.carriers[0], cost.carriers[1:]
    beside = f", +{duration(sum(it.extra_ns for it in others))} in {len(others)} more" if others else ""
    rest_ns = cost.iteration_ns - sum(it.extra_ns for it in cost.carriers)
    elsewhere = f", +{duration(rest_ns)} elsewhere" if rest_ns >= REST_MIN * cost.iteration_ns else ""
    return f"{text}; +{duration(first.extra_ns)} of it in {collective_name(first)}{beside}{elsewhere}"


def collective_name(carrier: Carrier) -> str:
    """`all_reduce #1 (1.5 MiB)`, the second collective of its group, or `14 × all_gather of group 1 (1.3 MiB)`.

    The group is named unless it is the default one.
    """
    group = "" if carrier.group in ("", "0") else f" of group {carrier.group}"
    if carrier.collectives > 1:
        return f"{carrier.collectives} × {carrier.op}{group} ({amount(carrier.size_bytes)})"
    return f"{carrier.op} #{carrier.seq}{group} ({amount(carrier.size_bytes)})"


def suspects_of(
    findings: list[Finding],
    aligned: Aligned,
    attached: dict[int, Attachment],
    known_paths: KnownPaths,
    reference: str,
) -> list[Suspect]:
    """One suspect per NIC, path, link or set of ranks: a NIC that is slow in both directions is named once.

    `reference`: the words for the run that a suspect is slower than.
    """
    result: list[Suspect] = []
    used: set[int] = set()
    for index, finding in enumerate(findings):
        if index in used:
            continue
        mates = [k for k in range(index + 1, len(findings)) if _same_place(findings[k].component, finding.component)]
        used.update(mates)
        if mates and finding.component.kind == "link":
            finding = replace(finding, component=cable(*(findings[k].component for k in (index, *mates))))
        directions = {findings[k].component.direction for k in (index, *mates)}
        direction = "both" if len(directions) > 1 else finding.component.direction
        result.append(_suspect(finding, direction, aligned, attached, known_paths, reference))
    return result


def _same_place(one: Component, other: Component) -> bool:
    """Whether two components differ only in direction."""
    if one.kind == other.kind == "link":
        return cable_of(one.name) == cable_of(other.name)
    return (one.kind, one.ranks, one.peer, one.name) == (other.kind, other.ranks, other.peer, other.name)


def name_of(component: Component, attached: dict[int, Attachment]) -> str:
    """The component's name on the fabric, or by rank where it has none."""
    if component.kind in ("host", "switch", "link"):
        return component.name
    own = attached[component.ranks[0]]
    if component.kind == "path":
        return f"the path from rank {component.ranks[0]} to rank {component.peer}"
    return _full(own, own.nic) or f"rank{component.ranks[0]}"


def _full(own: Attachment, part: str) -> str:
    """`host/part`, or the part alone if its name starts with the host's."""
    if not part:
        return own.host
    return part if not own.host or part.startswith(own.host) else f"{own.host}/{part}"


def _suspect(
    finding: Finding,
    direction: str,
    aligned: Aligned,
    attached: dict[int, Attachment],
    known_paths: KnownPaths,
    reference: str,
) -> Suspect:
    component, window = finding.component, finding.window
    last = len(aligned.iterations) - 1
    since, until = aligned.iterations[window.first], aligned.iterations[window.last]
    whole = window.first == 0 and window.last == last
    when = "" if whole else f" since iteration {since}" if window.last == last else f" in iterations {since} to {until}"
    verb = {"egress": "sends", "ingress": "receives", "both": "sends and receives"}.get(direction, "carries its paths")
    name = name_of(component, attached)
    links = links_of(component, direction, attached, known_paths)
    hit, of = finding.hits
    if component.columns:
        direction = "one way" if len(component.columns) == 1 else "both"
    evidence = (
        f"{_who(component, attached, links)} {verb} {1 + finding.slow_down:.1f}x slower than {reference}{when}"
        f"; slower than every peer in {hit} of {of} iterations"
        f"; paths with {100 * finding.share:.0f} % of its traffic are slow"
    )
    return Suspect(
        kind=component.kind if component.kind != "path" else "link",
        name=name,
        ranks=list(component.ranks),
        score=round(float(np.log10(max(finding.e_value, 1e-9))), 2),
        evidence=evidence,
        also=_also(finding, attached, links),
        direction=direction,
        slow_down=finding.slow_down,
        since_iteration=since,
        until_iteration=None if window.last == last else until,
        hits=[hit, of],
        links=links,
    )


def links_of(
    component: Component, direction: str, attached: dict[int, Attachment], known_paths: KnownPaths
) -> list[str]:
    """The directed links that a suspect consists of; for a NIC, those that only its traffic passes."""
    if component.columns:
        every = [link for column in (*known_paths.columns, *known_paths.few) for link in column.links]
        return [link for link in every if stands_for(component.name, link)]
    if component.kind != "nic":
        return []
    rank = component.ranks[0]
    directions = ("egress", "ingress") if direction == "both" else (direction,)
    known = [link for each in directions for link in known_paths.of_nic.get((each, rank), ())]
    if known or not attached[rank].link:
        return known
    near, arrow, far = attached[rank].link.partition("->")  # as the rank sends
    links = {"egress": f"{near}{arrow}{far}", "ingress": f"{far}{arrow}{near}" if arrow else near}
    return list(dict.fromkeys(links[each] for each in directions))


def _who(component: Component, attached: dict[int, Attachment], links: list[str]) -> str:
    if component.columns:
        return f"{component.kind} {component.name} (between {len(component.pairs)} pairs of ranks)"
    own = attached[component.ranks[0]]
    if component.kind == "nic":
        rank = component.ranks[0]
        nic, link = _full(own, own.nic), ", ".join(links)
        named = (
            f"its NIC ({nic}) or link ({link})"
            if nic and link
            else f"its NIC ({nic}) or link"
            if nic
            else "its NIC or link"
        )
        return f"rank {rank}{_machine_of(own, attached)}: {named}"
    if component.kind == "path":
        return f"rank {component.ranks[0]}{_machine_of(own, attached)}: its path to rank {component.peer}"
    ranks = ", ".join(str(rank) for rank in component.ranks)
    return f"{component.kind} {name_of(component, attached)} (ranks {ranks})"


def _machine_of(own: Attachment, attached: dict[int, Attachment]) -> str:
    """` on gpu03`: where the run has several machines, and the fabric calls this one otherwise."""
    is_one = len({each.machine for each in attached.values()}) == 1
    return "" if is_one or own.machine == own.host else f" on {own.machine}"


def _also(finding: Finding, attached: dict[int, Attachment], links: list[str]) -> list[str]:
    """Names of the same class first (a NIC, its cable, its port), then rivals that explain the data as well."""
    component = finding.component
    result = [name for _, name in component.alike]
    if component.kind == "nic":
        own = attached[component.ranks[0]]
        result.append(f"link {', '.join(links)}" if links else f"the link of rank {component.ranks[0]}")
        result.append(f"its port on {own.switch}" if own.switch else "its switch port")
    for rival in finding.rivals:
        if rival.kind == "nic":
            side = "sending" if rival.direction == "egress" else "receiving"
            result.append(f"the {side} side of rank {rival.ranks[0]} ({name_of(rival, attached)})")
        else:
            result += [name_of(rival, attached), *(name for _, name in rival.alike)]
    return result
