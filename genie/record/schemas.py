"""Columns of a run folder's tables. A module of its own, because it imports polars, which takes long."""

from __future__ import annotations

import polars as pl

# One row per node that was played. Times in ns from the iteration's common origin.
TIMELINE_SCHEMA = pl.Schema({
    "rank": pl.Int32,
    "node_id": pl.UInt64,
    "name": pl.String,
    "kind": pl.String,  # comp, mem, send, recv, coll, meta
    "op": pl.String,  # all_reduce, ... or null
    "group": pl.String,  # null unless a collective
    "seq": pl.Int32,  # the k-th collective of its group in the iteration, from 0
    "size_bytes": pl.Int64,
    "ready_ns": pl.Int64,  # all dependencies done
    "start_ns": pl.Int64,  # dependencies are done and its resource is free: a collective's arrival
    "end_ns": pl.Int64,
    "overshoot_ns": pl.Int64,  # comp and mem: lateness of the sleep's end; 0 elsewhere
    "iteration": pl.Int32,
})  # fmt: skip

# One row per (iteration, sending rank, node of the sender, receiving rank): all messages of a collective, or of a send,
# from `src` to `dst`. first_ns and last_ns are times at the receiver.
TRANSFERS_SCHEMA = pl.Schema({
    "iteration": pl.Int32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "node_id": pl.UInt64,  # the sender's node
    "group": pl.String,
    "seq": pl.Int32,
    "size_bytes": pl.Int64,
    "messages": pl.Int64,
    "post_ns": pl.Int64,  # the first message is handed to the transport
    "first_ns": pl.Int64,  # its first packet arrives
    "last_ns": pl.Int64,  # the last packet of the last message arrives
    "acked_ns": pl.Int64,  # the sender has the last acknowledgement
    "busy_ns": pl.Int64,  # time with a message posted and not acknowledged, by the sender's clock alone
    "retransmits": pl.Int64,  # retransmitted packets
    "path": pl.String,  # UDP source ports, separated by commas
})  # fmt: skip

# One row per directed link of a path, in the order of the path; only in runs whose paths are known. With several queue
# pairs, a pair of ranks has a path for each source port.
PATHS_SCHEMA = pl.Schema({
    "src": pl.Int32,
    "dst": pl.Int32,
    "source_port": pl.Int32,
    "hop": pl.Int32,  # from 0
    "link": pl.String,  # "leaf0->spine1"
    # Measured after a live run, null elsewhere: time until the end of this link answers a probe. The probe follows a
    # train of packets into the idle path, and the least of some trials counts. Where the time grows from one link to
    # the next, the later link is slower.
    "probe_ns": pl.Int64,
})  # fmt: skip

# Samples of a simulation with --series: at each interval's end one row per link and one per pair of ranks. Links are
# left out in which no packet was sent, queued, paused, marked or dropped. Pairs are left out without unacknowledged
# messages. Null: not a column of this kind.
SERIES_SCHEMA = pl.Schema({
    "iteration": pl.Int32,
    "time_ns": pl.Int64,  # end of the interval, from the iteration's common origin; the last interval may be shorter
    "kind": pl.String,  # link or pair
    "name": pl.String,  # "leaf0->spine1", "rank3->rank7"
    "queue_bytes": pl.Int64,  # link: queue at that instant
    "longest_queue_bytes": pl.Int64,  # link: during the interval, including its ends
    "sent_bytes": pl.Int64,  # link: bytes sent; of a packet on the wire, the part sent by then
    "utilisation": pl.Float64,  # link: share of what its rate can send; 0 for an unlimited rate
    "marked": pl.Int64,  # link: packets marked by ECN as they left the queue
    "pauses": pl.Int64,  # link: pause requests to its source
    "paused_ns": pl.Int64,  # link: sum over its priority classes
    "dropped": pl.Int64,  # link
    # pair: rate that congestion control allows to its queue pairs together, at most that of their ports. A window
    # counts as one window per base round trip. Null: no limit.
    "rate_bps": pl.Int64,
})  # fmt: skip
