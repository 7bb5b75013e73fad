"""The reliable connection end to end: whatever the network does, each message arrives once, in order and whole."""

from __future__ import annotations

import random

import pytest
from connection_draws import MTU, SIZES, VERBS, drawn, fates, first_psns, messages
from hypothesis import given
from hypothesis import strategies as st
from network import LOST, ON_TIME, PSN_COUNT, Fate, Network, config, psn_distance

FOR_EVER = 1_000_000  # retries
ACKNOWLEDGE = 0x11


def content(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def post_all(network: Network, source: int, wanted: list[tuple[str, int]]) -> None:
    for number, (verb, size) in enumerate(wanted):
        network.post(source, verb, content(source * 1000 + number, size), immediate=number + 1)


def check_all_arrived(network: Network) -> None:
    for source in (0, 1):
        end, peer = network.ends[source], network.ends[1 - source]
        assert [(m.verb, m.data, m.immediate) for m in peer.arrived] == [
            (m.verb, m.data, m.immediate) for m in end.messages
        ]
        for there, here in zip(peer.arrived, end.messages, strict=True):
            if here.address is not None:
                assert there.address == (here.address if here.data else None)
                assert peer.memory[here.address : here.address + len(here.data)] == here.data
        assert end.over == [(number, "ok") for number in range(len(end.messages))]
        assert end.pair.state == "idle"
        assert end.pair.unacked_psn == peer.pair.expected_psn
        assert end.most_in_flight <= end.window
        counters = end.pair.counters()
        assert [name for name in counters if name.startswith(("forged", "reads_dropped")) and counters[name]] == []


@given(
    messages,
    messages,
    fates,
    fates,
    st.tuples(first_psns, first_psns),
    st.integers(1, 24),
    st.integers(1, 24),
    st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 3)), max_size=4),
)
@drawn
def test_each_message_arrives_once_in_order_and_whole(
    from_0: list[tuple[str, int]],
    from_1: list[tuple[str, int]],
    fates_0: list[Fate],
    fates_1: list[Fate],
    psns: tuple[int, int],
    window: int,
    ack_every: int,
    receives: list[tuple[int, int]],
) -> None:
    """Loss, duplicates, reordering and receives that run out, at both ends at once; then the network heals."""
    network = Network(
        config(window_packets=window, ack_every_packets=ack_every, retry_limit=FOR_EVER, rnr_timer=7), psns
    )
    network.paths[0].fates, network.paths[1].fates = fates_0, fates_1
    for time_ps, count in receives:
        network.at(time_ps, lambda count=count: setattr(network.ends[1].pair, "receives", count))  # type: ignore[misc]
    network.at(2_500_000, lambda: setattr(network.ends[1].pair, "receives", -1))
    post_all(network, 0, from_0)
    post_all(network, 1, from_1)
    network.run()
    check_all_arrived(network)


@pytest.mark.parametrize("seed", range(10))
def test_heavy_loss_is_only_slow(seed: int) -> None:
    """Three packets in ten lost in both directions, for ten thousand packets."""
    draw = random.Random(seed)
    network = Network(config(window_packets=32, retry_limit=FOR_EVER), (PSN_COUNT - 500, 7))
    for path in network.paths:
        path.fates = [LOST if draw.random() < 0.3 else ON_TIME for _ in range(10_000)]
    post_all(network, 0, [(draw.choice(VERBS), draw.choice(SIZES)) for _ in range(100)])
    post_all(network, 1, [(draw.choice(VERBS), draw.choice(SIZES)) for _ in range(20)])
    network.run()
    check_all_arrived(network)
    counters = network.ends[0].pair.counters()
    assert counters["retransmitted"] > 100
    assert counters["data_sent"] == network.ends[0].pair.counters()["retransmitted"] + psn_distance(
        network.ends[0].pair.send_psn, PSN_COUNT - 500
    )


def test_psns_wrap() -> None:
    network = Network(config(window_packets=5), (PSN_COUNT - 3, PSN_COUNT - 1))
    post_all(network, 0, [("write_imm", 10 * MTU)])
    post_all(network, 1, [("send", 3 * MTU)])
    network.run()
    check_all_arrived(network)
    data = [packet.psn for packet in network.ends[0].sent if packet.opcode != ACKNOWLEDGE]
    assert data == [(PSN_COUNT - 3 + at) % PSN_COUNT for at in range(10)]
    assert network.ends[0].pair.send_psn == 7


def test_a_receiver_that_is_not_ready_is_asked_again() -> None:
    """The pause is the one that the RNR NAK names, and the packets behind the refused one wait with it."""
    network = Network(config(rnr_timer=9, rnr_unit_ps=10_000))  # 24 units
    network.ends[1].pair.receives = 0
    network.at(1_000_000, lambda: setattr(network.ends[1].pair, "receives", -1))
    post_all(network, 0, [("send", 3 * MTU), ("write_imm", 10)])
    network.run()
    check_all_arrived(network)
    counters = network.ends[1].pair.counters()
    assert counters["rnr_naks_sent"] == 4  # 0, 0.25, 0.5 and 0.75 ms; at 1 ms it is ready
    assert network.ends[0].pair.counters()["rnr_naks_received"] == 4
    assert counters["naks_sent"] == 0


@pytest.mark.parametrize("limit", [0, 1, 6])
def test_a_receiver_that_is_never_ready_ends_the_connection(limit: int) -> None:
    network = Network(config(rnr_retry_limit=limit))
    network.ends[1].pair.receives = 0
    post_all(network, 0, [("write", 10), ("send", 1), ("write", 10)])
    network.run()
    end = network.ends[0]
    assert end.over == [(0, "ok"), (1, "RNR retry exceeded"), (2, "flushed")]
    assert end.pair.counters()["rnr_naks_received"] == limit + 1
    assert network.ends[1].arrived == [end.messages[0]]


def test_seven_means_for_ever() -> None:
    network = Network(config(rnr_retry_limit=7, rnr_timer=1))
    network.ends[1].pair.receives = 0
    network.at(300_000, lambda: setattr(network.ends[1].pair, "receives", -1))
    post_all(network, 0, [("send", 1)])
    network.run()
    check_all_arrived(network)
    assert network.ends[0].pair.counters()["rnr_naks_received"] > 20


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_a_dead_peer_ends_the_connection(limit: int) -> None:
    """One timeout more than there are retries, each twice as long; then the oldest message fails."""
    network = Network(config(retry_limit=limit))
    network.paths[0].fates = [ON_TIME, *[LOST] * 1000]
    post_all(network, 0, [("write_imm", 1), ("write_imm", 3 * MTU), ("send", 5)])
    network.run()
    end = network.ends[0]
    assert end.over == [(0, "ok"), (1, "retry exceeded"), (2, "flushed")]
    assert end.pair.state == "error"
    assert end.pair.counters()["timeouts"] == limit + 1
    acknowledged_ps = 2 * (1_000 + 5_000)
    assert network.now_ps == acknowledged_ps + sum(1 << min(number, 5) for number in range(limit + 1)) * 1_000_000
    network.post(0, "send", b"late")
    assert end.over[-1] == (3, "flushed")
    assert end.pair.take_data(network.now_ps) is None


def test_progress_gives_all_retries_back() -> None:
    """Every packet lost seven times, one after another, is not a dead peer."""
    network = Network(config(retry_limit=7, window_packets=1))
    network.paths[0].fates = ([LOST] * 7 + [ON_TIME]) * 5
    post_all(network, 0, [("write_imm", 5 * MTU)])
    network.run()
    check_all_arrived(network)
    assert network.ends[0].pair.counters()["timeouts"] == 35
