"""One rank of a live run: meet the others, play the graph, leave the records. Imports little, to start fast."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

import genie_core
import msgspec
import numpy as np

from genie.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, RankError
from genie.live.counters.devices import Watched, devices_of, key_of
from genie.live.failure import Cause, ConnectionEndedError, LauncherError
from genie.live.launch.endings import (
    check_size,
    heed_signals,
    launcher_process,
    leave,
    reserve,
    unexpected,
    unwritable_part,
)
from genie.live.parts import CUT, FACTS, LAUNCHED, PARTS
from genie.live.paths.mtu import discover, path_problem
from genie.live.paths.trace import PathTrace
from genie.live.rank.clocks import SHARED_CLOCK, clock_identity, exchange, fit
from genie.live.rank.gather import gather
from genie.live.rank.run_queue import waited_for_core_ns
from genie.live.rank.transports import make_transport
from genie.live.rendezvous.channel import PeerError, RendezvousError
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import REAL_TIME_PRIORITY, RunSettings
from genie.live.transport import ENDED, REFUSED, STALLED, EndpointInfo, Site, TransportContext, TransportError
from genie.plan.build import build_plan
from genie.plan.names import name_nodes
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.graph import Kind, Workload, WorkloadError
from genie.workload.load import load

PS_PER_NS = 1000
SLICE_NS = 250_000_000  # between two checks for alarms while playing
IDLE_NS = 2_000_000  # between two checks for messages while waiting: each takes CPU time from ranks still playing
# From the agreement on an iteration's origin to its start. MPI delivers a message at the second check after its
# sending.
LEAD_NS = 2 * IDLE_NS + 2_000_000
CAUSE_WAIT_S = 2 * SLICE_NS / 1e9  # for a peer's report of why a connection ended: rank 0 passes it on


class Rank:
    """A rank from joining the run to leaving it."""

    def __init__(self, settings: RunSettings, rendezvous: Rendezvous) -> None:
        self.settings = settings
        self.meet = rendezvous
        self.rank = rendezvous.rank
        self.parts: list[bytes] = []
        self.iteration = -1
        self.clock = SHARED_CLOCK
        self.origins_ns: list[int] = []
        self.assumed_offsets_ns: list[float] = []
        self.run_queue_ns: list[int] = []
        self.paths: PathTrace | None = None
        self.launcher = launcher_process()
        check_size(settings, rendezvous.size)

    # -- setup ------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Load the trace, open the transport and connect. Raise RankError, WorkloadError or RendezvousError."""
        settings = self.settings
        self.site = self._find_site()
        # Busy polling pays only with a core for every rank.
        crowded = self.site.neighbours > len(os.sched_getaffinity(0))
        self.spin = settings.spin if settings.spin is not None else not crowded
        with self.meet.busy():  # the sizes of ranks' traces may differ much
            self.workload = self._load()
            self.plan = build_plan(
                self.workload,
                slots=settings.slots,  # type: ignore[arg-type]
                lowering=settings.lowering,
                time_factor=settings.dilation,
            )
        largest = self.meet.agree(self.plan.message_max_bytes, max)
        # No packet need arrive while another rank computes.
        compute_ns: int = self.meet.agree(_compute_ns(self.workload, self.rank), max)
        self.stall_s = settings.stall_s + compute_ns / 1e9
        memory_bytes = max(int(largest), 4096)
        if settings.trace is not None:
            self.paths = PathTrace(settings, self.meet, settings.trace)
        ports = self.paths.learn() if self.paths else {}
        self._open(TransportContext(settings, self.rank, self.site, memory_bytes, self.stall_s, self.spin, ports))
        self._connect()
        self.transport.set_plan(self.plan.native)
        priority = REAL_TIME_PRIORITY if settings.real_time and not self.spin else 0
        self.scheduling = genie_core.claim_real_time(priority)
        self.before = exchange(self.meet, self.remote_clocks)
        if not self.site.shared_clock:
            self.clock = fit(self.before, [])
        self._watch_devices()
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

    def _open(self, context: TransportContext) -> None:
        problem, code = "", EXIT_ENVIRONMENT
        try:
            self.transport = make_transport(context)
        except TransportError as error:
            problem, code = str(error), error.code
        self._none(problem, code)
        mtu_bytes = self._agree_on_mtu()
        self.settings = msgspec.structs.replace(self.settings, mtu=mtu_bytes)  # as the record holds it
        for turn in range(max(self.meet.agree(self.transport.turn)) + 1):
            problem = ""
            if turn == self.transport.turn:
                try:
                    self.transport.open(mtu_bytes)
                except TransportError as error:
                    problem, code = str(error), error.code
            self._none(problem, code)

    def _agree_on_mtu(self) -> int:
        settings = self.settings
        if settings.mtu:
            over_ip = self.transport.over_ip
            problem = path_problem(settings.addresses, self.rank, settings.udp_port, settings.mtu) if over_ip else ""
            self._none(problem, EXIT_USAGE)
            return settings.mtu
        return discover(self.meet, settings, self.rank, self.transport.mtu_max_bytes, over_ip=self.transport.over_ip)

    def _none(self, problem: str, code: int) -> None:
        """Check that no rank has a problem; otherwise all ranks leave: raise RankError with the first problem."""
        problems = [(text, its_code) for text, its_code in self.meet.agree([problem, code]) if text]
        if problems:
            raise RankError(*problems[0], agreed=True)

    def _connect(self) -> None:
        endpoints: list[Any] = self.meet.agree(msgspec.to_builtins(self.transport.endpoint_info()))
        try:
            self.transport.connect([msgspec.convert(endpoint, EndpointInfo) for endpoint in endpoints])
        except TransportError as error:
            raise RankError(str(error), error.code) from error
        self.transport.expect(self.meet.agree(self.transport.ports()))  # the chosen ports that were free

    def _watch_devices(self) -> None:
        mine = devices_of(self.settings.addresses[self.rank], self.transport.rdma_port)
        everyone: list[list[str]] = self.meet.agree([key_of(device) for device in mine])
        self.watched = Watched(self.rank, self.settings.host_names[self.rank], mine, everyone)

    # -- playing ----------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Answer peers for IDLE_NS, while waiting for other ranks. Raise RankError when the transport fails."""
        if self.transport.serve(self.transport.now_ps + IDLE_NS * PS_PER_NS) == "failed":
            raise self._failed()

    def play(self, iteration: int) -> None:
        """Play one iteration; all ranks start it at one origin. Raise RankError when it cannot end."""
        self.iteration = iteration
        lead_ns = LEAD_NS + 50_000 * self.meet.size
        origin_ns = int(self.meet.agree(0, lambda _: time.monotonic_ns() + lead_ns, idle=self.idle))
        offset_ns = self.clock.at_reference(origin_ns)
        origin_ps = (origin_ns + round(offset_ns) - self.transport.epoch_ns) * PS_PER_NS
        self.origins_ns.append(origin_ns)
        self.assumed_offsets_ns.append(offset_ns)
        self.transport.set_faults(iteration, origin_ps)
        before_ns = waited_for_core_ns()
        try:
            state = self.transport.begin(origin_ps)
            while state == "timeout":
                state = self.transport.run(self.transport.now_ps + SLICE_NS * PS_PER_NS)
                if state == "done":
                    self.idle()  # other work of this rank takes cores from ranks that still exchange their last packets
                self.meet.alive()
                alarm = self.meet.alarmed()
                if alarm is not None and state != "failed":
                    raise PeerError(alarm)
                if state != "failed" and self.launcher is not None and not self.launcher.exists():
                    raise LauncherError
            if state == "failed":
                raise self._cause_elsewhere() or self._failed()
            self.run_queue_ns.append(-1 if before_ns < 0 else waited_for_core_ns() - before_ns)
            if wrong := self.transport.counters().get("wrong_bytes", 0):
                raise RankError(f"iteration {iteration}: {wrong} bytes of what arrived are not what was sent")
            # Saving takes CPU time: wait until all have played.
            self.meet.agree(None, idle=self.idle)
        except (RankError, RendezvousError):
            self.save(iteration, cut=True)
            self._leave_facts()  # its counters may tell the cause
            raise
        self.save(iteration)

    def _cause_elsewhere(self) -> PeerError | None:
        """Return the report of a peer that refused a packet of this rank: it names the packet and its sender."""
        alarm, deadline = None, time.monotonic() + CAUSE_WAIT_S
        while self.transport.failure == REFUSED and time.monotonic() < deadline:
            with suppress(RendezvousError):
                alarm = self.meet.alarmed()
            if alarm is not None:
                return PeerError(alarm) if alarm.cause == Cause.CONNECTION else None
            _sleep_a_little()
        return None

    def _failed(self) -> RankError:
        """Return the transport's failure, with the nodes that this rank waits for."""
        waiting = self._named(self.transport.waiting())
        if self.transport.failure == STALLED:
            # The cause may be a link that drops packets silently, which no rank can see.
            check = f"genie check {'--lab' if self.settings.lab else '--hosts'} FILE tries every path for such losses"
            text = f"nothing came for {self.stall_s:.3g} s: {waiting}; where a wait takes longer, give --stall; {check}"
        else:
            text = self._named(self.transport.error) + (f"; waiting: {waiting}" if waiting else "")
        kind = ConnectionEndedError if self.transport.failure == ENDED else RankError
        return kind(f"iteration {self.iteration}: {text}")

    def _named(self, nodes: str) -> str:
        return "; ".join(name_nodes(self.workload, part) for part in nodes.split("; "))

    def save(self, iteration: int, *, cut: bool = False) -> None:
        """Keep the iteration's records, also on disk to outlive this process. `cut`: it was not played to its end."""
        records = self.transport.records()
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
                problem = unwritable_part(self.settings, path, error)
                raise RankError(f"iteration {iteration}: {problem}", problem.code) from error

    def _leave_facts(self) -> None:
        """Write this rank's facts for the record to disk, in case it cannot report them at the end."""
        path = self.settings.out_path / PARTS / f"{self.rank:05d}{FACTS}"
        whole = path.with_name(f"{self.rank:05d}.next{FACTS}")
        with suppress(OSError):
            try:
                whole.write_text(json.dumps(self.facts()))
                whole.replace(path)  # on a full disk the earlier facts stay
            except OSError:
                whole.unlink()
                raise

    # -- leaving ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Compare clocks again and give all records to rank 0, which writes the run folder."""
        after = exchange(self.meet, self.remote_clocks)
        if not self.site.shared_clock:
            self.clock = fit(self.before, after)
        facts, idle = self.facts(), self.idle
        if self.paths:
            self.meet.agree(None, idle=self.idle)  # no rank needs answers any more: the ports may be closed
            self.transport.close()
            idle = _sleep_a_little
            facts["traced"] = self.paths.again(facts["paths"])
        gather(self.settings, self.meet, facts, self.parts, idle)

    def facts(self) -> dict[str, Any]:
        """Return this rank's facts for the record."""
        corrections = [
            round(assumed - self.clock.at_reference(origin))
            for origin, assumed in zip(self.origins_ns, self.assumed_offsets_ns, strict=True)
        ]
        own = self.workload.ranks[self.rank]
        return {
            "rank": self.rank,
            "node": os.uname().nodename,
            "transport": self.transport.name,
            "icrc": self.transport.icrc,
            "scheduling": self.scheduling,
            "spin": self.spin,
            "slots": self.plan.slots,
            "algorithms": self.plan.algorithms,
            "clock_bound_ns": round(self.clock.bound_ns),
            "clock_offset_ns": round(self.clock.offset_ns),
            "corrections_ns": corrections,
            "origins_ns": self.origins_ns,
            "run_queue_ns": self.run_queue_ns,
            "counters": dict(self.transport.counters()),
            "refused_senders": self.transport.refused_senders(),
            "devices": self.watched.counted(),
            "paths": self.transport.paths(),
            "sleeping_nodes": int(np.isin(own.kind, (Kind.COMP, Kind.MEM)).sum()),
        }


def _sleep_a_little() -> None:
    time.sleep(0.0005)


def _compute_ns(workload: Workload, rank: int) -> int:
    """Return a rank's compute time in an iteration, in ns."""
    graph = workload.ranks[rank]
    return int(graph.duration_ns[np.isin(graph.kind, (Kind.COMP, Kind.MEM))].sum())


def run_rank(settings: RunSettings, rendezvous: Rendezvous) -> int:
    """Run one rank to its end and return its exit code."""
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
                report_progress(iteration + 1, total)
        rank.finish()
        if not rank.paths:
            rank.transport.close()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, WorkloadError, OSError) as error:
        return leave(settings, rendezvous, error, rank.iteration if rank else -1)
    except BaseException as error:  # an error of Genie: without word of it the others would wait for this rank
        return leave(settings, rendezvous, unexpected(error), rank.iteration if rank else -1)


def report_progress(done: int, total: int) -> None:
    """Print one line now and then on standard error, for users and logs."""
    every = max(1, total // 10)
    if LAUNCHED in os.environ:
        return
    if done == total or done % every == 0:
        print(f"genie: iteration {done}/{total} played", file=sys.stderr, flush=True)
