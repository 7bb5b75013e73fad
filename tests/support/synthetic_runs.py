"""Run folders of a made-up job: a step-by-step model of paced NICs with the noise that a test asks for.

Each iteration of `ranks` ranks plays compute, a small all-to-all, two ring all-reduces. The twin follows the live
arrivals and has no noise. What a reader turns is `Noise` and `Fault`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from genie.record import Run
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA

COLLECTIVES = (("all_to_all", 24_576), ("all_reduce", 1_580_000), ("all_to_all", 54_000), ("all_reduce", 910_000))
RATE_BPS = 200_000_000


@dataclass(frozen=True)
class Noise:
    """How a live run differs from its twin without any fault."""

    message_cv: float = 0.03  # of each message's time
    latency_ns: float = 40_000  # exponential, added to each message
    tail_chance: float = 0.0  # of a message: a Pareto delay on top
    tail_ns: float = 2_000_000
    rank_bias: float = 0.003  # lasting, normal, per rank
    drift: float = 0.0  # of the whole fleet, from the first to the last iteration
    iteration_cv: float = 0.0  # of the whole fleet, iteration by iteration
    episode_chance: float = 0.0  # a rank loses part of its processor for one whole iteration
    episode_slow: float = 0.3


@dataclass(frozen=True)
class Fault:
    """A rank's NIC at a share of its rate, or slow compute, from one iteration to another."""

    rank: int = -1
    rate: float = 1.0
    since: int = 0
    until: int = 1 << 30
    ingress: bool = False
    compute: float = 1.0
    fleet: float = 1.0  # everybody's rate


@dataclass
class World:
    """One simulated play; rows are appended to the two tables."""

    ranks: int
    timeline: list[tuple[object, ...]] = field(default_factory=list)
    transfers: list[tuple[object, ...]] = field(default_factory=list)


class Messages:
    """Times of messages in one world."""

    def __init__(self, rng: np.random.Generator | None, noise: Noise, fault: Fault, ranks: int) -> None:
        self.rng, self.noise, self.fault = rng, noise, fault
        self.bias = rng.normal(0, noise.rank_bias, ranks) if rng else np.zeros(ranks)
        self.factor = np.ones(ranks)
        self.active = False

    def begin(self, iteration: int, iterations: int) -> None:
        fault, noise = self.fault, self.noise
        self.factor = np.exp(self.bias)
        if self.rng is None:
            return
        self.active = fault.since <= iteration < fault.until
        self.factor *= np.exp(noise.drift * iteration / max(1, iterations - 1) + self.rng.normal(0, noise.iteration_cv))
        self.factor *= np.where(self.rng.random(len(self.factor)) < noise.episode_chance, 1 + noise.episode_slow, 1)
        if self.active:
            self.factor /= fault.fleet

    def wire(self, src: int, dst: int, size_bytes: float) -> float:
        time = size_bytes * 8e9 / RATE_BPS * self.factor[src]
        if self.active and src == self.fault.rank and not self.fault.ingress:
            time /= self.fault.rate
        return time * (1 + self.noise.message_cv * self.rng.standard_normal()) if self.rng else time

    def receive(self, dst: int, size_bytes: float) -> float:
        """How long a slow receiving side holds a message: it takes the next one only after that."""
        held = self.active and self.fault.ingress and dst == self.fault.rank
        return size_bytes * 8e9 / RATE_BPS / self.fault.rate if held else 0.0

    def latency(self) -> float:
        if self.rng is None:
            return 60_000.0
        late = 60_000 + self.rng.exponential(self.noise.latency_ns) - self.noise.latency_ns
        if self.rng.random() < self.noise.tail_chance:
            late += self.noise.tail_ns * (self.rng.pareto(1.5) + 0.5)
        return max(5_000.0, late)


def ring(start: np.ndarray, size_bytes: int, messages: Messages) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Ends per rank, and (src, dst, size, messages, post, first, last, acked, busy) of each ring link."""
    n = len(start)
    chunk = size_bytes / n
    ready, free = start.astype(float).copy(), start.astype(float).copy()
    taken = np.zeros(n)
    first, last, busy, acked = np.full(n, np.inf), np.zeros(n), np.zeros(n), start.astype(float).copy()
    for _ in range(2 * (n - 1)):
        arrived = np.zeros(n)
        for rank in range(n):
            to = (rank + 1) % n
            begin = max(ready[rank], free[rank])
            free[rank] = begin + messages.wire(rank, to, chunk)
            taken[to] = max(free[rank], max(begin, taken[to]) + messages.receive(to, chunk))
            arrived[to] = taken[to] + messages.latency()
            done = arrived[to] + 30_000
            busy[rank] += done - max(ready[rank], acked[rank])
            acked[rank] = done
            first[rank] = min(first[rank], begin + 100_000)
            last[rank] = arrived[to]
        ready = np.maximum(arrived, start)
    moves = [
        (r, (r + 1) % n, chunk * 2 * (n - 1), 2 * (n - 1), start[r], first[r], last[r], acked[r], busy[r])
        for r in range(n)
    ]
    return np.maximum(ready, acked), moves


def all_to_all(start: np.ndarray, size_bytes: int, messages: Messages) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Pairwise, all posted at once: a NIC serves its messages in turn."""
    n = len(start)
    ends = start.astype(float).copy()
    moves, sent = [], []
    for rank in range(n):
        free = float(start[rank])
        for step in range(1, n):
            free += messages.wire(rank, (rank + step) % n, size_bytes / n)
            sent.append((free, rank, (rank + step) % n))
    taken = np.zeros(n)
    for free, rank, to in sorted(sent):
        taken[to] = max(free, taken[to] + messages.receive(to, size_bytes / n))
        arrived = taken[to] + messages.latency()
        acked = arrived + 30_000
        ends[to], ends[rank] = max(ends[to], arrived), max(ends[rank], acked)
        moves.append((rank, to, size_bytes / n, 1, start[rank], free, arrived, acked, acked - start[rank]))
    return ends, moves


def play(
    world: World, iteration: int, messages: Messages, compute_ns: np.ndarray, arrivals: list[np.ndarray] | None
) -> list[np.ndarray]:
    """One iteration; arrivals of each collective are given (the twin follows) or follow from compute."""
    n, now, met = world.ranks, np.zeros(world.ranks), []
    seqs: dict[str, int] = {}
    for index, (op, size_bytes) in enumerate(COLLECTIVES):
        sleep = compute_ns[index]
        start = now + sleep if arrivals is None else arrivals[index]
        for rank in range(n):
            world.timeline.append(
                (
                    rank,
                    100 + 2 * index,
                    f"comp{index}",
                    "comp",
                    None,
                    None,
                    None,
                    0,
                    now[rank],
                    now[rank],
                    start[rank],
                    20_000,
                    iteration,
                )
            )
        ends, moves = (ring if op == "all_reduce" else all_to_all)(start, size_bytes, messages)
        seq = seqs.setdefault("world", 0)
        seqs["world"] += 1
        for rank in range(n):
            world.timeline.append(
                (
                    rank,
                    101 + 2 * index,
                    f"{op}{seq}",
                    "coll",
                    op,
                    "world",
                    seq,
                    size_bytes,
                    start[rank],
                    start[rank],
                    ends[rank],
                    0,
                    iteration,
                )
            )
        for src, dst, size, count, post, first, last, acked, busy in moves:
            world.transfers.append(
                (
                    iteration,
                    src,
                    dst,
                    101 + 2 * index,
                    "world",
                    seq,
                    size,
                    count,
                    post,
                    first,
                    last,
                    acked,
                    busy,
                    0,
                    f"{49152 + src}",
                )
            )
        met.append(start)
        now = ends
    return met


def run_pair(
    seed: int,
    noise: Noise | None = None,
    fault: Fault | None = None,
    iterations: int = 12,
    warmup: int = 2,
    ranks: int = 8,
) -> tuple[Run, Run]:
    """A live run and the twin that followed it."""
    noise, fault = noise or Noise(), fault or Fault()
    rng = np.random.default_rng(seed)
    live, twin = World(ranks), World(ranks)
    measured = Messages(rng, noise, fault, ranks)
    exact = Messages(None, Noise(), Fault(), ranks)
    asked = 2e6 + 3e6 * rng.random((len(COLLECTIVES), ranks))
    for iteration in range(iterations):
        measured.begin(iteration, iterations)
        exact.begin(iteration, iterations)
        compute = asked + rng.exponential(50_000, asked.shape)
        if fault.compute != 1.0 and fault.since <= iteration < fault.until:
            compute[:, fault.rank] *= fault.compute
        met = play(live, iteration, measured, compute, None)
        play(twin, iteration, exact, compute, met)
    hosts = [
        {"rank": r, "host": f"host{r}", "nic": f"host{r}/nic0", "link": f"host{r}-switch0", "switch": "switch0"}
        for r in range(ranks)
    ]
    info = {"iterations": iterations - warmup, "warmup": warmup, "ranks": ranks, "rate_bps": RATE_BPS, "hosts": hosts}
    return (
        _run("live", {**info, "world": "live", "clock_bound_ns": [0] * ranks}, live),
        _run("twin", {**info, "world": "twin", "follow": True}, twin),
    )


def expected_run(seed: int, ranks: int = 8) -> Run:
    """One iteration of the twin from its own starts, with the compute that `run_pair` draws from this seed."""
    world = World(ranks)
    asked = 2e6 + 3e6 * np.random.default_rng(seed).random((len(COLLECTIVES), ranks))
    play(world, 0, Messages(None, Noise(), Fault(), ranks), asked, None)
    return _run("expected", {"world": "twin", "follow": False}, world)


def _run(name: str, info: dict[str, object], world: World) -> Run:
    return Run(Path(name), info, _table(world.timeline, TIMELINE_SCHEMA), _table(world.transfers, TRANSFERS_SCHEMA), {})


def _table(rows: list[tuple[object, ...]], schema: dict[str, object]) -> pl.DataFrame:
    plain = [tuple(int(v) if isinstance(v, float | np.floating) else v for v in row) for row in rows]
    return pl.DataFrame(plain, schema=list(schema), orient="row", infer_schema_length=None).cast(schema)  # type: ignore[arg-type]
