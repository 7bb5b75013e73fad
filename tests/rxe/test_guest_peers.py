"""Every operation between two guests by libibverbs: `guest_peer.py` is proven before softroce takes an end's place."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from roce_pcaps import judge
from rxe.failure import RigError
from rxe.guest_pattern import pattern
from rxe.peer import SHORT_TIMEOUT, SUCCESS, TIMEOUT, Completion, Peer, connect_pair
from rxe.rig import Rig

pytestmark = [pytest.mark.guests, pytest.mark.extended]

MTU = 1024
MEMORY_BYTES = 1 << 21
SIZES = [0, 1, MTU, MTU + 1, 100_003]
IMMEDIATE = 0x01020304
# As libibverbs numbers them.
SENT, WROTE, READ = 0, 1, 2
RECEIVED, RECEIVED_BY_WRITE = 128, 129
REMOTE_ACCESS_ERROR, RNR_RETRIES_EXCEEDED, RETRIES_EXCEEDED, FLUSHED = 10, 13, 12, 5
ERROR_STATE = 6
LINES = {"send": SENT, "send_imm": SENT, "write": WROTE, "write_imm": WROTE, "read": READ}
ARRIVALS = {"send": RECEIVED, "send_imm": RECEIVED, "write_imm": RECEIVED_BY_WRITE}
# Opcodes of the only packet of a message, and of the first of many.
OPCODES = {"send": (4, 0), "send_imm": (5, 0), "write": (10, 6), "write_imm": (11, 6), "read": (12, 12)}


@pytest.fixture(scope="module")
def opened(booted: Rig) -> Iterator[tuple[Peer, Peer]]:
    """A peer in each guest; they take some seconds to load, so both do it at once."""
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda guest: Peer(guest, MEMORY_BYTES), booted.guests)
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def peers(opened: tuple[Peer, Peer], rig: Rig) -> tuple[Peer, Peer]:
    """Two peers with queue pairs of their own for this test, connected, and memory of zeros."""
    return meet(opened)


def meet(opened: tuple[Peer, Peer], **words: Any) -> tuple[Peer, Peer]:
    """As `peers`; words as in `connect_pair`."""
    for peer in opened:
        peer.pair()
        peer.ask("clear", size_bytes=MEMORY_BYTES)
    connect_pair(*opened, **words)
    return opened


def play(source: Peer, target: Peer, verb: str, size: int, count: int, limit_s: float = 30) -> None:
    """`count` messages one after another, and assertions of every completion and every byte at both ends."""
    holder, reader = (target, source) if verb == "read" else (source, target)
    holder.ask("fill", seed=size + 1, size_bytes=size * count)
    if verb in ARRIVALS:
        room = size if verb.startswith("send") else 0
        target.ask("receive", size_bytes=room, id=100, count=count)
    for number in range(count):
        source.ask(
            "post", verb=verb, size_bytes=size, offset=size * number, id=number,
            remote_address=target.memory_address + size * number, rkey=target.rkey, immediate=IMMEDIATE + number,
        )  # fmt: skip
    done = source.poll(count, limit_s)
    assert [(c.id, c.status, c.opcode) for c in done] == [(number, SUCCESS, LINES[verb]) for number in range(count)]
    if verb in ARRIVALS:
        immediates = [IMMEDIATE + number if verb.endswith("imm") else None for number in range(count)]
        expected = [
            Completion(100 + number, SUCCESS, ARRIVALS[verb], size, immediate, 0)
            for number, immediate in enumerate(immediates)
        ]
        assert target.poll(count, limit_s) == expected
    assert reader.ask("verify", seed=size + 1, size_bytes=size * count)["same"]
    beyond = reader.ask("checksum", offset=size * count, size_bytes=4096)["crc32"]
    assert beyond == zlib.crc32(bytes(4096)), "something was written behind the message"


@pytest.mark.parametrize("verb", LINES)
def test_every_size_of_every_operation(
    rig: Rig, peers: tuple[Peer, Peer], tshark: str, tmp_path: Path, verb: str
) -> None:
    one, other = peers
    with rig.capture(tmp_path / f"{verb}.pcap") as capture:
        for size in SIZES:
            play(one, other, verb, size, 2)
            for peer in peers:
                peer.ask("clear", size_bytes=MEMORY_BYTES)
    seen = judge(capture.path, tshark)
    alone, first = OPCODES[verb]
    short = sum(size <= MTU for size in SIZES)
    expected = {alone: 2 * short, first: 2 * (len(SIZES) - short)} if verb != "read" else {alone: 2 * len(SIZES)}
    assert {opcode: seen.distinct[opcode] for opcode in expected} == expected


@pytest.mark.parametrize("verb", LINES)
def test_two_percent_loss_is_made_good(
    rig: Rig, opened: tuple[Peer, Peer], tshark: str, tmp_path: Path, verb: str
) -> None:
    # Of a lost part of an answer only the timeout tells.
    one, other = meet(opened, timeout=SHORT_TIMEOUT if verb == "read" else TIMEOUT)
    count, size = 12, 100_003  # more than 1,000 packets: chance leaves them whole once in 10^9 times
    rig.network.lose(2)
    with rig.capture(tmp_path / f"{verb}_loss.pcap") as capture:
        play(one, other, verb, size, count, limit_s=60)
    assert rig.network.lost_packets() > 0
    assert judge(capture.path, tshark).packets > count * (size // MTU)


def test_the_other_direction_and_ipv6(rig: Rig, opened: tuple[Peer, Peer], tshark: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda guest: Peer(guest, 1 << 17, address=guest.ipv6), rig.guests)
    try:
        connect_pair(one, other, traffic_class=106, flow_label=0xABCDE)
        with rig.capture(tmp_path / "ipv6.pcap") as capture:
            for verb in LINES:
                play(other, one, verb, 5000, 3)
        assert one.gid_index != opened[0].gid_index
        assert judge(capture.path, tshark).packets > 5 * 3 * 5
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("mtu_bytes", [256, 512, 2048, 4096])
def test_a_path_mtu_that_is_given_is_kept_to(
    rig: Rig, opened: tuple[Peer, Peer], tshark: str, tmp_path: Path, mtu_bytes: int
) -> None:
    one, other = opened
    if mtu_bytes > MTU:
        rig.set_mtu(4200)
    meet(opened, mtu_bytes=mtu_bytes)
    with rig.capture(tmp_path / f"mtu{mtu_bytes}.pcap") as capture:
        play(one, other, "write", 10 * mtu_bytes, 1)
    seen = judge(capture.path, tshark).distinct
    assert (seen[6], seen[7], seen[8]) == (1, 8, 1)  # RDMA WRITE first, middle, last


def test_psn_wraps(rig: Rig, opened: tuple[Peer, Peer]) -> None:
    one, other = opened
    for peer in opened:
        peer.pair(psn=0xFFFFF0)
        peer.ask("clear", size_bytes=MEMORY_BYTES)
    connect_pair(one, other)
    play(one, other, "write_imm", 50 * MTU, 2)
    assert one.ask("status")["send_psn"] == (0xFFFFF0 + 100) % (1 << 24)


def test_a_receive_that_comes_late_is_waited_for(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.ask("fill", seed=1, size_bytes=3000)
    one.ask("post", verb="send", size_bytes=3000)
    assert one.poll(1, 0.3) == []
    other.ask("receive", size_bytes=3000, offset=8192)
    assert [c.status for c in one.poll() + other.poll()] == [SUCCESS, SUCCESS]
    assert other.ask("verify", seed=1, size_bytes=3000, offset=8192)["same"]


def test_a_wrong_key_is_refused_and_memory_stays(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.ask("fill", seed=1, size_bytes=3000)
    for number in range(2):
        one.ask(
            "post",
            verb="write",
            size_bytes=3000,
            id=number,
            rkey=other.rkey ^ 0xFF,
            remote_address=other.memory_address,
        )
    assert [(c.id, c.status) for c in one.poll(2)] == [(0, REMOTE_ACCESS_ERROR), (1, FLUSHED)]
    assert one.ask("status")["state"] == ERROR_STATE
    assert other.ask("checksum", size_bytes=MEMORY_BYTES)["crc32"] == zlib.crc32(bytes(MEMORY_BYTES))


def test_retries_end(rig: Rig, opened: tuple[Peer, Peer]) -> None:
    one, other = meet(opened, retry_count=2, timeout=SHORT_TIMEOUT)
    rig.network.lose(100)
    one.ask("post", verb="write", size_bytes=10, rkey=other.rkey, remote_address=other.memory_address)
    assert [c.status for c in one.poll(1, 20)] == [RETRIES_EXCEEDED]


def test_a_receiver_that_is_never_ready_ends_the_connection(opened: tuple[Peer, Peer], rig: Rig) -> None:
    one, other = meet(opened, rnr_retry=2)
    one.ask("post", verb="write_imm", size_bytes=10, rkey=other.rkey, remote_address=other.memory_address)
    assert [c.status for c in one.poll(1, 20)] == [RNR_RETRIES_EXCEEDED]


def test_what_cannot_be_done_is_said(peers: tuple[Peer, Peer]) -> None:
    with pytest.raises(RigError, match="guest 1: peer, post: ValueError: 10 B at 2097150 do not lie in 2097152 B"):
        peers[0].ask("post", verb="send", size_bytes=10, offset=MEMORY_BYTES - 2)
    with pytest.raises(RigError, match="guest 2: peer, fly: ValueError: cannot do 'fly'"):
        peers[1].ask("fly")
    with pytest.raises(RigError, match="guest 1: peer, open: ValueError: rxe0 has no RoCE v2 GID"):
        Peer(peers[0].guest, 4096, address="10.91.0.77")


def test_patterns_are_the_same_on_both_sides_and_differ_by_seed(peers: tuple[Peer, Peer]) -> None:
    peers[0].ask("fill", seed=77, size_bytes=100_000, start=5)
    assert peers[0].ask("checksum", size_bytes=100_000)["crc32"] == zlib.crc32(pattern(77, 100_000, start=5).tobytes())
    assert (pattern(77, 1000)[5:] == pattern(77, 995, start=5)).all()
    wrong = peers[0].ask("verify", seed=78, size_bytes=100_000, start=5)
    assert not wrong["same"]
    assert wrong["first_wrong"] < 8
    # Places in messages of one size must differ too, or a packet at a wrong place would go unseen.
    packets = pattern(1, 64 * MTU).reshape(64, MTU)
    assert len({packet.tobytes() for packet in packets}) == 64
