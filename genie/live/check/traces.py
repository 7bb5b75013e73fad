"""Where paths lead: datagrams whose time to live ends on the way, and the routers that say so."""

from __future__ import annotations

import select
import socket
import time

from genie.live.check.probes import PROBE, Prober
from genie.live.check.settings import TRACED, Trace

HOPS_MAX = 8
WAIT_S = 0.08
IPV6_UNICAST_HOPS = 16
TIME_EXCEEDED, TIME_EXCEEDED_6 = 11, 3  # types of ICMP and ICMPv6
DEFAULT_HOPS = 64


def trace(prober: Prober, target: int, port: int) -> list[Trace]:
    """The routers on each path to a UDP port of a host. A path ends where none answers any more."""
    count = prober.settings.paths
    hops: list[list[str]] = [[] for _ in range(count)]
    going = set(range(count))
    for path in range(count):
        prober.set_tos(path, 0)
        prober.hear(path)
    for hop in range(1, HOPS_MAX + 1):
        for path in going:
            _set_hops(prober, path, hop)
            prober.send_one(target, port, TRACED, path, PROBE.size)
        answered = _answers(prober, target, going)
        if not answered:
            break
        for path in going:
            hops[path].append(answered.get(path, ""))
    for path in range(count):
        _set_hops(prober, path, DEFAULT_HOPS)
        while hops[path] and not hops[path][-1]:
            hops[path].pop()
    return [Trace(prober.rank, target, path, each) for path, each in enumerate(hops) if each]


def _answers(prober: Prober, target: int, paths: set[int]) -> dict[int, str]:
    """By path: who says that a datagram's time has ended. One time limit for all, shorter once some have answered."""
    found: dict[int, str] = {}
    kind = TIME_EXCEEDED_6 if prober.v6 else TIME_EXCEEDED
    deadline = time.monotonic() + WAIT_S
    poll = select.poll()  # errors only: the queue of answers is one
    numbers = {prober.senders[path].fileno(): path for path in paths}
    for number in numbers:
        poll.register(number, 0)
    while len(found) < len(paths) and (left := deadline - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            path = numbers[number]
            for answer in prober.answers(path):
                if answer.target == target and answer.kind == kind and answer.by:
                    found.setdefault(path, answer.by)
                else:
                    prober.refusals.add(answer)
    return found


def _set_hops(prober: Prober, path: int, hops: int) -> None:
    if prober.v6:
        prober.senders[path].setsockopt(socket.IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops)
    else:
        prober.senders[path].setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
