"""The path between two ranks in the twin: `genie bench pingpong --simulate` and `genie bench write --simulate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from genie.bench import perftest_table
from genie.bench.pair import Bandwidth, Latency, Test
from genie.bench.streams import bandwidth_in, latency_in, pingpong, streams
from genie.cli.bench.runs import (
    UNLIMITED,
    BenchSite,
    check_json,
    ends_of,
    show_progress,
    two_of,
    warn_of_retransmits,
    workplace,
    write_json,
)
from genie.cli.bench.worlds import TwinWorld
from genie.config.hosts import Hosts, loopback_hosts
from genie.errors import EXIT_OK, UsageError
from genie.job.job import Job, fabric_file
from genie.job.options import LiveOptions, TrafficOptions, TwinOptions
from genie.job.site import ExecutionSite
from genie.workload.graph import Workload
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

MESSAGES_MAX = 10**6  # of a size, each a step of a graph
FLOW = (0, 1)


@dataclass(frozen=True)
class PathAsked:
    """Parameters of a bench of one path."""

    test: Test
    sizes_bytes: list[int]
    rounds: int  # round trips, or messages of a stream, of each size
    mtu_bytes: int = 0  # 0: the fabric's
    depth: int = 1  # messages outstanding on each queue pair
    queue_pairs: int = 1


def simulate_path(
    asked: PathAsked,
    traffic: TrafficOptions,
    live: LiveOptions,
    simulated: TwinOptions,
    ends: str,
    *,
    out: Path | None,
    as_json: Path | None,
    gigabits: bool = False,
) -> int:
    """Play all sizes, print the table, and return the exit code. Raises UsageError and SimulationError."""
    check_json(as_json)
    if asked.rounds > MESSAGES_MAX:
        raise UsageError(f"-n {asked.rounds}: with --simulate at most {MESSAGES_MAX}: give a smaller -n")
    written = fabric_file(traffic)
    rate = None if written is not None and traffic.rate == UNLIMITED else traffic.rate
    traffic = replace(traffic, rate=rate, queue_pairs=asked.queue_pairs, split=False)
    hosts = _ends_in(traffic, written, ends, live.udp_port)
    job = Job(traffic, live, Workload(asked.test, 2, [], {}), hosts, written)
    with workplace(out, None) as folder:
        world = TwinWorld(
            BenchSite(ExecutionSite(traffic, live), job), folder, level=simulated.level, threads=simulated.threads,
            mtu_bytes=asked.mtu_bytes,
        )  # fmt: skip
        world.warn()
        facts = world.facts()
        for text in perftest_table.head(asked.test == "pingpong", _head(asked, world, facts), gigabits):
            print(text, flush=True)
        lines = []
        for size_bytes in asked.sizes_bytes:
            lines.append(_line(asked, world, size_bytes))
            print(perftest_table.row(lines[-1], gigabits), flush=True)
    print(perftest_table.RULE, flush=True)
    if as_json is not None:
        write_json(as_json, _report(asked, world, facts, lines))
    return EXIT_OK


def _line(asked: PathAsked, world: TwinWorld, size_bytes: int) -> Latency | Bandwidth:
    what = f"{size_bytes} bytes"
    show_progress(what)
    if asked.test == "pingpong":
        run = world.play(pingpong(size_bytes, asked.rounds), f"pingpong-{size_bytes}", what)
        line: Latency | Bandwidth = latency_in(run.timeline, size_bytes)
    else:
        workload = streams([FLOW], size_bytes, asked.rounds, asked.depth * asked.queue_pairs)
        run = world.play(workload, f"write-{size_bytes}", what)
        line = bandwidth_in(run.transfers, FLOW, asked.queue_pairs)
    show_progress("")
    warn_of_retransmits(int(run.transfers["retransmits"].sum()))
    return line


def _ends_in(traffic: TrafficOptions, written: Fabric | None, ends: str, udp_port: int) -> Hosts:
    """The two ends: ranks of the hosts file; without one, numbers of hosts of the fabric. Raises UsageError."""
    if traffic.hosts is not None or written is None:
        return ends_of(traffic.hosts, ends, udp_port)
    network = build_network(written)
    chosen = two_of(ends)
    if chosen is None or max(chosen) >= network.hosts:
        raise UsageError(f"--ends {ends}: give two hosts of {traffic.fabric}, 0 to {network.hosts - 1}, such as 0,1")
    placed = loopback_hosts(2)
    return replace(
        placed,
        places=tuple(
            replace(place, port=network.node_names[host]) for place, host in zip(placed.places, chosen, strict=True)
        ),
    )


def _head(asked: PathAsked, world: TwinWorld, facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Transport", world.notes()[0]),
        ("Path", " -> ".join(device.host for device in world.devices())),
        ("Number of qps", str(asked.queue_pairs)),
        *([("TX depth", str(asked.depth))] if asked.test == "write" else []),
        ("Mtu", f"{facts['mtu']}[B]"),
    ]


def _report(
    asked: PathAsked, world: TwinWorld, facts: dict[str, Any], lines: list[Latency | Bandwidth]
) -> dict[str, Any]:
    return {
        "world": "twin",
        "bench": asked.test,
        "transport": "twin",
        "mtu_bytes": facts["mtu"],
        "ranks": [{"host": device.host, "nic": device.address} for device in world.devices()],
        "settings": {**facts, "rounds": asked.rounds, "depth": asked.depth},
        "lines": [asdict(line) for line in lines],
    }
