"""Drawn simulations that level `packet+skip` must play to the same bits as level `packet`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import genie_core
import numpy as np

from genie.collectives.nccl.shape import NcclShape
from genie.collectives.nccl.tuning import Server
from genie.config.congestion import CONTROLS, Hpcc, name_of
from genie.config.units import Duration, Rate, Size
from genie.plan.build import Plan, build_plan
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from simtwin.fabric.schema import (
    Domain,
    Ecn,
    Fabric,
    FatTree,
    Fault,
    Host,
    LeafSpine,
    Link,
    Nic,
    Pfc,
    Priority,
    RailOptimized,
    SingleSwitch,
    Switch,
    Topology,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin
from simtwin.play.watching import Watch

GBPS, KIB, MIB, NS, US = 10**9, 1 << 10, 1 << 20, 10**3, 10**6
OPERATIONS = (Op.ALL_REDUCE, Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER, Op.BROADCAST, Op.ALL_TO_ALL)
FREE_PACKETS = 1 << 22  # of small jobs whose episodes are tested: they are played apart though it gains nothing
RUN_EVENTS = 50_000


@dataclass(frozen=True)
class SkipCase:
    """A fabric with a job; `name` says what was drawn."""

    name: str
    fabric: Fabric
    workload: Workload
    lowering: Lowering
    threads: int
    stops_ps: tuple[int, ...]  # times to which a run comes, as sampling does
    beside: str = ""  # GPUs, HPCC or a link change that was drawn apart from the rest
    iterations: int = 1  # several are played as `genie simulate -n` plays them, without stops
    memory_bytes: int | None = None  # of episodes that are known; None: as `genie simulate`


@dataclass(frozen=True)
class Played:
    """Results of a simulation: everything that must be the same, and what was skipped of it."""

    bits: dict[str, Any]
    marked: int
    packets: int
    skipped: int  # packets
    episodes: int = 0  # that took the place of packets
    unusable: str = ""  # why there were none
    continued: int = 0  # plays that went on where they had stopped
    resumed: int = 0  # plays that went on from a checkpoint
    joined: int = 0  # of these, from several parts


def draw_case(seed: int, size_factor: int = 1) -> SkipCase:
    """Draw a case; the same for the same seed. `size_factor`: multiplies the sizes of all collectives."""
    draw = random.Random(seed)
    topologies: list[tuple[Topology, int, int]] = [
        (SingleSwitch(hosts=6), 6, 1),
        (LeafSpine(leaves=4, spines=2, hosts_per_leaf=2), 8, 1),
        (FatTree(k=4), 16, 1),
        (RailOptimized(servers=4, rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25 * NS))), 8, 2),
    ]
    topology, hosts, server = draw.choice(topologies)
    control = draw.choice([kind for kind in CONTROLS.values() if kind is not Hpcc])()
    has_pfc, marks_early = draw.random() < 0.5, draw.random() < 0.25
    pfc = Pfc() if has_pfc else None
    delay_ps = draw.choice([200 * NS, 500 * NS, 2 * US])
    faults, fault = _draw_fault(seed, topology, draw)
    latency_ps = draw.choice([0, 0, 700 * NS])
    link = Link(Rate(draw.choice([100, 400]) * GBPS), Duration(delay_ps))
    control = _drawn_hpcc(seed, link.rate) or control
    fabric = Fabric(
        topology=topology,
        link=link,
        transport=Transport(
            ack_every_packets=draw.choice([1, 16]),
            queue_pairs=draw.choice([1, 1, 2]),
            split=draw.choice([True, False]),
        ),
        congestion=control,
        switch=Switch(shared_buffer=Size(draw.choice([6, 64]) * MIB) if has_pfc else None),
        ecn=Ecn(minimum=Size((20 if marks_early else 4000) * KIB), maximum=Size(8000 * KIB), probability=0.3),
        pfc=pfc,
        priority=Priority(data=3, control=draw.choice([3, 6])),
        host=Host(Duration(latency_ps), Duration(draw.choice([0, 300 * NS])), Duration(draw.choice([0, 100 * NS]))),
        nic=Nic(message_time=Duration(draw.choice([0, 0, 150 * NS]))),
        fault=faults,
    )
    op, count = draw.choice(OPERATIONS), draw.choice([1, 1, 2])
    size_bytes = draw.choice([16, 64, 128, 256]) * size_factor * MIB // (hosts if op is Op.ALL_GATHER else 1)
    skew_ns = draw.choice([0, 0, 1, 5000])
    workload = _job(op, hosts, size_bytes, count, [draw.randrange(skew_ns + 1) for _ in range(hosts)])
    if draw.random() < 0.6:
        gpus = drawn_gpus(seed)
        shape = NcclShape(ranks_per_node=server, buffer_bytes=draw.choice([256 * KIB, 1 * MIB]), server=gpus)
        lowering, wire = Lowering(nccl=shape), "nccl" if gpus is None else f"nccl on {gpus.gpu}"
    else:
        credit, channels = draw.choice([True, False]), draw.choice([1, 2])
        lowering, wire = Lowering(channels=channels, credit=credit), f"plain, {channels} channels, credit {credit}"
    stops = tuple(sorted(draw.randrange(1, 2000 * US) for _ in range(draw.choice([0, 0, 3]))))
    threads = draw.choice([1, 1, 2, 3, 4])
    iterations = 1 if stops else drawn_iterations(seed)
    name = (
        f"seed {seed}: {op.name.lower()} of {size_bytes} bytes x {count} on {type(topology).__name__}, {wire}, "
        f"{name_of(control)}, pfc {has_pfc}, skew {skew_ns} ns, latency {latency_ps} ps, {threads} threads{fault}"
        f"{', 2 iterations' if iterations == 2 else ''}"
    )
    has_gpus = lowering.nccl is not None and lowering.nccl.server is not None
    moved_link = faults and not isinstance(topology, LeafSpine)
    beside = {"GPUs": has_gpus, "HPCC": isinstance(control, Hpcc), "a link change": moved_link}
    apart = ", ".join(own for own in beside if beside[own])
    return SkipCase(name, fabric, workload, lowering, threads, stops, apart, iterations)


def _draw_fault(seed: int, topology: Topology, draw: random.Random) -> tuple[list[Fault], str]:
    """Draw a link that is down or slower for 100 us, or none; and return its description."""
    if isinstance(topology, SingleSwitch):
        return [], ""
    if not isinstance(topology, LeafSpine):
        draw = random.Random(f"fault {seed}")  # the draws of other things stay as they are
    if draw.random() >= 0.4:
        return [], ""
    link = {LeafSpine: "leaf0->spine1", FatTree: "edge0->aggregation1"}.get(type(topology), "rail0leaf0->spine1")
    at_ps = draw.randrange(20 * US, 400 * US)
    rate = draw.choice([None, Rate(40 * GBPS)])
    fault = Fault(at=Duration(at_ps), until=Duration(at_ps + 100 * US), link=link, rate=rate)
    return [fault], f", {link} {'down' if rate is None else 'slower'} at {at_ps} ps"


def _drawn_hpcc(seed: int, line_rate: Rate) -> Hpcc | None:
    """HPCC in one of nine cases, in half of these with a raise that keeps the rate at the line rate."""
    draw = random.Random(f"hpcc {seed}")
    if draw.random() >= 1 / 9:
        return None
    return Hpcc(additive=line_rate) if draw.random() < 0.5 else Hpcc()


def drawn_iterations(seed: int) -> int:
    """Return 2 in one of five cases, else 1: a draw of its own."""
    return 2 if random.Random(f"iterations {seed}").random() < 0.2 else 1


def drawn_gpus(seed: int) -> Server | None:
    """Servers whose GPUs take time for NCCL's messages, in every other case: a draw of its own."""
    return Server("h100", "2.30", 450.0, 50.0) if random.Random(f"gpus {seed}").random() < 0.5 else None


def _job(op: Op, ranks: int, size_bytes: int, count: int, starts_ns: list[int]) -> Workload:
    """Collectives of all ranks, one after another; each rank starts at its own time."""
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        last = (builder.add(0, "start", Kind.COMP, (), duration_ns=starts_ns[rank]),)
        for number in range(1, count + 1):
            last = (builder.add(number, "collective", Kind.COLL, last, size_bytes=size_bytes, op=op, group=0),)
        graphs[rank], _ = builder.finish()
    return Workload("drawn", ranks, [Group("0", tuple(range(ranks)))], graphs)


@dataclass(frozen=True)
class Run:
    """A simulation that has ended. `ready_s`, `ended_s`: its start and its end, by the performance counter."""

    simulator: genie_core.Simulator
    recurrence: genie_core.Recurrence
    episodes: genie_core.Episodes | None
    ready_s: float
    ended_s: float


def run_to_the_end(
    twin: Twin,
    plan: Plan,
    *,
    skips: bool,
    stops_ps: tuple[int, ...] = (),
    recorded: list[int] | None = None,
    bounds: Mapping[str, int] | None = None,
) -> Run:
    """Play a plan, from the beginning again where episodes ask for it; sample at the stops, which allow none.

    `recorded`: ranks whose nodes and messages are recorded; None: all. `bounds`: options of Twin.episodes.
    """
    keeps_records = None if recorded is None else np.isin(np.arange(len(plan.ranks)), recorded)
    episodes = None
    if skips and not stops_ps:
        episodes = twin.episodes(plan, **(bounds or {}))
    ready_s = 0.0
    while True:
        simulator = twin.simulator(plan, keeps_records=keeps_records)
        assert isinstance(simulator, genie_core.Simulator)
        recurrence = genie_core.Recurrence(simulator)
        if episodes is not None:
            episodes.attach(simulator)
        ready_s = ready_s or time.perf_counter()
        simulator.start()
        run = recurrence.run if skips else simulator.run
        for stop_ps in stops_ps:
            while run(RUN_EVENTS, stop_ps):
                pass
            simulator.sample(stop_ps)
        while run(RUN_EVENTS):
            pass
        if episodes is None or not episodes.begins_again(simulator, recurrence.report["packets"]):
            return Run(simulator, recurrence, episodes, ready_s, time.perf_counter())


def twin_of_case(case: SkipCase) -> Twin:
    """Return the twin of a case's fabric, with rank r on host r."""
    return Twin(case.fabric, build_network(case.fabric), list(range(case.workload.world_size)), threads=case.threads)


def play(case: SkipCase, *, skips: bool, **bounds: int) -> Played:
    """Play a case in one of the two ways. `bounds`: options of Twin.episodes, for cases with one iteration."""
    twin = twin_of_case(case)
    if case.iterations > 1:
        return _play_iterations(case, twin, skips=skips)
    plan = build_plan(case.workload, lowering=case.lowering)
    if case.memory_bytes is not None:
        bounds["memory_bytes"] = case.memory_bytes
    run = run_to_the_end(twin, plan, skips=skips, stops_ps=case.stops_ps, bounds=bounds)
    simulator, recurrence, episodes = run.simulator, run.recurrence, run.episodes
    bits = dict(_bits(simulator, plan.ranks))
    links = simulator.links()
    none = {"packets": 0, "played": 0, "replayed": 0, "continued": 0, "resumed": 0, "joined": 0}
    apart = none if episodes is None else episodes.report
    skipped = recurrence.report["packets"] + apart["packets"] - apart["played"]
    return Played(
        bits=bits,
        marked=int(sum(links["marked"])),
        packets=simulator.data_packets,
        skipped=skipped,
        episodes=apart["replayed"],
        unusable="" if episodes is None else episodes.unusable,
        continued=apart["continued"],
        resumed=apart["resumed"],
        joined=apart["joined"],
    )


def _play_iterations(case: SkipCase, twin: Twin, *, skips: bool) -> Played:
    """Play a case as `genie simulate -n` does; counters are sums over iterations, times are of each."""
    numbers = range(1, case.iterations + 1)
    watch = Watch() if case.memory_bytes is None else Watch(skip_memory_bytes=case.memory_bytes)
    simulation = twin.play(case.workload, lowering=case.lowering, iterations=numbers, skips=skips, watch=watch)
    counters, skipped = simulation.counters, simulation.skipped
    bits = {"packets": counters["data_packets"], "dropped": counters["dropped"]}
    bits |= {f"link {name}": np.array(values) for name, values in counters["links"].items()}
    for table, rows in (("timeline", simulation.timeline), ("transfers", simulation.transfers)):
        bits |= {f"{table} {name}": np.array(rows[name].to_list(), object) for name in rows.columns}
    return Played(
        bits=bits,
        marked=sum(counters["links"]["marked"]),
        packets=counters["data_packets"],
        skipped=0 if skipped is None else skipped.packets,
        episodes=0 if skipped is None else skipped.replayed,
        unusable="" if skipped is None else "; ".join(skipped.reasons),
    )


def _bits(simulator: genie_core.Simulator, ranks: Any) -> Iterator[tuple[str, Any]]:
    yield "end", simulator.now_ps
    yield "done", simulator.done
    yield "problems", simulator.problems()
    for name, values in simulator.links().items():
        yield f"link {name}", values
    for table, columns in simulator.take_samples().items():
        for name, values in columns.items():
            yield f"samples of {table}: {name}", values
    for rank in ranks:
        for table, record in simulator.records(rank).items():
            for name, values in record.items():
                yield f"rank {rank} {table} {name}", values
        yield f"rank {rank} counters", np.array(list(simulator.counters(rank).values()))


def first_difference(played: Played, skipped: Played) -> str:
    """Return the first result that differs, as text; "" for none."""
    for name, values in played.bits.items():
        if not np.array_equal(values, skipped.bits[name]):
            return f"{name}: {values} played, {skipped.bits[name]} with skips"
    return ""
