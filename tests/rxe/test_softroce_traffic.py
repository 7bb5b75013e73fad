"""softroce and the kernel's RDMA stack with much under way at once: mixed operations, several connections, offloads."""

from __future__ import annotations

import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cable import capture
from numpy.typing import NDArray
from roce_pcaps import judge
from rxe.guest_pattern import pattern
from rxe.network import HOST, HOST_END, ipv4
from rxe.peer import TIMEOUT, Peer
from rxe.rig import Rig
from softroce_end import (
    MEMORY_BYTES,
    MTU,
    OF_STALLED_GUESTS,
    PATIENT_PS,
    SUCCESS,
    VERBS,
    MakeSoft,
    SoftEnd,
    assert_undisturbed,
    meet,
    play,
)

pytestmark = [pytest.mark.guests, pytest.mark.extended]

pytest_plugins = ["softroce_fixtures"]

HALF = MEMORY_BYTES // 2  # the first is for an end's own requests, the second for other ends'
PLACE_BYTES = 1 << 14
RECEIVES = 1000  # their numbers count from here
# tshark takes one byte and its padding for the type of an Ethernet frame, and what is not there for malformed.
SIZES = [0, 5, MTU - 1, MTU, MTU + 7, 5 * MTU, PLACE_BYTES]


@dataclass(frozen=True)
class Line:
    """A connection: softroce's queue pair by number, and the guest's by peer and number of stashed queue pairs."""

    queue_pair: int
    peer: Peer
    stashed: int


@dataclass(frozen=True)
class Request:
    verb: str
    size: int
    id: int
    line: Line

    @property
    def offset(self) -> int:
        """Of its place in the first half of its source's memory; the target's is in the second."""
        return self.id * PLACE_BYTES

    @property
    def arrives(self) -> bool:
        """Whether it uses a receive."""
        return self.verb in ("send", "send_imm", "write_imm")

    @property
    def immediate(self) -> int | None:
        return 7000 + self.id if self.verb.endswith("imm") else None

    def move(self, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        """Perform the operation between arrays."""
        own, other = source[self.offset :][: self.size], target[HALF + self.offset :][: self.size]
        if self.verb == "read":
            own[:] = other
        else:
            other[:] = own


def drawn(draws: random.Random, count: int, lines: list[Line]) -> list[Request]:
    """Random requests on each of these connections in turn, in the order of posting."""
    verbs = list(VERBS)
    return [
        Request(draws.choice(verbs), draws.choice(SIZES), number, lines[number % len(lines)]) for number in range(count)
    ]


def ask(end: SoftEnd | Peer, line: Line, what: str, **words: Any) -> None:
    """Of an end of this connection."""
    if isinstance(end, SoftEnd):
        end.ask(what, queue_pair=line.queue_pair, **words)
    else:
        end.ask("use", number=line.stashed)
        end.ask(what, **words)


def fill(end: SoftEnd | Peer, seed: int) -> NDArray[np.uint8]:
    """All of its memory; what lies there then."""
    end.ask("fill", seed=seed, size_bytes=MEMORY_BYTES)
    return pattern(seed, MEMORY_BYTES)


def receive(target: SoftEnd | Peer, request: Request) -> None:
    """Post what it will use."""
    if not request.arrives:
        return
    size = request.size if request.verb.startswith("send") else 0
    where = {"size_bytes": size, "offset": HALF + request.offset, "id": RECEIVES + request.id}
    ask(target, request.line, "receive", **where)


def post(source: SoftEnd | Peer, target: SoftEnd | Peer, request: Request) -> None:
    words: dict[str, Any] = {"rkey": target.rkey, "offset": request.offset, "id": request.id}
    if not request.verb.startswith("send"):
        words["remote_address"] = target.memory_address + HALF + request.offset
    if request.verb.endswith("imm"):
        words["immediate"] = request.immediate
    ask(source, request.line, "post", verb=request.verb, size_bytes=request.size, **words)


def assert_completed(end: SoftEnd | Peer, own: list[Request], others: list[Request]) -> None:
    """Its own requests, in the order of each connection, and those of the other ends that complete here."""
    arriving = [request for request in others if request.arrives]
    done = end.poll(len(own) + len(arriving), 60)
    assert {c.status for c in done} == {SUCCESS}, done
    for line in {request.line for request in own}:
        of_line = [request.id for request in own if request.line == line]
        assert [c.id for c in done if c.id in of_line] == of_line
    got = {c.id - RECEIVES: (c.size_bytes, c.immediate) for c in done if c.id >= RECEIVES}
    assert got == {request.id: (request.size, request.immediate) for request in arriving}
    assert len(done) == len(own) + len(arriving)


def wrong_places(end: SoftEnd | Peer, wanted: NDArray[np.uint8], offset: int) -> list[int]:
    """Numbers of the requests whose places in this part of an end's memory, which begins at `offset`, differ."""
    return [
        at // PLACE_BYTES
        for at in range(0, len(wanted), PLACE_BYTES)
        if end.ask("checksum", size_bytes=PLACE_BYTES, offset=offset + at)["crc32"]
        != zlib.crc32(wanted[at : at + PLACE_BYTES].tobytes())
    ]


def play_all(soft: SoftEnd, lines: list[Line], draws: random.Random, count: int) -> None:
    """`count` requests each way, all at once, and assertions of every completion and every byte."""
    peers = {line.peer: number for number, line in enumerate(lines)}
    there = {peer: fill(peer, 1 + number) for peer, number in peers.items()}
    here = fill(soft, 0)
    ours, theirs = drawn(draws, count, lines), drawn(draws, count, lines)
    for own, other in zip(ours, theirs, strict=True):
        receive(own.line.peer, own)
        receive(soft, other)
    for own, other in zip(ours, theirs, strict=True):
        post(soft, own.line.peer, own)
        post(other.line.peer, soft, other)
    assert_completed(soft, ours, theirs)
    for peer in peers:
        assert_completed(
            peer, [each for each in theirs if each.line.peer is peer], [each for each in ours if each.line.peer is peer]
        )
    for request in ours:
        request.move(here, there[request.line.peer])
    for request in theirs:
        request.move(there[request.line.peer], here)
    held: list[tuple[SoftEnd | Peer, NDArray[np.uint8]]] = [(soft, here), *there.items()]
    for number, (end, memory) in enumerate(held):
        for at in range(0, MEMORY_BYTES, HALF):
            wanted = memory[at : at + HALF]
            if end.ask("checksum", size_bytes=HALF, offset=at)["crc32"] != zlib.crc32(wanted.tobytes()):
                places = wrong_places(end, wanted, at)
                pytest.fail(f"end {number} (softroce is 0), half {at // HALF}: places of requests {places} differ")


@pytest.fixture
def connect_all(peers: list[Peer]) -> Iterator[Callable[..., list[Line]]]:
    """Connects softroce's queue pairs, one after another, with as many of each guest."""

    def connect(soft: SoftEnd, counts: list[int], **words: Any) -> list[Line]:
        lines: list[Line] = []
        for peer, count in zip(peers, counts, strict=True):
            for stashed in range(count):
                meet(soft, peer, queue_pair=len(lines), **words)
                peer.ask("stash")
                lines.append(Line(len(lines), peer, stashed))
        return lines

    yield connect
    for peer in peers:
        peer.ask("forget")


@pytest.mark.parametrize(("counts", "way"), [([1, 0], "strict"), ([4, 2], "plain"), ([4, 2], "ipv6")])
def test_everything_at_once(
    rig: Rig,
    connect_all: Callable[..., list[Line]],
    make_soft: MakeSoft,
    draws: random.Random,
    tshark: str,
    tmp_path: Path,
    counts: list[int],
    way: str,
) -> None:
    """One connection, and six with two guests; nothing is lost and nothing sent again."""
    soft = make_soft(v6=way == "ipv6", strict=way == "strict", queue_pairs=sum(counts), ack_timeout_ps=PATIENT_PS)
    lines = connect_all(soft, counts)
    with rig.capture(tmp_path / "all.pcap", guest=0) as seen:
        play_all(soft, lines, draws, 60)
    assert_undisturbed(soft.counters(), OF_STALLED_GUESTS)
    judge(seen.path, tshark)


@pytest.mark.parametrize(("counts", "strict"), [([1, 0], False), ([4, 2], True)])
def test_everything_at_once_with_loss(
    rig: Rig,
    connect_all: Callable[..., list[Line]],
    make_soft: MakeSoft,
    draws: random.Random,
    tshark: str,
    tmp_path: Path,
    counts: list[int],
    strict: bool,
) -> None:
    soft = make_soft(strict=strict, queue_pairs=sum(counts), ack_timeout_ps=20 * 10**9)
    lines = connect_all(soft, counts, timeout=TIMEOUT)
    rig.network.lose(2)
    with rig.capture(tmp_path / "all.pcap", guest=0) as seen:
        play_all(soft, lines, draws, 60)
    assert rig.network.lost_packets() > 0
    counters = soft.counters()
    assert counters["bad_icrc"] == counters["malformed"] == counters["strangers"] == counters["refused"] == 0
    judge(seen.path, tshark)


def largest_from_softroce(pcap: Path) -> int:
    """The IPv4 packet with the most bytes that the host has sent."""
    data, at, sizes = pcap.read_bytes(), 24, [0]
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        if data[at + 16 + 14 + 12 :][:4] == socket.inet_aton(ipv4(HOST)):
            sizes.append(original - 14)
        at += 16 + captured
    return max(sizes)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("offload", [False, True])
def test_an_offloaded_send_is_right_wherever_it_is_cut(
    rig: Rig,
    peers: list[Peer],
    make_soft: MakeSoft,
    segmented_late: None,
    tshark: str,
    tmp_path: Path,
    offload: bool,
    strict: bool,
) -> None:
    """Cut at the tap here, and before the host's end in all other tests: the guest's kernel takes every ICRC."""
    soft = make_soft(offload=offload, strict=strict, ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    play(soft, peers[0], "write", 0)  # the neighbours know each other
    at_host = tmp_path / "host.pcap"
    with rig.capture(tmp_path / "guest.pcap") as at_guest, capture(rig.network.namespace, HOST_END, at_host):
        for verb in VERBS:
            play(soft, peers[0], verb, 100_003)
            play(peers[0], soft, verb, 100_003)
    assert_undisturbed(soft.counters(), OF_STALLED_GUESTS)
    judge(at_guest.path, tshark)
    assert largest_from_softroce(at_guest.path) <= rig.network.mtu_bytes
    assert (largest_from_softroce(at_host) > rig.network.mtu_bytes) == offload


@pytest.mark.parametrize("verb", ["send", "send_imm", "write_imm"])
def test_a_guest_that_waits_for_solicited_messages_is_woken_by_those_alone(
    peers: list[Peer], make_soft: MakeSoft, verb: str
) -> None:
    soft, (peer, _) = make_soft(ack_timeout_ps=PATIENT_PS), peers
    meet(soft, peer)
    peer.ask("receive", size_bytes=3 * MTU, count=3)
    peer.ask("event", wait_s=0)  # one that is left from before
    peer.ask("arm", solicited=False)
    where = {} if verb.startswith("send") else {"remote_address": peer.memory_address, "rkey": peer.rkey}
    woken = []
    for number, solicited in enumerate((False, False, True)):
        soft.ask("post", verb=verb, size_bytes=2 * MTU, id=number, solicited=solicited, **where)
        assert [(c.id, c.status) for c in soft.poll()] == [(number, SUCCESS)]
        if number:
            woken.append(peer.ask("event", wait_s=5 if solicited else 0.3)["fired"])
        else:
            assert peer.ask("event", wait_s=5)["fired"]
            peer.ask("arm", solicited=True)
    assert woken == [False, True]
    assert [(c.id, c.status) for c in peer.poll(3)] == [(number, SUCCESS) for number in range(3)]


def test_softroce_says_which_messages_are_solicited(peers: list[Peer], make_soft: MakeSoft) -> None:
    soft, (peer, _) = make_soft(ack_timeout_ps=PATIENT_PS), peers
    meet(soft, peer)
    soft.ask("receive", size_bytes=2 * MTU, count=6)
    kinds = [(verb, solicited) for verb in ("send", "send_imm", "write_imm") for solicited in (True, False)]
    for number, (verb, solicited) in enumerate(kinds):
        where = {"remote_address": 0, "rkey": soft.rkey} if verb == "write_imm" else {}
        peer.ask("post", verb=verb, size_bytes=2 * MTU, id=number, solicited=solicited, **where)
    assert [c.status for c in peer.poll(6)] == [SUCCESS] * 6
    assert len(soft.poll(6)) == 6
    assert soft.solicited == [solicited for _, solicited in kinds]
