"""The twin: a fabric that plays workloads at a level, in the native core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.config.congestion import Hpcc
from genie.config.units import Duration, format_duration
from genie.errors import EXIT_USAGE, GenieError, InputError
from genie.plan.build import Plan, Slots, build_plan
from genie.plan.lowering import Lowering
from genie.plan.names import name_nodes
from genie.record import warn
from genie.workload.graph import Workload
from simtwin.fabric.circuits import circuits_of
from simtwin.fabric.control_values import control_problem
from simtwin.fabric.paths import pinned_paths
from simtwin.fabric.played_paths import Followed, PlayedPaths, follow_paths, played_paths
from simtwin.fabric.queues import queues_of
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Fabric
from simtwin.fabric.specification import Specification
from simtwin.fabric.topology import Network
from simtwin.fabric.transport import line_rate_bps, queue_pair_config
from simtwin.levels.analytic import MESSAGE, CostKeys, CostModel, cost_keys, costs_of
from simtwin.levels.closed_forms import ClosedForms
from simtwin.levels.names import ANALYTIC, FLOW, PACKET, Level
from simtwin.levels.part_times import PartTimes
from simtwin.play.gathered import Gathered
from simtwin.play.recorded_ranks import first_of_each_class, is_large
from simtwin.play.round_trip import base_round_trip_ps, needs_all_routes
from simtwin.play.skipping import IterationSkips, Skipped
from simtwin.play.warnings import warnings_on
from simtwin.play.watching import Stopped, Watch, whole_ns

if TYPE_CHECKING:
    import polars as pl

Simulator: TypeAlias = "genie_core.Simulator | genie_core.FlowSimulator | genie_core.AnalyticSimulator"
Arrivals: TypeAlias = "dict[int, dict[int, NDArray[np.int64]]]"  # iteration -> rank -> (n,) starts in ns


class SimulationError(GenieError):
    """A simulation that cannot start, or that ends with ranks still waiting; the message names them.

    `partial`: the part that was played; None when nothing was.
    """

    def __init__(self, text: str, partial: Simulation | None = None) -> None:
        super().__init__(text)
        self.partial = partial


class LevelError(SimulationError):
    """A fabric or a workload that the level cannot play; the message names the alternative (exit code 2)."""

    code = EXIT_USAGE


class FollowError(InputError):
    """A run that cannot be followed with this workload; the message says why."""


@dataclass(frozen=True)
class Loss:
    """Data packets dropped from one rank to another, retransmissions included.

    `every`: one of every n consecutive packets, at a drawn place that is the same in the live world (0: none).
    `numbers`: the packets with these numbers, from 0.
    """

    source: int
    target: int
    every: int = 0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Analytic:
    model: CostModel
    keys: CostKeys


@dataclass
class Simulation:
    """Results of a run of the kernel."""

    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]
    traces: list[list[tuple[Any, ...]]] = field(default_factory=list)  # per iteration, if requested
    stopped: Stopped | None = None  # before its end; nodes in progress have end_ns -1
    recorded: list[int] | None = None  # ranks in the tables; None: all
    skipped: Skipped | None = None  # None: nothing was to be skipped


class Twin:
    """A fabric ready to play workloads: its network, routes and transport."""

    def __init__(
        self,
        fabric: Fabric,
        network: Network,
        host_of_rank: Sequence[int],
        seed: int = 1,
        threads: int = 1,
        level: Level | str = PACKET,
        model: CostModel | None = None,
    ) -> None:
        """Build the network, routes and transport.

        `model`: costs of level `analytic`, in place of Genie's own closed forms. Raises SimulationError when the fabric
        lacks hosts or the level cannot play it.
        """
        self.fabric = fabric
        self.network = network
        self.seed = seed
        self.model = model
        self.level = Level(level) if isinstance(level, str) else level
        if unplayable := self.level.problem(fabric):
            raise LevelError(f"fabric '{fabric.name}': {unplayable}")
        # In-band telemetry needs a single thread, and so do the levels without packets.
        self.threads = 1 if isinstance(fabric.control, Hpcc) or not self.level.has_packets else threads
        self.host_of_rank = np.array(host_of_rank, np.int32)
        if len(host_of_rank) and max(host_of_rank) >= network.hosts:
            raise SimulationError(
                f"fabric '{fabric.name}' has {network.hosts} hosts, and the workload needs {max(host_of_rank) + 1}: "
                "give a larger fabric or a hosts file that maps ranks to its hosts"
            )
        to = None if needs_all_routes(fabric) else self.host_of_rank
        self.routes = routes = shortest_path_routes(network, to=to)
        queues = queues_of(fabric, network)
        self._specification = Specification.of(fabric, network, queues, routes)
        self._native = self._specification.native()
        if problem := control_problem(fabric, network):
            raise SimulationError(f"fabric '{fabric.name}': {'.'.join(problem[0])}{problem[1]}")
        for warned in (*warnings_on(fabric, network, queues), *self.level.warnings(fabric)):
            warn(f"fabric '{fabric.name}': {warned}")
        base_ps = base_round_trip_ps(fabric, network, routes)
        self._config = queue_pair_config(fabric, line_rate_bps(network), base_ps)

    def follow_paths(self, paths: pl.DataFrame) -> Followed:
        """Pin queue pairs to the paths of another run (its table) where possible; call it before any play."""
        followed = follow_paths(paths, self.fabric, self.network, self.host_of_rank.tolist())
        self._native = self._specification.native(
            (source, target, links, port if len(paths) > 1 else -1)
            for (source, target), paths in followed.pins.items()
            for port, links in enumerate(paths)
        )
        return followed

    def paths_of(self, transfers: pl.DataFrame, seeds: Sequence[int], followed: Followed | None) -> PlayedPaths:
        """Return the paths of the ranks' transfers in iterations of these seeds."""
        import polars as pl

        return played_paths(
            self.fabric,
            self.network,
            self.routes,
            self.host_of_rank.tolist(),
            seeds,
            transfers.filter(pl.col("src") != pl.col("dst")).select("src", "dst").unique().sort("src", "dst").rows(),
            {(source, target): links for source, target, links in pinned_paths(self.fabric, self.network)},
            followed,
            any(change.kind == "routes" for change in self._specification.changes),
        )

    def play(
        self,
        workload: Workload,
        *,
        slots: Slots | None = None,
        lowering: Lowering | None = None,
        iterations: Sequence[int] = (0,),
        arrivals_ns: Arrivals | None = None,
        losses: Sequence[Loss] = (),
        keep_trace: bool = False,
        watch: Watch | None = None,
        skips: bool | None = None,
    ) -> Simulation:
        """Play the workload once per iteration number, each from an idle network and with a seed of its own.

        `arrivals_ns`: iteration -> rank -> (n,) start of every communication node, -1 to leave a node out (`--follow`).
        A run that is followed had the same paths throughout, so that all iterations then share the seed. `watch`
        observes the run, and may stop it. `skips`: whether packets may be skipped; None: as the level says. Raises
        SimulationError when ranks wait for ever.
        """
        if not self.level.has_packets and (losses or keep_trace):
            raise SimulationError(f"level {self.level.name} has no packets to lose or to trace: use level packet")
        plan = None if arrivals_ns else build_plan(workload, slots=slots, lowering=lowering)
        model = self._cost_model(lowering or Lowering()) if self.level.name == ANALYTIC else None
        analytic = None
        watch = watch or Watch()
        if watch.skip_error and self.threads > 1:
            raise ValueError("skip_error needs one thread: threads share out the events of a look as time allows")
        may_skip = self.level.has_packets and (self.level.skips if skips is None else skips)
        gathered = Gathered(
            workload, self.network.links, communication_only=bool(arrivals_ns), no_episodes=watch.no_episodes
        )
        stopped: Stopped | None = None
        for place, iteration in enumerate(iterations):
            if arrivals_ns:
                plan = build_plan(workload, slots=slots, lowering=lowering, release_ns=arrivals_ns[iteration])
            assert plan is not None
            if model is not None and (analytic is None or arrivals_ns):
                analytic = _analytic(workload, plan, model)
            began = time.perf_counter()
            if gathered.recorded is None and is_large(plan):
                gathered.recorded = self._recorded(plan, analytic, watch)
            number = 0 if arrivals_ns else iteration
            skipping = self._skipping(plan, number, watch, gathered.no_episodes) if may_skip else None
            start = partial(self._start, plan, number, losses, keep_trace, analytic, gathered.recorded)
            play = partial(watch.play, iteration=iteration, place=place, iterations=len(iterations))
            simulator, stopped = _play_iteration(iteration, start, play, skipping, watch.begins_again)
            if skipping is not None:
                gathered.add_skips(skipping, iteration)
            wall_s = time.perf_counter() - began
            if stopped is None and not simulator.done:
                stopped = self._failure(workload, simulator, iteration)
            gathered.add(simulator, plan, iteration, wall_s, keeps_trace=keep_trace)
            if stopped:
                break
            del simulator  # its memory is for the next
        if watch.played is not None:
            watch.played(place + 1, gathered.rows)
        simulation = Simulation(
            *gathered.tables(), gathered.counters, gathered.traces, stopped, gathered.recorded, gathered.skipped
        )
        if stopped and stopped.is_failure:
            raise SimulationError(stopped.why, simulation)
        return simulation

    def parts_of(self, workload: Workload, lowering: Lowering) -> PartTimes | None:
        """Return the parts of the workload's collectives; None with costs of another model."""
        if self.model is not None:
            return None
        groups = {group.name: group.ranks for group in workload.groups}
        return PartTimes(
            lowering, groups, lambda: self._closed_forms(lowering), is_analytic=self.level.name == ANALYTIC
        )

    def simulator(
        self, plan: Plan, iteration: int = 0, keeps_records: NDArray[np.bool_] | None = None
    ) -> genie_core.Simulator | genie_core.FlowSimulator:
        """Return the simulator of level `packet` or `flow` with a plan, not started; seeds differ by iteration.

        `keeps_records`: of level packet: (ranks,) whether nodes and messages are recorded; None: all.
        """
        transport = self.fabric.transport
        queue_pairs, split = transport.queue_pairs or 1, transport.split or False
        if self.level.name == FLOW:
            return genie_core.FlowSimulator(
                self._native,
                plan.native,
                self.host_of_rank,
                self.seed + iteration,
                sharing=self.level.sharing,
                mtu_bytes=self._config.mtu_bytes,
                window_packets=self._config.window_packets,
                queue_pairs=queue_pairs,
                split=split,
                **circuits_of(self.fabric),
            )
        return genie_core.Simulator(
            self._native,
            self._config,
            plan.native,
            self.host_of_rank,
            self.seed + iteration,
            queue_pairs=queue_pairs,
            split=split,
            threads=self.threads,
            keeps_records=keeps_records,
        )

    def episodes(
        self,
        plan: Plan,
        *,
        memory_bytes: int | None = None,
        checkpoint_packets: int | None = None,
        free_packets: int | None = None,
    ) -> genie_core.Episodes:
        """Return the episodes of a plan, for the simulators of one iteration.

        Bounds that are None are the core's own. `memory_bytes`: of episodes and checkpoints that are used again, by
        estimates. `checkpoint_packets`: data packets that a forecast plays at a time, and at the least between two
        checkpoints, from which later plays go on. `free_packets`: data packets that may be played in vain in any job; a
        quarter of a larger job's may be.
        """
        transport = self.fabric.transport
        bounds = {
            "memory_bytes": memory_bytes,
            "checkpoint_packets": checkpoint_packets,
            "free_packets": free_packets,
        }
        return genie_core.Episodes(
            self._native,
            self._config,
            plan.native,
            self.host_of_rank,
            queue_pairs=transport.queue_pairs or 1,
            split=transport.split or False,
            **{name: value for name, value in bounds.items() if value is not None},
        )

    def _failure(self, workload: Workload, simulator: Simulator, iteration: int) -> Stopped:
        """Return the end of a simulation that cannot go on, with its reasons."""
        where = ""
        if isinstance(simulator, genie_core.Simulator):
            where = self._deadlock(simulator) + self._dead_links(simulator)
        why = where + _explain(workload, simulator.problems())
        return Stopped(iteration, simulator.now_ps, why, is_failure=True)

    def _deadlock(self, simulator: genie_core.Simulator) -> str:
        """Return the ports that pause each other for ever, as text; "" for none."""
        circle = [self.network.link_names[link] for link in simulator.deadlock()]
        return f"PFC deadlock, each waits for the next to resume: {', '.join(circle)}; " if circle else ""

    def _dead_links(self, simulator: genie_core.Simulator) -> str:
        """Return the failed links on the paths of queue pairs that gave up, as text; "" for none."""
        pinned: dict[int, str] = {}
        for number, (_, _, links) in enumerate(pinned_paths(self.fabric, self.network)):
            path = self.fabric.path[number]
            words = f"the [[path]] from {path.source} to {path.target} is pinned to it"
            pinned |= {link: words for link in links if link not in pinned}
        dead: dict[str, list[str]] = {}
        for link in dict.fromkeys(simulator.dead_links()):
            downs = [it.time_ps for it in self._specification.changes if it.kind == "down" and it.number == link]
            since_ps = max((time_ps for time_ps in downs if time_ps <= simulator.now_ps), default=min(downs))
            since = format_duration(Duration(since_ps))
            why = pinned.get(link, "no other path is left")
            dead.setdefault(why, []).append(f"{self.network.link_names[link]} is down since {since}")
        return "".join(f"{', '.join(links[:3])}, and {why}; " for why, links in list(dead.items())[:3])

    def _start(
        self,
        plan: Plan,
        iteration: int,
        losses: Sequence[Loss],
        keep_trace: bool,
        analytic: _Analytic | None,
        recorded: list[int] | None,
    ) -> Simulator:
        """Return the level's simulator. `recorded`: the ranks that it records; None: all."""
        keeps_records = np.full(len(plan.ranks), recorded is None, np.bool_)
        keeps_records[recorded or []] = True
        if analytic is not None:
            costs_ps, acknowledgements_ps = costs_of(analytic.model, analytic.keys.keys)
            return genie_core.AnalyticSimulator(
                plan.native, analytic.keys.of_binding, costs_ps, acknowledgements_ps, keeps_records
            )
        kernel = self.simulator(plan, iteration, None if recorded is None else keeps_records)
        if isinstance(kernel, genie_core.Simulator):
            for loss in losses:
                kernel.lose(loss.source, loss.target, loss.every, list(loss.numbers))
            kernel.keep_trace(keep_trace)
        return kernel

    def _skipping(self, plan: Plan, number: int, watch: Watch, no_episodes: str) -> IterationSkips:
        """Return the skips of an iteration. It has paths of its own, and so episodes of its own."""
        episodes = None if no_episodes else self.episodes(plan, memory_bytes=watch.skip_memory_bytes)
        return IterationSkips(episodes, no_episodes, watch.skip_error, self.seed + number, watch.stop)

    def _recorded(self, plan: Plan, analytic: _Analytic | None, watch: Watch) -> list[int] | None:
        """Return the ranks of a large plan that are recorded, one of each class; None: all."""
        if analytic is not None:
            return self._last_of_classes(plan, analytic, watch)
        return first_of_each_class(plan) if self.level.has_packets else None

    def _last_of_classes(self, plan: Plan, analytic: _Analytic, watch: Watch) -> list[int]:
        """Return of each class the rank that ends last, the lowest of several: the last of all is among them."""
        simulator = self._start(plan, 0, (), keep_trace=False, analytic=analytic, recorded=[])
        watch.play(simulator, 0)
        ends_ps = simulator.ends_ps()  # type: ignore[union-attr]
        return sorted(int(each.ranks[np.argmax(ends_ps[each.ranks])]) for each in plan.classes)

    def _cost_model(self, lowering: Lowering) -> CostModel:
        if self.model is not None:
            return self.model
        return self._closed_forms(lowering)

    def _closed_forms(self, lowering: Lowering) -> ClosedForms:
        return ClosedForms(self.fabric, self.network, self.routes, self.host_of_rank.tolist(), lowering)


def _play_iteration(
    iteration: int,
    start: Callable[[], Simulator],
    play: Callable[..., Stopped | None],
    skipping: IterationSkips | None,
    begins_again: Callable[[], None] | None,
) -> tuple[Simulator, Stopped | None]:
    """Play an iteration, in a new simulator each time that its episodes ask for one.

    Return the last simulator, and where it stopped before its end. `play` is called with the simulator, and with `run`
    in place of the simulator's own.
    """
    while True:
        simulator = start()
        run = None
        if skipping is not None and isinstance(simulator, genie_core.Simulator):
            run = skipping.attach(simulator)
        stopped = play(simulator, run=run)
        if stopped is None and skipping is not None and skipping.told:
            stopped = Stopped(iteration, whole_ns(simulator.now_ps), skipping.told)
        if skipping is None or not skipping.begins_again(stopped is not None):
            return simulator, stopped
        if begins_again is not None:
            begins_again()


def _analytic(workload: Workload, plan: Plan, model: CostModel) -> _Analytic:
    keys = cost_keys(workload, plan.classes)
    model.prepare(keys.keys)
    if any(key.op == MESSAGE for key in keys.keys):
        warn(f"level {ANALYTIC}: each send takes what it would take alone, whatever else its links carry")
    return _Analytic(model, keys)


def _explain(workload: Workload, problems: list[str]) -> str:
    return "the simulation cannot go on: " + "; ".join(name_nodes(workload, problem) for problem in problems)


def arrivals_of(workload: Workload, timeline: pl.DataFrame) -> Arrivals:
    """Return measured starts of all communication nodes.

    They are iteration -> rank -> (n,), -1 where the rank never reached the node.
    """
    import polars as pl

    comm = timeline.filter(pl.col("kind").is_in(["coll", "send", "recv"]))
    # An iteration without communication is played too.
    arrivals: Arrivals = {number: {} for number in sorted(set(timeline["iteration"]))}
    for (iteration, rank), rows in comm.partition_by("iteration", "rank", as_dict=True).items():
        graph = workload.ranks[rank]
        starts = np.full(len(graph), -1, np.int64)
        ids = rows["node_id"].to_numpy()
        at = np.minimum(np.searchsorted(graph.node_id, ids), max(len(graph) - 1, 0))
        if len(graph) == 0 or (graph.node_id[at] != ids).any():
            raise FollowError(f"the run to follow played a workload other than {workload.name}: rank {rank} differs")
        starts[at] = rows["start_ns"].to_numpy()
        arrivals.setdefault(iteration, {})[rank] = starts
    for ranks in arrivals.values():
        for rank, graph in workload.ranks.items():
            ranks.setdefault(rank, np.full(len(graph), -1, np.int64))
    return arrivals
