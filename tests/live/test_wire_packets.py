"""Softroce's packets on a wire: captured, dissected by tshark, every ICRC computed anew; marks that routers make."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import genie_core
import numpy as np
import pytest
from cable import RKEY, Cable, Nics, cable, capture
from roce_pcaps import ip_packets, judge

pytestmark = pytest.mark.live

MTU = 4096
FIRST, MIDDLE, LAST, WRITE_ONLY, ACKNOWLEDGE, CNP = 0x06, 0x07, 0x08, 0x0A, 0x11, 0x81
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST = 0x0C, 0x0D, 0x0E, 0x0F


@pytest.fixture(scope="module")
def wire(as_root: None) -> Iterator[Cable]:
    with cable() as made:
        yield made


def pair(**fields: object) -> genie_core.QueuePairConfig:
    config = genie_core.QueuePairConfig()
    for key, value in fields.items():
        setattr(config, key, value)
    return config


def identifications(pcap: Path, opcodes: set[int]) -> list[int]:
    """IPv4 identifications of the packets with these opcodes, in the order of the capture."""
    found = []
    for packet in ip_packets(pcap):
        if packet[28] in opcodes:
            found.append(struct.unpack_from("!H", packet, 4)[0])
    return found


def test_offloaded_sends_carry_right_icrcs_after_segmentation(wire: Cable, tmp_path: Path, tshark: str) -> None:
    """The kernel counts the identification up from segment to segment: softroce computes ICRCs with what it will be."""
    pcap = tmp_path / "offload.pcap"
    with capture(wire.names[1], "cable", pcap):
        nics = Nics(wire.ipv4, wire.names)
        messages, size_bytes, _ = nics.stream(1 << 20, 8)
    assert (messages, size_bytes) == (8, 8 << 20)
    sent = nics.ends[0].counters()
    assert sent["datagrams_sent"] > 4 * sent["send_calls"]  # it was offloaded
    judged = judge(pcap, tshark)
    assert judged.opcodes[FIRST] >= 8
    assert judged.opcodes[MIDDLE] >= 8 * 254
    assert max(identifications(pcap, {FIRST, MIDDLE, LAST})) > 5
    assert nics.ends[1].counters()["bad_icrc"] == 0


def test_without_offload_loopback_shows_packets_as_a_wire_does(wire: Cable, tmp_path: Path, tshark: str) -> None:
    pcap = tmp_path / "plain.pcap"
    near = wire.names[0]  # only this test uses its loopback
    with capture(near, "lo", pcap):
        nics = Nics(("127.0.0.1", "127.0.0.2"), (near, near), offload=False)
        nics.stream(100_000, 4)
    judged = judge(pcap, tshark)
    assert judged.distinct[FIRST] == 4
    assert judged.distinct[MIDDLE] == 4 * (100_000 // MTU - 1)
    assert set(identifications(pcap, {FIRST, MIDDLE, LAST})) == {0}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("mtu_bytes", [256, 512, 1024, 2048, 4096])
def test_reads_of_any_mtu(wire: Cable, tmp_path: Path, tshark: str, family: str, mtu_bytes: int) -> None:
    pcap = tmp_path / "read.pcap"
    nics = Nics(getattr(wire, family), wire.names, pair=pair(mtu_bytes=mtu_bytes), offload=mtu_bytes > 512)
    ends = nics.ends
    ends[1].memory[:] = np.random.default_rng(mtu_bytes).integers(0, 256, len(ends[1].memory), dtype=np.uint8)
    with capture(wire.names[1], "cable", pcap):
        ends[0].post_send(0, "read", 50_001, handle=9, local_address=3, remote_address=17, rkey=RKEY)
        nics.until(lambda: bool(nics.events[0]))
    assert nics.events[0] == [("sent", 0, 9, "ok", 0, None, False, 0)]
    assert np.array_equal(ends[0].memory[3 : 3 + 50_001], ends[1].memory[17 : 17 + 50_001])
    assert not ends[0].memory[:3].any()
    assert not ends[0].memory[3 + 50_001 : 60_000].any()
    judged = judge(pcap, tshark)
    packets = -(-50_001 // mtu_bytes)
    assert judged.distinct == {READ_REQUEST: 1, READ_FIRST: 1, READ_MIDDLE: packets - 2, READ_LAST: 1}


def test_traffic_class_and_source_ports_are_on_the_wire(wire: Cable, tmp_path: Path, tshark: str) -> None:
    pcap = tmp_path / "class.pcap"
    with capture(wire.names[1], "cable", pcap):
        Nics(wire.ipv4, wire.names, queue_pairs=4, traffic_class=104).stream(5000, 8)
        dcqcn = genie_core.CongestionConfig()
        dcqcn.control = "dcqcn"
        Nics(wire.ipv6, wire.names, traffic_class=104, pair=pair(congestion=dcqcn)).stream(5000, 8)
    judge(pcap, tshark)
    ports: dict[int, set[int]] = {4: set(), 6: set()}
    for packet in ip_packets(pcap):
        version = packet[0] >> 4
        traffic_class = packet[1] if version == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
        header = 20 if version == 4 else 40
        if packet[header + 8] != ACKNOWLEDGE:
            assert traffic_class == (104 if version == 4 else 104 | 2)  # ECT(0) only where somebody listens to marks
            ports[version].add(struct.unpack_from("!H", packet, header)[0])
    assert len(ports[4]) == 4
    assert len(ports[6]) == 1


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_marked_packets_are_notified_and_slow_the_sender_down(
    wire: Cable, tmp_path: Path, tshark: str, family: str
) -> None:
    """A router marks every packet: the receiver says so, not more often than it may, and DCQCN obeys."""
    dcqcn = genie_core.CongestionConfig()
    dcqcn.control, dcqcn.line_rate_bps = "dcqcn", 1_000_000_000
    config = pair(congestion=dcqcn, mtu_bytes=MTU)

    def rate(*, marked: bool, pcap: Path) -> tuple[float, dict[str, int], dict[str, int]]:
        nics = Nics(getattr(wire, family), wire.names, pair=config, rate_bps=dcqcn.line_rate_bps)
        if marked:
            protocol = "ip" if family == "ipv4" else "ip6"
            wire.rule(1, f"{protocol} ecn ect0 {protocol} ecn set ce")
        try:
            with capture(wire.names[0], "cable", pcap):
                _, size_bytes, took_ps = nics.stream(1 << 16, 40)
                nics.until(lambda: nics.ends[0].counters()["cnps_received"] == nics.ends[1].counters()["cnps_sent"])
        finally:
            if marked:
                wire.clear(1)
        judge(pcap, tshark)
        return size_bytes * 8 / (took_ps / 1e12), nics.ends[0].counters(), nics.ends[1].counters()

    free, _, there = rate(marked=False, pcap=tmp_path / "free.pcap")
    assert there["congestion_marks"] == there["cnps_sent"] == 0
    slowed, here, there = rate(marked=True, pcap=tmp_path / "marked.pcap")
    assert there["congestion_marks"] >= 40 * 16
    assert 10 <= there["cnps_sent"] == here["cnps_received"]
    took_us = 40 * (1 << 16) * 8 / slowed * 1e6
    assert there["cnps_sent"] <= took_us / 50 + 2
    assert here["timeouts"] == here["retransmitted"] == 0  # it is not for that that it was slow
    assert slowed < 0.75 * free  # how much depends on how promptly notifications are taken
    assert judge(tmp_path / "marked.pcap", tshark).opcodes[CNP] == there["cnps_sent"]
    said = subprocess.run(
        [tshark, "-r", str(tmp_path / "marked.pcap"), "-Y", "infiniband.bth.opcode == 129", "-T", "fields",
         "-e", "infiniband.bth.opcode", "-e", "udp.length"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert {line.split("\t")[1] for line in said.stdout.splitlines()} == {str(8 + 12 + 16 + 4)}
