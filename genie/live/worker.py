"""One rank of a live run: meet the others, play the graph, leave the records. Imports little, to start fast."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genie import _core
from genie.live.clocks import SHARED_CLOCK, ClockFit, Exchange, fit
from genie.live.rendezvous import Rendezvous, RendezvousError
from genie.live.settings import RunSettings
from genie.plan.build import Lowering, build_plan
from genie.plan.names import name_nodes
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.graph import Kind, Workload, WorkloadError
from genie.workload.load import load

PS_PER_NS = 1000
SLICE_NS = 250_000_000  # between two looks for alarms while playing
IDLE_NS = 2_000_000  # between two looks for others while waiting for them: each costs those still playing some CPU
LEAD_NS = 3_000_000  # from the agreement on an iteration's origin until it starts
CLOCK_EXCHANGES = 32
CLOCK_TAG = 4
REAL_TIME_PRIORITY = 10
PARTS = "parts"
LAUNCHED = "GENIE_LAUNCHED"  # set by the launcher, which speaks for all ranks

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ENVIRONMENT = 0, 1, 2, 3


class RankError(Exception):
    """This rank cannot go on: what to print, and the exit code."""

    def __init__(self, text: str, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Site:
    """Where this rank sits among the others."""

    local_rank: int  # among those of its address
    sharers: int  # ranks of its address
    neighbours: int  # ranks of its machine
    shared_clock: bool  # with rank 0


class Rank:
    """A rank between joining and leaving."""

    def __init__(self, settings: RunSettings, rendezvous: Rendezvous) -> None:
        self.settings = settings
        self.meet = rendezvous
        self.rank = rendezvous.rank
        self.parts: list[bytes] = []
        self.iteration = -1
        self.clock = SHARED_CLOCK
        self.origins_ns: list[int] = []
        self.assumed_offsets_ns: list[float] = []
        if rendezvous.size != settings.ranks:
            raise RankError(
                f"the launcher started {rendezvous.size} ranks and the run needs {settings.ranks}: start that many",
                EXIT_USAGE,
            )

    # -- setting up ------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Load, bind, connect. Raises RankError, WorkloadError or RendezvousError."""
        settings = self.settings
        self.site = self._find_site()
        # Busy polling pays only with a core for every rank.
        crowded = self.site.neighbours > len(os.sched_getaffinity(0))
        self.spin = settings.spin if settings.spin is not None else not crowded
        self.workload = self._load()
        self.plan = build_plan(
            self.workload,
            slots=settings.slots,  # type: ignore[arg-type]
            lowering=Lowering(settings.channels, settings.credit, settings.algorithms),
            time_factor=settings.dilation,
        )
        largest = self.meet.agree(self.plan.message_max_bytes, max)
        rkey = random.Random(f"{settings.seed}/{self.rank}/rkey").getrandbits(32)
        self.engine = _core.Engine(self._engine_config(rkey, max(int(largest), 4096)))
        self._open()
        self._connect(rkey)
        self.engine.set_plan(self.plan.native)
        self._static_faults()
        self.engine.keep_trace(settings.keep_trace)
        priority = REAL_TIME_PRIORITY if settings.real_time and not self.spin else 0
        self.scheduling = _core.claim_real_time(priority)
        if not self.site.shared_clock or self.rank == 0:
            self.before = self._exchange_clocks()

    def _find_site(self) -> Site:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        boots: list[str] = self.meet.agree(boot_id)
        address = self.settings.addresses[self.rank]
        same = [rank for rank, other in enumerate(self.settings.addresses) if other == address]
        self.remote_clocks = [rank for rank, boot in enumerate(boots) if boot != boots[0]]
        return Site(same.index(self.rank), len(same), boots.count(boot_id), boot_id == boots[0])

    def _load(self) -> Workload:
        workload = load(self.settings.workload, ranks=[self.rank])
        if self.settings.compute or np.any(workload.ranks[self.rank].duration_ns < 0):
            fill_durations(workload, parse_compute(self.settings.compute) if self.settings.compute else None)
        return workload

    def _engine_config(self, rkey: int, memory_bytes: int) -> _core.EngineConfig:
        settings, k = self.settings, self.settings.dilation
        config = _core.EngineConfig()
        config.rank, config.local_rank = self.rank, self.site.local_rank
        config.ipv4 = ipv4_number(settings.addresses[self.rank])
        config.port = settings.udp_port
        config.shared_port = self.site.sharers > 1
        config.offload = settings.offload
        config.spin = self.spin
        config.rate_bps = settings.rate_bps // k
        config.frame_overhead_bytes = settings.frame_overhead_bytes
        config.rkey = rkey
        config.memory_bytes = memory_bytes
        config.stall_limit_ps = int(settings.stall_s * 1e12) * k
        config.queue_pair = queue_pair_of(settings)
        return config

    def _open(self) -> None:
        # Ranks that share an address join its port one after another: the filter counts them in this order.
        for turn in range(max(self.meet.agree(self.site.local_rank)) + 1):
            problem = ""
            if turn == self.site.local_rank:
                try:
                    self.engine.open()
                except RuntimeError as error:
                    problem = f"rank {self.rank} {error}"
            problems = [text for text in self.meet.agree(problem) if text]
            if problems:
                raise RankError(
                    f"{problems[0]}; is another run using it? (see ss -ulpn), or choose --udp-port", EXIT_ENVIRONMENT
                )

    def _connect(self, rkey: int) -> None:
        size = self.meet.size
        draw = random.Random(f"{self.settings.seed}/{self.rank}/psn")
        psn = [draw.getrandbits(24) for _ in range(size)]
        everyone = self.meet.agree({"local_rank": self.site.local_rank, "rkey": rkey, "psn": psn})
        try:
            self.engine.connect(
                np.array([ipv4_number(address) for address in self.settings.addresses], np.uint32),
                np.array([peer["local_rank"] for peer in everyone], np.int32),
                np.array([peer["rkey"] for peer in everyone], np.uint32),
                np.array([peer["psn"][self.rank] for peer in everyone], np.uint32),
                np.array(psn, np.uint32),
            )
        except RuntimeError as error:
            raise RankError(f"rank {self.rank} {error}", EXIT_ENVIRONMENT) from error

    # -- faults and clocks -----------------------------------------------------------------------------------

    def _static_faults(self) -> None:
        faults, k = self.settings.faults, self.settings.dilation
        for loss in faults.loss:
            if loss.rank == self.rank:
                for peer in range(self.meet.size) if loss.peer is None else [loss.peer]:
                    if peer != self.rank:
                        self.engine.lose(peer, loss.every, [])
        for delay in faults.delay:
            if delay.rank == self.rank and delay.peer != self.rank:
                self.engine.delay_path(delay.peer, int(delay.delay_us * 1e6) * k)

    def _rate_faults(self, iteration: int, origin_ps: int) -> None:
        self.engine.clear_rate_faults()
        for fault in self.settings.faults.rate:
            last = fault.until_iteration
            if fault.rank != self.rank or iteration < fault.from_iteration or (last is not None and iteration >= last):
                continue
            k = self.settings.dilation
            until_ps = (1 << 62) if fault.until_s is None else origin_ps + int(fault.until_s * 1e12) * k
            self.engine.add_rate_fault(origin_ps + int(fault.from_s * 1e12) * k, until_ps, fault.factor)

    def _exchange_clocks(self) -> list[Exchange]:
        """Ping-pongs between rank 0 and each rank that has a clock of its own, one rank after another."""
        exchanges: list[Exchange] = []
        for remote in self.remote_clocks:
            if self.rank not in (0, remote):
                continue
            channel = self.meet.channel
            for _ in range(CLOCK_EXCHANGES):
                if self.rank == 0:
                    self._wait_for(CLOCK_TAG)
                    channel.send(remote, CLOCK_TAG, str(time.monotonic_ns()).encode())
                else:
                    sent = time.monotonic_ns()
                    channel.send(0, CLOCK_TAG, b"")
                    _, payload = self._wait_for(CLOCK_TAG)
                    exchanges.append(Exchange(sent, int(payload), time.monotonic_ns()))
        return exchanges

    def _wait_for(self, tag: int) -> tuple[int, bytes]:
        deadline = time.monotonic() + self.meet.limit_s
        while (message := self.meet.channel.receive(tag)) is None:
            if time.monotonic() > deadline:
                raise RendezvousError(f"rank {self.rank}: no answer while comparing clocks")
        return message

    # -- playing ---------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Serve peers for a moment: what a wait for other ranks does."""
        if self.engine.serve(self.engine.now_ps + IDLE_NS * PS_PER_NS) == "failed":
            raise RankError(self._explain(self.engine.error))

    def play(self, iteration: int) -> None:
        """Play one iteration; all ranks start at one origin. Raises RankError when it cannot end."""
        self.iteration = iteration
        lead_ns = LEAD_NS + 50_000 * self.meet.size
        origin_ns = int(self.meet.agree(0, lambda _: time.monotonic_ns() + lead_ns, idle=self.idle))
        offset_ns = self.clock.at(origin_ns)
        origin_ps = (origin_ns + round(offset_ns) - self.engine.epoch_ns) * PS_PER_NS
        self.origins_ns.append(origin_ns)
        self.assumed_offsets_ns.append(offset_ns)
        self._rate_faults(iteration, origin_ps)
        state = self.engine.begin(origin_ps)
        while state == "timeout":
            state = self.engine.run(self.engine.now_ps + SLICE_NS * PS_PER_NS)
            alarm = self.meet.alarmed()
            if alarm is not None and state != "failed":
                self.save(iteration)
                raise RankError(alarm)
        if state == "failed":
            self.save(iteration)
            raise RankError(self._explain(self.engine.error))
        # Saving takes CPU: not before all have played.
        self.meet.agree(None, idle=self.idle)
        self.save(iteration)

    def _explain(self, problem: str) -> str:
        text = "; ".join(name_nodes(self.workload, part) for part in problem.split("; "))
        if "gave up" not in text and "cannot send" not in text and "disagree" not in text:
            text = f"nothing came for {self.settings.stall_s:.0f} s: {text}"
        waiting = "; ".join(name_nodes(self.workload, part) for part in self.engine.waiting().split("; "))
        if waiting and waiting not in text:
            text += f"; waiting: {waiting}"
        return f"iteration {self.iteration}: {text}"

    def save(self, iteration: int) -> None:
        """Keep the iteration's records, and put them on disk so that they outlive this process."""
        records = self.engine.records()
        arrays = {f"{table}.{name}": values for table, columns in records.items() for name, values in columns.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        self.parts.append(buffer.getvalue())
        path = self.settings.out_path / PARTS / f"{self.rank:05d}-{iteration:05d}.npz"
        try:
            path.write_bytes(buffer.getvalue())
        except OSError as error:
            raise RankError(f"rank {self.rank}: {path} cannot be written: {error.strerror}", EXIT_ENVIRONMENT) from error

    # -- leaving ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Compare clocks again and give everything to rank 0, which writes the run folder."""
        after: list[Exchange] = []
        if not self.site.shared_clock or self.rank == 0:
            after = self._exchange_clocks()
        if not self.site.shared_clock:
            self.clock = fit(self.before, after)
        facts = self.facts()
        everyone = self.meet.agree(facts, idle=self.idle)
        collected = []
        for iteration in range(self.settings.iterations + self.settings.warmup):
            collected.append(self.meet.collect(self.parts[iteration], idle=self.idle))
        problem = ""
        if self.rank == 0:
            from genie.live.merge import write_live_run

            try:
                write_live_run(self.settings, everyone, collected)
            except Exception as error:
                problem = str(error)
        problem = self.meet.agree(problem, idle=self.idle)[0]
        if problem:
            raise RankError(problem, EXIT_ENVIRONMENT)

    def facts(self) -> dict[str, Any]:
        """What the record says about this rank."""
        corrections = [
            round(assumed - self.clock.at(origin))
            for origin, assumed in zip(self.origins_ns, self.assumed_offsets_ns, strict=True)
        ]
        own = self.workload.ranks[self.rank]
        return {
            "rank": self.rank,
            "node": os.uname().nodename,
            "scheduling": self.scheduling,
            "spin": self.spin,
            "slots": self.plan.slots,
            "algorithms": self.plan.algorithms,
            "clock_bound_ns": round(self.clock.bound_ns),
            "clock_offset_ns": round(self.clock.offset_ns),
            "corrections_ns": corrections,
            "origins_ns": self.origins_ns,
            "counters": dict(self.engine.counters()),
            "paths": [self.engine.source_port(peer) for peer in range(self.meet.size)],
            "sleeping_nodes": int(np.isin(own.kind, (Kind.COMP, Kind.MEM)).sum()),
        }


def ipv4_number(address: str) -> int:
    """An IPv4 address as an integer."""
    value = 0
    for part in address.split("."):
        value = value << 8 | int(part)
    return value


def queue_pair_of(settings: RunSettings) -> _core.QueuePairConfig:
    """The settings' transport; dilation stretches its timers."""
    config = _core.QueuePairConfig()
    config.mtu_bytes = settings.mtu
    config.window_packets = settings.window_packets
    config.ack_every_packets = settings.ack_every_packets
    config.ack_timeout_ps = settings.ack_timeout_ns * PS_PER_NS * settings.dilation
    config.retry_limit = settings.retry_limit
    config.rnr_unit_ps = config.rnr_unit_ps * settings.dilation
    return config


def _fail(settings: RunSettings, rank: int, iteration: int, text: str, code: int) -> None:
    record = {"rank": rank, "iteration": iteration, "error": text, "code": code, "time_ns": time.monotonic_ns()}
    try:
        (settings.out_path / PARTS / f"{rank:05d}.failed.json").write_text(json.dumps(record))
    except OSError as error:
        text += f" (and {settings.out}/{PARTS} cannot be written: {error.strerror})"
    if LAUNCHED not in os.environ:
        print(f"genie: rank {rank}: {text}", file=sys.stderr, flush=True)


def run_rank(settings: RunSettings, rendezvous: Rendezvous) -> int:
    """Be one rank of a run; returns its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))
    rank: Rank | None = None
    try:
        (settings.out_path / PARTS).mkdir(parents=True, exist_ok=True)
        rank = Rank(settings, rendezvous)
        rank.set_up()
        total = settings.warmup + settings.iterations
        for iteration in range(total):
            rank.play(iteration)
            if rank.rank == 0:
                report_progress(settings, iteration + 1, total)
        rank.finish()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, WorkloadError, OSError) as error:
        code = error.code if isinstance(error, RankError) else EXIT_USAGE if isinstance(error, WorkloadError) else EXIT_ENVIRONMENT
        if isinstance(error, RendezvousError) and rank is not None and rank.iteration >= 0:
            code = EXIT_FAILED
        _fail(settings, rendezvous.rank, rank.iteration if rank else -1, str(error), code)
        try:
            rendezvous.alarm(f"rank {rendezvous.rank} stopped: {error}")
            time.sleep(0.2)  # let the alarm leave before this process does
        except RendezvousError:
            pass
        sys.stdout.flush()
        os._exit(code)  # MPI's own end would wait for ranks that are gone


def report_progress(settings: RunSettings, done: int, total: int) -> None:
    """One line now and then on standard error, for people and logs."""
    every = max(1, total // 10)
    if LAUNCHED in os.environ:
        return
    if done == total or done % every == 0:
        print(f"genie: iteration {done}/{total} played", file=sys.stderr, flush=True)


__all__ = ["EXIT_ENVIRONMENT", "EXIT_FAILED", "EXIT_OK", "EXIT_USAGE", "ClockFit", "RankError", "run_rank"]
