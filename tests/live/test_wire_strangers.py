"""Datagrams of strangers and of a peer that oversteps: memory stays as it was, and each is counted by its kind."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import genie_core
import numpy as np
import pytest
from cable import RKEY, Nics
from roce_pcaps import icrc_of

from genie.plan.build import build_plan
from genie.workload.build import RankBuilder
from genie.workload.graph import Kind, Workload

pytestmark = pytest.mark.live

PORT = 4791
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
QPN, PSN, PKEY = 1 << 16, 7, 0xFFFF
WRITE_ONLY, SEND_ONLY, READ_REQUEST, FETCH_ADD, WRITE_FIRST = 0x0A, 0x04, 0x0C, 0x14, 0x06
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12
MEMORY_BYTES = 1 << 16
BLOCK = f"127.{130 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
NEAR, FAR, STRANGER = f"{BLOCK}.201", f"{BLOCK}.202", f"{BLOCK}.203"


def packet(
    opcode: int, extension: bytes = b"", payload: bytes = b"", *, qpn: int = QPN, psn: int = PSN, pkey: int = PKEY
) -> bytes:
    """BTH with a request for an acknowledgement, what follows it, and the pad; without ICRC."""
    pads = -len(payload) % 4
    return struct.pack("!BBHII", opcode, pads << 4, pkey, qpn, 1 << 31 | psn) + extension + payload + bytes(pads)


def reth(address: int = 0, rkey: int = RKEY, size_bytes: int = 64) -> bytes:
    return struct.pack("!QII", address, rkey, size_bytes)


class Attacker:
    """A socket that sends from an address, as softroce would, but whatever it likes."""

    def __init__(self, address: str, port: int = 0xD000) -> None:
        self.address, self.port = address, port
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        self.socket.bind((address, port))

    def send(self, body: bytes, spoil: int = 0) -> None:
        udp = struct.pack("!HHHH", self.port, PORT, 8 + len(body) + 4, 0)
        ends = socket.inet_aton(self.address) + socket.inet_aton(NEAR)
        length = 20 + len(udp) + len(body) + 4
        ip = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0x4000, 64, 17, 0) + ends
        icrc = icrc_of(ip + udp + body + bytes(4)) ^ spoil
        self.socket.sendto(body + icrc.to_bytes(4, "little"), (NEAR, PORT))


@pytest.fixture
def nics() -> Nics:
    """A NIC with a peer that sends nothing by itself; memory that is worth protecting."""
    made = Nics((NEAR, FAR), memory_bytes=MEMORY_BYTES, receives_counted=True)
    made.ends[0].memory[:] = np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    return made


STRANGERS = {
    "another address": (STRANGER, packet(WRITE_ONLY, reth(), bytes(64)), 0, "strangers"),
    "a queue pair that is not there": (FAR, packet(WRITE_ONLY, reth(), bytes(64), qpn=QPN + 9), 0, "strangers"),
    "another rank's queue pair": (FAR, packet(WRITE_ONLY, reth(), bytes(64), qpn=5 << 16), 0, "wrong_rank"),
    "another partition": (FAR, packet(WRITE_ONLY, reth(), bytes(64), pkey=0x8001), 0, "bad_pkey"),
    "a wrong ICRC": (FAR, packet(WRITE_ONLY, reth(), bytes(64)), 1 << 7, "bad_icrc"),
    "no RoCE": (FAR, b"\xff" * 40, 0, "malformed"),
    "a PSN ahead": (FAR, packet(WRITE_ONLY, reth(), bytes(64), psn=PSN + 5), 0, "out_of_sequence"),
    "a wrong rkey": (FAR, packet(WRITE_ONLY, reth(rkey=RKEY + 1), bytes(64)), 0, "refused"),
    "beyond the memory": (FAR, packet(WRITE_ONLY, reth(MEMORY_BYTES - 63), bytes(64)), 0, "refused"),
    "an address that overflows": (FAR, packet(WRITE_ONLY, reth((1 << 64) - 8), bytes(64)), 0, "refused"),
    "more than announced": (FAR, packet(WRITE_ONLY, reth(size_bytes=32), bytes(64)), 0, "refused"),
    "less than announced": (FAR, packet(WRITE_ONLY, reth(size_bytes=128), bytes(64)), 0, "refused"),
    "a first packet that is short": (FAR, packet(WRITE_FIRST, reth(size_bytes=8192), bytes(64)), 0, "refused"),
    "a READ beyond the memory": (FAR, packet(READ_REQUEST, reth(MEMORY_BYTES - 1)), 0, "refused"),
    "an atomic": (FAR, packet(FETCH_ADD, reth(size_bytes=0)[:12] + bytes(16)), 0, "refused"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_nothing_of_it_reaches_memory(nics: Nics, name: str) -> None:
    address, body, spoil, counter = STRANGERS[name]
    near = nics.ends[0]
    before = near.memory.copy()
    if address == FAR:
        nics.ends.pop()  # the peer's address is the attacker's now
    Attacker(address).send(body, spoil)
    events = near.poll(0.001)
    nics.until(lambda: near.counters()["datagrams_received"] > 0)
    counters = near.counters()
    assert counters[counter] == 1
    assert counters["datagrams_received"] == 1
    assert np.array_equal(near.memory, before)
    assert events == []


@pytest.mark.parametrize("readable_bytes", [0, MEMORY_BYTES])
def test_a_blind_read_does_not_end_the_connection(readable_bytes: int) -> None:
    """A READ behind, of which nothing but address, port and queue pair is right: it is dropped, and the job goes on."""
    blind = Nics((NEAR, FAR), memory_bytes=MEMORY_BYTES, receives_counted=True, readable_bytes=readable_bytes)
    near = blind.ends[0]
    for behind in (1, 1000, (1 << 23) - 1):
        Attacker(FAR).send(packet(READ_REQUEST, reth(rkey=0xBAD), psn=(PSN - behind) % (1 << 24)))
    blind.until(lambda: near.counters()["datagrams_received"] == 3)
    assert (near.counters()["refused"], near.counters()["reads_dropped"]) == (0, 3)
    blind.ends[1].post_send(0, "write", 64, handle=4, rkey=RKEY)
    blind.until(lambda: bool(blind.events[1]))
    assert blind.events[1][0][:4] == ("sent", 0, 4, "ok")


def test_what_the_peer_may_write_is_written(nics: Nics) -> None:
    """The same attacker's packet when all is right: the tests above fail for their own reasons only."""
    nics.ends.pop()
    near = nics.ends[0]
    Attacker(FAR).send(packet(WRITE_ONLY, reth(100), b"\xaa" * 64))
    nics.until(lambda: near.counters()["acks_sent"] > 0)
    assert (near.memory[100:164] == 0xAA).all()
    assert near.counters()["acks_sent"] == 1


def test_a_message_longer_than_its_receive_is_refused(nics: Nics) -> None:
    near = nics.ends[0]
    near.post_receive(0, handle=1, address=1000, size_bytes=63)
    before = near.memory.copy()
    nics.ends[1].post_send(0, "send", 64, handle=4)
    nics.until(lambda: bool(nics.events[1]))
    assert nics.events[1][0][:4] == ("sent", 0, 4, "invalid request")
    assert np.array_equal(near.memory, before)


def ip_packet(
    *, options: bytes = b"", fragment: int = 0x4000, protocol: int = 17, to: str = NEAR, port: int = PORT, rank: int = 0
) -> bytes:
    """A WRITE of FAR's in an IPv4 header to order; `rank`: the local rank that it is for."""
    body = packet(WRITE_ONLY, reth(100), b"\xaa" * 64, qpn=(rank + 1) << 16)
    udp = struct.pack("!HHHH", 0xD000, port, 8 + len(body) + 4, 0)
    length = 20 + len(options) + len(udp) + len(body) + 4
    header = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, length, 0x1234, fragment, 64, protocol, 0)
    covered = header + socket.inet_aton(FAR) + socket.inet_aton(to) + options + udp + body
    return covered + icrc_of(covered + bytes(4)).to_bytes(4, "little")


# Nothing but UDP without options, whole, to this address, port and rank passes the packet socket's filter.
UNWANTED: dict[str, dict[str, Any]] = {
    "options": {"options": bytes([1, 1, 1, 0])},
    "a first fragment": {"fragment": 0x2000},
    "a later fragment": {"fragment": 0x0001},
    "another protocol": {"protocol": 253},
    "another address": {"to": STRANGER},
    "another port": {"port": PORT + 1},
    "another rank": {"rank": 4},
}


@pytest.mark.parametrize("name", UNWANTED)
def test_what_is_for_others_is_not_seen(as_root: None, name: str) -> None:
    """On loopback packets keep their order: once the wanted one is there, the unwanted one has been."""
    near = Nics((NEAR, FAR), memory_bytes=MEMORY_BYTES, see_headers=True).ends[0]
    wanted = ip_packet()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        for sent in (ip_packet(**UNWANTED[name]), wanted):
            sender.sendto(sent, (socket.inet_ntoa(sent[16:20]), 0))
    deadline = time.monotonic() + 20
    while near.counters()["acks_sent"] == 0:
        assert time.monotonic() < deadline, "it does not come"
        near.poll(0.001)
    assert near.counters()["datagrams_received"] == 1
    assert (near.memory[100:164] == 0xAA).all()


IDLE = """
import os, sys
import genie_core
def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
config = genie_core.NicConfig()
config.address = sys.argv[1]
nic = genie_core.Endpoint(config)
nic.open()
pair = genie_core.QueuePairConfig()
before = resident_bytes()
for number in range(1000):
    nic.connect(nic.add_queue_pair(pair, False), address=sys.argv[2], qpn=1 << 16 | number)
print((resident_bytes() - before) / 1000)
"""


def test_an_idle_queue_pair_costs_little() -> None:
    """Of a thousand in a process that has nothing else to do; what the kernel keeps of their sockets is not in it."""
    said = subprocess.run(
        [sys.executable, "-c", IDLE, f"{BLOCK}.204", f"{BLOCK}.205"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 100 < float(said.stdout) < 4096


def test_a_thousand_queue_pairs_carry_messages() -> None:
    nics = Nics((NEAR, FAR), memory_bytes=1 << 16, queue_pairs=1000)
    messages, size_bytes, _ = nics.stream(9000, 3000, depth=1)
    assert (messages, size_bytes) == (3000, 27_000_000)
    assert nics.ends[1].counters()["data_received"] >= 9000


def test_a_forged_icmp_message_makes_no_packet_too_long(as_root: None) -> None:
    """The path MTU is found before the run; who knows a packet's addresses and ports alone cannot lower it."""
    addresses = f"{BLOCK}.206", f"{BLOCK}.207"
    pair = genie_core.QueuePairConfig()
    pair.mtu_bytes = 4096
    nics = Nics(addresses, memory_bytes=MEMORY_BYTES, pair=pair)
    quoted = struct.pack("!BBHHHBBH", 0x45, 0, 4200, 0, 0x4000, 64, 17, 0)
    quoted += socket.inet_aton(addresses[1]) + socket.inet_aton(addresses[0])
    quoted += struct.pack("!HHHH", nics.ends[1].open_path(0), PORT, 4180, 0)
    message = struct.pack("!BBHHH", 3, 4, 0, 0, 600) + quoted
    words = struct.unpack(f"!{len(message) // 2}H", message)
    total = sum(words)
    check = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as forger:
        forger.bind((f"{BLOCK}.208", 0))
        forger.sendto(message[:2] + check.to_bytes(2, "big") + message[4:], (addresses[1], 0))
    nics.ends[1].post_send(0, "write", 9000, handle=4, rkey=RKEY)
    nics.until(lambda: bool(nics.events[1]) or bool(nics.ends[1].error))
    assert nics.ends[1].error == ""
    assert nics.events[1][0][:4] == ("sent", 0, 4, "ok")


def test_a_queue_pair_takes_its_peers_port_alone(nics: Nics) -> None:
    """A sender at the peer's address, but not of its socket, is counted with the port that it has."""
    near = nics.ends[0]
    near.expect_port(0, nics.ends[1].open_path(0))
    Attacker(FAR, 0xD123).send(packet(WRITE_ONLY, reth(100), b"\xaa" * 64))
    nics.until(lambda: near.counters()["datagrams_received"] > 0)
    assert (near.counters()["wrong_port"], near.counters()["acks_sent"]) == (1, 0)
    assert near.refused_senders() == [("wrong_port", FAR, 0xD123, 1)]
    nics.ends[1].post_send(0, "write", 64, handle=4, rkey=RKEY)
    nics.until(lambda: bool(nics.events[1]))
    assert nics.events[1][0][:4] == ("sent", 0, 4, "ok")


def test_a_flood_from_drawn_addresses_hides_no_sender_of_another_kind(nics: Nics) -> None:
    nics.ends.pop()
    near = nics.ends[0]
    near.expect_port(0, 0xD000)
    flood = [f"{BLOCK}.{number}" for number in range(1, 101)]
    for address in flood:
        Attacker(address).send(packet(WRITE_ONLY, reth(), bytes(64)))
    nics.until(lambda: near.counters()["strangers"] == len(flood))
    Attacker(FAR, 0xD123).send(packet(WRITE_ONLY, reth(), bytes(64)))
    acknowledgement = packet(ACKNOWLEDGE, struct.pack("!I", 0x62 << 24), psn=PSN + 100)
    Attacker(FAR).send(acknowledgement)
    nics.until(lambda: near.counters()["datagrams_received"] == len(flood) + 2)
    named = near.refused_senders()
    assert ("wrong_port", FAR, 0xD123, 1) in named
    assert ("forged_naks", FAR, 0xD000, 1) in named
    assert 3 < len(named) < len(flood)


class Waiting:
    """Rank 0 of two, which waits for a WRITE of 64 bytes from rank 1, at FAR; `stall_s` without progress end it."""

    def __init__(self, stall_s: float) -> None:
        nic, config = genie_core.NicConfig(), genie_core.EngineConfig()
        nic.address, nic.rkey = NEAR, RKEY
        config.nic, config.message_max_bytes, config.stall_limit_ps = nic, 4096, round(stall_s * 1e12)
        self.engine = genie_core.Engine(config)
        self.engine.open()
        numbers: dict[str, Any] = {"first_psns": [PSN], "our_first_psns": [PSN], "source_ports": [0xC000]}
        self.engine.connect([genie_core.Peer(address=each, qpns=[QPN], rkey=RKEY, **numbers) for each in (NEAR, FAR)])
        builder = RankBuilder(0)
        builder.add(0, "wait", Kind.RECV, peer=1, tag=7, size_bytes=64)
        self.plan = build_plan(Workload("wait", 2, [], {0: builder.finish()[0]})).native
        self.engine.set_plan(self.plan)


@pytest.mark.parametrize(
    "body",
    [
        packet(WRITE_ONLY, reth(), bytes(64), qpn=QPN + 1, psn=PSN - 1),
        packet(ACKNOWLEDGE, struct.pack("!I", 0x1F << 24), qpn=QPN + 1, psn=PSN - 2),
        packet(ATOMIC_ACKNOWLEDGE, struct.pack("!IQ", 0x1F << 24, 0), qpn=QPN + 1, psn=PSN),
    ],
    ids=["a duplicate", "a late acknowledgement", "an answer to an atomic"],
)
def test_packets_that_bring_nothing_new_keep_no_dead_run_alive(body: bytes) -> None:
    """Half of all PSNs are behind: a packet now and then would switch the limit of --stall off."""
    waiting, attacker = Waiting(stall_s=0.2), Attacker(FAR)
    engine = waiting.engine
    state, started = engine.begin(engine.now_ps), time.monotonic()
    while state == "timeout" and time.monotonic() - started < 2:
        attacker.send(body)
        state = engine.run(engine.now_ps + 10**10)
    assert engine.counters()["datagrams_received"] > 1
    assert (state, engine.error) == ("failed", engine.waiting())
    assert "from rank 1" in engine.error


def test_data_that_comes_slowly_is_progress() -> None:
    """Packets in sequence come for three times as long as the limit of --stall, and complete nothing."""
    waiting, attacker = Waiting(stall_s=0.4), Attacker(FAR)
    engine = waiting.engine
    assert engine.begin(engine.now_ps) == "timeout"
    for number in range(12):
        attacker.send(packet(WRITE_ONLY, reth(), bytes(64), qpn=QPN + 1, psn=PSN + number))
        assert engine.run(engine.now_ps + 10**11) == "timeout", engine.error
    assert engine.counters()["data_received"] == 12


def test_a_packet_that_ends_a_connection_is_named(nics: Nics) -> None:
    nics.ends.pop()
    near = nics.ends[0]
    Attacker(FAR).send(packet(WRITE_ONLY, reth(100, RKEY + 1), bytes(64)))
    nics.until(lambda: near.ended != "")
    assert near.ended == (
        f"it refused from {FAR} port {0xD000} a WRITE with PSN {PSN} to queue pair 0x010000, of 64 bytes with key "
        f"0x{RKEY + 1:08x} for 64 bytes at address 100"
    )
