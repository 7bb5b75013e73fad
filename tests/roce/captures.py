"""The captures of a kernel's RoCE stack as sessions: who sent what to whom, and which packets never arrived."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from genie import _core

ACKNOWLEDGE = 0x11
NAK_KINDS = (0x20, 0x60)  # RNR and the others
VERBS = {"send": "send", "write": "write", "writeimm": "write_imm"}
FIRST_PSN = 0x2000  # of every client

# Frames that arrived although the client sent them again: what was lost is their acknowledgement. The three equal
# acknowledgements at the end of the capture answer the three duplicates.
ARRIVED = {"rc_send_8000x4_bridgeloss": {288}}

# What userspace_host_vs_rxe.pcap holds one after another, by its README; frame 13 to 21 are a READ.
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

    def packet(self) -> _core.Packet:
        """As a queue pair sees it."""
        f = self.fields
        return _core.Packet(
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
    lossy: bool
    frames: list[Frame]


def frames_of(pcap: Path) -> list[Frame]:
    """All packets of a capture in the classic format."""
    data = pcap.read_bytes()
    frames: list[Frame] = []
    at = 24
    while at < len(data):
        seconds, microseconds, captured, _ = struct.unpack_from("<IIII", data, at)
        ip = data[at + 16 + 14 : at + 16 + captured]
        fields = _core.roce_decode(ip[28 : struct.unpack_from("!H", ip, 2)[0]])
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
                sessions.append(Session(f"{pcap.stem}[{part.start}]", verb, size, count, False, frames[part]))
            continue
        _, operation, shape, *suffix = pcap.stem.split("_")
        if operation in ("read", "rnr"):
            if operation == "read":
                continue
            operation = "send"
        size, count = map(int, shape.split("x"))
        sessions.append(Session(pcap.stem, VERBS[operation], size, count, suffix == ["bridgeloss"], frames))
    return sessions


def acknowledged_by(response: Frame) -> int:
    """The PSN that the responder expected when it sent this."""
    negative = response.fields["aeth_syndrome"] & 0x60 in NAK_KINDS
    return response.psn if negative else response.psn + 1


def lost_frames(session: Session) -> set[int]:
    """Numbers of data frames that did not arrive, as far as it mattered: what came behind them was dropped anyway.

    The captures were taken at the client, before the place of the losses. A PSN that is refused, or that the client
    goes back to, was lost each time but the last before a response shows that it has arrived, and but those that met
    a receiver that was not ready.
    """
    data = [f for f in session.frames if f.is_data]
    responses = [f for f in session.frames if not f.is_data]
    suspects = {f.psn for last, f in pairwise(data) if f.psn <= last.psn}
    suspects |= {f.psn for f in responses if f.fields["aeth_syndrome"] & 0x60 == 0x60}
    lost: set[int] = set()
    for psn in suspects:
        not_ready = max((f.number for f in responses if f.psn == psn and is_rnr(f)), default=-1)
        proof = min((f.number for f in responses if acknowledged_by(f) > psn), default=None)
        tries = [f.number for f in data if f.psn == psn and f.number > not_ready]
        lost |= set(tries if proof is None else [number for number in tries if number < proof][:-1])
    return lost - ARRIVED.get(session.name, set())


def is_rnr(response: Frame) -> bool:
    """Whether a response is an RNR NAK."""
    return bool(response.fields["aeth_syndrome"] & 0x60 == 0x20)
