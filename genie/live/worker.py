"""One rank of a live run: meet the others, play the graph, leave the records. Imports little, to start fast."""

from __future__ import annotations

import io
import json
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from genie import _core
from genie.live.clocks import SHARED_CLOCK, clock_identity, exchange, fit
from genie.live.endings import (
    CUT,
    EXIT_ENVIRONMENT,
    EXIT_OK,
    EXIT_USAGE,
    FACTS,
    FREE_SPACE,
    LAUNCHED,
    LAUNCHER_GONE,
    PARTS,
    RankError,
    check_size,
    heed_signals,
    launcher_process,
    leave,
    reserve,
    unexpected,
)
from genie.live.faults import set_path_faults, set_rate_faults
from genie.live.gather import gather
from genie.live.path_mtu import path_problem
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
REAL_TIME_PRIORITY = 10


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
        self.launcher = launcher_process()
        check_size(settings, rendezvous.size)

    # -- setting up ------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Load, bind, connect. Raises RankError, WorkloadError or RendezvousError."""
        settings = self.settings
        self.site = self._find_site()
        # Busy polling pays only with a core for every rank.
        crowded = self.site.neighbours > len(os.sched_getaffinity(0))
        self.spin = settings.spin if settings.spin is not None else not crowded
        with self.meet.busy():  # ranks' traces may differ in size by much
            self.workload = self._load()
            self.plan = build_plan(
                self.workload,
                slots=settings.slots,  # type: ignore[arg-type]
                lowering=Lowering(settings.channels, settings.credit, settings.algorithms),
                time_factor=settings.dilation,
            )
        problem = path_problem(settings.addresses, self.rank, settings.udp_port, settings.mtu)
        self._none(problem, EXIT_USAGE)
        largest = self.meet.agree(self.plan.message_max_bytes, max)
        # Nothing needs to come while another rank computes.
        compute_ns: int = self.meet.agree(_compute_ns(self.workload, self.rank), max)
        self.stall_s = settings.stall_s + compute_ns / 1e9
        rkey = random.Random(f"{settings.seed}/{self.rank}/rkey").getrandbits(32)
        self.engine = _core.Engine(self._engine_config(rkey, max(int(largest), 4096)))
        self._open()
        self._connect(rkey)
        self.engine.set_plan(self.plan.native)
        set_path_faults(self.engine, settings, self.rank)
        self.engine.keep_trace(settings.keep_trace)
        priority = REAL_TIME_PRIORITY if settings.real_time and not self.spin else 0
        self.scheduling = _core.claim_real_time(priority)
        self.before = exchange(self.meet, self.remote_clocks)
        if not self.site.shared_clock:
            self.clock = fit(self.before, [])
        self._leave_facts()

    def _find_site(self) -> Site:
        boot, clock = clock_identity()
        everyone: list[list[str]] = self.meet.agree([boot, clock])
        address = self.settings.addresses[self.rank]
        same = [rank for rank, other in enumerate(self.settings.addresses) if other == address]
        self.remote_clocks = [rank for rank, other in enumerate(everyone) if other != everyone[0]]
        neighbours = sum(other[0] == boot for other in everyone)
        return Site(same.index(self.rank), len(same), neighbours, [boot, clock] == everyone[0])

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
        config.stall_limit_ps = int(self.stall_s * 1e12) * k
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
                    problem = f"rank {self.rank} {error}; is another run using it? (see ss -ulpn), or choose --udp-port"
            self._none(problem, EXIT_ENVIRONMENT)

    def _none(self, problem: str, code: int) -> None:
        """All ranks go on, or all leave with the first problem that one has."""
        problems = [text for text in self.meet.agree(problem) if text]
        if problems:
            raise RankError(problems[0], code, agreed=True)

    def _connect(self, rkey: int) -> None:
        own = {"local_rank": self.site.local_rank, "rkey": rkey, "seed": self.settings.seed}
        everyone = self.meet.agree(own)
        seed, peers = everyone[0]["seed"], range(self.meet.size)
        try:
            self.engine.connect(
                np.array([ipv4_number(address) for address in self.settings.addresses], np.uint32),
                np.array([peer["local_rank"] for peer in everyone], np.int32),
                np.array([peer["rkey"] for peer in everyone], np.uint32),
                np.array([first_psn(seed, peer, self.rank) for peer in peers], np.uint32),
                np.array([first_psn(seed, self.rank, peer) for peer in peers], np.uint32),
            )
        except RuntimeError as error:
            raise RankError(f"rank {self.rank} {error}", EXIT_ENVIRONMENT) from error

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
        offset_ns = self.clock.at_reference(origin_ns)
        origin_ps = (origin_ns + round(offset_ns) - self.engine.epoch_ns) * PS_PER_NS
        self.origins_ns.append(origin_ns)
        self.assumed_offsets_ns.append(offset_ns)
        set_rate_faults(self.engine, self.settings, self.rank, iteration, origin_ps)
        try:
            state = self.engine.begin(origin_ps)
            while state == "timeout":
                state = self.engine.run(self.engine.now_ps + SLICE_NS * PS_PER_NS)
                self.meet.alive()
                alarm = self.meet.alarmed() or self._launcher_gone()
                if alarm is not None and state != "failed":
                    raise RankError(alarm)
            if state == "failed":
                raise RankError(self._explain(self.engine.error))
            # Saving takes CPU: not before all have played.
            self.meet.agree(None, idle=self.idle)
        except (RankError, RendezvousError):
            self.save(iteration, cut=True)
            raise
        self.save(iteration)

    def _launcher_gone(self) -> str | None:
        return None if self.launcher is None or self.launcher.exists() else LAUNCHER_GONE

    def _explain(self, problem: str) -> str:
        text = "; ".join(name_nodes(self.workload, part) for part in problem.split("; "))
        if "gave up" not in text and "cannot send" not in text and "disagree" not in text:
            text = f"nothing came for {self.stall_s:.3g} s: {text}"
        waiting = "; ".join(name_nodes(self.workload, part) for part in self.engine.waiting().split("; "))
        if waiting and waiting not in text:
            text += f"; waiting: {waiting}"
        return f"iteration {self.iteration}: {text}"

    def save(self, iteration: int, *, cut: bool = False) -> None:
        """Keep the iteration's records, and put them on disk to outlive this process. `cut`: it was not played out."""
        records = self.engine.records()
        arrays = {f"{table}.{name}": values for table, columns in records.items() for name, values in columns.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        self.parts.append(buffer.getvalue())
        name = f"{self.rank:05d}-{iteration:05d}{CUT if cut else ''}.npz"
        path = self.settings.out_path / PARTS / name
        try:
            path.write_bytes(buffer.getvalue())
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            if not cut:
                problem = f"iteration {iteration}: {path} cannot be written: {error.strerror}"
                raise RankError(f"{problem}; {FREE_SPACE}", EXIT_ENVIRONMENT) from error

    def _leave_facts(self) -> None:
        """Put on disk what the record says about this rank, in case it cannot say so itself at the end."""
        path = self.settings.out_path / PARTS / f"{self.rank:05d}{FACTS}"
        with suppress(OSError):
            path.write_text(json.dumps(self.facts()))

    # -- leaving ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Compare clocks again and give everything to rank 0, which writes the run folder."""
        after = exchange(self.meet, self.remote_clocks)
        if not self.site.shared_clock:
            self.clock = fit(self.before, after)
        gather(self.settings, self.meet, self.facts(), self.parts, self.idle)

    def facts(self) -> dict[str, Any]:
        """What the record says about this rank."""
        corrections = [
            round(assumed - self.clock.at_reference(origin))
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


def first_psn(seed: int, sender: int, receiver: int) -> int:
    """The packet sequence number that a connection's one direction begins with: both ends draw the same."""
    return random.Random(f"{seed}/{sender}/{receiver}/psn").getrandbits(24)


def queue_pair_of(settings: RunSettings) -> _core.QueuePairConfig:
    """The settings' transport; dilation stretches its timers."""
    config = _core.QueuePairConfig()
    config.mtu_bytes = settings.mtu
    config.window_packets = settings.window_packets
    config.ack_every_packets = settings.ack_every_packets
    config.ack_timeout_ps = settings.ack_timeout_ns * PS_PER_NS * settings.dilation
    config.retry_limit = settings.retry_limit
    config.rnr_retry_limit = settings.rnr_retry_limit
    config.rnr_unit_ps = config.rnr_unit_ps * settings.dilation
    return config


def _compute_ns(workload: Workload, rank: int) -> int:
    """All that a rank computes in an iteration, ns."""
    graph = workload.ranks[rank]
    return int(graph.duration_ns[np.isin(graph.kind, (Kind.COMP, Kind.MEM))].sum())


def run_rank(settings: RunSettings, rendezvous: Rendezvous) -> int:
    """Be one rank of a run; returns its exit code."""
    heed_signals()
    rank: Rank | None = None
    try:
        reserve(settings, rendezvous.rank)
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
        return leave(settings, rendezvous, error, rank.iteration if rank else -1)
    except Exception as error:  # a fault of ours: the others must hear of it, or they would wait for this rank
        return leave(settings, rendezvous, unexpected(error), rank.iteration if rank else -1)


def report_progress(settings: RunSettings, done: int, total: int) -> None:
    """One line now and then on standard error, for people and logs."""
    every = max(1, total // 10)
    if LAUNCHED in os.environ:
        return
    if done == total or done % every == 0:
        print(f"genie: iteration {done}/{total} played", file=sys.stderr, flush=True)
