"""A rank of a check, started by the launcher: `python -m genie.check.rank OUT/launch.json`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import genie_core
import msgspec

from genie.check.congestion import controlled, measure_incasts, why_no_incast
from genie.check.congestion_findings import bleached_pairs, congestion_findings
from genie.check.facts import facts_of
from genie.check.findings import apart_of, findings_of, unasked
from genie.check.losses import count_losses
from genie.check.names import Names
from genie.check.probes import Prober, merged, partners_of, probe
from genie.check.rate_plans import sound_pairs
from genie.check.rates import measure_rates
from genie.check.settings import CheckSettings, Facts, Observed, Sound, Tally
from genie.check.stations import local_pairs, mtu_of, rails_of, stations_of
from genie.check.streams import Streams
from genie.check.traces import traces_to
from genie.errors import EXIT_ENVIRONMENT, EXIT_OK, RankError
from genie.live.launch.endings import check_size, heed_signals, leave, reserve, unexpected
from genie.live.parts import FACTS, PARTS
from genie.live.rank.process import start
from genie.live.rendezvous.channel import RendezvousError
from genie.live.rendezvous.meeting import Rendezvous, decoded
from genie.live.transport import VERBS
from genie.plan.facts import facts_of_build
from genie.record import CHECK, marked_json

REAL_TIME_PRIORITY = 10
TRACED_STATIONS_MAX = 128  # beyond, traces would take longer than all other phases
PROGRESS = f"progress{FACTS}"  # among the parts: the current phase, for the command that watches


class CheckRank:
    """One rank from joining the check to leaving it."""

    def __init__(self, settings: CheckSettings, rendezvous: Rendezvous) -> None:
        check_size(settings, rendezvous.size)
        self.settings, self.meet, self.rank = settings, rendezvous, rendezvous.rank
        self.began = time.monotonic()

    def check(self) -> None:
        """Run all phases, one after the other. Raise RankError or RendezvousError."""
        self._say("hosts and addresses")
        own = msgspec.to_builtins(facts_of(self.settings, self.rank))
        self.facts = [msgspec.convert(each, Facts) for each in self.meet.agree(own)]
        self.stations = stations_of(self.settings, self.facts)
        mtus = {rank: mtu_of(self.settings, self.facts[rank], rank) for rank in self.stations}
        (self.settings.out_path / PARTS / f"{self.rank:05d}{FACTS}").write_text("{}")  # this rank has begun
        self.scheduling = genie_core.claim_real_time(REAL_TIME_PRIORITY if self.settings.real_time else 0)
        seen = Observed(facts=self.facts, stations=self.stations, mtu_bytes=mtus, probed=merged([]))
        self._say(f"datagrams between {len(self.stations)} hosts")
        prober = self._prober()
        try:
            partners = partners_of(self.stations, self.rank, local_pairs(self.stations, self.facts)) if prober else []
            probed, lossy = probe(self.meet, prober, self.settings, partners, mtus)
        finally:
            if prober:
                prober.close()
        if len(self.stations) <= TRACED_STATIONS_MAX:
            self._say("traces")
            self.meet.agree(None)  # hosts answer a probe to a closed port only: all sockets must be closed
            met = [partner for partner in partners if partner is not None]
            alive = self.meet.alive
            probed.traces = traces_to(self.settings, self.rank, met, self.settings.udp_port, alive)
            for partner in met:
                if partner in lossy:
                    probed.other_traces += traces_to(self.settings, self.rank, [partner], lossy[partner], alive)
            self.meet.agree(None)  # no rank sends any more
        payloads = self.meet.collect(msgspec.msgpack.encode(probed))
        if payloads is not None:
            seen.probed = merged(payloads)
        if problem := unasked(seen, Names(self.settings)):
            seen.notes.append(problem)
        if self.rank == 0 and apart_of(self.settings, seen):
            seen.notes.append("nothing arrives between different rails for any host: taken as intended")
        plain = [[*pair, mtu] for pair, mtu in sound_pairs(seen).items()] if self.rank == 0 else []
        sound = {(one, other): mtu for one, other, mtu in self.meet.agree(plain)[0]}
        self._say("losses")
        seen.tallies = self._tallies(partners, sound)
        if not self.settings.quick:
            self._traffic(seen, sound)
        self._finish(seen)

    def _tallies(self, partners: Sequence[int | None], sound: Sound) -> list[Tally]:
        """Return the packet losses of all ranks on rank 0, [] elsewhere."""
        prober = self._prober()
        try:
            own = count_losses(self.meet, prober, self.settings, partners, sound)
        finally:
            if prober:
                prober.close()
        self.meet.agree(None)  # all ports are free again
        payloads = self.meet.collect(msgspec.msgpack.encode(own)) or []
        return [each for rank, payload in enumerate(payloads) for each in decoded(rank, payload, list[Tally])]

    def _traffic(self, seen: Observed, sound: Sound) -> None:
        """Measure rates and incasts between sound pairs, over softroce."""
        settings = self.settings
        if VERBS in settings.kinds:
            seen.notes.append("rates and congestion control were not tried: verbs cannot measure them: see genie bench")
            return
        self._say("rates")
        streams = Streams(self.meet, settings, self.stations, sound)
        seen.rates = measure_rates(streams, seen, sound)
        streams.close()
        if problem := why_no_incast(settings, seen):
            seen.notes.append(f"congestion control was not tried: {problem}")
            return
        self._say("congestion control")
        streams = Streams(self.meet, controlled(settings), self.stations, sound)
        names, bleached = Names(settings), bleached_pairs(seen)
        rails = rails_of(self.stations, self.facts)
        by_rail = sorted(self.stations, key=lambda rank: (rails[rank], rank))  # ranks of one host cannot make an incast
        seen.incasts = measure_incasts(
            streams, by_rail, sound, lambda incasts: not any(congestion_findings(incasts, names, bleached))
        )
        streams.close()

    def _prober(self) -> Prober | None:
        """Return the sockets of a rank that sends. Raise RankError on all ranks when one cannot open them."""
        prober, problem = None, ""
        if self.rank in self.stations:
            try:
                prober = Prober(self.settings, self.rank)
            except OSError as error:
                where = f"{self.settings.addresses[self.rank]}: {error.strerror}"
                problem = f"rank {self.rank} gets no sockets at {where}; is another run using them? (see ss -ulpn)"
        problems = [text for text in self.meet.agree(problem) if text]
        if problems:
            if prober:
                prober.close()
            raise RankError(problems[0], EXIT_ENVIRONMENT, agreed=True)
        return prober

    def _say(self, text: str) -> None:
        if self.rank == 0:
            path = self.settings.out_path / PARTS / PROGRESS
            part = path.with_suffix(".reserve")
            part.write_text(json.dumps({"doing": text}))
            part.replace(path)

    def _finish(self, seen: Observed) -> None:
        """Judge, and write run.json, on rank 0. Raise RankError on all ranks when it cannot be written."""
        scheduling = self.meet.agree(self.scheduling)
        problem = ""
        if self.rank == 0:
            count = len(self.stations)
            info = {
                "world": "live",
                "check": True,
                **facts_of_build(),
                "hosts": machines if (machines := len({own.machine for own in self.facts})) > 1 else count,
                "pairs": count * (count - 1) // 2 - len(local_pairs(self.stations, self.facts)) // 2,
                "rounds": len(partners_of(self.stations, self.stations[0])) if self.stations else 0,
                "took_s": round(time.monotonic() - self.began, 3),
                "scheduling": scheduling,
                "settings": msgspec.to_builtins(self.settings),
                "notes": seen.notes,
                "findings": msgspec.to_builtins(findings_of(self.settings, seen)),
                "observed": msgspec.to_builtins(seen, str_keys=True),
            }
            try:
                (self.settings.out_path / "run.json").write_text(marked_json(CHECK, info))
            except OSError as error:
                problem = f"{self.settings.out_path / 'run.json'} cannot be written: {error.strerror}"
        problem = self.meet.agree(problem)[0]
        if problem:
            raise RankError(problem, EXIT_ENVIRONMENT, agreed=True)


def run_check(settings: CheckSettings, rendezvous: Rendezvous) -> int:
    """Run one rank of a check to its end and return its exit code."""
    heed_signals()
    try:
        reserve(settings, rendezvous.rank)
        CheckRank(settings, rendezvous).check()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, OSError) as error:
        return leave(settings, rendezvous, error, -1)
    except BaseException as error:  # an error of Genie: the other ranks must learn of it
        return leave(settings, rendezvous, unexpected(error), -1)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], CheckSettings, run_check))
