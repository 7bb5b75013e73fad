"""Packets that the peer cannot have sent are dropped and counted, and the connection goes on."""

from __future__ import annotations

from typing import Any

import genie_core
import pytest
from connection_draws import MTU, drawn, first_psns
from hypothesis import given
from hypothesis import strategies as st
from network import PSN_COUNT, config
from test_queue_pair_rules import drain, state_of

WRITE_ONLY, READ_REQUEST, READ_LAST, READ_ONLY, ACKNOWLEDGE, CNP = 0x0A, 0x0C, 0x0F, 0x10, 0x11, 0x81
ATOMIC_ACKNOWLEDGE = 0x12
ACK, SEQUENCE, INVALID, ACCESS, OPERATION, RNR = 0x1F, 0x60, 0x61, 0x62, 0x63, 0x29
KEY = 77
COUNTED = ("refused", "reads_dropped", "forged_requests", "forged_acks", "forged_naks", "forged_cnps")


def counted(pair: genie_core.QueuePair) -> dict[str, int]:
    counters = pair.counters()
    return {name: counters[name] for name in COUNTED if counters[name]}


def receive(pair: genie_core.QueuePair, opcode: int, psn: int, **fields: Any) -> None:
    pair.receive(genie_core.Packet(opcode=opcode, psn=psn % PSN_COUNT, **fields), 0)


def reader(psn: int = 0) -> genie_core.QueuePair:
    """A responder that has answered a READ of three packets, from address 1000, and two WRITEs after it."""
    pair = genie_core.QueuePair(config(), 0, psn)
    pair.set_memory(rkey=KEY, start=0, size_bytes=1 << 20)
    receive(pair, READ_REQUEST, psn, message_bytes=3 * MTU, remote_address=1000, rkey=KEY)
    assert [packet.psn for packet in drain(pair)] == [(psn + at) % PSN_COUNT for at in range(3)]
    for at in (3, 4):
        receive(pair, WRITE_ONLY, psn + at, message_bytes=8, payload_bytes=8, remote_address=0, rkey=KEY)
    return pair


@given(st.integers(1, 1 << 23), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 31) + 5), st.integers(0, 1 << 62))
@drawn
def test_no_blind_read_ends_a_connection(behind: int, rkey: int, size_bytes: int, address: int) -> None:
    """Half of all PSNs are behind: an attacker that knows the queue pair alone hits with every second packet."""
    pair = genie_core.QueuePair(config(), 0, 1000)
    pair.set_memory(rkey=KEY, start=0, size_bytes=1 << 20)
    before = state_of(pair)
    receive(pair, READ_REQUEST, 1000 - behind, rkey=rkey, message_bytes=size_bytes, remote_address=address)
    assert (counted(pair), state_of(pair)) == ({"reads_dropped": 1}, before)
    assert pair.take_control() is None
    receive(pair, WRITE_ONLY, 1000, message_bytes=8, payload_bytes=8, rkey=KEY)
    assert pair.expected_psn == 1001


@pytest.mark.parametrize("first", [0, PSN_COUNT - 2])
def test_a_read_that_was_answered_is_answered_again_whole_or_in_part(first: int) -> None:
    pair = reader(first)
    for part in (0, 1, 2):
        receive(
            pair, READ_REQUEST, first + part, rkey=KEY, message_bytes=(3 - part) * MTU,
            remote_address=1000 + part * MTU,
        )  # fmt: skip
        assert [packet.psn for packet in drain(pair)] == [(first + at) % PSN_COUNT for at in range(part, 3)]
    assert counted(pair) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"rkey": KEY + 1},
        {"remote_address": 1001},
        {"remote_address": 0},
        {"message_bytes": 3 * MTU + 1},
        {"psn": 1},
        {"psn": 3, "message_bytes": 0},
        {"psn": -1},
    ],
    ids=str,
)
def test_a_read_like_one_that_was_answered_is_dropped(changed: dict[str, int]) -> None:
    pair = reader()
    request = {"psn": 0, "rkey": KEY, "message_bytes": 3 * MTU, "remote_address": 1000, **changed}
    receive(pair, READ_REQUEST, request.pop("psn"), **request)
    assert drain(pair) == []
    assert counted(pair) == {"reads_dropped": 1}


def test_where_nothing_is_readable_no_read_is_answered_whatever_its_psn() -> None:
    pair = genie_core.QueuePair(config(), 0, 1000)
    pair.readable = False
    for psn in (0, 999, 1000, 1001, 1000 + (1 << 22)):
        receive(pair, READ_REQUEST, psn, message_bytes=0)
        assert (pair.take_control(), drain(pair)) == (None, [])
    assert counted(pair) == {"reads_dropped": 5}


@given(first_psns, st.integers(0, (1 << 23) - 1))
@drawn
def test_requests_beyond_the_peers_window_ask_for_nothing(psn: int, ahead: int) -> None:
    """Without a limit each second guess would have the whole window sent again."""
    settings = config()
    settings.peer_window_packets = 64
    pair = genie_core.QueuePair(settings, 0, psn)
    receive(pair, WRITE_ONLY, psn + ahead, message_bytes=8, payload_bytes=8)
    nak = pair.take_control()
    if ahead >= 64:
        assert (nak, counted(pair), pair.expected_psn) == (None, {"forged_requests": 1}, psn)
    elif ahead > 0:
        assert nak is not None
        assert (nak.syndrome, counted(pair)) == (SEQUENCE, {})


def marked(**fields: Any) -> genie_core.QueuePair:
    """A connection under DCQCN that expects PSN 1000, after one packet with a mark."""
    settings = config()
    settings.congestion.control, settings.congestion.line_rate_bps = "dcqcn", 10**9
    settings.peer_window_packets = 64
    pair = genie_core.QueuePair(settings, 0, 1000)
    receive(pair, congested=True, **fields)
    return pair


@pytest.mark.parametrize(
    ("opcode", "psn"),
    [(WRITE_ONLY, 1064), (READ_REQUEST, 999), (READ_LAST, 0), (READ_ONLY, 7), (ATOMIC_ACKNOWLEDGE, 0)],
)
def test_the_mark_of_a_dropped_packet_is_not_notified(opcode: int, psn: int) -> None:
    """The peer would be slowed down for a packet that it has not sent."""
    pair = marked(opcode=opcode, psn=psn, payload_bytes=8, message_bytes=8)
    assert pair.take_control() is None
    assert [pair.counters()[name] for name in ("congestion_marks", "cnps_sent")] == [0, 0]


@pytest.mark.parametrize("psn", [1000, 1063, 999], ids=["expected", "ahead", "behind"])
def test_the_mark_of_a_packet_that_may_be_the_peers_is_notified(psn: int) -> None:
    notification = marked(opcode=WRITE_ONLY, psn=psn, payload_bytes=8, message_bytes=8).take_control()
    assert notification is not None
    assert notification.opcode == CNP


@pytest.mark.parametrize("syndrome", [ACK, SEQUENCE, INVALID, ACCESS, OPERATION, RNR], ids=hex)
@pytest.mark.parametrize("sent", [0, 6])
def test_answers_to_what_was_never_sent_change_nothing(syndrome: int, sent: int) -> None:
    pair = genie_core.QueuePair(config(), 500)
    for _ in range(sent):
        pair.post("write_imm", 10)
    drain(pair)
    before = state_of(pair)
    counter = "forged_acks" if syndrome == ACK else "forged_naks"
    guesses = [500 + sent, 600, 500 + (1 << 22), 500 - (1 << 22)]
    for psn in guesses:
        receive(pair, ACKNOWLEDGE, psn, syndrome=syndrome)
    assert state_of(pair) == before
    assert counted(pair) == {counter: len(guesses)}


def test_a_late_acknowledgement_is_the_networks_and_a_late_fatal_refusal_is_not() -> None:
    pair = genie_core.QueuePair(config(), 500)
    pair.post("write_imm", 10)
    drain(pair)
    for syndrome in (ACK, SEQUENCE, RNR):
        receive(pair, ACKNOWLEDGE, 490, syndrome=syndrome)
    assert counted(pair) == {}
    receive(pair, ACKNOWLEDGE, 490, syndrome=ACCESS)
    assert counted(pair) == {"forged_naks": 1}
    assert pair.state == "active"


def test_a_reads_data_acknowledges_nothing_where_no_read_is_under_way() -> None:
    pair = genie_core.QueuePair(config())
    for _ in range(6):
        pair.post("write_imm", 10)
    drain(pair)
    for opcode in (READ_LAST, READ_ONLY):
        receive(pair, opcode, 3, payload_bytes=10, syndrome=ACK)
    assert (pair.unacked_psn, pair.pending, pair.state) == (0, 6, "active")
    assert counted(pair) == {"forged_acks": 2}


@pytest.mark.parametrize(("control", "sent", "forged"), [("none", 1, 1), ("dcqcn", 0, 1), ("dcqcn", 1, 0)])
def test_a_notification_that_nothing_can_have_caused_slows_nothing_down(control: str, sent: int, forged: int) -> None:
    settings = config()
    settings.congestion.control, settings.congestion.line_rate_bps = control, 10**9
    pair = genie_core.QueuePair(settings)
    for _ in range(sent):
        pair.post("write_imm", 10)
    drain(pair)
    receive(pair, CNP, 0)
    assert counted(pair) == ({"forged_cnps": 1} if forged else {})
    assert pair.counters()["cnps_received"] == 1 - forged


def test_what_is_in_sequence_and_wrong_still_ends_the_connection() -> None:
    """As the standard has it: a peer that knows every number must hear that it is wrong."""
    pair = genie_core.QueuePair(config(), 0, 1000)
    pair.set_memory(rkey=KEY, start=0, size_bytes=64)
    receive(pair, WRITE_ONLY, 1000, message_bytes=8, payload_bytes=8, rkey=KEY + 1)
    nak = pair.take_control()
    assert nak is not None
    assert (nak.syndrome, nak.psn, counted(pair)) == (ACCESS, 1000, {"refused": 1})
