"""Pairs of runs on two leaves and two spines, or more: both are the twin's, and the live one has a fault and noise.

What contention makes of a slow link, its victims and who gains by it, is the packet kernel's; what hosts add is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from synthetic_runs import Noise

from genie.config.units import Duration, Rate
from genie.live.paths.choice import choose_ports
from genie.plan.lowering import Lowering
from genie.record import Run
from genie.record.schemas import PATHS_SCHEMA
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from simtwin.fabric.schema import Fabric, Fault, Frame, Host, LeafSpine, Link, Transport
from simtwin.fabric.schema import Path as PinnedPath
from simtwin.fabric.tiers import tiers_of
from simtwin.fabric.topology import build_network
from simtwin.play.run import attachment
from simtwin.play.twin import Twin, arrivals_of

MBPS = 10**6
HOST_BPS, SPINE_BPS = 100 * MBPS, 200 * MBPS

LOUD = Noise(message_cv=0.1, latency_ns=150_000, tail_chance=0.01, rank_bias=0.01, episode_chance=0.03)  # of busy hosts
TRAIN_BYTES = 100_000


@dataclass(frozen=True)
class Shape:
    """A leaf-spine network and what is played on it."""

    leaves: int = 2
    spines: int = 2
    hosts_per_leaf: int = 4
    rounds: int = 2  # of an all-to-all and a ring all-reduce, each iteration
    size_bytes: int = 1 << 20
    pinned: bool = True  # paths spread evenly; otherwise as one drawn seed hashes them
    chosen_by: int | None = None  # seed, of paths that are spread as a run's ranks choose them
    spine_bps: int = SPINE_BPS
    lowering: Lowering | None = None  # None: plain messages
    window_packets: int = 32

    @property
    def ranks(self) -> int:
        return self.leaves * self.hosts_per_leaf


def workload_of(shape: Shape) -> Workload:
    """Compute, an all-to-all, compute, an all-reduce, and again."""
    made = Workload("links", shape.ranks, [Group("0", tuple(range(shape.ranks)))], {})
    for rank in range(shape.ranks):
        builder, last = RankBuilder(rank), ()
        for _ in range(shape.rounds):
            for op in (Op.ALL_TO_ALL, Op.ALL_REDUCE):
                last = (builder.add(len(builder), "compute", Kind.COMP, last, duration_ns=2_000_000),)
                last = (builder.add(len(builder), op.name.lower(), Kind.COLL, last, size_bytes=shape.size_bytes, op=op,
                                    group=0),)  # fmt: skip
        made.ranks[rank], _ = builder.finish()
    return made


def fabric_of(shape: Shape, slow: Mapping[str, float] | None = None, seed: int = 0) -> Fabric:
    """`slow`: link -> share of its rate that is left. Without [[path]] tables paths are hashed."""
    rates = {"host": HOST_BPS, "spine": shape.spine_bps}
    faults = [
        Fault(at=Duration(0), link=link, rate=Rate(int(rates["spine" if "spine" in link else "host"] * share)))
        for link, share in (slow or {}).items()
    ]
    paths = chosen_paths(shape) if shape.chosen_by is not None else []
    for source in range(shape.ranks) if shape.pinned and not paths else ():
        for target in range(shape.ranks):
            a, b = source // shape.hosts_per_leaf, target // shape.hosts_per_leaf
            if a != b:
                # Each step of a pairwise all-to-all meets every spine as often.
                spine = (source + (target - source) // shape.spines) % shape.spines
                paths.append(PinnedPath(f"host{source}", f"host{target}", (f"leaf{a}", f"spine{spine}", f"leaf{b}")))
    return Fabric(
        topology=LeafSpine(leaves=shape.leaves, spines=shape.spines, hosts_per_leaf=shape.hosts_per_leaf,
                           spine_link=Link(Rate(shape.spine_bps), Duration(20_000_000))),
        link=Link(Rate(HOST_BPS), Duration(20_000_000)),
        transport=Transport(mtu=4096, window_packets=shape.window_packets, ack_timeout=Duration(2 * 10**12)),
        host=Host(packet_latency=Duration(60_000_000)),
        frame=Frame(overhead_bytes=14),
        path=paths,
        fault=faults,
    )  # fmt: skip


def chosen_paths(shape: Shape) -> list[PinnedPath]:
    """By pairs of ranks on different leaves, as `choose_ports` pins them: a port stands for a spine."""
    candidates: dict[tuple[int, int], list[tuple[int, tuple[str, ...]]]] = {}
    for source in range(shape.ranks):
        for target in range(shape.ranks):
            a, b = source // shape.hosts_per_leaf, target // shape.hosts_per_leaf
            if a != b:
                candidates[source, target] = [
                    (spine, (f"leaf{a}->spine{spine}", f"spine{spine}->leaf{b}")) for spine in range(shape.spines)
                ]
    chosen = choose_ports(candidates, shape.ranks, 1, shape.chosen_by or 0)
    leaf = [f"leaf{rank // shape.hosts_per_leaf}" for rank in range(shape.ranks)]
    return [
        PinnedPath(f"host{source}", f"host{target}", (leaf[source], f"spine{spine}", leaf[target]))
        for (source, target), (spine,) in chosen.items()
    ]


def run_pair(
    seed: int,
    slow: Mapping[str, float] | None = None,
    noise: Noise | None = None,
    shape: Shape | None = None,
    iterations: int = 8,
    since: int = 0,
) -> tuple[Run, Run]:
    """A live run with a fault, hosts' noise and compute that varies; and the twin that followed it on its paths.

    `since`: first iteration of the fault.
    """
    shape, noise = shape or Shape(), noise or Noise()
    draw = np.random.default_rng(seed)
    workload = workload_of(shape)
    fast, faulty = (twin_of(shape, given, seed) for given in (None, slow))
    timelines, transfers = [], []
    for iteration in range(iterations):
        varied = workload_of(shape)
        for graph in varied.ranks.values():
            sleeps = graph.kind == Kind.COMP
            graph.duration_ns[sleeps] += draw.exponential(100_000, int(sleeps.sum())).astype(np.int64)
        world = faulty if iteration >= since else fast
        played = world.play(varied, lowering=shape.lowering)
        timelines.append(played.timeline.with_columns(iteration=pl.lit(iteration, pl.Int32)))
        transfers.append(played.transfers.with_columns(iteration=pl.lit(iteration, pl.Int32)))
    timeline = pl.concat(timelines)
    moved = noisy(pl.concat(transfers), draw, noise, shape.ranks)
    arrivals_ns = arrivals_of(workload, timeline)
    followed = fast.play(workload, lowering=shape.lowering, iterations=range(iterations), arrivals_ns=arrivals_ns)
    paths = fast.paths_of(followed.transfers, [seed], None).table
    hosts = [attachment(fast.network, rank, rank) for rank in range(shape.ranks)]
    info = {"ranks": shape.ranks, "warmup": 0, "iterations": iterations, "hosts": hosts}
    links = [
        {"link": link, "tier": tier} for link, tier in zip(fast.network.link_names, tiers_of(fast.network), strict=True)
    ]
    live = Run(Path("live"), {**info, "world": "live", "paths": {"changed": False}}, timeline, moved, {}, paths)
    twin = Run(Path("twin"), {**info, "world": "twin", "follow": True, "paths": {"changed": False}}, followed.timeline,
               followed.transfers, {"links": links}, paths)  # fmt: skip
    return live, twin


def twin_of(shape: Shape, slow: Mapping[str, float] | None, seed: int) -> Twin:
    fabric = fabric_of(shape, slow, seed)
    return Twin(fabric, build_network(fabric), list(range(shape.ranks)), seed)


def noisy(transfers: pl.DataFrame, draw: np.random.Generator, noise: Noise, ranks: int) -> pl.DataFrame:
    """Transfers with what hosts add to the time that they keep a sender busy."""
    rows = transfers.height
    messages = transfers["messages"].to_numpy()
    busy = transfers["busy_ns"].to_numpy().astype(float)
    source = transfers["src"].to_numpy()
    bias = draw.normal(0, noise.rank_bias, ranks)
    busy *= np.exp(bias[source]) * (1 + noise.message_cv / np.sqrt(messages) * draw.standard_normal(rows))
    busy += draw.gamma(messages, noise.latency_ns) - messages * noise.latency_ns
    late = draw.random(rows) < noise.tail_chance * messages
    busy += np.where(late, noise.tail_ns * (draw.pareto(1.5, rows) + 0.5), 0)
    iteration = transfers["iteration"].to_numpy()
    episodes = draw.random((int(iteration.max()) + 1, ranks)) < noise.episode_chance
    busy *= np.where(episodes[iteration, source], 1 + noise.episode_slow, 1)
    return transfers.with_columns(pl.Series("busy_ns", np.maximum(busy, 1000).astype(np.int64)))


def probed(run: Run, slow: Mapping[str, float], seed: int = 0) -> Run:
    """The run with what trains of probes would have taken to the end of each link of each path."""
    assert run.paths is not None
    draw = np.random.default_rng(seed)
    rows, slowest_bps = [], 0.0
    for row in run.paths.sort("src", "dst", "source_port", "hop").iter_rows(named=True):
        link = row["link"]
        rate_bps = (HOST_BPS if "host" in link else SPINE_BPS) * slow.get(link, 1.0)
        slowest_bps = rate_bps if row["hop"] == 0 else min(slowest_bps, rate_bps)
        time_ns = TRAIN_BYTES * 8e9 / slowest_bps + 50_000 * row["hop"] + draw.exponential(100_000)
        rows.append({**row, "probe_ns": int(time_ns)})
    return replace(run, paths=pl.DataFrame(rows, schema=PATHS_SCHEMA))
