"""Size of a simulation before it is played, and the time and memory that it is expected to take (`--dry-run`)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import genie_core

from genie.config.units import Duration, Rate
from genie.plan.build import Plan, build_plan
from genie.workload.graph import Kind, Op
from genie.workload.synthetic import collective
from simtwin.fabric.frames import frames_of
from simtwin.fabric.schema import Fabric, Link, SingleSwitch
from simtwin.fabric.size import size_of
from simtwin.fabric.topology import Network, build_network
from simtwin.levels.names import FLOW, Level
from simtwin.play.recorded_ranks import is_large
from simtwin.play.twin import Twin

# Memory by measurement: of the process, of a rank's node in progress and recorded, of a row of the tables, of a link.
PROCESS_BYTES, NODE_BYTES, RECORD_BYTES, ROW_BYTES, LINK_BYTES = 150_000_000, 16, 32, 120, 800
QUEUE_PAIR_FACTOR = 2.0  # with its rows of links and its ring of messages
ROUTES_PER_S = 100_000_000  # cables that routing looks at
SETUP_NODES_PER_S, SETUP_PAIRS_PER_S = 20_000_000, 100_000
# Packets of rings in large servers take a little less time than those of the probe. Those of permutations among
# thousands of hosts take 8 times as long, as their state is in no cache.
FASTEST, SLOWEST = 0.7, 8.0
PROBE_S = 0.2


@dataclass(frozen=True)
class Expected:
    """Counts of an iteration, and what the simulation of all iterations is expected to take.

    `packets`: data packets, clear-to-sends included, without those that are sent again. Parts of a message that is
    split over queue pairs may take one more each. `fastest_s`, `slowest_s`: of level packet, on one core.
    """

    nodes: int
    transfers: int
    packets: int
    queue_pairs: int
    recorded_ranks: int
    setup_s: float
    fastest_s: float
    slowest_s: float
    memory_bytes: int


def packets_per_s() -> float:
    """Return the data packets/s of a small ring at level packet on this machine, which it plays for 0.2 s."""
    hosts = 16
    fabric = Fabric(topology=SingleSwitch(hosts=hosts), link=Link(Rate(400 * 10**9), Duration(500_000)))
    twin = Twin(fabric, build_network(fabric), list(range(hosts)))
    simulator = twin.simulator(build_plan(collective(Op.ALL_REDUCE, hosts, 1 << 30)))
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    began = time.perf_counter()
    while simulator.run(50_000) and time.perf_counter() - began < PROBE_S:
        pass
    return simulator.data_packets / (time.perf_counter() - began)


def expected_of(
    fabric: Fabric, network: Network, plan: Plan, iterations: int = 1, level: Level | None = None
) -> Expected:
    """Return what the simulation of a plan is expected to take."""
    counts = genie_core.size_of(plan.native, frames_of(fabric).payload_bytes)
    size = size_of(fabric)
    nodes, recorded = counts["nodes"], len(plan.ranks)
    sends = sum(len(each.ranks) * int((each.template.kind == Kind.SEND).sum()) for each in plan.classes)
    rows, transfers = nodes, plan.transfers + sends
    if is_large(plan) and (level is None or level.name != FLOW):
        recorded = len(plan.classes)
        rows = sum(len(each.template) for each in plan.classes)
        transfers = transfers * recorded // len(plan.ranks)
    queue_pairs = counts["pairs"] * (fabric.transport.queue_pairs or 1)
    probe_s = counts["packets"] * iterations / packets_per_s()
    return Expected(
        nodes=nodes,
        transfers=plan.transfers + sends,
        packets=counts["packets"],
        queue_pairs=queue_pairs,
        recorded_ranks=recorded,
        setup_s=size.searched / ROUTES_PER_S + nodes / SETUP_NODES_PER_S + queue_pairs / SETUP_PAIRS_PER_S,
        fastest_s=probe_s * FASTEST,
        slowest_s=probe_s * SLOWEST,
        memory_bytes=PROCESS_BYTES
        + nodes * NODE_BYTES
        + rows * RECORD_BYTES
        + (rows + transfers) * ROW_BYTES * iterations
        + int(queue_pairs * counts["pair_bytes"] * QUEUE_PAIR_FACTOR)
        + network.links * LINK_BYTES
        + size.routes * 8,
    )
