"""A bench of all pairs of ranks: its workload, and the matrices of its times.

Each round has disjoint pairs, all at the same time. Small messages go first, one after another, for latency. Then large
ones are posted together, for bandwidth. One direction follows the other, or both run at once. A barrier separates these
parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.bench.rounds import Pair, rounds_of
from genie.record import Run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

if TYPE_CHECKING:
    import polars as pl

SLOW_SHARE = 0.93  # of the best: slower paths are marked
LATENCY_SHARE_MAX = 0.05  # of the time of a pair's messages: with more, they do not measure bandwidth
LATENCY, BANDWIDTH, MEET = "latency", "bandwidth", "meet"  # names of nodes


@dataclass(frozen=True)
class PairsAsked:
    """Parameters: the messages that each pair sends in each direction."""

    ranks: int
    size_bytes: int  # of a message, for bandwidth
    messages: int
    small_bytes: int  # size of a latency message
    small_messages: int  # 0: latency is not measured
    both_ways: bool = False  # both directions at once
    alone: bool = False  # one pair a round, so that no two pairs share a link

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.ranks * (self.ranks - 1) // 2

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.pairs if self.alone else self.ranks - 1 + self.ranks % 2

    @property
    def nodes(self) -> int:
        """Upper bound of the workload's nodes: messages at both ends, and barriers."""
        return 4 * (self.pairs * (self.messages + self.small_messages) + self.rounds * self.ranks)

    def schedule(self) -> Iterator[list[Pair]]:
        """The pairs of each round."""
        return ([pair] for pair in combinations(range(self.ranks), 2)) if self.alone else rounds_of(self.ranks)

    def words(self) -> str:
        """A phrase on the rounds."""
        how = "both directions at once" if self.both_ways else "one direction after the other"
        return f"{self.rounds} rounds of {'one pair' if self.alone else 'disjoint pairs'}, {how}"


def rounds(asked: PairsAsked) -> Workload:
    """The workload of all rounds."""
    ranks = asked.ranks
    graphs: dict[int, RankGraph] = {}
    workload = Workload(f"pairs-{ranks}", ranks, [Group("0", tuple(range(ranks)))], graphs)
    builders = [_Rank(RankBuilder(rank)) for rank in range(ranks)]
    phases = [(LATENCY, asked.small_messages, asked.small_bytes), (BANDWIDTH, asked.messages, asked.size_bytes)]
    for pairs in asked.schedule():
        for name, count, size_bytes in phases:
            for directed in _directions(pairs, asked.both_ways) if count else ():
                for source, target in directed:
                    builders[source].send(name, target, count, size_bytes)
                    builders[target].receive(name, source, count, size_bytes)
                for each in builders:
                    each.meet()
    for rank, each in enumerate(builders):
        graphs[rank], _ = each.builder.finish()
    return workload


def _directions(pairs: list[Pair], both_ways: bool) -> list[list[Pair]]:
    """Directed pairs that send at the same time."""
    back = [(high, low) for low, high in pairs]
    return [pairs + back] if both_ways else [pairs, back]


@dataclass
class _Rank:
    """Nodes of one rank."""

    builder: RankBuilder
    met: tuple[int, ...] = ()  # the barrier before
    ends: tuple[int, ...] = ()  # nodes that the next barrier waits for

    def send(self, name: str, target: int, count: int, size_bytes: int) -> None:
        """Add sends: small messages one after another; large ones together, each on its own stream."""
        after = self.met
        for number in range(count):
            new, stream = len(self.builder), number if name == BANDWIDTH else -1
            self.builder.add(new, name, Kind.SEND, after, size_bytes=size_bytes, peer=target, tag=0, stream=stream)
            if name == LATENCY:
                after = (new,)
            self.ends += (new,)

    def receive(self, name: str, source: int, count: int, size_bytes: int) -> None:
        """As many."""
        for _ in range(count):
            new = len(self.builder)
            self.builder.add(new, name, Kind.RECV, self.met, size_bytes=size_bytes, peer=source, tag=0)
            self.ends += (new,)

    def meet(self) -> None:
        """Add a barrier of all ranks; a rank without a partner reaches it at once."""
        new = len(self.builder)
        self.builder.add(new, MEET, Kind.COLL, self.ends or self.met, size_bytes=0, op=Op.BARRIER, group=0)
        self.met, self.ends = (new,), ()


Cells = NDArray[np.float64]  # (ranks, ranks), [sender, receiver]; NaN where not measured


@dataclass(frozen=True)
class Matrix:
    """Measurements of all pairs."""

    hosts: Sequence[str]  # by rank
    bytes_per_s: Cells  # of one direction, from the first post to the last acknowledgement
    latency_us: Cells  # median, from a small message's post to its acknowledgement
    latency_99_us: Cells  # nearest rank
    wrong_bytes: int | None = None
    retransmitted: int = 0

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @property
    def best_bytes_per_s(self) -> float:
        """Best bandwidth of all pairs; 0 when none was measured."""
        known = self.bytes_per_s[~np.isnan(self.bytes_per_s)]
        return float(known.max()) if known.size else 0.0

    @property
    def shares(self) -> Cells:
        """Bandwidths as shares of the best."""
        return self.bytes_per_s / (self.best_bytes_per_s or np.nan)

    @property
    def is_slow(self) -> NDArray[np.bool_]:
        """Mask of the pairs below SLOW_SHARE of the best."""
        return self.shares < SLOW_SHARE  # False where not measured


def matrix_of(run: Run, hosts: Sequence[str]) -> Matrix:
    """The matrices of a run of `rounds`.

    Posts and acknowledgements share the sender's clock, so clock errors cancel.
    """
    import polars as pl

    named = run.timeline.select(src="rank", node_id="node_id", name="name")
    ended = run.transfers.filter((pl.col("post_ns") >= 0) & (pl.col("acked_ns") >= 0))
    sent = ended.join(named, on=["src", "node_id"], how="inner")
    took_us = (pl.col("acked_ns") - pl.col("post_ns")) / 1e3
    latency = sent.filter(pl.col("name") == LATENCY).group_by("src", "dst").agg(
        middle=took_us.median(), high=took_us.quantile(0.99, "higher")
    )  # fmt: skip
    span_s = (pl.col("acked_ns").max() - pl.col("post_ns").min()) / 1e9
    bandwidth = sent.filter(pl.col("name") == BANDWIDTH).group_by("src", "dst").agg(
        rate=pl.when(span_s > 0).then(pl.col("size_bytes").sum() / span_s)
    )  # fmt: skip
    counters = [each for each in run.counters.get("ranks", []) if each]
    checked = bool(counters) and all("wrong_bytes" in each for each in counters)
    return Matrix(
        hosts,
        _cells(bandwidth, "rate", len(hosts)),
        _cells(latency, "middle", len(hosts)),
        _cells(latency, "high", len(hosts)),
        sum(int(each["wrong_bytes"]) for each in counters) if checked else None,
        sum(int(each.get("retransmitted", 0)) for each in counters),
    )


def _cells(table: pl.DataFrame, column: str, ranks: int) -> Cells:
    import polars as pl

    cells = np.full((ranks, ranks), np.nan)
    cells[table["src"].to_numpy(), table["dst"].to_numpy()] = table[column].cast(pl.Float64).to_numpy()
    return cells


def slow_in_words(matrix: Matrix) -> list[str]:
    """Ranks that send or receive slowly with all others, then the remaining slow pairs, slowest first."""
    whole = _slow_with_all(matrix)
    words = []
    for axis, verb in enumerate(("sends to", "receives from")):
        for rank in np.flatnonzero(whole[axis]).tolist():
            share = np.nanmedian(matrix.shares[:, rank] if axis else matrix.shares[rank])
            words.append(f"rank {rank} ({matrix.hosts[rank]}) {verb} all others at {share:.2f} of the best")
    for source, target in sorted(_slow_alone(matrix), key=lambda pair: float(matrix.shares[pair])):
        words.append(
            f"rank {source} ({matrix.hosts[source]}) to rank {target} ({matrix.hosts[target]}): "
            f"{matrix.shares[source, target]:.2f} of the best"
        )
    return words


def _slow_with_all(matrix: Matrix) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the slow senders and of the slow receivers."""
    slow, known = matrix.is_slow, ~np.isnan(matrix.bytes_per_s)
    sends, receives = ((slow | ~known).all(axis=axis) & (known.sum(axis=axis) > 1) for axis in (1, 0))
    return sends, receives


def _slow_alone(matrix: Matrix) -> list[Pair]:
    """Slow pairs without a rank that is slow with all others."""
    sends, receives = _slow_with_all(matrix)
    return [(one, other) for one, other in np.argwhere(matrix.is_slow & ~sends[:, None] & ~receives[None, :]).tolist()]


def warnings(asked: PairsAsked, matrix: Matrix) -> list[str]:
    """Warnings on doubtful bandwidths: messages too small for far ranks, or links that pairs share."""
    found = []
    known = matrix.latency_us[~np.isnan(matrix.latency_us)]
    took_us = asked.size_bytes * asked.messages / (matrix.best_bytes_per_s or np.inf) * 1e6
    share = float(known.max()) / took_us if known.size and took_us else 0.0
    if share > LATENCY_SHARE_MAX:
        found.append(
            f"latency is up to {share:.0%} of the time of these messages, and far ranks seem slow: give a larger -s"
        )
    if not asked.alone and asked.ranks > 3 and _slow_alone(matrix):
        found.append("pairs of one round may share a link: --alone measures one pair at a time")
    return found


def report(asked: PairsAsked, matrix: Matrix, ours: dict[str, Any]) -> dict[str, Any]:
    """All figures, as JSON has them."""
    return {
        "bench": "pairs",
        "ranks": asked.ranks,
        "hosts": list(matrix.hosts),
        "rounds": asked.rounds,
        "size_bytes": asked.size_bytes,
        "messages": asked.messages,
        "small_bytes": asked.small_bytes,
        "small_messages": asked.small_messages,
        "both_ways": asked.both_ways,
        "alone": asked.alone,
        "bytes_per_s": _lists(matrix.bytes_per_s),
        "latency_us": _lists(matrix.latency_us),
        "latency_99_us": _lists(matrix.latency_99_us),
        "best_bytes_per_s": matrix.best_bytes_per_s,
        "slow_share": SLOW_SHARE,
        "slow": [
            {"src": src, "dst": dst, "share": float(matrix.shares[src, dst])}
            for src, dst in np.argwhere(matrix.is_slow).tolist()
        ],
        "wrong_bytes": matrix.wrong_bytes,
        "retransmitted": matrix.retransmitted,
        **ours,
    }


def _lists(cells: Cells) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in cells]
