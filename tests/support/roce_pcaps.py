"""Judgements of other programs on a capture: tshark of every packet, zlib's CRC-32 of every ICRC."""

from __future__ import annotations

import atexit
import contextlib
import functools
import struct
import subprocess
import tempfile
import threading
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET_BYTES = 14
FILE_HEADER_BYTES, RECORD_HEADER_BYTES = 24, 16
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
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


def records_of(pcap: Path) -> list[bytes]:
    """The frames of an Ethernet capture in the classic format, each behind its record's header."""
    data = pcap.read_bytes()
    magic, _, _, _, _, _, link_type = struct.unpack_from("<IHHiIII", data)
    assert (magic, link_type) == (0xA1B2C3D4, 1)
    records = []
    at = FILE_HEADER_BYTES
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        end = at + RECORD_HEADER_BYTES + captured
        assert captured == original, "a frame is cut short"
        assert end <= len(data), "the file is cut short"
        records.append(data[at:end])
        at = end
    return records


def packet_of(record: bytes) -> bytes:
    """The IP packet in a record, without the link layer's padding."""
    frame = record[RECORD_HEADER_BYTES:]
    (kind,) = struct.unpack_from("!H", frame, 12)
    packet = frame[ETHERNET_BYTES:]
    if kind == IPV4:
        return packet[: struct.unpack_from("!H", packet, 2)[0]]
    assert kind == IPV6
    return packet[: 40 + struct.unpack_from("!H", packet, 4)[0]]


def ip_packets(pcap: Path) -> list[bytes]:
    """IP packets of an Ethernet capture in the classic format, without the link layer's padding."""
    return [packet_of(record) for record in records_of(pcap)]


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


class Dissector:
    """A tshark that gets the packets of one capture after another: to start one takes longer than most captures."""

    def __init__(self, tshark: str) -> None:
        argv = [tshark, "-l", "-r", "-", "-T", "fields", "-E", "separator=|", *payload_guessing_off(tshark)]
        for field in FIELDS:
            argv += ["-e", field]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        self._sent = 0
        self._write([FILE_HEADER])

    def lines_of(self, records: list[bytes]) -> list[str]:
        """Return tshark's line on each of these, without the number."""
        writer = threading.Thread(target=self._write, args=(records,), daemon=True)
        writer.start()
        assert self._process.stdout
        lines = []
        for _ in records:
            number, _, line = self._process.stdout.readline().decode(errors="replace").rstrip("\n").partition("|")
            self._sent += 1
            assert number == str(self._sent), (
                f"tshark has ended, or is at another packet: {number} {self._last_words()}"
            )
            lines.append(line)
        writer.join()
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _write(self, pieces: list[bytes]) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):  # it has ended, which its output says
            self._process.stdin.write(b"".join(pieces))
            self._process.stdin.flush()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-300:]


_dissectors: dict[str, Dissector] = {}


def dissect(records: list[bytes], tshark: str) -> list[str]:
    """Return tshark's line on each of these, from a running process if there is one."""
    if tshark not in _dissectors:
        _dissectors[tshark] = Dissector(tshark)
        atexit.register(_dissectors[tshark].close)
    try:
        return _dissectors[tshark].lines_of(records)
    except BaseException:  # with lines that nobody reads any more it is of no use
        _dissectors.pop(tshark).close()
        raise


def judge(pcap: Path, tshark: str) -> Dissected:
    """Assert that tshark dissects every packet as RoCE without a mark of malformation, and that every ICRC is right."""
    records = records_of(pcap)
    packets = [packet_of(record) for record in records]
    wrong = [number for number, packet in enumerate(packets, start=1) if icrc_of(packet) != carried_icrc(packet)]
    assert not wrong, f"{pcap.name}: frames {wrong[:10]} carry a wrong ICRC, {len(wrong)} of {len(packets)}"
    opcodes: Counter[int] = Counter()
    identities: set[tuple[str, ...]] = set()
    for number, line in enumerate(dissect(records, tshark), start=1):
        protocols, malformed, severities, messages, *identity = line.split("|")
        assert "infiniband" in protocols.split(":"), f"{pcap.name}: frame {number} is dissected as {protocols}"
        assert "malformed" not in malformed.lower() + protocols.lower(), f"{pcap.name}: frame {number} is malformed"
        errors = str(ERROR) in severities.split(",") and messages != ZERO_CHECKSUM
        assert not errors, f"{pcap.name}: tshark marks frame {number} as an error: {messages}"
        opcodes[int(identity[0])] += 1
        identities.add(tuple(identity))
    return Dissected(opcodes, Counter(int(opcode) for opcode, *_ in identities))
