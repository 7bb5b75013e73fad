"""A plain UDP socket beside the guests is a RoCE neighbour to them: packets made by hand, answered by a kernel."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from roce_pcaps import icrc_of, judge
from rxe.guest import gid_of
from rxe.guest_pattern import pattern
from rxe.machine import end
from rxe.network import HOST, ipv4
from rxe.peer import SUCCESS, Peer
from rxe.rig import Rig

pytestmark = [pytest.mark.guests, pytest.mark.extended]

GATE = str(Path(__file__).resolve().parent / "datagram_gate.py")
PORT, MTU = 4791, 1024
MEMORY_BYTES = 1 << 16
OUR_QPN, OUR_PSN = 0x000ABC, 0xFFFFFE  # the second message's PSN wraps
SEND_FIRST, SEND_MIDDLE, SEND_LAST, WRITE_ONLY, ACKNOWLEDGE = 0x00, 0x01, 0x02, 0x0A, 0x11
ACK_CREDITS_UNLIMITED = 0x1F


class Gate:
    """A socket in the rig's namespace, as queues of datagrams."""

    def __init__(self, rig: Rig, peer: str) -> None:
        self.own, self.peer = ipv4(HOST), peer
        self._process = subprocess.Popen(
            rig.network.inside(sys.executable, GATE, self.own, peer),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._lines.get(timeout=120) == "open"

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def receive(self, limit_s: float = 10) -> bytes | None:
        """The next datagram's payload; None when none comes."""
        try:
            return bytes.fromhex(self._lines.get(timeout=limit_s))
        except queue.Empty:
            return None

    def forget(self) -> None:
        """Drop lines that have arrived and were not received."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._lines.get_nowait()

    def send(self, headers: bytes, payload: bytes = b"", spoil: int = 0) -> None:
        """One packet, padded, with its ICRC; `spoil` is XORed to that."""
        body = headers + payload + bytes(-len(payload) % 4)
        udp = struct.pack("!HHHH", PORT, PORT, 8 + len(body) + 4, 0)
        addresses = socket.inet_aton(self.own) + socket.inet_aton(self.peer)
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + len(body) + 4, 0, 0x4000, 64, 17, 0) + addresses
        icrc = icrc_of(ip + udp + body + bytes(4)) ^ spoil
        assert self._process.stdin
        self._process.stdin.write((body + icrc.to_bytes(4, "little")).hex() + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        end(self._process)  # type: ignore[arg-type]


def base_header(opcode: int, qpn: int, psn: int, payload_bytes: int = 0, ack_request: bool = False) -> bytes:
    """Section 9.2 of the InfiniBand specification."""
    pads = -payload_bytes % 4
    return struct.pack("!BBHII", opcode, 0x40 | pads << 4, 0xFFFF, qpn, ack_request << 31 | psn)


def acknowledgement(qpn: int, psn: int, message: int) -> bytes:
    return base_header(ACKNOWLEDGE, qpn, psn) + struct.pack("!I", ACK_CREDITS_UNLIMITED << 24 | message)


@pytest.fixture(scope="module")
def opened(booted: Rig) -> Iterator[tuple[Gate, Peer]]:
    gate, peer = Gate(booted, booted.guests[0].ipv4), Peer(booted.guests[0], MEMORY_BYTES)
    yield gate, peer
    gate.close()
    peer.close()


@pytest.fixture
def met(rig: Rig, opened: tuple[Gate, Peer]) -> tuple[Gate, Peer]:
    """A socket of ours, and a queue pair in guest 1 that is connected to the number we claim; memory of zeros."""
    gate, peer = opened
    peer.pair()
    peer.ask("clear", size_bytes=MEMORY_BYTES)
    gate.forget()
    peer.connect(OUR_QPN, OUR_PSN, gid_of(gate.own))
    return opened


def test_the_guest_takes_what_we_write(rig: Rig, met: tuple[Gate, Peer], tshark: str, tmp_path: Path) -> None:
    gate, peer = met
    with rig.capture(tmp_path / "write.pcap", guest=0) as capture:
        for number, size in enumerate((1021, 4, 0)):
            psn = (OUR_PSN + number) & 0xFFFFFF
            header = base_header(WRITE_ONLY, peer.qpn, psn, size, ack_request=True)
            extended = struct.pack("!QII", peer.memory_address + 2000 * number, peer.rkey, size)
            gate.send(header + extended, pattern(number, size).tobytes())
            answer = gate.receive()
            assert answer is not None
            assert struct.unpack("!BxxxIII", answer[:-4]) == (
                ACKNOWLEDGE, OUR_QPN, psn, ACK_CREDITS_UNLIMITED << 24 | (number + 1)
            )  # fmt: skip
            assert peer.ask("verify", seed=number, size_bytes=size, offset=2000 * number)["same"]
    assert dict(judge(capture.path, tshark).opcodes) == {WRITE_ONLY: 3, ACKNOWLEDGE: 3}


@pytest.mark.unjudged
def test_a_spoiled_packet_changes_nothing(met: tuple[Gate, Peer]) -> None:
    gate, peer = met
    before = peer.ask("checksum", size_bytes=MEMORY_BYTES)
    header = base_header(WRITE_ONLY, peer.qpn, OUR_PSN, 8, ack_request=True)
    header += struct.pack("!QII", peer.memory_address, peer.rkey, 8)
    gate.send(header, b"spoiled!", spoil=1)
    assert gate.receive(0.5) is None
    assert peer.ask("checksum", size_bytes=MEMORY_BYTES) == before
    gate.send(header, b"spoiled!")
    assert gate.receive() is not None
    assert peer.ask("checksum", size_bytes=MEMORY_BYTES) != before


def test_loss_is_between_the_host_and_the_guests_too(rig: Rig, met: tuple[Gate, Peer]) -> None:
    gate, peer = met
    rig.network.lose(100)
    header = base_header(WRITE_ONLY, peer.qpn, OUR_PSN, 8, ack_request=True)
    gate.send(header + struct.pack("!QII", peer.memory_address, peer.rkey, 8), bytes(8))
    assert gate.receive(0.5) is None
    assert rig.network.lost_packets() == 1
    peer.ask("post", verb="send", size_bytes=100)
    assert gate.receive(0.5) is None
    assert rig.network.lost_packets() > 1  # the guest goes on trying
    rig.network.lose(0)
    assert gate.receive() is not None


def test_we_take_what_the_guest_sends(rig: Rig, met: tuple[Gate, Peer], tshark: str, tmp_path: Path) -> None:
    gate, peer = met
    size = 2 * MTU + 7
    peer.ask("fill", seed=5, size_bytes=size)
    with rig.capture(tmp_path / "send.pcap", guest=0) as capture:
        peer.ask("post", verb="send", size_bytes=size, id=9)
        payload = b""
        for place, opcode in enumerate((SEND_FIRST, SEND_MIDDLE, SEND_LAST)):
            packet = gate.receive()
            assert packet is not None
            first, second, _, qpn, psn = struct.unpack_from("!BBHII", packet)
            assert (first, qpn, psn & 0xFFFFFF) == (opcode, OUR_QPN, (peer.psn + place) & 0xFFFFFF)
            payload += packet[12 : len(packet) - 4 - (second >> 4 & 3)]
        assert payload == pattern(5, size).tobytes()
        gate.send(acknowledgement(peer.qpn, (peer.psn + 2) & 0xFFFFFF, 1))
        assert [(c.id, c.status) for c in peer.poll()] == [(9, SUCCESS)]
    seen = judge(capture.path, tshark).distinct
    assert dict(seen) == {SEND_FIRST: 1, SEND_MIDDLE: 1, SEND_LAST: 1, ACKNOWLEDGE: 1}
