"""A rank of a link probe, started by the launcher: `python -m genie.probe.rank OUT/launch.json`."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import msgspec

from genie.check.facts import facts_of
from genie.check.settings import Facts, Flow, Sound, Trace, pair_of
from genie.check.stations import local_pairs, mtu_of, stations_of
from genie.check.streams import Streams
from genie.check.traces import traces_to
from genie.errors import EXIT_ENVIRONMENT, EXIT_OK, RankError
from genie.live.launch.endings import check_size, heed_signals, leave, reserve, unexpected
from genie.live.parts import FACTS, PARTS
from genie.live.path_names import Graph, TracePlan
from genie.live.paths.icmp import version_of
from genie.live.paths.mtu import HEADER_BYTES
from genie.live.paths.probe import PathProber, train
from genie.live.rank.process import start
from genie.live.rendezvous.channel import RendezvousError
from genie.live.rendezvous.meeting import Rendezvous, decoded
from genie.plan.facts import facts_of_build
from genie.probe.plan import PathTest, batches_of, planned
from genie.probe.settings import LinkProbeSettings, PathRate
from genie.record import PROBE, marked_json

FLOW_S = 0.2  # duration of a flow at the line rate
ROUNDS_MIN, ROUNDS_MAX = 3, 9  # measurements of each test
SLOW_SHARE = 0.91  # of the best path: a slower one is looked at closely
LOCATE_S, QUEUE_S, TRIALS = 0.8, 0.2, 3  # flows that fill a queue, the time until it stands, probes of each router


class LinkProbeRank:
    """One rank from joining the probe to leaving it."""

    def __init__(self, settings: LinkProbeSettings, rendezvous: Rendezvous) -> None:
        check_size(settings, rendezvous.size)
        self.settings, self.meet, self.rank = settings, rendezvous, rendezvous.rank
        self.graph = Graph(settings.trace or TracePlan())

    def probe(self) -> None:
        """Trace the paths, measure the rates of the planned flows, and write run.json. Raise RankError."""
        settings = self.settings
        own = msgspec.to_builtins(facts_of(settings, self.rank))
        facts = [msgspec.convert(each, Facts) for each in self.meet.agree(own)]
        stations = stations_of(settings, facts)
        (settings.out_path / PARTS / f"{self.rank:05d}{FACTS}").write_text("{}")  # this rank has begun
        apart = local_pairs(stations, facts)
        peers = [peer for peer in stations if peer != self.rank and (self.rank, peer) not in apart]
        self.meet.agree(None)  # hosts answer a probe to a closed port only: all sockets must be closed
        here = self.rank in stations
        traces = traces_to(settings, self.rank, peers, settings.udp_port, self.meet.alive) if here else []
        payloads = self.meet.collect(msgspec.msgpack.encode(traces))
        every = [each for rank, part in enumerate(payloads or []) for each in decoded(rank, part, list[Trace])]
        sound = {
            pair_of(one, other): min(mtu_of(settings, facts[one], one), mtu_of(settings, facts[other], other))
            for one in stations
            for other in stations
            if one < other and (one, other) not in apart
        }
        streams = Streams(self.meet, settings, stations, sound)
        found = self.tests = self._measured(streams, self._planned(every))
        counters = self.meet.agree(streams.counters())
        streams.close()
        found = [self._located(test, sound) for test in found]
        self._write(found, every, counters)

    def _planned(self, traces: list[Trace]) -> list[list[PathRate]]:
        """Return the tests, in batches, as rank 0 plans them."""
        plain: Any = None
        self.paths: dict[Flow, tuple[str, ...]] = {}
        if self.rank == 0:
            paths = self.paths
            for each in traces:
                links = tuple(self.graph.links(each.source, each.target, each.hops))
                if links and each.path < self.settings.stream_paths:
                    paths[Flow(each.source, each.target, each.path)] = links
            between = {link for links in paths.values() for link in links[1:-1]}
            tests = planned(paths, self.settings.targets, self.settings.flows, between)
            plain = [[self._test(test) for test in batch] for batch in batches_of(tests)]
        return msgspec.convert(self.meet.agree(msgspec.to_builtins(plain))[0], list[list[PathRate]])

    def _test(self, test: PathTest) -> PathRate:
        return PathRate(list(test.links), list(test.flows), self._expected_bps(len(test.flows)), [])

    def _expected_bps(self, flows: int) -> float:
        """Return the payload rate of so many hosts at their line rate."""
        mtu_bytes = self.settings.mtu or 4096
        headers = HEADER_BYTES[version_of(self.settings.addresses[0])] + self.settings.frame_overhead_bytes
        return flows * self.settings.rate_bps * mtu_bytes / (mtu_bytes + headers)

    def _measured(self, streams: Streams, batches: list[list[PathRate]]) -> list[PathRate]:
        """Measure all batches in turn, until each has ROUNDS_MAX values or the time is over."""
        deadline = time.monotonic() + self.settings.budget_s
        for number in range(ROUNDS_MAX):
            for batch in batches:
                is_late = streams.together(number >= ROUNDS_MIN and time.monotonic() > deadline)
                if any(is_late):
                    return [test for each in batches for test in each]
                rated = streams.measure([flow for test in batch for flow in test.flows], FLOW_S)
                rates = {each.flow: each.rate_bps for each in rated}
                for test in batch:
                    test.rates_bps.append(sum(rates.get(flow, 0.0) for flow in test.flows))
        return [test for each in batches for test in each]

    def _located(self, test: PathRate, sound: Sound) -> PathRate:
        """Return a slow test with the answers of the routers on its way while its flows run; others as they are."""
        observer = self.meet.agree(self._observer(test) if self.rank == 0 else None)[0]
        if observer is None:
            return test
        flow, links = msgspec.convert(observer[0], Flow), observer[1]
        taking_part = sorted({rank for each in test.flows for rank in (each.source, each.target)})
        streams = Streams(self.meet, self.settings, taking_part, sound)
        times: list[int] = []

        def observe() -> None:
            if self.rank == flow.source:
                time.sleep(QUEUE_S)
                times.extend(self._answers(flow, len(links) - 1))

        streams.measure(test.flows, LOCATE_S, observe)
        every = streams.together(times)
        streams.close()
        return msgspec.structs.replace(test, beside=links, hops_ns=every[flow.source])

    def _observer(self, test: PathRate) -> list[Any] | None:
        """Return a flow of other hosts through the links of a slow test, and its links; None for a test that is not."""
        best = max(median(each.rates_bps) / each.expected_bps for each in self.tests)
        if median(test.rates_bps) / test.expected_bps > SLOW_SHARE * best:
            return None
        busy = {rank for each in test.flows for rank in (each.source, each.target)}
        free = (
            flow
            for flow, links in self.paths.items()
            if flow.source not in busy and flow.target not in busy and set(test.links) <= set(links)
        )
        flow = min(free, key=lambda each: (each.source, each.target, each.path), default=None)
        return None if flow is None else [msgspec.to_builtins(flow), list(self.paths[flow])]

    def _answers(self, flow: Flow, routers: int) -> list[int]:
        prober = PathProber(self.settings.addresses[self.rank], self.settings.udp_port)
        try:
            to = (self.settings.addresses[flow.target], self.settings.probe_ports[flow.path])
            return train(prober, to, routers, count=0, size_bytes=0, trials=TRIALS)
        finally:
            prober.close()

    def _write(self, found: list[PathRate], traces: list[Trace], counters: list[dict[str, int]]) -> None:
        problem = ""
        if self.rank == 0:
            info = {
                "world": "live",
                "probe": True,
                **facts_of_build(),
                "settings": msgspec.to_builtins(self.settings),
                "tests": msgspec.to_builtins(found),
                "paths": len(traces),
                "counters": counters,
            }
            try:
                (self.settings.out_path / "run.json").write_text(marked_json(PROBE, info))
            except OSError as error:
                problem = f"{self.settings.out_path / 'run.json'} cannot be written: {error.strerror}"
        problem = self.meet.agree(problem)[0]
        if problem:
            raise RankError(problem, EXIT_ENVIRONMENT, agreed=True)


def run_probe(settings: LinkProbeSettings, rendezvous: Rendezvous) -> int:
    """Run one rank of a probe to its end and return its exit code."""
    heed_signals()
    try:
        reserve(settings, rendezvous.rank)
        LinkProbeRank(settings, rendezvous).probe()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, OSError) as error:
        return leave(settings, rendezvous, error, -1)
    except BaseException as error:  # an error of Genie: the other ranks must learn of it
        return leave(settings, rendezvous, unexpected(error), -1)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], LinkProbeSettings, run_probe))
