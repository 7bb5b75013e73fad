"""The tests that all ranks of a check make together, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from genie.check.facts import facts_of
from genie.check.losses import HOST_PACKETS, count_losses
from genie.check.probes import Prober, merged, partners_of, probe
from genie.check.settings import CheckSettings, Facts, Observed, Sound, Tally
from genie.check.stations import local_pairs, mtu_of, stations_of
from genie.check.traces import traces_to
from genie.errors import EXIT_ENVIRONMENT, RankError
from genie.live.parts import FACTS, PARTS
from genie.live.rendezvous.meeting import Rendezvous, decoded
from genie.record import marked_json


def write_record(meet: Rendezvous, settings: CheckSettings, kind: str, info: Mapping[str, Any] | None) -> None:
    """Write run.json on the rank that has its contents. Raise RankError on all ranks when it cannot be written."""
    path, problem = settings.out_path / "run.json", ""
    if info is not None:
        try:
            path.write_text(marked_json(kind, info))
        except OSError as error:
            problem = f"{path} cannot be written: {error.strerror}"
    if problems := [text for text in meet.agree(problem) if text]:
        raise RankError(problems[0], EXIT_ENVIRONMENT, agreed=True)


class Phases:
    """One rank's part of the tests. All ranks call all methods together; each may raise RankError."""

    def __init__(self, settings: CheckSettings, meet: Rendezvous) -> None:
        self.settings, self.meet, self.rank = settings, meet, meet.rank
        self.partners: Sequence[int | None] = ()

    def hosts(self) -> Observed:
        """Exchange the facts of all hosts, and choose the ranks that send and receive."""
        own = msgspec.to_builtins(facts_of(self.settings, self.rank))
        facts = [msgspec.convert(each, Facts) for each in self.meet.agree(own)]
        stations = stations_of(self.settings, facts)
        mtus = {rank: mtu_of(self.settings, facts[rank], rank) for rank in stations}
        (self.settings.out_path / PARTS / f"{self.rank:05d}{FACTS}").write_text("{}")  # this rank has begun
        if self.rank in stations:
            self.partners = partners_of(stations, self.rank, local_pairs(stations, facts))
        return Observed(facts=facts, stations=stations, mtu_bytes=mtus, probed=merged([]))

    def datagrams(self, seen: Observed) -> Mapping[int, int]:
        """Send datagrams of several kinds and sizes on all paths, and keep this rank's observations in `seen`.

        Return, by station to which a probe of this rank was lost, its other UDP port.
        """
        prober = self.prober(seen)
        try:
            seen.probed, lossy = probe(self.meet, prober, self.settings, self.partners, seen.mtu_bytes)
        finally:
            if prober:
                prober.close()
        return lossy

    def traces(self, seen: Observed, lossy: Mapping[int, int]) -> None:
        """Trace all paths of this rank. `lossy`: as datagrams() returns it."""
        self.meet.agree(None)  # hosts answer a probe to a closed port only: all sockets must be closed
        met = [partner for partner in self.partners if partner is not None]
        alive = self.meet.alive
        seen.probed.traces = traces_to(self.settings, self.rank, met, self.settings.udp_port, alive)
        for partner in met:
            if partner in lossy:
                seen.probed.other_traces += traces_to(self.settings, self.rank, [partner], lossy[partner], alive)
        self.meet.agree(None)  # no rank sends any more

    def collect(self, seen: Observed) -> None:
        """On rank 0, put the observations of all ranks into `seen`."""
        payloads = self.meet.collect(msgspec.msgpack.encode(seen.probed))
        if payloads is not None:
            seen.probed = merged(payloads)

    def losses(self, seen: Observed, sound: Sound, host_packets: int = HOST_PACKETS) -> None:
        """Count lost packets; `seen` gets the counts of all ranks on rank 0, [] elsewhere."""
        prober = self.prober(seen)
        try:
            own = count_losses(self.meet, prober, self.settings, self.partners, sound, host_packets)
        finally:
            if prober:
                prober.close()
        self.meet.agree(None)  # all ports are free again
        payloads = self.meet.collect(msgspec.msgpack.encode(own)) or []
        seen.tallies = [each for rank, payload in enumerate(payloads) for each in decoded(rank, payload, list[Tally])]

    def prober(self, seen: Observed) -> Prober | None:
        """Return the sockets of a rank that sends. Raise RankError on all ranks when one cannot open them."""
        prober, problem = None, ""
        if self.rank in seen.stations:
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
