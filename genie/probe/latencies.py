"""Latencies of small datagrams: the time of sending is in them, and the receiving kernel adds its timestamp.

Hosts meet in pairs. The least of many trials is the latency of idle hosts and queues. A path that is slow then is asked
again over a longer time. A queue of others' traffic is empty at times, and a link's delay stays. Clocks of two machines
differ: see delays.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from genie.check.probes import FIRST_TIMED, PROBE, SENT, Prober
from genie.check.settings import CheckSettings, Flow, Latency
from genie.live.rendezvous.meeting import Rendezvous

TRIALS = 24
WAIT_S = 0.05  # for a partner's datagrams of one trial
LATE_S = 0.02  # for late datagrams at the end
SPREAD_S, INTERVAL_S = 2.0, 0.002  # a longer time, and the interval between two datagrams of a rank
SPREAD_LATE_S = 0.05


def least_latencies(
    meet: Rendezvous, prober: Prober | None, settings: CheckSettings, partners: Sequence[int | None]
) -> list[Latency]:
    """Return the least latencies of packets to this rank. All ranks call it together, each with a new prober."""
    rounds: list[int] = meet.agree(len(partners) if prober is not None else 0)  # all sockets are open
    if prober is not None:
        prober.send_as(settings.traffic_class)
    for number in range(max(rounds)):
        partner = partners[number] if prober is not None and number < len(partners) else None
        if prober is not None and partner is not None:
            _exchange(prober, partner)
        meet.agree(None)
    if prober is None:
        return []
    prober.drain(LATE_S)
    return [Latency(source, meet.rank, path, min(took)) for (source, path), took in sorted(prober.took_ns.items())]


def _exchange(prober: Prober, partner: int) -> None:
    settings = prober.settings
    wait_s = WAIT_S
    for trial in range(TRIALS):
        # Datagrams of one trial may wait for each other: each path comes first in some trials.
        paths = [(trial + number) % settings.paths for number in range(settings.paths)]
        for path in paths:
            prober.send_one(partner, settings.udp_port, FIRST_TIMED + trial, path, PROBE.size + SENT.size)
        expected = {(partner, FIRST_TIMED + trial, path) for path in paths}
        if prober.receive(expected, wait_s) == expected:
            wait_s = 0.0  # do not wait again for a partner of which nothing arrives
    for path in range(settings.paths):
        prober.hear(path)


def spread_latencies(
    meet: Rendezvous, prober: Prober | None, settings: CheckSettings, flows: Sequence[Flow], at_once: int = 1
) -> dict[Flow, list[int]]:
    """Return the latencies of each flow over SPREAD_S, in ns, on rank 0; {} elsewhere.

    All ranks call it together, each with a new prober and the same flows. Each rank sends on its flows in turn,
    `at_once` of them after each interval.
    """
    if prober is not None:
        prober.send_as(settings.traffic_class)
    meet.agree(None)  # all sockets are open
    if prober is not None:
        _send(prober, settings.udp_port, [flow for flow in flows if flow.source == meet.rank], at_once)
    meet.agree(None)
    plain: list[list[object]] = []
    if prober is not None:
        prober.drain(SPREAD_LATE_S)
        took = prober.took_ns
        mine = [flow for flow in flows if flow.target == meet.rank]
        plain = [[flow.source, flow.target, flow.path, took.get((flow.source, flow.path), [])] for flow in mine]
    everyone = meet.agree(plain)
    return {Flow(*key): took_ns for part in everyone for *key, took_ns in part} if meet.rank == 0 else {}


def with_later(latencies: Sequence[Latency], later: Mapping[Flow, Sequence[int]]) -> list[Latency]:
    """Return the latencies, with the least of both for flows that were asked again. Pure."""
    return [
        Latency(each.source, each.target, each.path, min(each.ns, *again))
        if (again := later.get(Flow(each.source, each.target, each.path)))
        else each
        for each in latencies
    ]


def _send(prober: Prober, udp_port: int, flows: Sequence[Flow], at_once: int) -> None:
    began = time.monotonic()
    for number in range(round(SPREAD_S / INTERVAL_S)):
        for at in range(min(at_once, len(flows))):
            flow = flows[(number * at_once + at) % len(flows)]
            prober.send_one(flow.target, udp_port, FIRST_TIMED + number, flow.path, PROBE.size + SENT.size)
        prober.drain(max(0.0, began + (number + 1) * INTERVAL_S - time.monotonic()))
