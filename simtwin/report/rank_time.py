"""The time of ranks by state: computing, waiting for the network, waiting for other ranks, or idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genie.record.played import iteration_ends

if TYPE_CHECKING:
    import polars as pl

    from genie.record import Run
    from simtwin.play.simulated import Simulated

COMPUTING, NETWORK, OTHERS, IDLE = range(4)
STATES = ("computing", "waiting for the network", "waiting for other ranks", "idle")
COMPUTE_KINDS = ("comp", "mem")
NETWORK_KINDS = ("coll", "send", "recv")


@dataclass(frozen=True)
class RankTime:
    """State of each rank from time to time, in the order of (iteration, rank, time).

    A rank that computes is computing, whatever it sends meanwhile. A rank inside a collective, a send or a receive
    waits for the network or for other ranks. It waits for the network while all members of the collective have arrived,
    or a message from or to it is in flight.
    """

    iteration: NDArray[np.int64]
    rank: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    state: NDArray[np.int64]

    def shares(self, ends_ns: dict[int, int], ranks: int) -> list[float]:
        """Return the share of each state in all ranks' time; `ends_ns`: when iterations ended."""
        total = max(sum(ends_ns.values()) * ranks, 1)
        took = np.bincount(self.state, self.end_ns - self.start_ns, minlength=len(STATES)) / total
        took[IDLE] = max(1.0 - took[:IDLE].sum(), 0.0)
        return [float(it) for it in took]

    def of_ranks(self, iteration: int, end_ns: int) -> list[list[int]]:
        """Return for each rank of an iteration: rank, and its time in each state, in ns."""
        own = self.iteration == iteration
        ranks = np.unique(self.rank[own])
        took = np.zeros((len(ranks), len(STATES)), np.int64)
        np.add.at(took, (np.searchsorted(ranks, self.rank[own]), self.state[own]), (self.end_ns - self.start_ns)[own])
        took[:, IDLE] = np.maximum(end_ns - took[:, :IDLE].sum(axis=1), 0)
        return [[int(rank), *row] for rank, row in zip(ranks, took.tolist(), strict=True)]


class MeanIteration(NamedTuple):
    """An iteration's time, and how ranks spend it; means over iterations and recorded ranks.

    `exposed_ns`: time in which a rank computes nothing and waits for the network. `shares`: of the time, by state.
    """

    took_ns: float
    exposed_ns: float
    shares: list[float]


def mean_iteration(run: Run | Simulated) -> MeanIteration:
    """Return the time of an iteration and its exposed communication, of a simulation that has ended."""
    ends_ns = iteration_ends(run)
    shares = rank_time(run).shares(ends_ns, recorded_ranks(run))
    took_ns = sum(ends_ns.values()) / max(len(ends_ns), 1)
    return MeanIteration(took_ns, shares[NETWORK] * took_ns, shares)


def rank_time(run: Run | Simulated) -> RankTime:
    """Return the ranks' states, from a run's timeline and transfers."""
    keys, times, computes, nodes, ways = (np.concatenate(column) for column in zip(*_changes(run), strict=True))
    ranks = max(int(run.info["ranks"]), 1)
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    computing, inside, under_way = (np.cumsum(it[order]) for it in (computes, nodes, ways))
    state = np.where(computing > 0, COMPUTING, np.where(inside == 0, IDLE, np.where(under_way > 0, NETWORK, OTHERS)))
    is_step = (keys[1:] == keys[:-1]) & (times[1:] > times[:-1]) & (state[:-1] != IDLE)
    at = np.flatnonzero(is_step)
    return RankTime(keys[at] // ranks, keys[at] % ranks, times[at], times[at + 1], state[at])


# Key of iteration and rank, time, and a start (1) or an end (-1) of: a compute node, a communication node, a transfer.
Change = tuple[NDArray[np.int64], ...]


def _changes(run: Run | Simulated) -> list[Change]:
    import polars as pl

    played = run.timeline.filter(pl.col("end_ns") > pl.col("start_ns"))
    ranks = max(int(run.info["ranks"]), 1)
    collectives = with_members(run, played.filter(pl.col("kind") == "coll")).with_columns(start_ns=pl.col("there_ns"))
    alone = run.transfers.filter(pl.col("seq").is_null() & (pl.col("last_ns") > pl.col("post_ns")))
    spans = [
        (played.filter(pl.col("kind").is_in(COMPUTE_KINDS)), "rank", "start_ns", "end_ns", 0),
        (played.filter(pl.col("kind").is_in(NETWORK_KINDS)), "rank", "start_ns", "end_ns", 1),
        (collectives.filter(pl.col("end_ns") > pl.col("start_ns")), "rank", "start_ns", "end_ns", 2),
        (alone, "src", "post_ns", "acked_ns", 2),
        (alone, "dst", "post_ns", "last_ns", 2),
    ]
    result: list[Change] = []
    for table, rank, start, end, what in spans:
        key = table["iteration"].cast(pl.Int64).to_numpy() * ranks + table[rank].cast(pl.Int64).to_numpy()
        for column, sign in ((start, 1), (end, -1)):
            zero = np.zeros(len(key), np.int64)
            deltas = [zero, zero, zero]
            deltas[what] = np.full(len(key), sign, np.int64)
            result.append((key, table[column].to_numpy(), *deltas))
    return result


def recorded_ranks(run: Run | Simulated) -> int:
    """Return the number of ranks that the timeline holds."""
    recorded = run.info.get("recorded")
    return len(recorded["ranks"]) if recorded else int(run.info["ranks"])


def with_members(run: Run | Simulated, collectives: pl.DataFrame) -> pl.DataFrame:
    """Add `there_ns`, when all members of each collective had come, and `members`, their number.

    Where a timeline holds some members only, the first message tells when all had come.
    """
    import polars as pl

    keys = ["iteration", "group", "seq"]
    recorded = run.info.get("recorded")
    if not recorded:
        return collectives.with_columns(there_ns=pl.col("start_ns").max().over(keys), members=pl.len().over(keys))
    begun = run.transfers.filter(pl.col("seq").is_not_null()).group_by(keys).agg(there_ns=pl.col("post_ns").min())
    return collectives.join(begun, on=keys, how="left", maintain_order="left").with_columns(
        there_ns=pl.col("there_ns").fill_null(pl.col("start_ns")),
        members=pl.col("group").replace_strict(recorded["group_sizes"], default=1, return_dtype=pl.UInt32),
    )


def strips(time: RankTime, iteration: int, end_ns: int, rows: list[list[int]], bins: int) -> list[str]:
    """Return for each row of ranks one digit a bin of the iteration: the state in which its ranks were longest."""
    of_iteration = time.iteration == iteration
    rank, start, end, state = (it[of_iteration] for it in (time.rank, time.start_ns, time.end_ns, time.state))
    first = np.searchsorted(rank, np.arange(int(rank.max(initial=0)) + 2))  # rows are in the order of ranks
    edges = np.linspace(0, max(end_ns, 1), bins + 1)
    result = []
    for members in rows:
        took = np.zeros((len(STATES), bins))
        for member in members:
            if member + 1 >= len(first):
                continue
            own = slice(first[member], first[member + 1])
            for number in range(IDLE):
                chosen = state[own] == number
                took[number] += _covered(start[own][chosen], end[own][chosen], edges)
        took[IDLE] = len(members) * np.diff(edges) - took[:IDLE].sum(axis=0)
        result.append("".join(map(str, took.argmax(axis=0))))
    return result


def _covered(start: NDArray[np.int64], end: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time in each bin that is covered by spans, which are in order and do not overlap."""
    if not len(start):
        return np.zeros(len(edges) - 1)
    corners = np.column_stack((start, end)).ravel()
    covered = np.column_stack((np.zeros(len(start)), end - start)).ravel().cumsum()
    return np.diff(np.interp(edges, corners, covered))


def rows_of_ranks(ranks: int, most: int) -> list[list[int]]:
    """Return ranks in order, as groups of neighbours where there are more than `most`."""
    block = -(-ranks // most)
    return [list(range(first, min(first + block, ranks))) for first in range(0, ranks, block)]


def longest_iteration(ends_ns: dict[int, int]) -> int:
    """Return the number of the longest iteration, the first of several."""
    return max(ends_ns, key=lambda iteration: ends_ns[iteration], default=0)
