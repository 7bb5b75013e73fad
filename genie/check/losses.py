"""Packet loss between each two hosts, counted over many datagrams: probes are too few, and are sent again.

Batches go back and forth, each with one datagram on each path; nothing is sent again. The next batch waits for the
partner's, until no more of it arrives. So no buffer of a slow host, a slow link or a switch overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from genie.check.probes import Prober, tos_of
from genie.check.settings import ECT0, CheckSettings, Sound, Tally, pair_of
from genie.live.paths.mtu import TRANSPORT_BYTES
from genie.live.rendezvous.meeting import Rendezvous

HOST_PACKETS = 2000  # that each host sends, and receives: see loss_findings
FIRST_BATCH = 1 << 16  # number of the first batch, in the datagrams' field `what`: above any path MTU
MTU_MAX = 1024  # bytes: long enough for bit errors; the batches of all hosts at once fit into any buffer
LATE_S = 0.01  # for the rest of a batch, beyond its time on the wire
WAITS_S = (0.05, 0.2, 0.75)  # for a partner that is slow to be scheduled
LAST_S = 0.05  # for late datagrams at the end


def batches_of(hosts: int, paths: int, host_packets: int = HOST_PACKETS) -> int:
    """Return the number of batches between each two of so many hosts."""
    return ceil(host_packets / (paths * max(hosts - 1, 1)))


def count_losses(
    meet: Rendezvous,
    prober: Prober | None,
    settings: CheckSettings,
    partners: Sequence[int | None],
    sound: Sound,
    host_packets: int = HOST_PACKETS,
) -> list[Tally]:
    """Return the losses of packets to this rank, by sender and path, with the number sent.

    All ranks call it together, each with a prober that has received nothing. `sound`: pairs that take part, with their
    path MTU. `host_packets`: that each host sends, and receives.
    """
    rounds: list[int] = meet.agree(len(partners) if prober is not None else 0)
    batches = batches_of(sum(each > 0 for each in rounds), settings.paths, host_packets)
    met = {}
    if prober is not None:
        prober.send_as(tos_of(settings, ECT0))
    for number in range(max(rounds)):
        partner = partners[number] if prober is not None and number < len(partners) else None
        mtu = 0 if partner is None else sound.get(pair_of(meet.rank, partner), 0)
        if prober is not None and partner is not None and mtu:
            met[partner] = mtu
            _exchange(prober, partner, batches, min(mtu, MTU_MAX) + TRANSPORT_BYTES)
        meet.agree(None)  # a partner that is not there yet would look like one that is gone
    if prober is None:
        return []
    prober.drain(LAST_S)
    return [
        Tally(partner, meet.rank, batches, [_lost(prober, partner, path, batches) for path in range(settings.paths)])
        for partner in sorted(met)
    ]


def _exchange(prober: Prober, partner: int, batches: int, size_bytes: int) -> None:
    settings, paths = prober.settings, range(prober.settings.paths)
    on_wire_s = 8 * size_bytes * settings.paths / settings.rate_bps if settings.rate_bps else 0.0
    waits_s: tuple[float, ...] = (LATE_S + 4 * on_wire_s, *WAITS_S)
    for what in range(FIRST_BATCH, FIRST_BATCH + batches):
        for path in paths:
            prober.send_one(partner, settings.udp_port, what, path, size_bytes)
        expected = {(partner, what, path) for path in paths}
        for wait_s in waits_s:
            if (missing := prober.receive(expected, wait_s)) != expected:
                break
        else:
            waits_s = (0.0,)  # do not wait again for a partner that is gone
            continue
        # While datagrams arrive, the rest waits at a slow link: another batch would overflow the queue there.
        while missing and (fewer := prober.receive(missing, waits_s[0])) != missing:
            missing = fewer
    for path in paths:
        prober.hear(path)


def _lost(prober: Prober, partner: int, path: int, batches: int) -> int:
    return sum((partner, FIRST_BATCH + number, path) not in prober.arrived for number in range(batches))
