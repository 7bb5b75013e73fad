"""Streams of WRITEs and ping-pongs as workloads, for the twin, and perftest's figures from their runs.

A stream keeps as many messages outstanding as perftest does: a message is posted when an earlier one is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genie.bench.pair import Arrivals, Bandwidth, Latency, bandwidth_of, latency_of
from genie.bench.rounds import Pair
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Workload

if TYPE_CHECKING:
    import polars as pl

WINDOWS = 10  # of a stream, as the receiver of a live bench takes them
PS_PER_NS = 1000


def streams(flows: Sequence[Pair], size_bytes: int, messages: int, outstanding: int) -> Workload:
    """A stream from each flow's first rank to its second, all at the same time; of each, so many outstanding."""
    ranks = 1 + max(max(flow) for flow in flows)
    builders = [RankBuilder(rank) for rank in range(ranks)]
    streams_of = [0] * ranks  # of each rank, for its flows
    for source, target in flows:
        sender, receiver = builders[source], builders[target]
        for number in range(messages):
            stream = streams_of[source] + number % outstanding
            sender.add(len(sender), "write", Kind.SEND, size_bytes=size_bytes, peer=target, stream=stream)
            receiver.add(len(receiver), "written", Kind.RECV, size_bytes=size_bytes, peer=source)
        streams_of[source] += outstanding
    return _workload("write", builders)


def pingpong(size_bytes: int, rounds: int) -> Workload:
    """Messages from rank 0 to rank 1 and back, each after the one before."""
    begins, answers = RankBuilder(0), RankBuilder(1)
    for number in range(rounds):
        after, at, stream = (2 * number - 1,) if number else (), 2 * number, number % 2
        begins.add(at, "ping", Kind.SEND, after, size_bytes=size_bytes, peer=1, stream=stream)
        begins.add(at + 1, "pong", Kind.RECV, size_bytes=size_bytes, peer=1)
        answers.add(at, "ping", Kind.RECV, size_bytes=size_bytes, peer=0)
        answers.add(at + 1, "pong", Kind.SEND, (at,), size_bytes=size_bytes, peer=0, stream=stream)
    return _workload("pingpong", [begins, answers])


def bandwidth_in(transfers: pl.DataFrame, flow: Pair, queue_pairs: int = 1) -> Bandwidth:
    """A stream's bandwidth, by perftest's definition, from the transfers of a run of `streams`."""
    import polars as pl

    own = transfers.filter((pl.col("src") == flow[0]) & (pl.col("dst") == flow[1])).sort("last_ns")
    size_bytes, messages = int(own["size_bytes"][0]), own.height
    took_ps = _ps(own, "acked_ns", "post_ns")
    ends = sorted({messages * (window + 1) // WINDOWS for window in range(WINDOWS)} - {0})
    arrivals = [Arrivals(end, end * size_bytes, _ps(own.head(end), "last_ns", "first_ns")) for end in ends]
    return bandwidth_of(size_bytes, messages, took_ps, arrivals, 0, queue_pairs)


def latency_in(timeline: pl.DataFrame, size_bytes: int) -> Latency:
    """The latency, by perftest's definition, from the timeline of a run of `pingpong`."""
    import polars as pl

    own = timeline.filter(pl.col("rank") == 0).sort("node_id")
    begun = own.filter(pl.col("kind") == "send")["start_ns"]
    ended = own.filter(pl.col("kind") == "recv")["end_ns"]
    return latency_of(size_bytes, [PS_PER_NS * each for each in (ended - begun).to_list()], 0)


def _ps(rows: pl.DataFrame, last: str, first: str) -> int:
    """Time from the least of one column to the largest of the other."""
    return PS_PER_NS * (int(rows[last].max()) - int(rows[first].min()))  # type: ignore[arg-type]


def _workload(name: str, builders: Sequence[RankBuilder]) -> Workload:
    graphs = {builder.rank: builder.finish()[0] for builder in builders}
    ranks = len(builders)
    return Workload(name, ranks, [Group("0", tuple(range(ranks)))], graphs)
