"""Our queue pair in the place of the captured client, and then in the place of the captured server.

What is compared is what a packet says and their order. Times are not: the kernel's timers count jiffies from other
moments than section 9.7.6.1.3 names.
"""

from __future__ import annotations

from pathlib import Path

import genie_core
import pytest
from captures import FIRST_PSN, Frame, Session, is_rnr, lost_frames, sessions_of
from network import config

MTU = 1024
RNR_TIMER = 12  # the server's, 0.64 ms
SESSIONS = 16
ACK, NAK_SEQUENCE = 0x1F, 0x60
CUT = "rc_write_30000x2_bridgeloss"
IMMEDIATE = 1144201745
NEVER = 10_000  # packets: the captured client asks for acknowledgements at the ends of messages only


@pytest.fixture(scope="module")
def sessions(shared_data: Path) -> list[Session]:
    found = sessions_of(shared_data / "roce-captures")
    assert len(found) == SESSIONS
    return found


class Client:
    """Our requester, which sends when the captured one did."""

    def __init__(self, session: Session) -> None:
        self.pair = genie_core.QueuePair(
            config(mtu_bytes=MTU, window_packets=NEVER, ack_every_packets=NEVER, ack_timeout_ps=67_108_864_000),
            FIRST_PSN,
        )
        first = session.frames[0].fields
        for number in range(session.count):
            self.pair.post(
                session.verb,
                session.size,
                handle=number,
                immediate=IMMEDIATE if session.verb.endswith("imm") else 0,
                remote_address=first["reth_va"],
                rkey=first["reth_rkey"],
            )
        self.due_ps: list[int] = []
        self.over: list[tuple[int, str]] = []
        self.timeouts = 0
        self.now_ps = 0
        self.skipped: list[Frame] = []
        self.refused = False  # since the captured client last went back

    def note(self) -> None:
        for kind, *what in self.pair.effects():
            if kind == "arm":
                self.due_ps.append(what[0])
            elif kind == "sent":
                self.over.append((what[0], what[1]))

    def respond(self, frame: Frame) -> None:
        self.refused |= frame.fields["aeth_syndrome"] & 0x60 == 0x60
        self.now_ps = max(self.now_ps, frame.time_ps)
        self.pair.receive(frame.packet(), self.now_ps)
        self.note()

    def wait(self, frame: Frame) -> None:
        """The captured client sends again because it has waited long enough: so do we."""
        while self.pair.send_psn != frame.psn or not self.pair.has_data:
            assert self.due_ps, (frame.number, self.pair.send_psn)
            due_ps = min(self.due_ps)
            self.due_ps.remove(due_ps)
            self.now_ps = max(self.now_ps, due_ps)
            self.pair.timer(self.now_ps)
            self.note()
        self.timeouts += 1

    def send(self, frame: Frame) -> None:
        self.now_ps = max(self.now_ps, frame.time_ps)
        if frame.psn > self.pair.send_psn and self.refused:
            self.skipped.append(frame)  # we have gone back at once, it finishes what it has in hand
            return
        if frame.psn < self.pair.send_psn or not self.pair.has_data:
            self.wait(frame)
        packet = self.pair.take_data(self.now_ps)
        self.note()
        assert packet is not None, frame.number
        self.compare(packet, frame)

    def compare(self, ours: genie_core.Packet, frame: Frame) -> None:
        theirs = frame.packet()
        for name in ("opcode", "psn", "payload_bytes", "ack_request", "immediate", "message_bytes", "rkey"):
            assert getattr(ours, name) == getattr(theirs, name), (frame.number, name)
        assert ours.remote_address == theirs.remote_address, frame.number
        first = ours.local_address
        payload = bytes((first + at) * 7 & 255 for at in range(ours.payload_bytes))
        assert frame.fields["payload"] == payload, frame.number
        self.refused = False


# Data packets that the captured client still sent after a NAK before it went back. Once it is recovering, it ignores
# further NAKs and waits for its timeout. Ours goes back at once and has sent the same since.
SKIPPED = {"rc_send_8000x4_bridgeloss": 24, CUT: 31}


def test_our_requester_sends_what_the_captured_one_sent(sessions: list[Session]) -> None:
    """Opcode, PSN, length, AckReq, RETH and immediate of every packet, and the payload that belongs there."""
    for session in sessions:
        client = Client(session)
        for frame in session.frames:
            if frame.is_data:
                client.send(frame)
            else:
                client.respond(frame)
        assert len(client.skipped) == SKIPPED.get(session.name, 0), session.name
        cut = session.name == CUT
        assert client.over == [(number, "ok") for number in range(0 if cut else session.count)], session.name
        assert client.pair.state == ("active" if cut else "idle")
        sent = client.pair.counters()["data_sent"] + len(client.skipped)
        assert sent == sum(frame.is_data for frame in session.frames)


class Server:
    """Our responder, fed with the captured requests as they arrived, and answering each at once."""

    def __init__(self, session: Session) -> None:
        self.pair = genie_core.QueuePair(config(mtu_bytes=MTU, rnr_timer=RNR_TIMER), 0x1000, FIRST_PSN)
        first = session.frames[0].fields
        self.pair.set_memory(first["reth_rkey"], first["reth_va"], session.size)
        self.lost = lost_frames(session)
        self.answers: list[tuple[int, int, int]] = []
        self.placed: list[tuple[int, bytes]] = []
        self.delivered: list[tuple[int, int | None, bool]] = []

    def receive(self, frame: Frame) -> None:
        if frame.number in self.lost:
            return
        self.pair.receive(frame.packet(), frame.time_ps)
        for kind, *what in self.pair.effects():
            if kind == "place":
                self.placed.append((what[0], frame.fields["payload"]))
            elif kind == "delivered":
                self.delivered.append((what[0], what[1], what[2]))
        while (response := self.pair.take_control()) is not None:
            self.answers.append((response.syndrome, response.psn, response.msn))


# Answers of ours that the captures cannot show: dropped on the bridge, or after the cut.
UNSEEN = {
    "rc_send_8000x4_bridgeloss": [(ACK, 0x201F, 4)],
    "rc_writeimm_8000x2_bridgeloss": [(ACK, 0x2007, 1)],
    CUT: [(NAK_SEQUENCE, 0x2016, 0)],
}


def without(answers: list[tuple[int, int, int]], unseen: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The answers that are left when the first of each unseen one is taken out."""
    left = list(answers)
    for answer in unseen:
        left.remove(answer)
    return left


def test_our_responder_answers_what_the_captured_one_answered(sessions: list[Session]) -> None:
    """PSN, MSN and syndrome of every ACK and NAK, in the same order: one lost packet in seven leads to their NAKs."""
    for session in sessions:
        server = Server(session)
        server.pair.receives = 0 if session.name.startswith("rc_rnr") else -1
        for frame in session.frames:
            if frame.is_data:
                server.receive(frame)
            elif is_rnr(frame):
                server.pair.receives = -1
        theirs = [(f.fields["aeth_syndrome"], f.psn, f.fields["aeth_msn"]) for f in session.frames if not f.is_data]
        assert without(server.answers, UNSEEN.get(session.name, [])) == theirs, session.name
        check_delivered(server, session)


def check_delivered(server: Server, session: Session) -> None:
    """Every message came, or the cut capture's part of it, with the right bytes in the right places."""
    message = bytes(at * 7 & 255 for at in range(session.size))
    base = 0 if session.verb == "send" else session.frames[0].fields["reth_va"]
    immediate = IMMEDIATE if session.verb.endswith("imm") else None
    cut = session.name == CUT
    assert server.delivered == [(session.size, immediate, session.verb == "send")] * (0 if cut else session.count)
    for number, (address, payload) in enumerate(server.placed):
        offset = number * MTU % (-(-session.size // MTU) * MTU)
        assert address == base + offset, (session.name, number)
        assert payload == message[offset : offset + MTU], (session.name, number)
    if not cut:
        assert sum(len(payload) for _, payload in server.placed) == session.size * session.count
