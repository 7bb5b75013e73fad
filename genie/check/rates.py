"""Measurement of rates: every direction of every pair in rounds, then links between switches.

A round's pairs share the network, so the best round of a host counts. A slow link of its own is slow in every round.
Links between switches are tested by two flows at once, which fill what one host cannot. Slow results are measured again
with no other traffic, those of hosts up to four times, and the best counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from genie.bench.rounds import rounds_of
from genie.check.findings import layout_of
from genie.check.loss_findings import lossy_ends, lossy_parts
from genie.check.rate_plans import doubtful_flows, doubtful_links, link_tests, slow_hosts, slow_share_of
from genie.check.settings import Flow, LinkTest, Observed, Rated, Rates, Sound, pair_of
from genie.check.stations import rails_of
from genie.check.streams import Streams

ROUND_S, ALONE_S = 0.15, 0.2  # duration of the traffic at the line rate
AGAIN_ROUNDS = 4  # of measurements of what looks slow: other work on a machine slows a flow for a second or two


def measure_rates(streams: Streams, seen: Observed, sound: Sound) -> Rates:
    """Return all rates; all ranks call it together. Rank 0 decides, and only it needs `seen`."""
    best: dict[Flow, float] = {}
    paths = streams.settings.stream_paths

    def keep(flows: Sequence[Flow], seconds: float) -> None:
        for rated in streams.measure(flows, seconds):
            best[rated.flow] = max(best.get(rated.flow, 0.0), rated.rate_bps)

    rails = rails_of(seen.stations, seen.facts)
    for pairs in rounds_of(len(seen.stations)):
        met = [pair_of(seen.stations[one], seen.stations[other]) for one, other in pairs]
        # Between rails a packet may arrive over another link of the host than the intended one.
        met = [(one, other) for one, other in met if rails[one] == rails[other]]
        keep([Flow(*way) for pair in met if sound.get(pair) for way in (pair, pair[::-1])], ROUND_S)
    share = slow_share_of(best, streams.settings.rate_bps)
    for _ in range(AGAIN_ROUNDS):
        for flow in _decided(streams, lambda: doubtful_flows(best, share), list[Flow]):
            keep([flow], ALONE_S)
    tests: list[LinkTest] = []

    def planned() -> list[list[LinkTest]]:
        lossy = lossy_ends(lossy_parts(seen.tallies, layout_of(streams.settings, seen)))
        return link_tests(seen, sound, slow_hosts(best, share) | lossy, paths)

    batches = _decided(streams, planned, list[list[LinkTest]])
    for batch in batches:
        tests += _tried(streams, batch)
    for number in _decided(streams, lambda: doubtful_links(tests, share), list[int]):
        tests[number] = max(tests[number], *_tried(streams, [tests[number]]), key=lambda test: test.rate_bps)
    rated = [Rated(flow, best[flow]) for flow in sorted(best, key=msgspec.structs.astuple)]
    return Rates(slow_share=share, pairs=rated, links=tests)


def _decided(streams: Streams, decide: Callable[[], Any], kind: Any) -> Any:
    """Return rank 0's decision, on all ranks."""
    plain = msgspec.to_builtins(decide()) if streams.rank == 0 else None
    return msgspec.convert(streams.together(plain)[0], kind)


def _tried(streams: Streams, batch: Sequence[LinkTest]) -> list[LinkTest]:
    """Run tests at once that share no link; return them with their rates."""
    rated = streams.measure([flow for test in batch for flow in test.flows], ALONE_S)
    rates = {each.flow: each.rate_bps for each in rated}
    return [LinkTest(test.links, test.flows, sum(rates.get(flow, 0.0) for flow in test.flows)) for test in batch]
