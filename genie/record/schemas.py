"""Columns of a run folder's tables. For those who touch tables: to import this takes polars, which takes its time."""

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
    "start_ns": pl.Int64,  # its resource was free too: a collective's arrival
    "end_ns": pl.Int64,
    "overshoot_ns": pl.Int64,  # comp and mem: how much later than asked the sleep ended; 0 elsewhere
    "iteration": pl.Int32,
})  # fmt: skip

# One row per (iteration, sending rank, node of the sender, receiving rank): all messages of a collective, or
# of a send, from `src` to `dst`. first_ns and last_ns are taken at the receiver.
TRANSFERS_SCHEMA = pl.Schema({
    "iteration": pl.Int32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "node_id": pl.UInt64,  # the sender's node
    "group": pl.String,
    "seq": pl.Int32,
    "size_bytes": pl.Int64,
    "messages": pl.Int64,
    "post_ns": pl.Int64,  # the first message was handed to the transport
    "first_ns": pl.Int64,  # its first packet arrived
    "last_ns": pl.Int64,  # the last packet of the last message arrived
    "acked_ns": pl.Int64,  # the sender knew that all had arrived
    "busy_ns": pl.Int64,  # time with a message posted and not acknowledged: needs only the sender's clock
    "retransmits": pl.Int64,  # packets sent again
    "path": pl.String,  # UDP source ports, comma separated
})  # fmt: skip

# One row per directed link of a path, in the order of the path; only in runs whose paths are known. With several
# queue pairs a pair of ranks has a path for each of their source ports.
PATHS_SCHEMA = pl.Schema({
    "src": pl.Int32,
    "dst": pl.Int32,
    "source_port": pl.Int32,
    "hop": pl.Int32,  # from 0
    "link": pl.String,  # "leaf0->spine1"
    # Measured after a live run, null elsewhere: until the end of this link answered a probe that followed a train of
    # packets into the idle path, the least of some trials. Where it grows from link to link the later one is slower.
    "probe_ns": pl.Int64,
})  # fmt: skip

# Of a simulation with --series: one row per link and interval, and one per pair of ranks at its end. Of links without
# those in which nothing was sent, waited, paused, was marked or dropped; of pairs with messages that are not
# acknowledged. Null: not of this kind.
SERIES_SCHEMA = pl.Schema({
    "iteration": pl.Int32,
    "time_ns": pl.Int64,  # the interval's end, from the iteration's common origin; the last may be a shorter one
    "kind": pl.String,  # link or pair
    "name": pl.String,  # "leaf0->spine1", "rank3->rank7"
    "queue_bytes": pl.Int64,  # link: waits for it at that instant
    "longest_queue_bytes": pl.Int64,  # link: in the interval, its ends included
    "sent_bytes": pl.Int64,  # link: of packets on the way what has left by then
    "utilisation": pl.Float64,  # link: of what its rate could have sent; 0 where that is unlimited
    "marked": pl.Int64,  # link: by ECN, when they left its queue
    "pauses": pl.Int64,  # link: how often its source was told to pause
    "paused_ns": pl.Int64,  # link: the sum of its classes
    "dropped": pl.Int64,  # link
    # pair: what congestion control lets its queue pairs send together, at most what their ports can; of a window, one
    # in each base round trip. Null: no limit.
    "rate_bps": pl.Int64,
})  # fmt: skip
