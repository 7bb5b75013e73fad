"""Conversion of a walker's records into the tables of a run folder, the same for both worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.plan.sequence import sequence_numbers
from genie.workload.graph import Kind, Op, RankGraph, Workload

if TYPE_CHECKING:
    import polars as pl

Records = Mapping[str, Mapping[str, NDArray[Any]]]  # from the native walker: nodes, sends, receives

KIND_NAMES = [kind.name.lower() for kind in Kind]
OP_NAMES = {int(op): op.name.lower() for op in Op if op is not Op.NONE}
NOT_YET = -1
JOIN_KEYS = ("iteration", "src", "dst", "group_number", "seq", "tag", "order")


def _ns(times_ps: NDArray[Any], divisor: int) -> NDArray[Any]:
    """Picoseconds to whole nanoseconds, undilated; -1 (not yet) is kept, and no other value becomes -1."""
    times = np.asarray(times_ps, np.int64)
    ns = times // (1000 * divisor)
    return np.where(times == NOT_YET, NOT_YET, np.where(ns == NOT_YET, NOT_YET - 1, ns))


def timeline_of(
    workload: Workload, graph: RankGraph, records: Records, iteration: int, time_factor: int = 1
) -> pl.DataFrame:
    """One row per node of one rank that has started; times in ns from the iteration's origin."""
    import polars as pl

    from genie.record.schemas import TIMELINE_SCHEMA

    nodes = records["nodes"]
    started = np.asarray(nodes["start_ps"]) >= 0
    rows = np.flatnonzero(started)
    names = [group.name for group in workload.groups]
    group = graph.group[rows]
    frame = pl.DataFrame(
        {
            "rank": np.full(len(rows), graph.rank, np.int32),
            "node_id": graph.node_id[rows],
            "name": [graph.name[row] for row in rows],
            "kind": [KIND_NAMES[kind] for kind in graph.kind[rows]],
            "op": [OP_NAMES.get(int(op)) for op in graph.op[rows]],
            "group": [names[number] if number >= 0 else None for number in group],
            "seq": sequence_numbers(graph)[rows],
            "size_bytes": np.maximum(graph.size_bytes[rows], 0),
            "ready_ns": _ns(nodes["ready_ps"][rows], time_factor),
            "start_ns": _ns(nodes["start_ps"][rows], time_factor),
            "end_ns": _ns(nodes["end_ps"][rows], time_factor),
            "overshoot_ns": np.asarray(nodes["overshoot_ps"])[rows] // (1000 * time_factor),
            "iteration": np.full(len(rows), iteration, np.int32),
        },
        schema=TIMELINE_SCHEMA,
    )
    return frame.with_columns(seq=pl.when(pl.col("seq") < 0).then(None).otherwise(pl.col("seq")))


def _orders(graph: RankGraph, node: NDArray[np.int32], kind: Kind) -> NDArray[np.int64]:
    """For each record of a node of `kind`: the index, from 0, of its message among those of its peer and tag.

    Records are in the order in which nodes started, which is the order in which messages match.
    """
    order = np.zeros(len(node), np.int64)
    count: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(graph.kind[node] == kind):
        key = (int(graph.peer[node[at]]), int(graph.tag[node[at]]))
        order[at] = count.get(key, 0)
        count[key] = order[at] + 1
    return order


def _keys(graph: RankGraph, node: NDArray[np.int32], kind: Kind, iteration: int) -> dict[str, Any]:
    collective = graph.kind[node] == Kind.COLL
    return {
        "iteration": np.full(len(node), iteration, np.int32),
        "group_number": graph.group[node],
        "seq": sequence_numbers(graph)[node],
        "tag": np.where(collective, -1, graph.tag[node]),
        "order": _orders(graph, node, kind),
    }


def sends_of(
    graph: RankGraph, records: Records, iteration: int, paths: Mapping[int, str], time_factor: int = 1
) -> pl.DataFrame:
    """The sender's half of the transfers. `paths`: receiving rank -> UDP source ports."""
    import polars as pl

    sends = records["sends"]
    node = np.asarray(sends["node"], np.int32)
    keys = _keys(graph, node, Kind.SEND, iteration)
    return pl.DataFrame(
        {
            **keys,
            "src": np.full(len(node), graph.rank, np.int32),
            "dst": np.asarray(sends["peer"]),
            "node_id": graph.node_id[node],
            "size_bytes": np.asarray(sends["size_bytes"]),
            "messages": np.asarray(sends["messages"]),
            "post_ns": _ns(sends["post_ps"], time_factor),
            "acked_ns": _ns(sends["acked_ps"], time_factor),
            "busy_ns": np.asarray(sends["busy_ps"]) // (1000 * time_factor),
            "retransmits": np.asarray(sends["retransmits"]),
            "path": pl.Series([paths.get(int(peer), "") for peer in sends["peer"]], dtype=pl.String),
        }
    ).filter(pl.col("messages") > 0)


def receives_of(graph: RankGraph, records: Records, iteration: int, time_factor: int = 1) -> pl.DataFrame:
    """The receiver's half of the transfers."""
    import polars as pl

    receives = records["receives"]
    node = np.asarray(receives["node"], np.int32)
    keys = _keys(graph, node, Kind.RECV, iteration)
    return pl.DataFrame(
        {
            **keys,
            "src": np.asarray(receives["peer"]),
            "dst": np.full(len(node), graph.rank, np.int32),
            "first_ns": _ns(receives["first_ps"], time_factor),
            "last_ns": _ns(receives["last_ps"], time_factor),
        }
    )


def join_transfers(workload: Workload, sends: pl.DataFrame, receives: pl.DataFrame) -> pl.DataFrame:
    """Both halves as the table of a run folder; first_ns and last_ns are -1 where the receiver's half is missing."""
    import polars as pl

    from genie.record.schemas import TRANSFERS_SCHEMA

    names = pl.DataFrame(
        {
            "group_number": np.arange(len(workload.groups), dtype=np.int32),
            "group": [group.name for group in workload.groups],
        },
        schema={"group_number": pl.Int32, "group": pl.String},
    )
    joined = sends.join(receives, on=JOIN_KEYS, how="left").join(names, on="group_number", how="left")
    return (
        joined.with_columns(
            pl.col("first_ns", "last_ns").fill_null(-1),
            seq=pl.when(pl.col("seq") < 0).then(None).otherwise(pl.col("seq")),
        )
        .sort("iteration", "src", "node_id", "dst")
        .select(list(TRANSFERS_SCHEMA))
        .cast(TRANSFERS_SCHEMA)
    )
