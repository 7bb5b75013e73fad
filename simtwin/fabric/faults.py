"""Links that fail, slow down and recover, as the packet kernel takes them: changes in the order of time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from simtwin.fabric.network import Network
from simtwin.fabric.routing import Routes, shortest_path_routes
from simtwin.fabric.schema import Fabric, Fault

DOWN = -1  # in place of a rate


class FaultError(Exception):
    """A fault that names nothing in the network, or has impossible values; `key` is a key of the fault's table."""

    def __init__(self, number: int, key: str, words: str) -> None:
        super().__init__(words)
        self.number = number  # of the fault, from 0
        self.key = key


@dataclass(frozen=True)
class Change:
    """A change from `time_ps` on: a link goes down, comes up or changes its rate, or other routes apply."""

    time_ps: int
    kind: str  # down, up, rate, routes
    number: int
    rate_bps: int = 0


def changes_of(fabric: Fabric, network: Network) -> tuple[list[Change], list[Routes]]:
    """Return all changes in the order of time, and the route tables after the first that they refer to.

    Of faults that overlap on a link, the worst holds. Routes leave out a failed link, and take it back, `[routing]
    reroute_delay` after the change. Raises FaultError.
    """
    of_link: dict[int, list[Fault]] = defaultdict(list)
    for number, fault in enumerate(fabric.fault):
        for link in links_of(number, fault, network):
            of_link[link].append(fault)
    times = sorted({int(t) for f in fabric.fault for t in (f.at, f.until) if t is not None})
    changes: list[Change] = []
    numbers: dict[frozenset[int], int] = {frozenset(): 0}
    tables: list[Routes] = []
    known = {link: int(network.rate_bps[link]) for link in of_link}
    down: frozenset[int] = frozenset()
    for time_ps in times:
        for link, faults in sorted(of_link.items()):
            rate_bps = _rate_at(time_ps, faults, int(network.rate_bps[link]))
            before, known[link] = known[link], rate_bps
            if rate_bps == before:
                continue
            if rate_bps == DOWN:
                changes.append(Change(time_ps, "down", link))
                continue
            if before == DOWN:
                changes.append(Change(time_ps, "up", link))
            changes.append(Change(time_ps, "rate", link, rate_bps))
        now_down = frozenset(link for link, rate_bps in known.items() if rate_bps == DOWN)
        if now_down == down:
            continue
        down = now_down
        if down not in numbers:
            numbers[down] = len(numbers)
            tables.append(shortest_path_routes(network, np.isin(np.arange(network.links), list(down))))
        changes.append(Change(time_ps + int(fabric.routing.reroute_delay), "routes", numbers[down]))
    return sorted(changes, key=lambda change: change.time_ps), tables


def check_faults(fabric: Fabric, network: Network) -> None:
    """Raise FaultError for the first impossible fault."""
    for number, fault in enumerate(fabric.fault):
        links_of(number, fault, network)


def _rate_at(time_ps: int, faults: list[Fault], own_bps: int) -> int:
    """Return a link's rate from a time on: the lowest of its faults' rates, or DOWN."""
    rate_bps = own_bps
    for fault in faults:
        if int(fault.at) <= time_ps and (fault.until is None or time_ps < int(fault.until)):
            if fault.rate is None:
                return DOWN
            rate_bps = min(rate_bps, int(fault.rate)) if rate_bps > 0 else int(fault.rate)
    return rate_bps


def links_of(number: int, fault: Fault, network: Network) -> list[int]:
    """Return the directed links that a fault names: one, a cable's two, or all of a switch. Raises FaultError."""
    named = {"link": fault.link, "cable": fault.cable, "switch": fault.switch}
    given = [key for key, value in named.items() if value is not None]
    if len(given) != 1:
        raise FaultError(number, given[1] if given else "at", ": give one of link, cable and switch in each [[fault]]")
    key = given[0]
    if fault.until is not None and fault.until <= fault.at:
        raise FaultError(number, "until", " is not after at: give a later time, or leave it out for a permanent fault")
    names = network.node_names
    if fault.link is not None:
        links = [link for link, name in enumerate(network.link_names) if name == fault.link]
        if not links:
            example = network.link_names[0] if network.links else "host0->switch"
            raise FaultError(number, key, f' = "{fault.link}" is not a link: give one such as "{example}"')
    elif fault.cable is not None:
        ends = set(fault.cable)
        links = [link for link in range(network.links) if {names[n] for n in _ends(network, link)} == ends]
        if not links:
            raise FaultError(number, key, f" = {list(fault.cable)}: no cable joins these two nodes")
    else:
        if fault.switch not in names[network.hosts :]:
            raise FaultError(number, key, f' = "{fault.switch}" is not a switch: give one such as "{names[-1]}"')
        node = names.index(fault.switch)
        links = [link for link in range(network.links) if node in _ends(network, link)]
    if fault.rate is not None:
        if fault.rate == 0:
            raise FaultError(number, "rate", " is unlimited: give the rate that is left, or no rate for a failure")
        for link in links:
            if 0 < network.rate_bps[link] < fault.rate:
                raise FaultError(number, "rate", f" is above that of {network.link_names[link]}: give less")
    return links


def _ends(network: Network, link: int) -> tuple[int, int]:
    return int(network.src_node[link]), int(network.dst_node[link])
