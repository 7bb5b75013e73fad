"""One message on an idle path by arithmetic: store and forward of each packet at each hop, and the ACKs' way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twin_fabrics import ACK_BYTES, Cable, transmission_ps, wire_bytes


@dataclass(frozen=True)
class Expected:
    first_ps: int  # the first packet has been dealt with by the receiver
    last_ps: int  # the last one
    acked_ps: int  # the sender has dealt with the acknowledgement of the last one


def across(hops: Sequence[tuple[int, int]], ready_ps: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """When each packet arrives at the end of hops (rate, delay), ready at `ready_ps` at the first of them."""
    times = list(ready_ps)
    for rate_bps, delay_ps in hops:
        free = 0
        for at, size in enumerate(sizes):
            free = max(free, times[at]) + transmission_ps(size, rate_bps)
            times[at] = free + delay_ps
    return times


def one_message(
    cables: Sequence[Cable],
    size_bytes: int,
    latencies_ps: tuple[int, int] = (0, 0),
    mtu: int = 4096,
    ack_every_packets: int = 16,
    every_header_bytes: int = 0,
) -> Expected:
    """`latencies_ps`: of a packet at the sending and at the receiving host. The window must hold the message.

    `every_header_bytes`: of what otherwise only the first packet has.
    """
    first, *others = wire_bytes(size_bytes, mtu)
    sizes = [first, *(size + every_header_bytes for size in others)]
    there = [(it.rate_bps, it.delay_ps) for it in cables]
    back = [(it.rate_back_bps, it.delay_ps) for it in reversed(cables)]
    arrivals = [time + latencies_ps[1] for time in across(there, [0] * len(sizes), sizes)]
    asking = [time for at, time in enumerate(arrivals) if (at + 1) % ack_every_packets == 0 or at == len(sizes) - 1]
    # The receiver's port sends one acknowledgement for all that asked while it was busy with the one before.
    sent: list[int] = []
    free = 0
    while asking:
        start = max(free, asking[0])
        sent.append(start)
        free = start + transmission_ps(ACK_BYTES, back[0][0])
        asking = [time for time in asking if time > start]
    acked = across(back, sent, [ACK_BYTES] * len(sent))[-1] + latencies_ps[0]
    return Expected(arrivals[0], arrivals[-1], acked)
