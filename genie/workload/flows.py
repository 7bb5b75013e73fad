"""Traffic without a job: messages that start at given times, in the patterns of congestion-control studies.

Random draws use PCG64's 53-bit uniform numbers only, so that a seed gives the same flows with every version of NumPy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, RankGraph, Workload, WorkloadError
from genie.workload.synthetic import GROUP_NAME

FLOWS_MAX = 5_000_000
NS_PER_S = 10**9


@dataclass(frozen=True)
class Flow:
    """A message from one rank to another, with its start time."""

    source: int
    target: int
    size_bytes: int
    start_ns: int = 0


@dataclass(frozen=True)
class Sizes:
    """Distribution of flow sizes: the share of flows up to a size in bytes, linear between its points."""

    points: tuple[tuple[int, float], ...]  # (size_bytes, share), both ascending; the last share is 1

    def __post_init__(self) -> None:
        """Raises WorkloadError."""
        sizes, shares = [size for size, _ in self.points], [share for _, share in self.points]
        if not self.points or sizes != sorted(sizes) or sizes[0] < 0 or sizes[-1] < 1:
            raise WorkloadError("a distribution of sizes has no size, or they do not ascend")
        if shares != sorted(shares) or shares[0] < 0 or abs(shares[-1] - 1) > 1e-9:
            raise WorkloadError("the shares of a distribution of sizes must ascend from 0 or more to 1 (100 %)")

    def drawn(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Sizes in bytes, at least 1, for uniform numbers from 0 to 1."""
        sizes, shares = np.array(self.points, np.float64).T
        drawn: NDArray[np.int64] = np.maximum(np.rint(np.interp(uniform, shares, sizes)), 1).astype(np.int64)
        return drawn

    @property
    def mean_bytes(self) -> float:
        first_size, first_share = self.points[0]
        between = itertools.pairwise(self.points)
        return first_size * first_share + sum((a + b) / 2 * (q - p) for (a, p), (b, q) in between)


# Flow sizes of a web search cluster: M. Alizadeh et al., Data Center TCP (SIGCOMM 2010), figure 4. The points are those
# that simulators commonly take.
WEB_SEARCH = Sizes((
    (0, 0.0), (10_000, 0.15), (20_000, 0.2), (30_000, 0.3), (50_000, 0.4), (80_000, 0.53), (200_000, 0.6),
    (1_000_000, 0.7), (2_000_000, 0.8), (5_000_000, 0.9), (10_000_000, 0.97), (30_000_000, 1.0),
))  # fmt: skip


def workload_of(name: str, ranks: int, flows: Sequence[Flow]) -> Workload:
    """A workload with a message for each flow, which waits only for its start time. Raises WorkloadError."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload(name, ranks, [Group(GROUP_NAME, tuple(range(ranks)))], graphs)
    builders = [RankBuilder(rank) for rank in range(ranks)]
    for number, flow in enumerate(flows):
        if not (0 <= flow.source < ranks and 0 <= flow.target < ranks and flow.source != flow.target):
            raise WorkloadError(f"flow {number} from {flow.source} to {flow.target}: give two of {ranks} ranks")
        sender = builders[flow.source]
        wait: tuple[int, ...] = ()
        # Each flow has its own stream, so that flows do not wait for each other.
        if flow.start_ns > 0:
            name = f"before flow {number}"
            wait = (sender.add(3 * number, name, Kind.COMP, duration_ns=flow.start_ns, stream=number),)
        for end, kind, peer, after in (
            (flow.source, Kind.SEND, flow.target, wait),
            (flow.target, Kind.RECV, flow.source, ()),
        ):
            builders[end].add(
                3 * number + (1 if kind is Kind.SEND else 2), f"flow {number}", kind, after,
                size_bytes=flow.size_bytes, peer=peer, tag=number, stream=number,
            )  # fmt: skip
    for rank, builder in enumerate(builders):
        graphs[rank], _ = builder.finish()
    return workload


def incast(ranks: int, size_bytes: int, senders: int | None = None, target: int = 0) -> Workload:
    """The first `senders` ranks except the target (None: all others) send to the target at the same time.

    Raises WorkloadError.
    """
    count = ranks - 1 if senders is None else senders
    if not 0 <= target < ranks:
        raise WorkloadError(f"incast: target = {target}: give one of ranks 0 to {ranks - 1}")
    if not 1 <= count < ranks:
        raise WorkloadError(f"incast: senders = {count}: give 1 to {ranks - 1}, there are {ranks} ranks")
    others = [rank for rank in range(ranks) if rank != target][:count]
    return workload_of(f"incast-{count}x{size_bytes}", ranks, [Flow(rank, target, size_bytes) for rank in others])


def permutation(ranks: int, size_bytes: int, seed: int = 1) -> Workload:
    """Each rank sends to one other rank and receives from one other, in a random cycle of all. Raises WorkloadError."""
    if ranks < 2:
        raise WorkloadError(f"a permutation of {ranks} ranks: give 2 or more")
    circle = np.argsort(_uniform(seed, ranks), kind="stable")
    targets = dict(zip(circle.tolist(), np.roll(circle, -1).tolist(), strict=True))
    flows = [Flow(rank, targets[rank], size_bytes) for rank in range(ranks)]
    return workload_of(f"permutation-{ranks}x{size_bytes}", ranks, flows)


def poisson(ranks: int, rate_bps: int, load: float, duration_ns: int, sizes: Sizes, seed: int = 1) -> Workload:
    """Flows that start at each rank as a Poisson process during `duration_ns`, to uniformly random other ranks.

    `load`: mean payload of a rank's flows, as a share of its port's `rate_bps`. Raises WorkloadError.
    """
    if ranks < 2 or rate_bps <= 0:
        raise WorkloadError("a load needs 2 ranks or more, and ports with a rate")
    gap_ns = sizes.mean_bytes * 8 * NS_PER_S / (rate_bps * load)
    expected = ranks * duration_ns / gap_ns
    if expected > FLOWS_MAX:
        raise WorkloadError(f"a load of about {expected:.0f} flows: give a shorter duration, for at most {FLOWS_MAX}")
    flows = []
    for source in range(ranks):
        # Draw well more flows than the duration needs; the last one must start after it.
        count = math.ceil(duration_ns / gap_ns + 12 * math.sqrt(duration_ns / gap_ns) + 24)
        gaps, towards, drawn = _uniform((seed, source), 3 * count).reshape(count, 3).T  # same for all loads
        starts = np.rint(np.cumsum(-np.log1p(-gaps)) * gap_ns).astype(np.int64)
        assert starts[-1] >= duration_ns
        targets = np.minimum((towards * (ranks - 1)).astype(np.int64), ranks - 2)
        targets += targets >= source
        size_bytes = sizes.drawn(drawn)
        for at in np.flatnonzero(starts < duration_ns).tolist():
            flows.append(Flow(source, int(targets[at]), int(size_bytes[at]), int(starts[at])))
    if not flows:
        raise WorkloadError("a load so low that no flow starts: give a longer duration")
    flows.sort(key=lambda flow: (flow.start_ns, flow.source))
    return workload_of(f"poisson-{ranks}x{load:g}", ranks, flows)


def _uniform(seed: int | tuple[int, int], count: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random(count)
