"""The judge of captures finds what is wrong with one, and accepts what a kernel sent."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from roce_pcaps import carried_icrc, icrc_of, ip_packets, judge

pytestmark = [pytest.mark.guests, pytest.mark.extended]

WRITE_ONLY, ACKNOWLEDGE = 0x0A, 0x11
BTH = 28  # behind the headers of IPv4 and UDP
CAPTURE = "rc_write_512x1"


@pytest.fixture
def packets(shared_data: Path) -> list[bytes]:
    return ip_packets(shared_data / "roce-captures" / f"{CAPTURE}.pcap")


def sealed(packet: bytes) -> bytes:
    """With lengths and ICRC as they must be."""
    whole = bytearray(packet)
    struct.pack_into("!H", whole, 2, len(whole))
    struct.pack_into("!H", whole, 24, len(whole) - 20)
    return bytes(whole[:-4]) + icrc_of(bytes(whole)).to_bytes(4, "little")


def write_pcap(path: Path, packets: list[bytes]) -> Path:
    frames = [b"\2" + bytes(5) + b"\2" + bytes(5) + b"\x08\x00" + packet for packet in packets]
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    path.write_bytes(header + b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in frames))
    return path


def test_every_icrc_of_a_kernel_is_right(shared_data: Path) -> None:
    found = [p for pcap in sorted((shared_data / "roce-captures").glob("*.pcap")) for p in ip_packets(pcap)]
    assert len(found) == 1204
    assert [number for number, p in enumerate(found) if icrc_of(p) != carried_icrc(p)] == []


def test_what_is_in_order_is_counted(packets: list[bytes], tshark: str, tmp_path: Path) -> None:
    assert sealed(packets[0]) == packets[0]
    seen = judge(write_pcap(tmp_path / "good.pcap", [*packets, packets[0]]), tshark)
    assert dict(seen.opcodes) == {WRITE_ONLY: 2, ACKNOWLEDGE: 1}
    assert dict(seen.distinct) == {WRITE_ONLY: 1, ACKNOWLEDGE: 1}


def test_a_wrong_icrc_is_found(packets: list[bytes], tshark: str, tmp_path: Path) -> None:
    changed = packets[0][:-6] + b"\x55\xaa" + packets[0][-4:]
    with pytest.raises(AssertionError, match=r"frames \[2\] carry a wrong ICRC, 1 of 2"):
        judge(write_pcap(tmp_path / "icrc.pcap", [packets[0], changed]), tshark)


def test_a_packet_without_its_whole_header_is_malformed(packets: list[bytes], tshark: str, tmp_path: Path) -> None:
    cut = sealed(packets[0][: BTH + 12 + 7 + 4])  # seven bytes of a RETH of sixteen
    with pytest.raises(AssertionError, match="frame 1 is malformed"):
        judge(write_pcap(tmp_path / "cut.pcap", [cut]), tshark)


def test_what_is_not_roce_is_found(packets: list[bytes], tshark: str, tmp_path: Path) -> None:
    other = bytearray(packets[0])
    struct.pack_into("!H", other, 22, 4792)
    with pytest.raises(AssertionError, match="frame 1 is dissected as eth:ethertype:ip:udp"):
        judge(write_pcap(tmp_path / "port.pcap", [sealed(bytes(other))]), tshark)
