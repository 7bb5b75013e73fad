"""The reliable connection end to end: whatever the network does, each message arrives once, in order and whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from network import LOST, ON_TIME, PSN_COUNT, Fate, Network, config, psn_distance

from genie import _core

MTU = 256
VERBS = ("send", "send_imm", "write", "write_imm")
SIZES = (0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU - 1, 2 * MTU, 2 * MTU + 1, 3 * MTU, 7 * MTU - 3, 16 * MTU, 20 * MTU + 7)
FOR_EVER = 1_000_000  # retries
ACK, NAK_SEQUENCE, RNR_NAK = 0x1F, 0x60, 0x20
ACKNOWLEDGE = 0x11

messages = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(SIZES)), max_size=12)
fates: st.SearchStrategy[list[Fate]] = st.lists(
    st.one_of(
        st.just(ON_TIME),
        st.just(LOST),
        st.tuples(st.integers(0, 40_000)),  # late: others overtake it
        st.tuples(st.just(0), st.integers(0, 3_000_000)),  # twice, the copy perhaps long after
    ),
    max_size=80,
)
first_psns = st.one_of(
    st.just(0),
    st.integers(PSN_COUNT - 40, PSN_COUNT - 1),
    st.integers(PSN_COUNT // 2 - 40, PSN_COUNT // 2 + 5),
    st.integers(0, PSN_COUNT - 1),
)
drawn = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


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


@pytest.mark.parametrize(
    ("verb", "one", "one_imm"),
    [("send", (0x04, 0x00, 0x01, 0x02), (0x05, 0x03)), ("write", (0x0A, 0x06, 0x07, 0x08), (0x0B, 0x09))],
)
@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_segmentation(
    verb: str, one: tuple[int, int, int, int], one_imm: tuple[int, int], immediate: bool, size: int
) -> None:
    """The opcodes and lengths of section 9.2.1 and 9.7.3: a message of no bytes is one packet."""
    only, first, middle, last = one
    if immediate:
        only, last = one_imm
    pair = _core.QueuePair(config())
    pair.post(verb + ("_imm" if immediate else ""), size, immediate=9, remote_address=4096, rkey=5)
    packets = []
    while (packet := pair.take_data(0)) is not None:
        packets.append(packet)
    count = max(1, -(-size // MTU))
    assert [p.opcode for p in packets] == ([only] if count == 1 else [first, *[middle] * (count - 2), last])
    assert [p.payload_bytes for p in packets] == [*[MTU] * (count - 1), size - MTU * (count - 1)]
    assert [p.psn for p in packets] == list(range(count))
    assert packets[-1].immediate == (9 if immediate else 0)
    reth = (packets[0].message_bytes, packets[0].remote_address, packets[0].rkey)
    assert reth == ((size, 4096, 5) if verb == "write" else (0, 0, 0))
    assert [p.ack_request for p in packets] == [at == count - 1 or at % 16 == 15 for at in range(count)]


def receive_all(pair: _core.QueuePair, packets: list[_core.Packet]) -> None:
    for packet in packets:
        pair.receive(packet, 0)


def drain(pair: _core.QueuePair) -> list[_core.Packet]:
    packets = []
    while (packet := pair.take_data(0)) is not None:
        packets.append(packet)
    return packets


def kinds(pair: _core.QueuePair, kind: str) -> list[tuple[Any, ...]]:
    return [tuple(what) for name, *what in pair.effects() if name == kind]


def test_acknowledgements_coalesce() -> None:
    """Ten messages that each ask for one are acknowledged by one response, section 9.7.5.1.2."""
    sender, receiver = _core.QueuePair(config()), _core.QueuePair(config())
    for number in range(10):
        sender.post("write_imm", 2 * MTU, handle=number)
    receive_all(receiver, drain(sender))
    response = receiver.take_control()
    assert response is not None
    assert (response.psn, response.msn, response.syndrome) == (19, 10, ACK)
    assert receiver.take_control() is None
    sender.effects()
    sender.receive(response, 0)
    assert kinds(sender, "sent") == [(number, "ok", 0) for number in range(10)]
    assert sender.state == "idle"


def test_an_acknowledgement_in_mid_message_frees_the_window_only() -> None:
    sender, receiver = _core.QueuePair(config(window_packets=4, ack_every_packets=100)), _core.QueuePair(config())
    sender.post("send", 10 * MTU)
    packets = drain(sender)
    assert [p.ack_request for p in packets] == [False, False, False, True]  # the window has closed: ask
    receive_all(receiver, packets)
    response = receiver.take_control()
    assert response is not None
    assert (response.psn, response.msn) == (3, 0)
    sender.effects()
    sender.receive(response, 0)
    assert kinds(sender, "sent") == []
    assert [p.psn for p in drain(sender)] == [4, 5, 6, 7]


def test_one_nak_for_a_gap() -> None:
    sender, receiver = _core.QueuePair(config()), _core.QueuePair(config())
    sender.post("write_imm", 8 * MTU)
    first, lost, *rest = drain(sender)
    receiver.receive(first, 0)
    receiver.receive(rest[0], 0)
    nak = receiver.take_control()
    assert nak is not None
    assert (nak.psn, nak.syndrome) == (1, NAK_SEQUENCE)
    receive_all(receiver, rest[1:])
    assert receiver.take_control() is None
    receiver.receive(first, 0)  # duplicates are still acknowledged
    ack = receiver.take_control()
    assert ack is not None
    assert (ack.psn, ack.syndrome) == (0, ACK)
    receiver.receive(lost, 0)
    receiver.receive(rest[1], 0)  # a new gap: a new NAK
    nak = receiver.take_control()
    assert nak is not None
    assert (nak.psn, nak.syndrome) == (2, NAK_SEQUENCE)


def test_a_nak_goes_back_and_acknowledges_what_is_before_it() -> None:
    sender = _core.QueuePair(config())
    for number in range(3):
        sender.post("write_imm", 2 * MTU, handle=number)
    assert len(drain(sender)) == 6
    sender.effects()
    sender.receive(_core.Packet(opcode=ACKNOWLEDGE, psn=3, syndrome=NAK_SEQUENCE), 0)
    assert kinds(sender, "sent") == [(0, "ok", 0)]
    assert [(p.psn, p.opcode) for p in drain(sender)] == [(3, 0x09), (4, 0x06), (5, 0x09)]
    sender.receive(_core.Packet(opcode=ACKNOWLEDGE, psn=5, syndrome=ACK), 0)
    assert kinds(sender, "sent") == [(1, "ok", 1), (2, "ok", 2)]


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
    """One timeout more than there are retries; then the oldest message fails and the others are flushed."""
    network = Network(config(retry_limit=limit))
    network.paths[0].fates = [ON_TIME, *[LOST] * 1000]
    post_all(network, 0, [("write_imm", 1), ("write_imm", 3 * MTU), ("send", 5)])
    network.run()
    end = network.ends[0]
    assert end.over == [(0, "ok"), (1, "retry exceeded"), (2, "flushed")]
    assert end.pair.state == "error"
    assert end.pair.counters()["timeouts"] == limit + 1
    acknowledged_ps = 2 * (1_000 + 5_000)
    assert network.now_ps == acknowledged_ps + (limit + 1) * 1_000_000
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


def state_of(pair: _core.QueuePair) -> tuple[Any, ...]:
    return (pair.state, pair.pending, pair.send_psn, pair.unacked_psn, pair.expected_psn, pair.has_data)


@given(st.integers(0, 6), st.integers(0, 1 << 22), st.booleans(), st.integers(0, 255), first_psns)
@drawn
def test_ghosts_change_nothing(acknowledged: int, distance: int, behind: bool, syndrome: int, psn: int) -> None:
    """Responses for PSNs that are not in flight, in idle, active and RNR wait, section 9.7.6.1."""
    pair = _core.QueuePair(config(), psn)
    positive = syndrome & 0x60 == 0
    for _ in range(2):
        sent = psn_distance(pair.send_psn, psn)
        # The last acknowledged PSN may be acknowledged again, and only what was sent can be refused.
        low = acknowledged - 2 - distance if positive else acknowledged - 1 - distance
        ghost = psn + (low if behind else sent + distance)
        before = state_of(pair)
        pair.effects()
        pair.receive(_core.Packet(opcode=ACKNOWLEDGE, psn=ghost % PSN_COUNT, syndrome=syndrome), 7)
        assert state_of(pair) == before
        assert pair.effects() == []
        if pair.pending == 0:
            pair.post("write_imm", 6 * MTU)
            assert len(drain(pair)) == 6
        if acknowledged:
            pair.receive(_core.Packet(opcode=ACKNOWLEDGE, psn=(psn + acknowledged - 1) % PSN_COUNT, syndrome=ACK), 8)


@given(st.integers(0, 255), st.integers(1, 1 << 22), st.integers(0, 300), st.booleans())
@drawn
def test_old_packets_are_answered_and_not_executed(opcode: int, age: int, size: int, asked: bool) -> None:
    pair = _core.QueuePair(config(), 0, 1000)
    before = state_of(pair)
    pair.receive(_core.Packet(opcode=opcode, psn=(1000 - age) % PSN_COUNT, payload_bytes=size, ack_request=asked), 0)
    assert state_of(pair) == before
    assert [name for name, *_ in pair.effects() if name != "ready"] == []
    response = pair.take_control()
    if response is not None:
        assert (response.psn, response.msn, response.syndrome) == (999, 0, ACK)


def test_wrong_verb_is_named() -> None:
    with pytest.raises(ValueError, match="'write_imm'"):
        _core.QueuePair(config()).post("read", 1)
