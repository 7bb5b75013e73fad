"""Single rules of the reliable connection: one pair by hand, one event after another."""

from __future__ import annotations

from typing import Any

import genie_core
import pytest
from connection_draws import MTU, SIZES, drawn, first_psns
from hypothesis import given
from hypothesis import strategies as st
from network import PSN_COUNT, config, psn_distance

ACK, NAK_SEQUENCE, RNR_NAK = 0x1F, 0x60, 0x29
PAUSE = 24_000  # that RNR_NAK asks for, in units of 1 ns
ACKNOWLEDGE, READ_REQUEST = 0x11, 0x0C


def receive_all(pair: genie_core.QueuePair, packets: list[genie_core.Packet]) -> None:
    for packet in packets:
        pair.receive(packet, 0)


def drain(pair: genie_core.QueuePair) -> list[genie_core.Packet]:
    packets = []
    while (packet := pair.take_data(0)) is not None:
        packets.append(packet)
    return packets


def kinds(pair: genie_core.QueuePair, kind: str) -> list[tuple[Any, ...]]:
    return [tuple(what) for name, *what in pair.effects() if name == kind]


def answer(pair: genie_core.QueuePair, syndrome: int, psn: int, now_ps: int = 0) -> None:
    pair.receive(genie_core.Packet(opcode=ACKNOWLEDGE, syndrome=syndrome, psn=psn), now_ps)


def control(pair: genie_core.QueuePair) -> tuple[int, int, int] | None:
    """Syndrome, PSN and MSN of the response that is due."""
    packet = pair.take_control()
    return None if packet is None else (packet.syndrome, packet.psn, packet.msn)


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
    pair = genie_core.QueuePair(config())
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


def test_acknowledgements_coalesce() -> None:
    """Ten messages that each ask for one are acknowledged by one response, section 9.7.5.1.2."""
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config())
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
    sender, receiver = (
        genie_core.QueuePair(config(window_packets=4, ack_every_packets=100)),
        genie_core.QueuePair(config()),
    )
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
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config())
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
    sender = genie_core.QueuePair(config())
    for number in range(3):
        sender.post("write_imm", 2 * MTU, handle=number)
    assert len(drain(sender)) == 6
    sender.effects()
    sender.receive(genie_core.Packet(opcode=ACKNOWLEDGE, psn=3, syndrome=NAK_SEQUENCE), 0)
    assert kinds(sender, "sent") == [(0, "ok", 0)]
    assert [(p.psn, p.opcode) for p in drain(sender)] == [(3, 0x09), (4, 0x06), (5, 0x09)]
    sender.receive(genie_core.Packet(opcode=ACKNOWLEDGE, psn=5, syndrome=ACK), 0)
    assert kinds(sender, "sent") == [(1, "ok", 1), (2, "ok", 2)]


def test_progress_gives_the_rnr_retries_back() -> None:
    """Every message meets a receiver that is not ready once, and one retry is enough for all."""
    pair = genie_core.QueuePair(config(rnr_retry_limit=1))
    for number in range(3):
        pair.post("send", 1, handle=number)
        drain(pair)
        answer(pair, RNR_NAK, number)
        pair.timer(2 * PAUSE * (number + 1))
        drain(pair)
        answer(pair, ACK, number, 2 * PAUSE * (number + 1))
        assert (pair.state, pair.pending) == ("idle", 0)


def test_a_nak_that_was_not_sent_yet_is_dropped_when_the_packet_comes() -> None:
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config())
    sender.post("write_imm", 3 * MTU)
    first, second, third = drain(sender)
    receive_all(receiver, [second, first])
    assert control(receiver) is None
    receive_all(receiver, [third, second, third])
    assert control(receiver) == (ACK, 2, 1)


def test_naks_without_progress_are_retries() -> None:
    pair = genie_core.QueuePair(config(retry_limit=2))
    pair.post("write", 2 * MTU, handle=5)
    pair.effects()
    for _ in range(3):
        assert len(drain(pair)) == 2
        assert pair.state == "active"
        answer(pair, NAK_SEQUENCE, 0)
    assert kinds(pair, "sent") == [(5, "retry exceeded", 4)]


def test_nothing_prolongs_the_pause() -> None:
    """Neither a second RNR NAK nor a sequence NAK of before: the packets that they answer left before the pause."""
    pair = genie_core.QueuePair(config(rnr_retry_limit=1, retry_limit=0))
    pair.post("send", 4 * MTU)
    drain(pair)
    answer(pair, RNR_NAK, 0)
    for syndrome in (RNR_NAK, NAK_SEQUENCE):
        answer(pair, syndrome, 0, PAUSE // 2)
    assert pair.state == "RNR wait"
    pair.timer(PAUSE)
    assert pair.state == "active"
    assert [packet.psn for packet in drain(pair)] == [0, 1, 2, 3]


def test_an_rnr_nak_gives_the_retries_back() -> None:
    """The packets behind the refused one draw a sequence NAK, which may arrive after the pause, each time."""
    pair = genie_core.QueuePair(config(retry_limit=2))
    pair.post("send", 3 * MTU, handle=5)
    for number in range(1, 11):
        assert [packet.psn for packet in drain(pair)] == [0, 1, 2]
        answer(pair, RNR_NAK, 0, 2 * number * PAUSE)
        pair.timer(2 * number * PAUSE + PAUSE)
        answer(pair, NAK_SEQUENCE, 0, 2 * number * PAUSE + PAUSE)
        assert pair.state == "active"
    answer(pair, ACK, 2, 22 * PAUSE)
    assert kinds(pair, "sent") == [(5, "ok", 27)]


def test_a_send_needs_its_receive_at_the_first_packet() -> None:
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config(rnr_timer=9))
    sender.post("send", 2 * MTU)
    receiver.receives = 0
    first, last = drain(sender)
    receive_all(receiver, [first, last])
    assert kinds(receiver, "place") == []
    assert control(receiver) == (RNR_NAK, 0, 0)
    receiver.receives = 1
    receive_all(receiver, [first, last])
    assert receiver.receives == 0
    assert control(receiver) == (ACK, 1, 1)


def test_a_write_needs_a_receive_for_its_immediate_only() -> None:
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config(rnr_timer=9))
    sender.post("write", 2 * MTU)
    sender.post("write_imm", 2 * MTU)
    receiver.receives = 0
    receive_all(receiver, drain(sender))
    assert receiver.expected_psn == 3
    assert control(receiver) == (RNR_NAK, 3, 1)


def test_after_going_back_acknowledgements_are_asked_for_anew() -> None:
    pair = genie_core.QueuePair(config(ack_every_packets=4))
    pair.post("write", 9 * MTU)
    assert [pair.take_data(0) is not None for _ in range(6)] == [True] * 6
    answer(pair, NAK_SEQUENCE, 3)
    assert [p.psn for p in drain(pair) if p.ack_request] == [6, 8]


def test_a_delivery_knows_when_its_first_packet_came() -> None:
    sender, receiver = genie_core.QueuePair(config()), genie_core.QueuePair(config())
    sender.post("write_imm", 3 * MTU, immediate=4)
    for now_ps, packet in zip((5, 7, 9), drain(sender), strict=True):
        receiver.receive(packet, now_ps)
    assert kinds(receiver, "delivered") == [(3 * MTU, 4, False, 5)]


def state_of(pair: genie_core.QueuePair) -> tuple[Any, ...]:
    return (pair.state, pair.pending, pair.send_psn, pair.unacked_psn, pair.expected_psn, pair.has_data)


@given(st.integers(0, 6), st.integers(0, 1 << 22), st.booleans(), st.integers(0, 255), first_psns)
@drawn
def test_ghosts_change_nothing(acknowledged: int, distance: int, behind: bool, syndrome: int, psn: int) -> None:
    """Responses for PSNs that are not in flight, in idle, active and RNR wait, section 9.7.6.1."""
    pair = genie_core.QueuePair(config(), psn)
    positive = syndrome & 0x60 == 0
    for _ in range(2):
        sent = psn_distance(pair.send_psn, psn)
        # The last acknowledged PSN may be acknowledged again, and only what was sent can be refused.
        low = acknowledged - 2 - distance if positive else acknowledged - 1 - distance
        ghost = psn + (low if behind else sent + distance)
        before = state_of(pair)
        pair.effects()
        pair.receive(genie_core.Packet(opcode=ACKNOWLEDGE, psn=ghost % PSN_COUNT, syndrome=syndrome), 7)
        assert state_of(pair) == before
        assert pair.effects() == []
        if pair.pending == 0:
            pair.post("write_imm", 6 * MTU)
            assert len(drain(pair)) == 6
        if acknowledged:
            pair.receive(
                genie_core.Packet(opcode=ACKNOWLEDGE, psn=(psn + acknowledged - 1) % PSN_COUNT, syndrome=ACK), 8
            )


@given(st.integers(0, 255), st.integers(1, 1 << 22), st.integers(0, 300), st.booleans())
@drawn
def test_old_packets_are_answered_and_not_executed(opcode: int, age: int, size: int, asked: bool) -> None:
    pair = genie_core.QueuePair(config(), 0, 1000)
    before = state_of(pair)[:-1]  # but what it has to send
    pair.receive(
        genie_core.Packet(opcode=opcode, psn=(1000 - age) % PSN_COUNT, payload_bytes=size, ack_request=asked), 0
    )
    assert state_of(pair)[:-1] == before
    assert [name for name, *_ in pair.effects() if name != "ready"] == []
    response = pair.take_control()
    assert drain(pair) == []
    if opcode == READ_REQUEST:  # none was answered
        assert (response, pair.counters()["reads_dropped"]) == (None, 1)
    elif response is not None:
        assert (response.psn, response.msn, response.syndrome) == (999, 0, ACK)


def test_wrong_verb_is_named() -> None:
    with pytest.raises(ValueError, match="'write_imm' or 'read'"):
        genie_core.QueuePair(config()).post("fetch_add", 1)


def test_congestion_control_is_chosen_by_name() -> None:
    config = genie_core.QueuePairConfig()
    assert config.congestion.control == "none"
    config.congestion.control = "dcqcn-timer"
    config.congestion.line_rate_bps = 5
    assert (config.congestion.control, config.congestion.line_rate_bps) == ("dcqcn-timer", 5)
    with pytest.raises(ValueError, match="must be one of none, window, dcqcn, "):
        config.congestion.control = "prayer"
    config.congestion.control = "none"
    assert config.congestion.control == "none"


def test_a_mark_within_the_interval_is_notified_at_its_end() -> None:
    """For the first mark at once, then once an interval if a mark came in it: by the first packet after it."""
    cnp, write_only, us = 0x81, 0x0A, 1_000_000
    settings = config()
    settings.congestion.control, settings.congestion.cnp_interval_ps = "dcqcn", 50 * us
    pair = genie_core.QueuePair(settings)
    notified = []
    arrivals = ((0, True), (10, True), (20, True), (49, False), (50, False), (60, False), (120, False), (130, True))
    for number, (time_us, marked) in enumerate(arrivals):
        pair.receive(genie_core.Packet(opcode=write_only, psn=number, congested=marked), time_us * us)
        while (packet := pair.take_control()) is not None:
            if packet.opcode == cnp:
                notified.append(time_us)
    assert notified == [0, 50, 130]
    assert (pair.counters()["congestion_marks"], pair.counters()["cnps_sent"]) == (4, 3)
