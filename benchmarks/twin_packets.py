"""How fast the twin is at level `packet`: `python benchmarks/twin_packets.py [--quick] [--json FILE]`.

Each case plays once in a process of its own, on one core. Packets and events are counted over the kernel's run;
set-up (network, routes, plan) is apart. Rates are by processor time, so that a busy machine does not change them; the
wall time of the same run stands beside. Limit: 0.5 M data packets/s.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genie import _core
from genie.config.units import Duration, Rate, Size
from genie.plan.build import Lowering, build_plan
from genie.workload.build import RankBuilder
from genie.workload.generate import GROUP_NAME, collective
from genie.workload.graph import Group, Kind, Op, Workload
from simtwin.fabric_schema import Fabric, LeafSpine, Link, SingleSwitch, Switch
from simtwin.routing import shortest_path_routes
from simtwin.topology import build_network
from simtwin.transport import queue_pair_config

PACKETS_PER_S_MIN = 500_000
GBPS = 10**9
LINK = Link(Rate(400 * GBPS), Duration(500_000))
DIRECT = Lowering(algorithms={"all_to_all": "direct"})


def single_switch(hosts: int) -> Fabric:
    return Fabric(topology=SingleSwitch(hosts=hosts), link=LINK)


def leaf_spine(leaves: int, spines: int, hosts_per_leaf: int, buffer_bytes: int = -1) -> Fabric:
    topology = LeafSpine(leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf)
    return Fabric(topology=topology, link=LINK, switch=Switch(Size(buffer_bytes)))


def permutation(hosts: int, size_bytes: int) -> Workload:
    """Every rank sends one message to another, and each receives one."""
    target = np.random.default_rng(1).permutation(hosts)
    while (target == np.arange(hosts)).any():
        target = np.random.default_rng(int(target[0]) + 2).permutation(hosts)
    workload = Workload("permutation", hosts, [Group(GROUP_NAME, tuple(range(hosts)))], {})
    source = np.argsort(target)
    for rank in range(hosts):
        builder = RankBuilder(rank)
        builder.add(0, "send", Kind.SEND, size_bytes=size_bytes, peer=int(target[rank]))
        builder.add(1, "receive", Kind.RECV, size_bytes=size_bytes, peer=int(source[rank]))
        workload.ranks[rank], _ = builder.finish()
    return workload


@dataclass(frozen=True)
class Case:
    fabric: Callable[[], Fabric]
    workload: Callable[[], Workload]
    lowering: Lowering | None = None


CASES = {
    "one flow, 1 switch": Case(lambda: single_switch(2), lambda: collective(Op.BROADCAST, 2, 2 << 30)),
    "ring all-reduce, 1 switch": Case(lambda: single_switch(64), lambda: collective(Op.ALL_REDUCE, 64, 64 << 20)),
    "ring all-reduce, leaf-spine": Case(lambda: leaf_spine(8, 8, 16), lambda: collective(Op.ALL_REDUCE, 128, 32 << 20)),
    "all-to-all, leaf-spine": Case(lambda: leaf_spine(8, 4, 8), lambda: collective(Op.ALL_TO_ALL, 64, 64 << 20)),
    "all-to-all direct, leaf-spine": Case(
        lambda: leaf_spine(8, 4, 8), lambda: collective(Op.ALL_TO_ALL, 64, 64 << 20), DIRECT
    ),
    "all-to-all direct, 256 KiB buffers": Case(
        lambda: leaf_spine(8, 8, 8, 256 << 10), lambda: collective(Op.ALL_TO_ALL, 64, 16 << 20), DIRECT
    ),
    "permutation of 16 MiB, leaf-spine": Case(lambda: leaf_spine(8, 16, 16), lambda: permutation(128, 16 << 20)),
    "barriers, 256 hosts": Case(lambda: leaf_spine(16, 16, 16), lambda: collective(Op.BARRIER, 256, 0, count=200)),
}
QUICK = ("ring all-reduce, 1 switch", "all-to-all, leaf-spine", "barriers, 256 hosts")


def measure(name: str) -> dict[str, Any]:
    """Play one case in this process."""
    case = CASES[name]
    workload = case.workload()
    began = time.process_time()
    fabric = case.fabric()
    network = build_network(fabric)
    routes = shortest_path_routes(network)
    plan = build_plan(workload, lowering=case.lowering)
    native = _core.Network(
        hosts=network.hosts,
        nodes=network.nodes,
        frame_overhead_bytes=fabric.frame.overhead_bytes,
        source=network.src_node,
        target=network.dst_node,
        rate_bps=network.rate_bps,
        delay_ps=network.delay_ps,
        buffer_bytes=network.buffer_bytes,
        route_start=routes.start.astype(np.int64),
        route_links=routes.links,
        packet_latency_ps=network.packet_latency_ps,
        message_latency_ps=network.message_latency_ps,
    )
    hosts = np.arange(workload.world_size, dtype=np.int32)
    simulator = _core.Simulator(native, queue_pair_config(fabric), plan.native, hosts, 1)
    ready, wall = time.process_time(), time.perf_counter()
    simulator.start()
    while simulator.run(1_000_000):
        pass
    cpu_s, wall_s = time.process_time() - ready, time.perf_counter() - wall
    if not simulator.done:
        raise SystemExit(f"{name}: {simulator.problems()[0]}")
    records = [simulator.records(rank) for rank in plan.ranks]
    hops = int(simulator.links()["packets"].sum())
    return {
        "case": name,
        "hosts": workload.world_size,
        "flows": sum(len(set(record["sends"]["peer"].tolist())) for record in records),
        "messages": int(sum(record["sends"]["messages"].sum() for record in records)),
        "data_packets": simulator.data_packets,
        "dropped": simulator.dropped,
        "hops": hops,
        "events": simulator.events,
        "simulated_s": max(int(record["nodes"]["end_ps"].max(initial=0)) for record in records) / 1e12,
        "data_packets_per_s": simulator.data_packets / cpu_s,
        "events_per_s": simulator.events / cpu_s,
        "ns_per_hop": cpu_s * 1e9 / hops,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "setup_s": ready - began,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three cases only")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return 0
    print(f"build: {_core.build_flags}; one core; M/s by processor time; 4,096 B packets at 400 Gb/s, 500 ns a link")
    print(
        f"{'case':<36}{'hosts':>6}{'flows':>7}{'data packets':>14}{'M packets/s':>12}{'M events/s':>11}"
        f"{'ns/hop':>8}{'RSS MB':>8}{'set-up s':>9}{'cpu s':>7}{'wall s':>7}"
    )
    rows = []
    for name in QUICK if arguments.quick else CASES:
        command = [sys.executable, __file__, "--measure", name]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        rows.append(row)
        print(
            f"{row['case']:<36}{row['hosts']:>6}{row['flows']:>7}{row['data_packets']:>14,}"
            f"{row['data_packets_per_s'] / 1e6:>12.2f}{row['events_per_s'] / 1e6:>11.2f}{row['ns_per_hop']:>8.0f}"
            f"{row['rss_mb']:>8.0f}{row['setup_s']:>9.2f}{row['cpu_s']:>7.2f}{row['wall_s']:>7.2f}",
            flush=True,
        )
    met = all(row["data_packets_per_s"] >= PACKETS_PER_S_MIN for row in rows)
    print(f"limit of {PACKETS_PER_S_MIN / 1e6:g} M data packets/s: {'met' if met else 'NOT met'}")
    if arguments.json:
        report = {"build_flags": _core.build_flags, "limit_per_s": PACKETS_PER_S_MIN, "met": met, "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
