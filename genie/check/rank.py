"""A rank of a check, started by the launcher: `python -m genie.check.rank OUT/launch.json`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import genie_core
import msgspec

from genie.check.congestion import controlled, measure_incasts, why_no_incast
from genie.check.congestion_findings import bleached_pairs, congestion_findings
from genie.check.findings import apart_of, findings_of, unasked
from genie.check.names import Names
from genie.check.phases import Phases, write_record
from genie.check.probes import partners_of
from genie.check.rate_findings import reach_note
from genie.check.rate_plans import sound_pairs
from genie.check.rates import measure_rates
from genie.check.settings import CheckSettings, Observed, Sound
from genie.check.stations import local_pairs, rails_of
from genie.check.streams import Streams
from genie.live.launch.endings import check_size, run_to_the_end
from genie.live.parts import FACTS, PARTS
from genie.live.rank.process import start
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import REAL_TIME_PRIORITY
from genie.live.transport import VERBS
from genie.plan.facts import facts_of_build
from genie.record import CHECK

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
        phases = Phases(self.settings, self.meet)
        self._say("hosts and addresses")
        seen = phases.hosts()
        self.scheduling = genie_core.claim_real_time(REAL_TIME_PRIORITY if self.settings.real_time else 0)
        self._say(f"datagrams between {len(seen.stations)} hosts")
        lossy = phases.datagrams(seen)
        if len(seen.stations) <= TRACED_STATIONS_MAX:
            self._say("traces")
            phases.traces(seen, lossy)
        phases.collect(seen)
        if problem := unasked(seen, Names(self.settings)):
            seen.notes.append(problem)
        if self.rank == 0 and apart_of(self.settings, seen):
            seen.notes.append("nothing arrives between different rails for any host: taken as intended")
        plain = [[*pair, mtu] for pair, mtu in sound_pairs(seen).items()] if self.rank == 0 else []
        sound = {(one, other): mtu for one, other, mtu in self.meet.agree(plain)[0]}
        self._say("losses")
        phases.losses(seen, sound)
        if not self.settings.quick:
            self._traffic(seen, sound)
        self._finish(seen)

    def _traffic(self, seen: Observed, sound: Sound) -> None:
        """Measure rates and incasts between sound pairs, over softroce."""
        settings = self.settings
        if VERBS in settings.kinds:
            seen.notes.append("rates and congestion control were not tried: verbs cannot measure them: see genie bench")
            return
        self._say("rates")
        streams = Streams(self.meet, settings, seen.stations, sound)
        seen.rates = measure_rates(streams, seen, sound)
        streams.close()
        if problem := reach_note(seen.rates, settings.rate_bps):
            seen.notes.append(problem)
        if problem := why_no_incast(settings, seen):
            seen.notes.append(f"congestion control was not tried: {problem}")
            return
        self._say("congestion control")
        streams = Streams(self.meet, controlled(settings), seen.stations, sound)
        names, bleached = Names(settings), bleached_pairs(seen)
        rails = rails_of(seen.stations, seen.facts)
        by_rail = sorted(seen.stations, key=lambda rank: (rails[rank], rank))  # ranks of one host cannot make an incast
        seen.incasts = measure_incasts(
            streams, by_rail, sound, lambda incasts: not any(congestion_findings(incasts, names, bleached))
        )
        streams.close()

    def _say(self, text: str) -> None:
        if self.rank == 0:
            path = self.settings.out_path / PARTS / PROGRESS
            part = path.with_suffix(".reserve")
            part.write_text(json.dumps({"doing": text}))
            part.replace(path)

    def _finish(self, seen: Observed) -> None:
        """Judge, and write run.json, on rank 0. Raise RankError on all ranks when it cannot be written."""
        scheduling = self.meet.agree(self.scheduling)
        info: dict[str, Any] | None = None
        if self.rank == 0:
            count = len(seen.stations)
            info = {
                "world": "live",
                "check": True,
                **facts_of_build(),
                "hosts": machines if (machines := len({own.machine for own in seen.facts})) > 1 else count,
                "pairs": count * (count - 1) // 2 - len(local_pairs(seen.stations, seen.facts)) // 2,
                "rounds": len(partners_of(seen.stations, seen.stations[0])) if seen.stations else 0,
                "took_s": round(time.monotonic() - self.began, 3),
                "scheduling": scheduling,
                "settings": msgspec.to_builtins(self.settings),
                "notes": seen.notes,
                "findings": msgspec.to_builtins(findings_of(self.settings, seen)),
                "observed": msgspec.to_builtins(seen, str_keys=True),
            }
        write_record(self.meet, self.settings, CHECK, info)


def run_check(settings: CheckSettings, rendezvous: Rendezvous) -> int:
    """Run one rank of a check to its end and return its exit code."""
    return run_to_the_end(settings, rendezvous, lambda: CheckRank(settings, rendezvous).check())


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], CheckSettings, run_check))
