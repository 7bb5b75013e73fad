"""The codec and the ICRC against captures of a kernel's RoCE stack, scapy and zlib."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import genie_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PATHS = genie_core.crc_paths()
OPCODES = [*range(0x15), 0x16, 0x17, 0x81]
PAYLOAD_SENDERS = [*range(0x0C), *range(0x0D, 0x11), 0x16, 0x17]
FIRST_OR_MIDDLE = [0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E]
LAST = [0x02, 0x03, 0x08, 0x09, 0x0F, 0x16]
CNP = 0x81

RETH = ("reth_va", "reth_rkey", "reth_length_bytes")
AETH = ("aeth_syndrome", "aeth_msn")
ATOMIC = ("reth_va", "reth_rkey", "atomic_swap_or_add", "atomic_compare")
EXTENSIONS: dict[int, tuple[str, ...]] = {
    0x03: ("imm",),
    0x05: ("imm",),
    0x06: RETH,
    0x09: ("imm",),
    0x0A: RETH,
    0x0B: (*RETH, "imm"),
    0x0C: RETH,
    0x0D: AETH,
    0x0F: AETH,
    0x10: AETH,
    0x11: AETH,
    0x12: (*AETH, "atomic_original"),
    0x13: ATOMIC,
    0x14: ATOMIC,
    0x16: ("invalidate_rkey",),
    0x17: ("invalidate_rkey",),
}
FIELD_BITS = {
    "reserved6": 6,
    "reserved7": 7,
    "pkey": 16,
    "dest_qpn": 24,
    "psn": 24,
    "reth_va": 64,
    "aeth_syndrome": 8,
    "aeth_msn": 24,
    "atomic_swap_or_add": 64,
    "atomic_compare": 64,
    "atomic_original": 64,
}
BTH_FIELDS = ("reserved6", "reserved7", "pkey", "dest_qpn", "psn")
BTH_FLAGS = ("solicited", "migreq", "fecn", "becn", "ack_request")


def ip_packets(pcap: Path) -> Iterator[bytes]:
    """IPv4 packets of an Ethernet capture in the classic format, link-layer padding taken off."""
    data = pcap.read_bytes()
    magic, _, _, _, _, _, link_type = struct.unpack_from("<IHHiIII", data)
    assert (magic, link_type) == (0xA1B2C3D4, 1)
    at = 24
    while at < len(data):
        _, _, captured, original = struct.unpack_from("<IIII", data, at)
        assert captured == original
        packet = data[at + 16 + 14 : at + 16 + captured]
        yield packet[: struct.unpack_from("!H", packet, 2)[0]]
        at += 16 + captured


@pytest.fixture(scope="module")
def captured(shared_data: Path) -> list[bytes]:
    packets = [p for pcap in sorted((shared_data / "roce-captures").glob("*.pcap")) for p in ip_packets(pcap)]
    assert len(packets) == 1204
    return packets


def carried_icrc(packet: bytes) -> int:
    return int.from_bytes(packet[-4:], "little")


def test_captures_decode_and_encode_to_themselves(captured: list[bytes]) -> None:
    for number, packet in enumerate(captured):
        udp_payload = packet[28:]
        assert genie_core.roce_encode(**genie_core.roce_decode(udp_payload)) == udp_payload, number


def test_captures_hold_what_their_readme_says(shared_data: Path) -> None:
    folder = shared_data / "roce-captures"
    sent = b"".join(
        fields["payload"]
        for fields in (genie_core.roce_decode(p[28:]) for p in ip_packets(folder / "rc_writeimm_8000x1.pcap"))
        if fields["opcode"] != 0x11
    )
    assert sent == bytes(i * 7 & 255 for i in range(8000))
    request, *responses = (genie_core.roce_decode(p[28:]) for p in ip_packets(folder / "rc_read_8000x1.pcap"))
    assert (request["opcode"], request["reth_length_bytes"], request["psn"]) == (0x0C, 8000, 0x2000)
    assert b"".join(fields["payload"] for fields in responses) == bytes(i * 7 + 3 & 255 for i in range(8000))
    naks = [
        fields["aeth_syndrome"]
        for fields in (genie_core.roce_decode(p[28:]) for p in ip_packets(folder / "rc_rnr_512x1_bridgeloss.pcap"))
        if fields["opcode"] == 0x11
    ]
    assert naks[0] == 0x2C


@pytest.mark.parametrize("path", PATHS)
def test_captures_carry_the_right_icrc(captured: list[bytes], path: str) -> None:
    for number, packet in enumerate(captured):
        assert genie_core.icrc_of_ip_packet(packet, path) == carried_icrc(packet), number


def test_captures_carry_the_icrc_of_their_flow(captured: list[bytes]) -> None:
    for number, packet in enumerate(captured):
        identification, flags = struct.unpack_from("!HH", packet, 4)
        src_port, dst_port = struct.unpack_from("!HH", packet, 20)
        icrc = genie_core.icrc_of_flow(
            packet[12:16], packet[16:20], src_port, dst_port, identification, flags == 0x4000, packet[28:-4]
        )
        assert icrc == carried_icrc(packet), number


def masked_bits(packet: bytes) -> set[int]:
    """Bits of an IPv4 packet that routers may change: TOS, TTL, both checksums, the BTH byte with FECN and BECN."""
    bits = {8 * byte + bit for byte in (1, 8, 10, 11, 26, 27, 32) for bit in range(8)}
    assert max(bits) < 8 * len(packet)
    return bits


def test_icrc_sees_every_unmasked_bit_and_no_masked_one(captured: list[bytes]) -> None:
    by_opcode = {packet[28]: packet for packet in captured}
    assert len(by_opcode) >= 13
    for packet in by_opcode.values():
        masked = masked_bits(packet)
        for bit in range(8 * (len(packet) - 4)):
            changed = bytearray(packet)
            changed[bit // 8] ^= 0x80 >> bit % 8
            try:
                same = genie_core.icrc_of_ip_packet(bytes(changed)) == carried_icrc(packet)
            except ValueError:  # no longer such a packet: version, header length, fragment, protocol, total length
                same = False
            assert same == (bit in masked), (packet[28], bit)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, Any]:
    """Any header that is right, with a payload that its opcode can have."""
    opcode = draw(st.sampled_from(OPCODES))
    fields: dict[str, Any] = {"opcode": opcode, "icrc": draw(st.integers(0, 2**32 - 1))}
    for name in (*BTH_FIELDS, *EXTENSIONS.get(opcode, ())):
        fields[name] = draw(st.integers(0, 2 ** FIELD_BITS.get(name, 32) - 1))
    for name in BTH_FLAGS:
        fields[name] = draw(st.booleans())
    if opcode in FIRST_OR_MIDDLE:
        fields["payload"] = draw(st.binary(min_size=1, max_size=64)) * 4
    elif opcode in PAYLOAD_SENDERS:
        fields["payload"] = draw(st.binary(min_size=1 if opcode in LAST else 0, max_size=300))
    return fields


@given(headers())
@settings(max_examples=400)
def test_drawn_headers_come_back(fields: dict[str, Any]) -> None:
    packet = genie_core.roce_encode(**fields)
    assert len(packet) % 4 == 0
    decoded = genie_core.roce_decode(packet)
    for name, value in decoded.items():
        assert value == fields.get(name, b"" if name == "payload" else 0), name


def with_scapy(ip: Any, src_port: int, fields: dict[str, Any]) -> bytes:
    """The same packet built by scapy, which also computes its ICRC; extension headers and payload are ours."""
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import UDP
    from scapy.packet import Raw

    ours = genie_core.roce_encode(**fields)
    bth = BTH(
        opcode=fields["opcode"],
        solicited=fields["solicited"],
        migreq=fields["migreq"],
        padcount=-len(fields.get("payload", b"")) % 4,
        pkey=fields["pkey"],
        fecn=fields["fecn"],
        becn=fields["becn"],
        resv6=fields["reserved6"],
        dqpn=fields["dest_qpn"],
        ackreq=fields["ack_request"],
        resv7=fields["reserved7"],
        psn=fields["psn"],
    )
    return bytes(ip / UDP(sport=src_port, dport=4791) / bth / Raw(ours[12:-4]))


@given(
    headers(), st.binary(min_size=8, max_size=8), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_ipv4_packets_are_scapys(
    fields: dict[str, Any], addresses: bytes, src_port: int, identification: int, dont_fragment: bool
) -> None:
    from scapy.layers.inet import IP

    src, dst = addresses[:4], addresses[4:]
    flags = "DF" if dont_fragment else 0
    ip = IP(src=socket.inet_ntoa(src), dst=socket.inet_ntoa(dst), id=identification, flags=flags, tos=3, ttl=9)
    packet = with_scapy(ip, src_port, fields)
    covered = packet[28:-4]
    icrc = genie_core.icrc_of_flow(src, dst, src_port, 4791, identification, dont_fragment, covered)
    assert packet[28:] == genie_core.roce_encode(**{**fields, "icrc": icrc})
    assert {genie_core.icrc_of_ip_packet(packet, path) for path in PATHS} == {icrc}


@given(headers(), st.binary(min_size=32, max_size=32), st.integers(0, 2**16 - 1), st.integers(0, 2**20 - 1))
@settings(max_examples=60, deadline=None)
def test_ipv6_packets_are_scapys(fields: dict[str, Any], addresses: bytes, src_port: int, flow_label: int) -> None:
    from scapy.layers.inet6 import IPv6

    src, dst = addresses[:16], addresses[16:]
    ip = IPv6(
        src=socket.inet_ntop(socket.AF_INET6, src),
        dst=socket.inet_ntop(socket.AF_INET6, dst),
        fl=flow_label,
        tc=flow_label & 255,
        hlim=7,
    )
    packet = with_scapy(ip, src_port, fields)
    icrc = genie_core.icrc_of_flow(src, dst, src_port, 4791, 0, False, packet[48:-4])
    assert packet[48:] == genie_core.roce_encode(**{**fields, "icrc": icrc})
    assert {genie_core.icrc_of_ip_packet(packet, path) for path in PATHS} == {icrc}


@given(st.binary(max_size=2000))
def test_crc32_is_zlibs(data: bytes) -> None:
    assert {genie_core.crc32(data, path) for path in PATHS} | {genie_core.crc32(data)} == {zlib.crc32(data)}


def test_every_cut_of_a_packet_is_refused_or_shorter(captured: list[bytes]) -> None:
    for packet in {packet[28]: packet[28:] for packet in captured}.values():
        whole = genie_core.roce_decode(packet)
        for size in range(len(packet)):
            try:
                fields = genie_core.roce_decode(packet[:size])
            except ValueError:
                continue
            assert size % 4 == 0
            assert len(fields["payload"]) == len(whole["payload"]) - (len(packet) - size)


@given(st.binary(max_size=100))
def test_noise_is_refused_or_understood(data: bytes) -> None:
    try:
        fields = genie_core.roce_decode(data)
    except ValueError:
        return
    assert len(genie_core.roce_encode(**fields)) == len(data)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"opcode": 0x15}, "opcode"),
        ({"opcode": 0x40}, "opcode"),
        ({"opcode": 256}, "opcode must be an integer from 0 to 255"),
        ({"psn": 2**24}, "psn must be an integer from 0 to 16777215"),
        ({"dest_qpn": -1}, "dest_qpn must be"),
        ({"payload": "text"}, "payload must be bytes"),
        ({"colour": 1}, "no RoCE header has"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        genie_core.roce_encode(**fields)


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (b"", "shorter"),
        (bytes([0x04]) + bytes(14), "shorter"),
        (bytes([0x04, 0x01]) + bytes(14), "version"),
        (bytes([0x15]) + bytes(15), "opcode"),
        (bytes([0x0A]) + bytes(30), "shorter"),
        (bytes([0x04, 0x30]) + bytes(14), "pad"),
        (bytes([0x00, 0x10]) + bytes(18), "pad"),
        (bytes([0x04]) + bytes(16), "length"),
        (bytes([0x11]) + bytes(23), "length"),
    ],
)
def test_malformed_packets_say_why(packet: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        genie_core.roce_decode(packet)


def test_unknown_crc_path_is_named() -> None:
    with pytest.raises(ValueError, match="abacus"):
        genie_core.crc32(b"", "abacus")
