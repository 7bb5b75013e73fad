"""Incasts that require congestion control: several hosts send to one at full rate, with ECT set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from genie.check.rate_plans import nears, usual_rate
from genie.check.settings import CheckSettings, Flow, Incast, Observed, Sound, pair_of
from genie.check.streams import Streams
from genie.config.congestion import Dcqcn, plain
from genie.config.units import format_rate

GROUP, INCAST_MIN = 4, 3  # hosts
SENDER_S = 0.12  # duration of each sender's traffic at the line rate
UNDER_WAY_BYTES = 1 << 20  # in flight per sender: more than switches let pass without a mark
SETTLE_S = 0.02  # for the last CNPs


def controlled(settings: CheckSettings) -> CheckSettings:
    """Return the settings of incasts: DCQCN on all hosts except those that a fault plan takes out."""
    return msgspec.structs.replace(settings, congestion=plain(Dcqcn()))


def why_no_incast(settings: CheckSettings, seen: Observed) -> str:
    """Return why an incast would be inconclusive, as a phrase; "" when it is conclusive."""
    if len({own.machine for own in seen.facts}) == 1:
        return "all hosts are this machine, which has no switch"
    if not settings.marks:
        return "the fabric file has no [ecn], so no switch marks packets"
    if settings.rate_bps == 0:
        return "give --rate, or a fabric file, with the line rate that hosts have: an incast must fill a link"
    if len(seen.stations) < INCAST_MIN:
        return f"an incast takes {INCAST_MIN} hosts"
    if seen.rates is not None and not nears(seen.rates.by_flow, settings.rate_bps):
        line, reached = format_rate(settings.rate_bps), usual_rate(seen.rates.by_flow)
        return f"hosts reach {reached / 1e6:,.0f} Mb/s, and do not fill a link of {line}"
    return ""


def incasts_of(stations: Sequence[int], sound: Sound) -> Iterator[list[Incast]]:
    """Yield turns of incasts, in groups of hosts; in each turn another host of a group receives."""
    groups = [list(stations[at : at + GROUP]) for at in range(0, len(stations), GROUP)]
    if len(groups) > 1 and len(groups[-1]) < GROUP - 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    for turn in range(max(map(len, groups), default=0)):
        made = []
        for group in groups:
            if turn < len(group):
                senders = [rank for rank in group if rank != group[turn] and sound.get(pair_of(rank, group[turn]))]
                if len(senders) > 1:
                    made.append(Incast(receiver=group[turn], senders=senders))
        yield made


def measure_incasts(
    streams: Streams, stations: Sequence[int], sound: Sound, is_sound: Callable[[list[Incast]], bool]
) -> list[Incast]:
    """Measure all turns, twice unless the first ones satisfy `is_sound`, and return them.

    All ranks call it together; rank 0 decides.
    """
    found: list[Incast] = []
    for _ in range(2):
        for made in incasts_of(stations, sound):
            found += _turn(streams, made)
        if streams.together(streams.rank == 0 and is_sound(found))[0]:
            break
    return found


def _turn(streams: Streams, made: Sequence[Incast]) -> list[Incast]:
    mine = next((each for each in made if streams.rank in each.senders), None)
    before = streams.counters()
    streams.together()
    rate_bps = 0.0
    if mine is not None:
        size_bytes = streams.size_bytes(SENDER_S)
        limit_s = 8 * SENDER_S * len(mine.senders) + 1.0
        rate_bps = streams.send(Flow(streams.rank, mine.receiver), size_bytes, UNDER_WAY_BYTES, limit_s)
    streams.together()
    if streams.nic is not None:
        streams.nic.poll(SETTLE_S)
    after = streams.counters()
    counted = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTERS}
    everyone: list[Any] = streams.together([counted, rate_bps])
    return [
        Incast(
            receiver=each.receiver,
            senders=each.senders,
            marks=everyone[each.receiver][0]["congestion_marks"],
            cnps_sent=everyone[each.receiver][0]["cnps_sent"],
            cnps_received=[everyone[sender][0]["cnps_received"] for sender in each.senders],
            rates_bps=[everyone[sender][1] for sender in each.senders],
        )
        for each in made
    ]


COUNTERS = ("congestion_marks", "cnps_sent", "cnps_received")
