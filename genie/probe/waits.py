"""Waits of small datagrams while the job is silent: they show traffic of others.

A slow link has no queue while nothing is sent over it. A datagram that waits there waits behind other traffic. Each
watched flow has a flow beside it that crosses none of the watched links: what delays both is the hosts' load.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from genie.check.probes import FIRST_TIMED, PROBE, SENT, Prober
from genie.check.settings import Flow
from genie.live.rendezvous.meeting import Rendezvous

WATCH_S = 2.0
INTERVAL_S = 0.002  # between two datagrams of a flow
LATE_S = 0.05  # for late datagrams at the end
LINKS_MAX = 8

Links = tuple[str, ...]


class Watched(Struct, frozen=True):
    """A flow over a watched link, and the flow beside it."""

    link: str
    flow: Flow
    beside: Flow


class LinkWaits(Struct, frozen=True):
    """Waits of datagrams over a link, in ns beyond the least latency of their flow."""

    link: str
    waits_ns: list[int]
    beside_ns: list[int]  # of a flow that does not cross the link


def watch_of(paths: Mapping[Flow, Links], links: Collection[str], first: Collection[str] = ()) -> list[Watched]:
    """Return for each of these links a flow over it and one beside it; none for a link without them. Pure.

    `paths`: the links of each flow. `first`: the links to watch if there are more than LINKS_MAX.
    """
    chosen = sorted(links, key=lambda link: (link not in first, link))[:LINKS_MAX]
    flows = sorted(paths, key=lambda each: (each.source, each.target, each.path))
    found = []
    for link in chosen:
        crossing = [flow for flow in flows if link in paths[flow]]
        # As few other watched links as possible, so that what it sees is of this link.
        flow = min(crossing, key=lambda each: len(set(paths[each]) & set(chosen)), default=None)
        clear = [each for each in flows if not set(paths[each]) & set(chosen)]
        if flow is None or not clear:
            continue
        own = paths[flow]
        beside = min(clear, key=lambda each: (len(paths[each]) != len(own), each.source != flow.source))
        found.append(Watched(link, flow, beside))
    return found


def waits_of(
    meet: Rendezvous, prober: Prober | None, udp_port: int, traffic_class: int, watched: Sequence[Watched]
) -> list[LinkWaits]:
    """Send datagrams on all flows for WATCH_S, and return their waits on rank 0; [] elsewhere.

    All ranks call it together, each with a new prober.
    """
    flows = list(dict.fromkeys(flow for each in watched for flow in (each.flow, each.beside)))
    if prober is not None:
        prober.send_as(traffic_class)
    meet.agree(None)  # all sockets are open
    if prober is not None:
        _send(prober, udp_port, [flow for flow in flows if flow.source == meet.rank])
    meet.agree(None)
    took: list[tuple[Flow, list[int]]] = []
    if prober is not None:
        prober.drain(LATE_S)
        took = [(flow, prober.took_ns.get((flow.source, flow.path), [])) for flow in flows if flow.target == meet.rank]
    plain = [[flow.source, flow.target, flow.path, took_ns] for flow, took_ns in took]
    everyone = meet.agree(plain)
    by_flow = {Flow(*key): took_ns for part in everyone for *key, took_ns in part}
    if meet.rank != 0:
        return []
    return [LinkWaits(each.link, _waits(by_flow, each.flow), _waits(by_flow, each.beside)) for each in watched]


def _waits(took_ns: Mapping[Flow, list[int]], flow: Flow) -> list[int]:
    mine = took_ns.get(flow, [])
    return [each - min(mine) for each in mine]


def _send(prober: Prober, udp_port: int, flows: Sequence[Flow]) -> None:
    began = time.monotonic()
    for number in range(round(WATCH_S / INTERVAL_S)):
        for flow in flows:
            prober.send_one(flow.target, udp_port, FIRST_TIMED + number, flow.path, PROBE.size + SENT.size)
        prober.drain(max(0.0, began + (number + 1) * INTERVAL_S - time.monotonic()))
