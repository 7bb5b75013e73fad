"""The captures of a kernel's RoCE stack as sessions: who sent what to whom, and which packets never arrived."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import genie_core

ACKNOWLEDGE = 0x11
VERBS = {"send": "send", "write": "write", "writeimm": "write_imm"}
FIRST_PSN = 0x2000  # of every client

# Every seventh packet was dropped on the bridge, behind the place of the capture. For each capture: the position of
# the first one dropped, from 1, and those of the responses dropped, which the capture cannot show.
DROPPED: dict[str, tuple[int, list[int]]] = {
    "rc_rnr_512x1_bridgeloss": (3, []),
    "rc_send_8000x4_bridgeloss": (5, [292]),
    "rc_write_30000x2_bridgeloss": (1, []),
    "rc_writeimm_8000x2_bridgeloss": (2, [44]),
}

# The sessions in userspace_host_vs_rxe.pcap, in order, by its README; frames 13 to 21 are a READ.
USERSPACE = "userspace_host_vs_rxe"
USERSPACE_SESSIONS = [
    (slice(0, 4), "send", 512, 2),
    (slice(4, 13), "write", 8000, 1),
    (slice(22, 24), "send", 512, 1),
    (slice(24, 33), "send", 8000, 1),
    (slice(33, 42), "write", 8000, 1),
]


@dataclass(frozen=True)
class Frame:
    """One packet; `fields` as roce_decode() gives them."""

    number: int  # in the file
    time_ps: int
    is_data: bool
    fields: dict[str, Any]

    @property
    def psn(self) -> int:
        return int(self.fields["psn"])

    def packet(self) -> genie_core.Packet:
        """As a queue pair sees it."""
        f = self.fields
        return genie_core.Packet(
            opcode=f["opcode"],
            psn=f["psn"],
            payload_bytes=len(f["payload"]),
            ack_request=f["ack_request"],
            syndrome=f["aeth_syndrome"],
            msn=f["aeth_msn"],
            immediate=f["imm"],
            rkey=f["reth_rkey"],
            message_bytes=f["reth_length_bytes"],
            remote_address=f["reth_va"],
        )


@dataclass(frozen=True)
class Session:
    """One connection: `count` messages of `size` bytes from a client, and the responses."""

    name: str
    verb: str
    size: int
    count: int
    frames: list[Frame]


def frames_of(pcap: Path) -> list[Frame]:
    """All packets of a capture in the classic format."""
    data = pcap.read_bytes()
    frames: list[Frame] = []
    at = 24
    while at < len(data):
        seconds, microseconds, captured, _ = struct.unpack_from("<IIII", data, at)
        ip = data[at + 16 + 14 : at + 16 + captured]
        fields = genie_core.roce_decode(ip[28 : struct.unpack_from("!H", ip, 2)[0]])
        time_ps = (seconds * 1_000_000 + microseconds) * 1_000_000
        frames.append(Frame(len(frames), time_ps, fields["opcode"] != ACKNOWLEDGE, fields))
        at += 16 + captured
    start_ps = frames[0].time_ps
    return [Frame(f.number, f.time_ps - start_ps, f.is_data, f.fields) for f in frames]


def sessions_of(folder: Path) -> list[Session]:
    """All sessions of SENDs and WRITEs; READs are not built."""
    sessions = []
    for pcap in sorted(folder.glob("*.pcap")):
        frames = frames_of(pcap)
        if pcap.stem == USERSPACE:
            for part, verb, size, count in USERSPACE_SESSIONS:
                sessions.append(Session(f"{pcap.stem}[{part.start}]", verb, size, count, frames[part]))
            continue
        _, operation, shape, *_ = pcap.stem.split("_")
        if operation in ("read", "rnr"):
            if operation == "read":
                continue
            operation = "send"
        size, count = map(int, shape.split("x"))
        sessions.append(Session(pcap.stem, VERBS[operation], size, count, frames))
    return sessions


def lost_frames(session: Session) -> set[int]:
    """Numbers of the data frames that did not arrive."""
    if session.name not in DROPPED:
        return set()
    first, responses = DROPPED[session.name]
    lost: set[int] = set()
    position = 0
    for frame in session.frames:
        position += 1
        position += position in responses
        if frame.is_data and position % 7 == first % 7:
            lost.add(frame.number)
    return lost


def is_rnr(response: Frame) -> bool:
    """Whether a response is an RNR NAK."""
    return bool(response.fields["aeth_syndrome"] & 0x60 == 0x20)
