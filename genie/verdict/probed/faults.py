"""Faults that probes have shown after a run, as suspects: loss, delay, MTU, header bits, congestion control."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log1p

from msgspec import Struct

from genie.verdict.links import cable_of
from genie.verdict.model import Suspect

RAIL_LEAF = re.compile(r"(rail[0-9]+)leaf[0-9]+")
ALIKE_SHARE = 0.5  # least slow-down of the parts of a switch or rail, as a share of the largest (logarithms)


class ProbedFault(Struct, frozen=True):
    """A fault of a probe's run.json: see genie/probe/faults.py."""

    kind: str
    words: str
    links: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    size: float = 0.0
    paths: int = 0


def fault_suspects(faults: Sequence[ProbedFault], host_links: Container[str]) -> list[Suspect]:
    """Return one suspect per part of the network and kind of fault; both directions of a cable are one.

    `host_links`: directed links of hosts.
    """
    groups: dict[tuple[str, str], list[ProbedFault]] = defaultdict(list)
    for fault in faults:
        place = cable_of(fault.links[0]) if fault.links else str(fault.ranks)
        groups[fault.kind, place].append(fault)
    return [_suspect(group, host_links) for group in groups.values()]


def _suspect(group: Sequence[ProbedFault], host_links: Container[str]) -> Suspect:
    first = group[0]
    links = tuple(dict.fromkeys(fault.links[0] for fault in group if fault.links))
    name = cable_of(links[0]) if len(links) > 1 else links[0] if links else ""
    direction = "both" if len(links) > 1 else "one way"
    also = list(dict.fromkeys(link for fault in group for link in fault.links[1:]))
    if links and len(first.ranks) == 1 and links[0] in host_links:
        kind, who = "nic", f"rank {first.ranks[0]}: its NIC or link ({name})"
    elif links:
        kind, who = "link", f"link {name}"
    elif len(first.ranks) == 1:
        kind, who, name = "host", f"rank {first.ranks[0]}: its host", f"the host of rank {first.ranks[0]}"
    elif first.ranks:
        kind, who = "link", f"the path from rank {first.ranks[0]} to rank {first.ranks[1]}"
        name = who
    else:
        kind, who, name = "switch", "no switch", "the ECN settings of the switches"
    evidence = f"{who} {_words(group, links)} in probes after the run"
    if first.paths:
        evidence += f"; on {sum(fault.paths for fault in group)} paths"
    return Suspect(
        kind=kind,
        name=name,
        ranks=list(first.ranks),
        score=0.0,
        evidence=evidence,
        also=also,
        direction=direction,
        slow_down=0.0,
        since_iteration=0,
        until_iteration=None,
        hits=[0, 0],
        links=list(links),
        fault=first.kind,
    )


def _words(group: Sequence[ProbedFault], links: Sequence[str]) -> str:
    """Return the predicate of a suspect; figures that differ between its directions each with their link."""
    said = list(dict.fromkeys(fault.words for fault in group))
    if len(said) == 1:
        return said[0] + (" in both directions" if len(links) > 1 else "")
    return ", and ".join(f"{fault.words} on {fault.links[0]}" for fault in group)


def _are_alike(parts: Sequence[Suspect]) -> bool:
    """Whether the slow-downs of several parts may have one cause."""
    sizes = [log1p(each.slow_down) for each in parts]
    return min(sizes) >= ALIKE_SHARE * max(sizes)


def whole_switches(suspects: Sequence[Suspect], cables: Iterable[str]) -> list[Suspect]:
    """Return the suspects, with those of one fault on all cables of a switch as one suspect, the switch.

    `cables`: the directed links between switches.
    """
    of_switch: dict[str, set[str]] = defaultdict(set)
    for link in cables:
        for end in link.split("->"):
            of_switch[end].add(cable_of(link))
    found = list(suspects)
    for switch, own in sorted(of_switch.items()):
        for fault in sorted({each.fault for each in found}):
            parts = [
                each for each in found if each.kind == "link" and each.fault == fault and cable_of(each.name) in own
            ]
            if len(own) < 2 or {cable_of(each.name) for each in parts} != own or not _are_alike(parts):
                continue
            first = parts[0]
            whole = replace(
                first,
                kind="switch",
                name=switch,
                also=list(dict.fromkeys(name for each in parts for name in each.also)),
                evidence=f"switch {switch}, all {len(own)} cables: {first.evidence}",
                doubt=_doubt(parts),
                direction="both",
                links=[link for each in parts for link in each.links],
            )
            found = [whole, *(each for each in found if each not in parts)]
    return found


def whole_rails(suspects: Sequence[Suspect], leaf_of_rank: Mapping[int, str]) -> list[Suspect]:
    """Return the suspects, with those of one fault on all NICs or leaf switches of a rail as one suspect, the rail.

    `leaf_of_rank`: the switch next to each rank. The leaf switches of rail 0 are called rail0leaf0, rail0leaf1, ...
    """
    rails: dict[str, dict[int, str]] = defaultdict(dict)
    for rank, leaf in leaf_of_rank.items():
        if match := RAIL_LEAF.fullmatch(leaf):
            rails[match[1]][rank] = leaf
    found = list(suspects)
    for rail, leaves in sorted(rails.items()) if len(rails) > 1 else ():
        for fault in sorted({each.fault for each in found}):
            parts = [each for each in found if each.fault == fault and _ranks_on(each, leaves)]
            covered = {rank for each in parts for rank in _ranks_on(each, leaves)}
            if len(covered) < max(2, len(leaves)) or not _are_alike(parts):
                continue
            first = parts[0]
            whole = replace(
                first,
                kind="rail",
                name=rail,
                ranks=sorted(covered),
                also=list(dict.fromkeys(name for each in parts for name in each.also)),
                evidence=f"{rail}, all {len(covered)} NICs: {first.evidence}",
                doubt=_doubt(parts),
                links=[link for each in parts for link in each.links],
            )
            found = [whole, *(each for each in found if each not in parts)]
    return found


def _doubt(parts: Sequence[Suspect]) -> str:
    """Return the first doubt about a part: a whole is certain only if all of its parts are."""
    return next((each.doubt for each in parts if each.doubt), "")


def _ranks_on(suspect: Suspect, leaves: Mapping[int, str]) -> set[int]:
    """Return the ranks of a rail that a suspect slows as a whole. `leaves`: the leaf switch of each of them."""
    if suspect.kind == "switch":
        return {rank for rank, leaf in leaves.items() if leaf == suspect.name}
    ranks = set(suspect.ranks)
    return ranks if suspect.kind == "nic" and ranks <= set(leaves) else set()
