"""What other programs say of a capture: tshark of every packet, zlib's CRC-32 of every ICRC."""

from __future__ import annotations

import functools
import struct
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET_BYTES = 14
ERROR = 0x00800000  # the severity, as tshark numbers them
WHO = ("ip.src", "ipv6.src", "infiniband.bth.destqp", "infiniband.bth.psn")
EXPERT = ("_ws.malformed", "_ws.expert.severity", "_ws.expert.message")
FIELDS = ("frame.number", "frame.protocols", *EXPERT, "infiniband.bth.opcode", *WHO)
ZERO_CHECKSUM = "Illegal checksum value (0)"  # of UDP over IPv6: rxe sends none, and RFC 6935 lets tunnels do so


@dataclass(frozen=True)
class Dissected:
    """A capture that is in order: packets by opcode, all of them and those with a PSN that was not there before."""

    opcodes: Counter[int]
    distinct: Counter[int]

    @property
    def packets(self) -> int:
        return self.opcodes.total()


def ip_packets(pcap: Path) -> list[bytes]:
    """IP packets of an Ethernet capture in the classic format, without the link layer's padding."""
    data = pcap.read_bytes()
    magic, _, _, _, _, _, link_type = struct.unpack_from("<IHHiIII", data)
    assert (magic, link_type) == (0xA1B2C3D4, 1)
    packets = []
    at = 24
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        assert captured == original, "a frame is cut short"
        frame = data[at + 16 : at + 16 + captured]
        (kind,) = struct.unpack_from("!H", frame, 12)
        packet = frame[ETHERNET_BYTES:]
        if kind == IPV4:
            packets.append(packet[: struct.unpack_from("!H", packet, 2)[0]])
        else:
            assert kind == IPV6
            packets.append(packet[: 40 + struct.unpack_from("!H", packet, 4)[0]])
        at += 16 + captured
    return packets


def icrc_of(packet: bytes) -> int:
    """The ICRC that an IP packet must carry, from annex A17.3.3: fields that routers change count as ones.

    Written for tests from zlib's CRC-32 alone, so that it shares nothing with the product's.
    """
    masked = bytearray(packet[:-4])
    if packet[0] >> 4 == 4:
        header_bytes = (packet[0] & 15) * 4
        masked[1] = masked[8] = 0xFF  # type of service, time to live
        masked[10:12] = b"\xff\xff"  # header checksum
    else:
        header_bytes = 40
        masked[0] |= 0x0F  # traffic class, flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
    masked[header_bytes + 6 : header_bytes + 8] = b"\xff\xff"  # UDP checksum
    masked[header_bytes + 8 + 4] = 0xFF  # BTH: FECN, BECN, reserved
    return zlib.crc32(b"\xff" * 8 + bytes(masked))


def carried_icrc(packet: bytes) -> int:
    return int.from_bytes(packet[-4:], "little")


@functools.cache
def payload_guessing_off(tshark: str) -> list[str]:
    """Options that keep tshark from taking the payload of a SEND for another protocol's and calling it malformed."""
    known = subprocess.run([tshark, "-G", "heuristic-decodes"], capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split("\t") for line in known.stdout.splitlines()]
    guesses = [row[1] for row in rows if row[0] == "infiniband.payload" and row[1] != "ethertype"]
    assert "rpcordma" in guesses
    off = [word for name in guesses for word in ("--disable-protocol", name)]
    # A payload whose first bytes look like an EtherType is none of Ethernet's.
    return [*off, "--disable-heuristic", "eth_over_ib"]


def judge(pcap: Path, tshark: str) -> Dissected:
    """Assert that tshark dissects every packet as RoCE without a mark of malformation, and that every ICRC is right."""
    packets = ip_packets(pcap)
    wrong = [number for number, packet in enumerate(packets, start=1) if icrc_of(packet) != carried_icrc(packet)]
    assert not wrong, f"{pcap.name}: frames {wrong[:10]} carry a wrong ICRC, {len(wrong)} of {len(packets)}"
    argv = [tshark, "-r", str(pcap), "-T", "fields", "-E", "separator=|", *payload_guessing_off(tshark)]
    for field in FIELDS:
        argv += ["-e", field]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    assert len(said) == len(packets)
    opcodes: Counter[int] = Counter()
    identities: set[tuple[str, ...]] = set()
    for line in said:
        number, protocols, malformed, severities, messages, *identity = line.split("|")
        assert "infiniband" in protocols.split(":"), f"{pcap.name}: frame {number} is dissected as {protocols}"
        assert "malformed" not in malformed.lower() + protocols.lower(), f"{pcap.name}: frame {number} is malformed"
        errors = str(ERROR) in severities.split(",") and messages != ZERO_CHECKSUM
        assert not errors, f"{pcap.name}: tshark marks frame {number} as an error: {messages}"
        opcodes[int(identity[0])] += 1
        identities.add(tuple(identity))
    return Dissected(opcodes, Counter(int(opcode) for opcode, *_ in identities))
