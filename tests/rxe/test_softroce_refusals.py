"""Refusals, waits and failed connections between softroce and the kernel's RDMA stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from roce_pcaps import ip_packets, judge
from rxe.peer import SHORT_TIMEOUT, Peer
from rxe.rig import Rig
from softroce_end import (
    FLUSHED,
    INVALID_REQUEST,
    MEMORY_BYTES,
    PATIENT_PS,
    REMOTE_ACCESS,
    REMOTE_OPERATION,
    RETRIES_EXCEEDED,
    RNR_RETRIES_EXCEEDED,
    SUCCESS,
    MakeSoft,
    SoftEnd,
    meet,
    play,
    untouched,
)

pytestmark = [pytest.mark.guests, pytest.mark.extended]

pytest_plugins = ["softroce_fixtures"]

DIRECTIONS = ["from_softroce", "from_the_guest"]
COMPARE_SWAP, ACKNOWLEDGE = 0x13, 0x11
BTH_AT = 20 + 8  # in an IPv4 packet
NAK_INVALID_REQUEST = 0x61
SIZE = 3000
RNR_TIMER = 12  # 0.64 ms


def ends(soft: SoftEnd, peer: Peer, direction: str) -> tuple[SoftEnd | Peer, SoftEnd | Peer]:
    """Source and target."""
    return (soft, peer) if direction == "from_softroce" else (peer, soft)


def named_error(soft: SoftEnd, peer: Peer, psn: int, what: str, syndrome: int | None = None) -> None:
    """softroce's error names the peer, the queue pair, the PSN and the syndrome."""
    found = re.fullmatch(
        rf"gave up sending to {re.escape(peer.guest.ipv4)}: {what} "
        r"\(queue pair (0x[0-9a-f]{6}), PSN (\d+), syndrome (0x[0-9a-f]{2})\)",
        soft.nic.error,
    )
    assert found, soft.nic.error
    assert (int(found[1], 16), int(found[2])) == (peer.qpn, psn)
    assert syndrome is None or int(found[3], 16) == syndrome


@pytest.mark.parametrize("verb", ["send_imm", "write_imm"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_receive_that_comes_late_is_waited_for(
    peers: list[Peer], make_soft: MakeSoft, direction: str, verb: str
) -> None:
    soft = make_soft(ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    source, target = ends(soft, peers[0], direction)
    source.ask("fill", seed=1, size_bytes=SIZE)
    remote = {"remote_address": target.memory_address + 8192, "rkey": target.rkey} if verb == "write_imm" else {}
    source.ask("post", verb=verb, size_bytes=SIZE, immediate=7, **remote)
    assert source.poll(1, 0.3) == []
    assert untouched(target, 8192, SIZE) or verb == "write_imm"
    target.ask("receive", size_bytes=SIZE, offset=8192, id=5)
    assert [(c.id, c.status) for c in source.poll()] == [(0, SUCCESS)]
    assert [(c.id, c.status, c.size_bytes, c.immediate) for c in target.poll()] == [(5, SUCCESS, SIZE, 7)]
    assert target.ask("verify", seed=1, size_bytes=SIZE, offset=8192)["same"]
    counters = soft.counters()
    assert counters["rnr_naks_received" if source is soft else "rnr_naks_sent"] > 0
    assert counters["timeouts"] == counters["refused"] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_receiver_that_is_never_ready_ends_the_connection(
    peers: list[Peer], make_soft: MakeSoft, direction: str
) -> None:
    soft = make_soft(rnr_retry_limit=2, ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0], rnr_retry=2, rnr_timer=RNR_TIMER)
    source, target = ends(soft, peers[0], direction)
    for number in range(2):
        source.ask("post", verb="send", size_bytes=SIZE, id=number)
    assert [(c.id, c.status) for c in source.poll(2, 20)] == [(0, RNR_RETRIES_EXCEEDED), (1, FLUSHED)]
    assert untouched(target, 0, MEMORY_BYTES)
    if source is soft:
        named_error(soft, peers[0], soft.psn, "no receive posted after all retries", 0x20 | RNR_TIMER)
    else:
        assert soft.counters()["rnr_naks_sent"] == 3


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_retries_end(rig: Rig, peers: list[Peer], make_soft: MakeSoft, direction: str) -> None:
    """A message gets through and the next one does not: the error names the PSN that nobody acknowledged."""
    soft = make_soft(retry_limit=2, ack_timeout_ps=50 * 10**9)
    meet(soft, peers[0], retry_count=2, timeout=SHORT_TIMEOUT)
    source, target = ends(soft, peers[0], direction)
    play(source, target, "write", SIZE, 1)
    rig.network.lose(100)
    source.ask("post", verb="write", size_bytes=10, id=8, rkey=target.rkey, remote_address=target.memory_address)
    assert [(c.id, c.status) for c in source.poll(1, 20)] == [(8, RETRIES_EXCEEDED)]
    if source is soft:
        named_error(soft, peers[0], (soft.psn + 3) % (1 << 24), "no acknowledgement after all retries")
        assert soft.counters()["timeouts"] == 3
        assert rig.network.lost_packets() == 3
    else:
        assert rig.network.lost_packets() >= 3


@pytest.mark.parametrize("verb", ["write", "write_imm", "read"])
@pytest.mark.parametrize("what", ["key", "bounds", "before"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_memory_that_is_not_given_is_refused(
    peers: list[Peer], make_soft: MakeSoft, direction: str, what: str, verb: str
) -> None:
    """A wrong key, an end that lies one byte behind the memory, a start far outside of it."""
    soft = make_soft(ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    source, target = ends(soft, peers[0], direction)
    if verb != "read":
        source.ask("fill", seed=1, size_bytes=SIZE)
    else:
        target.ask("fill", seed=1, size_bytes=MEMORY_BYTES)
    if verb == "write_imm":
        target.ask("receive", size_bytes=0)
    start = {"key": 0, "bounds": MEMORY_BYTES - SIZE + 1, "before": 1 << 46}[what]
    before = target.ask("checksum", size_bytes=MEMORY_BYTES)
    where = {"remote_address": target.memory_address + start, "rkey": target.rkey ^ (0xFF if what == "key" else 0)}
    for number in range(2):
        source.ask("post", verb=verb, size_bytes=SIZE, id=number, **where)
    assert [(c.id, c.status) for c in source.poll(2, 20)] == [(0, REMOTE_ACCESS), (1, FLUSHED)]
    assert target.ask("checksum", size_bytes=MEMORY_BYTES) == before
    if source is soft:
        named_error(soft, peers[0], soft.psn, "the peer refused access to its memory", 0x62)
        assert verb != "read" or untouched(soft, 0, MEMORY_BYTES)
    else:
        assert soft.counters()["refused"] == 1
        assert target.poll(1, 0.05) == []


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_send_that_is_longer_than_its_receive_is_refused(
    peers: list[Peer], make_soft: MakeSoft, direction: str
) -> None:
    soft = make_soft(ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    source, target = ends(soft, peers[0], direction)
    source.ask("fill", seed=1, size_bytes=SIZE)
    target.ask("receive", size_bytes=SIZE - 1, offset=100)
    source.ask("post", verb="send", size_bytes=SIZE)
    # The kernel takes it for a failure of its own, softroce for a wrong request (section 9.7.4.1.6).
    refusal = REMOTE_OPERATION if source is soft else INVALID_REQUEST
    assert [c.status for c in source.poll(1, 20)] == [refusal]
    assert untouched(target, 100 + SIZE - 1, MEMORY_BYTES - 100 - SIZE + 1)


def test_an_atomic_is_refused(rig: Rig, peers: list[Peer], make_soft: MakeSoft, tshark: str, tmp_path: Path) -> None:
    """With a NAK that says invalid request, on the wire and at the guest."""
    soft = make_soft(ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    play(peers[0], soft, "write", 8, 1)
    with rig.capture(tmp_path / "atomic.pcap", guest=0) as capture:
        peers[0].ask("atomic", id=3, remote_address=0, rkey=soft.rkey)
        assert [(c.id, c.status) for c in peers[0].poll()] == [(3, INVALID_REQUEST)]
    assert soft.ask("verify", seed=9, size_bytes=8)["same"]
    assert soft.counters()["refused"] == 1
    assert judge(capture.path, tshark).opcodes == {COMPARE_SWAP: 1, ACKNOWLEDGE: 1}
    answer = ip_packets(capture.path)[1][BTH_AT:]
    assert answer[12] == NAK_INVALID_REQUEST
    assert int.from_bytes(answer[9:12], "big") == (peers[0].psn + 1) % (1 << 24)
