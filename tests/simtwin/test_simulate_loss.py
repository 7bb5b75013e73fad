"""Packets that are lost: everything still arrives, and what was sent again is counted."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twin_fabrics import GBPS, NS, US, run_native, single_switch, transmission_ps, twin_of, wire_bytes

from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective, point_to_point
from simtwin.play.twin import Loss

MIB = 1 << 20
PACKET = 4096
# Columns of a trace entry.
TIME, SOURCE, TARGET, OPCODE, PSN, PAYLOAD, SYNDROME, LOST = range(8)
ACKNOWLEDGE = 0x11


def _data(trace: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [entry for entry in trace if entry[OPCODE] != ACKNOWLEDGE]


def _pairs(ranks: int, size_bytes: int) -> Workload:
    """Every rank but the last sends one message to the last."""
    workload = Workload("incast", ranks, [Group("0", tuple(range(ranks)))], {})
    receiver = RankBuilder(ranks - 1)
    for rank in range(ranks - 1):
        builder = RankBuilder(rank)
        builder.add(0, "send", Kind.SEND, size_bytes=size_bytes, peer=ranks - 1)
        workload.ranks[rank], _ = builder.finish()
        receiver.add(rank, "receive", Kind.RECV, size_bytes=size_bytes, peer=rank)
    workload.ranks[ranks - 1], _ = receiver.finish()
    return workload


# Losses by number


def test_one_lost_packet_is_sent_again_with_all_that_followed_it() -> None:
    """Go-back-N: packet 3 of 20 is lost; the receiver refuses 4, and what was sent until its NAK came is repeated."""
    fabric = single_switch(2, 100 * GBPS, 500 * NS)
    twin = twin_of(fabric)
    result = twin.play(point_to_point(0, 1, 20 * PACKET), losses=[Loss(0, 1, numbers=(3,))], keep_trace=True)
    data = _data(result.traces[0])
    assert [entry[PSN] for entry in data if entry[LOST]] == [3]
    first = [entry[PSN] for entry in data[:4]]
    again = next(at for at in range(1, len(data)) if data[at][PSN] <= data[at - 1][PSN])
    assert first == [0, 1, 2, 3]
    assert [entry[PSN] for entry in data] == [*range(again), *range(3, 20)]
    # The NAK leaves when packet 4 has come; until it is here the sender goes on.
    packet = transmission_ps(wire_bytes(20 * PACKET)[1], 100 * GBPS)
    nak_ps = data[4][TIME] + packet + 2 * 500 * NS + 2 * transmission_ps(86, 100 * GBPS) + 2 * 500 * NS
    assert again == sum(entry[TIME] - packet <= nak_ps for entry in data[:again])
    assert result.transfers["retransmits"].to_list() == [again - 3]


def test_a_lost_last_packet_waits_for_the_timeout() -> None:
    fabric = single_switch(2, 100 * GBPS, 500 * NS, ack_timeout=200 * US)
    clean, lossy = (
        twin_of(fabric).play(point_to_point(0, 1, 3 * PACKET), losses=losses).transfers.row(0, named=True)
        for losses in ([], [Loss(0, 1, numbers=(2,))])
    )
    assert lossy["retransmits"] == 3, "from the oldest that is not acknowledged"
    assert lossy["first_ns"] == clean["first_ns"]
    assert 200_000 < lossy["last_ns"] < 200_000 + clean["acked_ns"]


def test_a_message_of_one_packet_that_is_lost_twice() -> None:
    """After a timeout, and after another twice as long."""
    fabric = single_switch(2, ack_timeout=100 * US)
    row = (
        twin_of(fabric).play(point_to_point(0, 1, 10), losses=[Loss(0, 1, numbers=(0, 1))]).transfers.row(0, named=True)
    )
    assert row["retransmits"] == 2
    assert 300_000 <= row["first_ns"] == row["last_ns"] < 310_000


def test_only_the_named_pair_loses() -> None:
    twin = twin_of(single_switch(4, ack_timeout=100 * US))
    result = twin.play(collective(Op.ALL_GATHER, 4, 100_000), losses=[Loss(1, 2, every=7)], keep_trace=True)
    lost = {(entry[SOURCE], entry[TARGET]) for entry in result.traces[0] if entry[LOST]}
    assert lost == {(1, 2)}
    retransmits = result.transfers.filter(pl.col("retransmits") > 0)
    assert retransmits.select("src", "dst").unique().rows() == [(1, 2)]


def test_one_of_every_n_data_packets_is_lost_retransmissions_included() -> None:
    twin = twin_of(single_switch(2, ack_timeout=100 * US))
    result = twin.play(point_to_point(0, 1, 100 * PACKET), losses=[Loss(0, 1, every=9)], keep_trace=True)
    flags = [entry[LOST] for entry in _data(result.traces[0])]
    blocks = [flags[start : start + 9] for start in range(0, len(flags), 9)]
    assert [sum(block) for block in blocks[:-1]] == [1] * (len(blocks) - 1)
    assert sum(blocks[-1]) <= 1
    assert len(flags) == 100 + result.transfers["retransmits"].sum()
    assert result.counters["data_packets"] == len(flags)


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.BROADCAST, Op.BARRIER]), st.integers(2, 5),
    st.integers(0, 200_000), st.lists(st.integers(0, 200), max_size=12), st.booleans(),
)  # fmt: skip
def test_every_collective_survives_losses(op: Op, ranks: int, size: int, numbers: list[int], credit: bool) -> None:
    """Clear-to-sends are lost like data."""
    twin = twin_of(single_switch(ranks, mtu=1024, ack_timeout=50 * US))
    losses = [Loss(source, (source + 1) % ranks, numbers=tuple(numbers)) for source in range(ranks)]
    lowering = Lowering(channels=2, credit=credit)
    workload = collective(op, ranks, size, count=2)
    clean = twin.play(workload, lowering=lowering)
    lossy = twin.play(workload, lowering=lowering, losses=losses)
    columns = ("src", "dst", "node_id", "size_bytes", "messages")
    assert lossy.transfers.select(columns).equals(clean.transfers.select(columns))
    assert lossy.timeline["end_ns"].min() >= 0


# Drop-tail


@pytest.mark.parametrize("buffer_packets", [1, 2, 8, 40])
def test_incast_into_a_small_buffer_loses_and_delivers(buffer_packets: int) -> None:
    senders, size = 8, 256 << 10
    fabric = single_switch(senders + 1, buffer_bytes=buffer_packets * 4200, ack_timeout=300 * US)
    workload = _pairs(senders + 1, size)
    twin = twin_of(fabric)
    result = twin.play(workload)
    assert result.counters["dropped"] > 0
    assert result.transfers["size_bytes"].to_list() == [size] * senders
    assert (result.transfers["last_ns"] > 0).all()
    # Only the port of the receiver drops.
    dropped = dict(zip(twin.network.link_names, result.counters["links"]["dropped"], strict=True))
    assert {name for name, count in dropped.items() if count} == {f"switch->host{senders}"}
    assert dropped[f"switch->host{senders}"] == result.counters["dropped"]
    # Every lost packet is sent again, and with go-back-N more than the lost ones.
    assert result.transfers["retransmits"].sum() >= result.counters["dropped"]
    assert result.counters["data_packets"] == senders * 64 + result.transfers["retransmits"].sum()


def test_a_queue_never_holds_more_than_the_buffer() -> None:
    rate, buffer_bytes = 100 * GBPS, 50_000
    twin = twin_of(single_switch(9, rate, buffer_bytes=buffer_bytes, ack_timeout=300 * US))
    result = twin.play(_pairs(9, 256 << 10))
    longest = max(result.counters["links"]["longest_queue_bytes"])
    packet = wire_bytes(MIB)[1]
    assert buffer_bytes - packet < longest <= buffer_bytes


def test_retransmits_of_transfers_are_those_of_the_queue_pairs() -> None:
    fabric = single_switch(6, downlink_bps=40 * GBPS, buffer_bytes=30_000, ack_timeout=300 * US)
    lowering = Lowering(algorithms={"all_to_all": "direct"})
    run = run_native(twin_of(fabric), collective(Op.ALL_TO_ALL, 6, MIB), lowering)
    assert run.dropped > 0
    for rank, counters in enumerate(run.counters):
        assert run.records[rank]["sends"]["retransmits"].sum() == counters["retransmitted"]
    total = {name: sum(it[name] for it in run.counters) for name in run.counters[0]}
    assert total["naks_sent"] + total["timeouts"] > 0
    assert total["refused"] == total["rnr_naks_sent"] == 0
    assert total["data_received"] == total["data_sent"] - np.sum(run.links["dropped"]) + _dropped_acks(run.counters)


def _dropped_acks(counters: list[dict[str, int]]) -> int:
    sent = sum(it["acks_sent"] + it["naks_sent"] for it in counters)
    return sent - sum(it["acks_received"] for it in counters)
