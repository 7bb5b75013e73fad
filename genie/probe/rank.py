"""A rank of a link probe, started by the launcher: `python -m genie.probe.rank OUT/launch.json`."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import genie_core
import msgspec

from genie.check.congestion import controlled, measure_incasts, why_no_incast
from genie.check.congestion_findings import bleached_pairs, congestion_faults
from genie.check.findings import layout_of
from genie.check.loss_findings import is_hampered, lossy_parts
from genie.check.phases import Phases, write_record
from genie.check.probes import tos_of
from genie.check.rate_plans import sound_pairs
from genie.check.settings import ECT0, Flow, Latency, Observed, Sound, Trace
from genie.check.streams import UNDER_WAY_BYTES, Streams
from genie.live.launch.endings import check_size, run_to_the_end
from genie.live.path_names import Graph, TracePlan
from genie.live.paths.icmp import version_of
from genie.live.paths.mtu import HEADER_BYTES
from genie.live.paths.probe import PathProber, train
from genie.live.rank.process import start
from genie.live.rendezvous.meeting import Rendezvous, decoded
from genie.live.settings import REAL_TIME_PRIORITY
from genie.plan.facts import facts_of_build
from genie.probe.delays import late_flows
from genie.probe.faults import Fault, clocks_of, faults_of, host_links_of
from genie.probe.latencies import least_latencies, spread_latencies, with_later
from genie.probe.plan import PathTest, batches_of, of_nics, planned
from genie.probe.settings import LinkProbeSettings, PathRate
from genie.probe.split import TtlProbes
from genie.probe.waits import Watched, flows_of, unwatched, waits_of, watch_of
from genie.record import PROBE
from genie.record.waits import OF_OTHERS, LinkWaits

LOSS_PACKETS = 8000  # that each host sends, and receives
FLOW_S = 0.1  # duration of a flow at the line rate
ROUNDS_MIN, ROUNDS_MAX, ROUNDS_LIMIT = 3, 9, 60  # measurements of each test; the limit: of unsteady ones
STEADY_SHARE = 0.8  # slow rounds of a slow path
# Slow rounds of a path that is slow at times: of the path, and with those of the other direction of its cables.
UNSTEADY_OWN_MIN, UNSTEADY_MIN = 2, 3
UNSTEADY_TIMES = 1.5  # over the slow rounds of any other cables
PAUSE_MAX_S = 0.3  # before a round, drawn: rounds must not keep step with a fault that comes and goes
LOCATE_TRIES = 8  # of a path that is slow at times
LONGER = 2.0  # time of an answer from behind a queue, over the median
FULL_SHARE = 1.2  # over the time in which a path at its rate sends all that is under way: its queue takes no longer
WATCHED_AT_ONCE = 16  # flows of one host
SLOW_SHARE = 0.91  # of the best path: a slower one is looked at closely
LOCATE_S, QUEUE_S, TRIALS = 0.8, 0.2, 3  # flows that fill a queue, the time until it stands, probes of each router


class LinkProbeRank:
    """One rank from joining the probe to leaving it."""

    def __init__(self, settings: LinkProbeSettings, rendezvous: Rendezvous) -> None:
        check_size(settings, rendezvous.size)
        self.settings, self.meet, self.rank = settings, rendezvous, rendezvous.rank
        # As the ranks of a run: a flow that waits for a core is no slow path.
        self.scheduling = genie_core.claim_real_time(REAL_TIME_PRIORITY if settings.real_time else 0)
        self.graph = Graph(settings.trace or TracePlan())
        self.unwatched: list[str] = []  # of the links that are to be watched for traffic of others, on rank 0

    def probe(self) -> None:
        """Test all paths, measure the rates of the planned flows, and write run.json. Raise RankError."""
        began, settings = time.monotonic(), self.settings
        phases = Phases(settings, self.meet)
        seen = phases.hosts()
        lossy = phases.datagrams(seen)
        phases.traces(seen, lossy)
        phases.collect(seen)
        plain = [[*pair, mtu] for pair, mtu in sound_pairs(seen).items()] if self.rank == 0 else []
        sound = {(one, other): mtu for one, other, mtu in self.meet.agree(plain)[0]}
        self.paths = self._paths_of(seen.probed.traces) if self.rank == 0 else {}
        latencies = self._latencies(phases, seen)
        phases.losses(seen, sound, LOSS_PACKETS)
        left_s = settings.budget_s - (time.monotonic() - began)
        found, counters = self._rates(seen, sound, left_s) if settings.targets else ([], [])
        if settings.incasts and not why_no_incast(settings, seen):
            streams = Streams(self.meet, controlled(settings), seen.stations, sound)
            seen.incasts = measure_incasts(
                streams, seen.stations, sound, lambda made: not any(congestion_faults(made, bleached_pairs(seen)))
            )
            streams.close()
        latencies = self._asked_again(phases, seen, latencies)
        faults = faults_of(settings, seen, self.paths, latencies) if self.rank == 0 else []
        faults = [self._split(fault) for fault in self._agreed(faults)]
        waits = self._waits(phases, seen, found, faults)
        self._write(seen, found, latencies, faults, counters, waits)

    def _waits(
        self, phases: Phases, seen: Observed, found: Sequence[PathRate], faults: Sequence[Fault]
    ) -> list[LinkWaits]:
        """Return the waits of datagrams over suspected, slow and faulty links on rank 0, [] elsewhere."""
        plain: Any = None
        if self.rank == 0:
            slow = {link for test in found if self._is_doubtful(test) for link in test.links}
            faulty = {link for each in faults if each.kind in OF_OTHERS for link in each.links}
            suspected = faulty | set(self.settings.suspected)
            chosen = watch_of(self.paths, suspected | slow, suspected)
            self.unwatched = unwatched(suspected | slow, chosen)
            plain = msgspec.to_builtins(chosen)
        watched = msgspec.convert(self.meet.agree(plain)[0], list[Watched])
        if not watched:
            return []
        flows = flows_of(watched)
        return waits_of(self._spread(phases, seen, flows, min(len(flows), WATCHED_AT_ONCE)), watched)

    def _asked_again(self, phases: Phases, seen: Observed, latencies: Sequence[Latency]) -> list[Latency]:
        """Return the latencies on rank 0, with those of late flows over a longer time; [] elsewhere."""
        late: Any = None
        if self.rank == 0:
            clocks = clocks_of(seen)
            late = msgspec.to_builtins(late_flows(latencies, self.paths, clocks))
        flows = msgspec.convert(self.meet.agree(late)[0], list[Flow])
        return with_later(latencies, self._spread(phases, seen, flows)) if flows else list(latencies)

    def _spread(self, phases: Phases, seen: Observed, flows: Sequence[Flow], at_once: int = 1) -> dict[Flow, list[int]]:
        prober = phases.prober(seen)
        try:
            return spread_latencies(self.meet, prober, self.settings, flows, at_once)
        finally:
            if prober:
                prober.close()

    def _is_doubtful(self, test: PathRate) -> bool:
        return is_slow(test, self.tests) or is_unsteady(test, self.tests)

    def _agreed(self, faults: list[Fault]) -> list[Fault]:
        """Return rank 0's faults on all ranks."""
        return msgspec.convert(self.meet.agree(msgspec.to_builtins(faults))[0], list[Fault])

    def _split(self, fault: Fault) -> Fault:
        """Return the fault with its link first, where probes with small TTLs tell it from the others."""
        chosen: Any = None
        if self.rank == 0 and len(fault.links) > 1:
            chosen = self._across(fault.links)
        chosen = self.meet.agree(chosen)[0]
        if chosen is None:
            return fault
        flow, links = msgspec.convert(chosen[0], Flow), list(chosen[1])
        in_order = [link for link in links if link in fault.links]
        ttls = [links.index(in_order[0]), *(links.index(link) + 1 for link in in_order[:-1])]
        number = -1
        if self.rank == flow.source:
            settings = self.settings
            prober = PathProber(settings.addresses[self.rank], settings.udp_port)
            try:
                to = (settings.addresses[flow.target], settings.probe_ports[flow.path])
                tos = tos_of(settings, ECT0)
                number = TtlProbes(prober, settings.addresses[self.rank], to, tos).first_faulty(fault, ttls)
            finally:
                prober.close()
        number = self.meet.agree(number)[flow.source]
        return fault if number < 0 else msgspec.structs.replace(fault, links=[in_order[number]])

    def _across(self, links: Sequence[str]) -> list[Any] | None:
        """Return a flow that crosses all of these links, and its links; None if there is none."""
        flows = (flow for flow, crossed in self.paths.items() if set(links) <= set(crossed))
        flow = min(flows, key=lambda each: (each.source, each.target, each.path), default=None)
        return None if flow is None else [msgspec.to_builtins(flow), list(self.paths[flow])]

    def _latencies(self, phases: Phases, seen: Observed) -> list[Latency]:
        """Return the least latencies of all paths on rank 0, [] elsewhere."""
        prober = phases.prober(seen)
        try:
            own = least_latencies(self.meet, prober, self.settings, phases.partners)
        finally:
            if prober:
                prober.close()
        self.meet.agree(None)  # all ports are free again
        payloads = self.meet.collect(msgspec.msgpack.encode(own)) or []
        return [each for rank, payload in enumerate(payloads) for each in decoded(rank, payload, list[Latency])]

    def _rates(self, seen: Observed, sound: Sound, budget_s: float) -> tuple[list[PathRate], list[dict[str, int]]]:
        """Return the rates of the planned flows, with the place of the queue on slow paths, and the NICs' counters."""
        streams = Streams(self.meet, self.settings, seen.stations, sound)
        found = self.tests = self._measured(streams, self._planned(seen), budget_s)
        counters = self.meet.agree(streams.counters())
        streams.close()
        return [self._located(test, sound) for test in found], counters

    def _paths_of(self, traces: list[Trace]) -> dict[Flow, tuple[str, ...]]:
        """Return the links of each traced flow."""
        paths = {}
        for each in traces:
            if links := tuple(self.graph.links(each.source, each.target, each.hops)):
                paths[Flow(each.source, each.target, each.path)] = links
        return paths

    def _planned(self, seen: Observed) -> list[list[PathRate]]:
        """Return the tests, in batches, as rank 0 plans them."""
        plain: Any = None
        if self.rank == 0:
            layout = layout_of(self.settings, seen)
            lossy = lossy_parts(seen.tallies, layout)  # their flows are slow for another reason than the links' rates
            slow = set(self.settings.slow_ranks)
            paths = {
                flow: links
                for flow, links in self.paths.items()
                if flow.path < self.settings.stream_paths
                and not {flow.source, flow.target} & slow
                and not is_hampered(flow, lossy, layout)
            }
            between = {link for links in paths.values() for link in links[1:-1]}
            needed, own = self.settings.flows, host_links_of(paths)
            nics = [link for link in self.settings.targets if link in own and needed.get(link, 1) == 1]
            tests = [*planned(paths, set(self.settings.targets) - own.keys(), needed, between), *of_nics(paths, nics)]
            plain = [[self._test(test) for test in batch] for batch in batches_of(tests)]
        return msgspec.convert(self.meet.agree(msgspec.to_builtins(plain))[0], list[list[PathRate]])

    def _test(self, test: PathTest) -> PathRate:
        others = sorted(test.crossed - set(test.links))
        # Acknowledgements leave by the source port of the same number, as the flow in the other direction does.
        back = [list(self.paths.get(_reversed(flow), ())) for flow in test.flows]
        expected_bps = self._expected_bps(len(test.flows))
        return PathRate(list(test.links), list(test.flows), expected_bps, [], others=others, back=back)

    def _expected_bps(self, flows: int) -> float:
        """Return the payload rate of so many hosts at their line rate."""
        mtu_bytes = self.settings.mtu or 4096
        headers = HEADER_BYTES[version_of(self.settings.addresses[0])] + self.settings.frame_overhead_bytes
        return flows * self.settings.rate_bps * mtu_bytes / (mtu_bytes + headers)

    def _measured(self, streams: Streams, batches: list[list[PathRate]], budget_s: float) -> list[PathRate]:
        """Measure all batches in turn, until each has ROUNDS_MAX values or the time is over.

        If a path is slow in some of these rounds only, measure on until the time is over.
        """
        deadline = time.monotonic() + budget_s
        draw = random.Random(self.settings.seed)  # the same on all ranks
        for number in range(ROUNDS_LIMIT):
            time.sleep(draw.uniform(0, PAUSE_MAX_S))
            tests = [test for batch in batches for test in batch]
            if number == ROUNDS_MAX and not any(slow_rounds(test, tests) for test in tests):
                break
            for batch in batches:
                is_late = streams.together(number >= ROUNDS_MIN and time.monotonic() > deadline)
                if any(is_late):
                    return tests
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
        trains: list[list[int]] = []

        def observe() -> None:
            if self.rank == flow.source:
                time.sleep(QUEUE_S)
                times.extend(self._answers(flow, len(links) - 1, TRIALS))

        def observe_often() -> None:
            deadline = time.monotonic() + LOCATE_S
            while self.rank == flow.source and time.monotonic() < deadline:
                trains.append(self._answers(flow, len(links) - 1, 1))

        if is_slow(test, self.tests):
            streams.measure(test.flows, LOCATE_S, observe)
            every = streams.together(times)
            streams.close()
            return msgspec.structs.replace(test, beside=links, hops_ns=every[flow.source])
        found: list[list[int]] = []
        full_ns = round(FULL_SHARE * len(test.flows) * UNDER_WAY_BYTES * 8e9 / test.expected_bps)
        for _ in range(LOCATE_TRIES):
            trains.clear()
            streams.measure(test.flows, LOCATE_S, observe_often)
            found += streams.together(trains)[flow.source]
            if shows_queue([each[-1] for each in found], full_ns):
                break
        streams.close()
        return msgspec.structs.replace(test, beside=links, trains_ns=found, full_ns=full_ns)

    def _observer(self, test: PathRate) -> list[Any] | None:
        """Return a flow of other hosts through the links of a test that is slow, or is slow at times, and its links.

        None for other tests.
        """
        if not self._is_doubtful(test):
            return None
        busy = {rank for each in test.flows for rank in (each.source, each.target)}
        free = (
            flow
            for flow, links in self.paths.items()
            if flow.source not in busy and flow.target not in busy and set(test.links) <= set(links)
        )
        flow = min(free, key=lambda each: (each.source, each.target, each.path), default=None)
        return None if flow is None else [msgspec.to_builtins(flow), list(self.paths[flow])]

    def _answers(self, flow: Flow, routers: int, trials: int) -> list[int]:
        prober = PathProber(self.settings.addresses[self.rank], self.settings.udp_port)
        try:
            to = (self.settings.addresses[flow.target], self.settings.probe_ports[flow.path])
            return train(prober, to, routers, count=0, size_bytes=0, trials=trials)
        finally:
            prober.close()

    def _write(
        self,
        seen: Observed,
        found: list[PathRate],
        latencies: list[Latency],
        faults: list[Fault],
        counters: list[dict[str, int]],
        waits: list[LinkWaits],
    ) -> None:
        info: dict[str, Any] | None = None
        if self.rank == 0:
            info = {
                "world": "live",
                "probe": True,
                **facts_of_build(),
                "settings": msgspec.to_builtins(self.settings),
                "scheduling": self.scheduling,
                "tests": msgspec.to_builtins(found),
                "faults": msgspec.to_builtins(faults),
                "paths": len(self.paths),
                "host_links": host_links_of(self.paths),
                "crossed": sorted({link for links in self.paths.values() for link in links}),
                "observed": msgspec.to_builtins(seen, str_keys=True),
                "latencies": msgspec.to_builtins(latencies),
                "counters": counters,
                "waits": msgspec.to_builtins(waits),
                "unwatched": self.unwatched,
            }
        write_record(self.meet, self.settings, PROBE, info)


def _reversed(flow: Flow) -> Flow:
    return Flow(flow.target, flow.source, flow.path)


def is_slow(test: PathRate, tests: Sequence[PathRate]) -> bool:
    """Whether a path is slower than the best one of all tests in nearly all rounds."""
    return 0 < STEADY_SHARE * len(test.rates_bps) <= len(slow_rounds(test, tests))


def is_unsteady(test: PathRate, tests: Sequence[PathRate]) -> bool:
    """Whether a path is slower than the best one in some rounds, and both directions of its cables more than others."""
    cables = [cables_of(each.links) for each in tests]
    slow = [len(slow_rounds(each, tests)) for each in tests]
    own = cables_of(test.links)
    both = sum(number for number, each in zip(slow, cables, strict=True) if each == own)
    others = max(
        (sum(number for number, each in zip(slow, cables, strict=True) if each == other)
         for other in cables if not own & other),
        default=0,
    )  # fmt: skip
    return len(slow_rounds(test, tests)) >= UNSTEADY_OWN_MIN and both >= max(UNSTEADY_MIN, UNSTEADY_TIMES * others)


def cables_of(links: Sequence[str]) -> frozenset[frozenset[str]]:
    """Return the cables of directed links, each as its two ends."""
    return frozenset(frozenset(link.split("->")) for link in links)


def shows_queue(times_ns: Sequence[int], full_ns: int) -> bool:
    """Whether some trains in a row waited in a queue longer than `full_ns`, and than most.

    `times_ns`: until each train was answered, in order. A host that is busy for a moment delays one train, and a queue
    all trains until it is gone.
    """
    least_ns = max(full_ns, LONGER * median(times_ns)) if times_ns else full_ns
    in_a_row = 0
    for each in times_ns:
        in_a_row = in_a_row + 1 if each > least_ns else 0
        if in_a_row >= TRIALS:
            return True
    return False


def slow_rounds(test: PathRate, tests: Sequence[PathRate]) -> list[int]:
    """Return the rounds in which a path was slower than the best one."""
    return [
        number
        for number, rate_bps in enumerate(test.rates_bps)
        if rate_bps / test.expected_bps
        <= SLOW_SHARE
        * max(each.rates_bps[number] / each.expected_bps for each in tests if number < len(each.rates_bps))
    ]


def run_probe(settings: LinkProbeSettings, rendezvous: Rendezvous) -> int:
    """Run one rank of a probe to its end and return its exit code."""
    return run_to_the_end(settings, rendezvous, lambda: LinkProbeRank(settings, rendezvous).probe())


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], LinkProbeSettings, run_probe))
