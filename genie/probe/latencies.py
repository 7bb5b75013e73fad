"""The least latency of each path: small datagrams with the time of sending, and the receiving kernel's timestamps.

Hosts meet in pairs. The least of many trials is the latency of idle hosts and queues. Clocks of two machines differ:
see delays.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from genie.check.probes import FIRST_TIMED, PROBE, SENT, Prober
from genie.check.settings import CheckSettings, Latency
from genie.live.rendezvous.meeting import Rendezvous

TRIALS = 24
WAIT_S = 0.05  # for a partner's datagrams of one trial
LATE_S = 0.02  # for late datagrams at the end


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
