"""A rank of a bench of one path, started by the launcher: `python -m genie.bench.rank OUT/launch.json`."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

import genie_core
import msgspec

from genie.bench.pair import (
    Arrivals,
    Bandwidth,
    Latency,
    PairEnd,
    PairEndpointInfo,
    PairSettings,
    bandwidth_of,
    latency_of,
)
from genie.bench.softroce_pair import SoftRocePair
from genie.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, RankError
from genie.live.failure import LauncherError
from genie.live.launch.endings import check_size, heed_signals, launcher_process, leave, reserve, unexpected
from genie.live.parts import FACTS, PARTS
from genie.live.paths.mtu import discover, path_problem
from genie.live.rank.clocks import clock_identity
from genie.live.rank.process import start
from genie.live.rendezvous.channel import PeerError, RendezvousError
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import REAL_TIME_PRIORITY
from genie.live.transport import VERBS, TransportError
from genie.plan.facts import facts_of_build
from genie.record import BENCH, marked_json

SLICE_S = 0.25  # between two checks for alarms
TURN_PS = int(SLICE_S * 1e12)
LINES = f"lines{FACTS}"  # among the parts: the lines so far, for the launcher's display


def make_end(settings: PairSettings, rank: int, *, poll: bool) -> PairEnd:
    """This rank's end, on the transport of the settings. Raises TransportError."""
    if settings.transport_of(rank) == VERBS:
        from genie.bench.verbs_pair import VerbsPair  # imported here, because few ranks have its dependencies

        return VerbsPair(settings, rank, poll=poll)
    return SoftRocePair(settings, rank, poll=poll)


class PairRank:
    """One of the two ranks, from joining to leaving."""

    def __init__(self, settings: PairSettings, rendezvous: Rendezvous) -> None:
        check_size(settings, rendezvous.size)
        self.settings, self.meet, self.rank = settings, rendezvous, rendezvous.rank
        self.begins = self.rank == 0
        self.launcher = launcher_process()
        self.lines: list[Latency | Bandwidth] = []
        self.played = False  # whether any size has been measured

    def set_up(self) -> None:
        """Open the end and connect it. Raises RankError or RendezvousError."""
        settings = self.settings
        boots = self.meet.agree(clock_identity()[0])
        crowded = boots.count(boots[self.rank]) > len(os.sched_getaffinity(0))
        self.poll = settings.poll if settings.poll is not None else not crowded
        problem, code = "", EXIT_ENVIRONMENT
        try:
            self.end = make_end(settings, self.rank, poll=self.poll)
        except TransportError as error:
            problem, code = str(error), error.code
        self._none(problem, code)
        self.mtu_bytes = self._agree_on_mtu()
        try:
            self.end.open(self.mtu_bytes)
        except TransportError as error:
            problem, code = str(error), error.code
        self._none(problem, code)
        endpoints = [
            msgspec.convert(endpoint, PairEndpointInfo)
            for endpoint in self.meet.agree(msgspec.to_builtins(self.end.endpoint_info()))
        ]
        try:
            self.end.connect(endpoints[1 - self.rank])
        except TransportError as error:
            problem, code = str(error), error.code
        self._none(problem, code)
        self.end.expect(self.meet.agree(self.end.ports())[1 - self.rank])
        self.scheduling = genie_core.claim_real_time(REAL_TIME_PRIORITY if settings.real_time and not self.poll else 0)
        (settings.out_path / PARTS / f"{self.rank:05d}{FACTS}").write_text("{}")  # marks this rank as started

    def _agree_on_mtu(self) -> int:
        settings, end = self.settings, self.end
        if not settings.mtu:
            return discover(self.meet, settings, self.rank, end.mtu_max_bytes, over_ip=end.over_ip)
        problem = ""
        if end.over_ip:
            problem = path_problem(settings.addresses, self.rank, settings.udp_port, settings.mtu)
        self._none(problem, EXIT_USAGE)
        return settings.mtu

    def _none(self, problem: str, code: int) -> None:
        problems = [(text, its_code) for text, its_code in self.meet.agree([problem, code]) if text]
        if problems:
            raise RankError(*problems[0], agreed=True)

    # -- measuring -------------------------------------------------------------------------------------------

    def measure(self, size_bytes: int) -> None:
        """Measure one size; rank 0 keeps its line. Raises RankError when it cannot end."""
        own, others_seed = (2 * (self.settings.seed + size_bytes) + rank for rank in (self.rank, 1 - self.rank))
        self.end.fill(size_bytes, own)
        self.end.forget()
        self._together()
        self.played = True
        measured: Any = self._pingpong(size_bytes) if self.settings.test == "pingpong" else self._write(size_bytes)
        wrong = self.end.differs(size_bytes, others_seed)
        (figures, wrong_here), (others, wrong_there) = self._together([measured, wrong])
        if self.settings.test == "pingpong":
            self._keep(latency_of(size_bytes, figures, wrong_here + wrong_there))
        else:
            arrivals = [Arrivals(*each) for each in others]
            messages, queue_pairs = self.settings.rounds, self.settings.queue_pairs
            self._keep(bandwidth_of(size_bytes, messages, figures, arrivals, wrong_there, queue_pairs))

    def _pingpong(self, size_bytes: int) -> list[int]:
        """All round-trip times in ps, at the end that starts.

        The first round trip of each turn wakes the other end, and is left out. Turns are short, so that alarms and
        limits are noticed. The first turn decides the number of round trips in the next.
        """
        settings, peer = self.settings, 1 - self.rank
        times: list[int] = []
        done, rounds, limit = 0, 1, time.monotonic() + settings.limit_s
        while done < settings.rounds:
            rounds = min(self._together(rounds)[0], settings.rounds - done)
            ended, came = self.end.pingpong(size_bytes, rounds + 1, begins=self.begins, limit_s=settings.stall_s)
            what = f"a round trip with rank {peer}" if rounds == 1 else f"{rounds} round trips with rank {peer}"
            self._look(
                size_bytes,
                ended,
                f"{size_bytes} bytes: {what} did not end in {settings.stall_s:g} s: slow paths need more --stall",
            )
            times += came[1:]
            done += rounds
            rounds = max(TURN_PS * len(came) // sum(came), 1) if came else 1
            if self.begins and time.monotonic() > limit and done < settings.rounds:
                self.end.idle()  # acknowledges the last answer, which the other end waits for
                raise RankError(self._too_slow(size_bytes))
        return times

    def _write(self, size_bytes: int) -> Any:
        """The sender's time in ps; at the receiver, the arrivals at each tenth."""
        settings = self.settings
        if self.begins:
            took_ps = self.end.stream(size_bytes, settings.rounds, settings.limit_s)
            if took_ps < 0:
                self._look(size_bytes, False, self._too_slow(size_bytes))
            return took_ps
        marks = sorted({max(settings.rounds * tenth // 10, 1) for tenth in range(1, 11)})
        return [msgspec.structs.astuple(self._served(size_bytes, mark)) for mark in marks]

    def _served(self, size_bytes: int, messages: int) -> Arrivals:
        """Receive until this many messages have arrived. Raises RankError when none arrives for too long."""
        before, heard = -1, time.monotonic()
        while (arrivals := self.end.serve(messages, SLICE_S)).messages < messages:
            now = time.monotonic()
            if arrivals.messages > before:
                before, heard = arrivals.messages, now
            # A message may take long at a low rate; the sender has a limit of its own.
            self._look(size_bytes, now - heard < self.settings.limit_s, self._too_slow(size_bytes))
        return arrivals

    def _look(self, size_bytes: int, ended: bool, problem: str) -> None:
        """Raise RankError for a failure of this rank or another."""
        self.meet.alive()
        alarm = self.meet.alarmed()
        if self.end.error:
            raise RankError(f"{size_bytes} bytes: {self.end.error}")
        if self.launcher is not None and not self.launcher.exists():
            raise LauncherError
        if alarm is not None:
            raise PeerError(alarm)
        if not ended:
            raise RankError(problem)

    def _too_slow(self, size_bytes: int) -> str:
        return f"{size_bytes} bytes: not done in {self.settings.limit_s:g} s: give a smaller -n, or a larger --limit"

    def _together(self, value: Any = None) -> Any:
        return self.meet.agree(value, idle=self.end.idle)

    def _keep(self, line: Latency | Bandwidth) -> None:
        self.lines.append(line)
        if self.begins:
            path = self.settings.out_path / PARTS / LINES
            part = path.with_suffix(".reserve")
            part.write_text(json.dumps([asdict(line) for line in self.lines]))
            part.replace(path)

    # -- leaving ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Rank 0 writes run.json."""
        facts = {
            "rank": self.rank,
            "node": os.uname().nodename,
            "scheduling": self.scheduling,
            "poll": self.poll,
            "counters": self.end.counters(),
        }
        everyone = self._together(facts)
        problem = ""
        if self.begins:
            info = {
                "world": "live",
                "bench": self.settings.test,
                "transport": self.end.name,
                **facts_of_build(),
                "mtu_bytes": self.mtu_bytes,
                "ranks": everyone,
                "settings": msgspec.to_builtins(self.settings),
                "lines": [asdict(line) for line in self.lines],
            }
            try:
                (self.settings.out_path / "run.json").write_text(marked_json(BENCH, info))
            except OSError as error:
                problem = f"{self.settings.out_path / 'run.json'} cannot be written: {error.strerror}"
        self._none(problem, EXIT_ENVIRONMENT)


def run_pair(settings: PairSettings, rendezvous: Rendezvous) -> int:
    """Run one of the two ranks; return its exit code."""
    heed_signals()
    rank: PairRank | None = None
    try:
        reserve(settings, rendezvous.rank)
        rank = PairRank(settings, rendezvous)
        rank.set_up()
        for size_bytes in settings.sizes_bytes:
            rank.measure(size_bytes)
        rank.finish()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, OSError) as error:
        return leave(settings, rendezvous, error, 0 if rank and rank.played else -1)
    except BaseException as error:  # an internal error, which the other rank must hear of
        return leave(settings, rendezvous, unexpected(error), 0 if rank and rank.played else -1)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], PairSettings, run_pair))
