"""The transitions of the reliable connection, found by running it: each state, each event, what comes of it.

Sections are those of the InfiniBand Architecture Specification, volume 1. PSNs start at 0, messages have two packets,
the window four.
"""

from __future__ import annotations

from collections.abc import Callable

import genie_core
from network import config

MTU = 256
TIMEOUT, PAUSE = 1_000, 24
TIMES = {TIMEOUT: "ACK timeout", 3 * TIMEOUT: "2x timeout", PAUSE: "RNR pause"}  # the first, and after it
ACKNOWLEDGE, ACK, SEQUENCE, INVALID, ACCESS, OPERATION, RNR = 0x11, 0x1F, 0x60, 0x61, 0x62, 0x63, 0x29
SYNDROMES = {
    ACK: "ACK",
    SEQUENCE: "NAK sequence",
    INVALID: "NAK invalid request",
    ACCESS: "NAK remote access",
    RNR: "RNR NAK",
}
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_ONLY_IMM, SEND_LAST = 0x06, 0x07, 0x09, 0x0B, 0x02
SEND_ONLY, READ_REQUEST, FETCH_ADD, CNP = 0x04, 0x0C, 0x14, 0x81
READ_FIRST, READ_LAST = 0x0D, 0x0F
FIRSTS = (WRITE_FIRST, WRITE_ONLY_IMM, SEND_ONLY)

Pair = genie_core.QueuePair
State = Callable[[Pair], None]
Event = tuple[str, str, State]  # name, section, what to do
Row = tuple[str, ...]


def new_pair(retry_limit: int = 7, rnr_retry_limit: int = 6) -> Pair:
    """A pair whose timers have round numbers."""
    settings = config(
        window_packets=4,
        ack_every_packets=100,
        ack_timeout_ps=TIMEOUT,
        rnr_timer=9,
        rnr_unit_ps=1,
        retry_limit=retry_limit,
        rnr_retry_limit=rnr_retry_limit,
    )
    settings.congestion.control, settings.congestion.line_rate_bps = "dcqcn", 10**11
    return Pair(settings)


# -- requester -----------------------------------------------------------------------------------------------


def post(pair: Pair, messages: int, first: int = 0) -> None:
    for number in range(first, first + messages):
        pair.post("write_imm", 2 * MTU, handle=number)


def take(pair: Pair, most: int = 100) -> list[int]:
    """PSNs of the data packets that it sends now."""
    psns: list[int] = []
    while len(psns) < most and (packet := pair.take_data(0)) is not None:
        psns.append(packet.psn)
    return psns


def answer(pair: Pair, syndrome: int, psn: int) -> None:
    pair.receive(genie_core.Packet(opcode=ACKNOWLEDGE, syndrome=syndrome, psn=psn % (1 << 24)), 0)


def data(pair: Pair, opcode: int, psn: int) -> None:
    pair.receive(genie_core.Packet(opcode=opcode, psn=psn, payload_bytes=MTU, syndrome=ACK), 0)


def idle(pair: Pair) -> None:
    pass


def all_sent(pair: Pair) -> None:
    post(pair, 1)
    take(pair)


def sending(pair: Pair) -> None:
    post(pair, 2)
    take(pair, 3)


def window_full(pair: Pair) -> None:
    post(pair, 3)
    take(pair)


def reading(pair: Pair) -> None:
    """A is a READ of two packets: its request is one, and its data has PSNs 0 and 1."""
    pair.post("read", 2 * MTU, handle=0)
    post(pair, 1, first=1)
    take(pair)


def rnr_wait(pair: Pair) -> None:
    window_full(pair)
    answer(pair, RNR, 0)


def error(pair: Pair) -> None:
    window_full(pair)
    answer(pair, ACCESS, 0)


REQUESTER_STATES: list[tuple[str, State]] = [
    ("idle", idle),
    ("active, all sent", all_sent),
    ("active, sending", sending),
    ("active, window full", window_full),
    ("active, reading", reading),
    ("RNR wait", rnr_wait),
    ("error", error),
]

REQUESTER_EVENTS: list[Event] = [
    ("post", "9.7.3", lambda pair: post(pair, 1, first=9)),
    ("ACK of PSN 0", "9.7.5.1.2", lambda pair: answer(pair, ACK, 0)),
    ("ACK of PSN 1", "9.7.5.1.2", lambda pair: answer(pair, ACK, 1)),
    ("ACK of all sent", "9.7.5.1.2", lambda pair: answer(pair, ACK, highest(pair))),
    ("ghost ACK, ahead", "9.7.6.1", lambda pair: answer(pair, ACK, 4)),
    ("ghost ACK, behind", "9.7.6.1", lambda pair: answer(pair, ACK, -2)),
    ("READ's data, PSN 0", "9.7.6.1", lambda pair: data(pair, READ_FIRST, 0)),
    ("READ's data, PSN 1", "9.7.5.1.1", lambda pair: data(pair, READ_LAST, 1)),
    ("CNP", "A17.9.3", lambda pair: pair.receive(genie_core.Packet(opcode=CNP, psn=0), 0)),
    ("NAK sequence 1", "9.7.5.2", lambda pair: answer(pair, SEQUENCE, 1)),
    ("RNR NAK 0", "9.7.5.2.8", lambda pair: answer(pair, RNR, 0)),
    ("RNR NAK 0 at the limit", "9.7.5.2.8", lambda pair: answer(pair, RNR, 0)),
    ("NAK remote access 1", "9.7.5.2.2", lambda pair: answer(pair, ACCESS, 1)),
    ("NAK invalid request 1", "9.7.5.2.2", lambda pair: answer(pair, INVALID, 1)),
    ("NAK remote operation 1", "9.7.5.2.2", lambda pair: answer(pair, OPERATION, 1)),
    ("timer", "9.7.6.1.3", lambda pair: pair.timer(PAUSE if pair.state == "RNR wait" else TIMEOUT)),
    ("timer at the retry limit", "9.7.6.1.3", lambda pair: pair.timer(PAUSE if pair.state == "RNR wait" else TIMEOUT)),
]


def highest(pair: Pair) -> int:
    """The highest PSN in flight; in the pause of an RNR NAK nothing counts as in flight but the window was full."""
    return 3 if pair.state == "RNR wait" else pair.send_psn - 1


def requester_row(state_name: str, enter: State, what_happens: Event) -> Row:
    event, section, happen = what_happens
    at_limit = "limit" in event
    pair = new_pair(0 if at_limit else 7, 0 if at_limit and state_name != "RNR wait" else 6)
    enter(pair)
    pair.effects()
    happen(pair)
    effects = pair.effects()
    state, unacked = pair.state, pair.unacked_psn
    psns = take(pair)
    effects += pair.effects()
    over = ", ".join(f"{chr(65 + what[1])} {what[2]}" for what in effects if what[0] == "sent")
    timer = ", ".join(TIMES[what[1]] for what in effects if what[0] == "arm")
    return (state_name, event, state, str(unacked), span(psns), over, timer, section)


def span(psns: list[int]) -> str:
    """'0, 2–5' or nothing."""
    runs: list[list[int]] = []
    for psn in psns:
        if runs and psn == runs[-1][-1] + 1:
            runs[-1].append(psn)
        else:
            runs.append([psn])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


# -- responder -----------------------------------------------------------------------------------------------


def request(pair: Pair, opcode: int, psn: int, size: int = MTU, message: int = 3 * MTU, ask: bool = True) -> None:
    pair.receive(
        genie_core.Packet(
            opcode=opcode,
            psn=psn % (1 << 24),
            payload_bytes=size,
            message_bytes=message if opcode in FIRSTS or opcode == READ_REQUEST else 0,
            ack_request=ask,
        ),
        0,
    )


def in_message(pair: Pair) -> None:
    request(pair, WRITE_FIRST, 0, ask=False)


def nak_sent(pair: Pair) -> None:
    request(pair, WRITE_MIDDLE, 1)
    pair.take_control()


def rnr_nak_sent(pair: Pair) -> None:
    pair.receives = 0
    request(pair, SEND_ONLY, 0)
    pair.take_control()
    pair.receives = -1


def broken(pair: Pair) -> None:
    request(pair, SEND_LAST, 0)
    pair.take_control()


def answering(pair: Pair) -> None:
    """A READ of three packets, of which one has gone out."""
    request(pair, READ_REQUEST, 0, size=0)
    pair.take_data(0)


RESPONDER_STATES: list[tuple[str, State]] = [
    ("expects a first packet", idle),
    ("in a WRITE", in_message),
    ("sequence NAK sent", nak_sent),
    ("RNR NAK sent", rnr_nak_sent),
    ("answering a READ", answering),
    ("broken", broken),
]


def expected(pair: Pair, opcode: int, size: int = MTU, message: int = 3 * MTU, ask: bool = True) -> None:
    request(pair, opcode, pair.expected_psn, size, message, ask)


def no_receive(pair: Pair) -> None:
    """The packet that ends a message which uses a receive."""
    pair.receives = 0
    if pair.expected_psn == 1:
        pair.receive(genie_core.Packet(opcode=WRITE_MIDDLE, psn=1, payload_bytes=MTU), 0)
    expected(pair, WRITE_LAST_IMM if pair.expected_psn == 2 else WRITE_ONLY_IMM, message=MTU)


def may_not_write(pair: Pair) -> None:
    pair.set_memory(rkey=1, start=0, size_bytes=MTU)
    expected(pair, WRITE_FIRST)


def may_not_read(pair: Pair) -> None:
    pair.set_memory(rkey=1, start=0, size_bytes=MTU)
    expected(pair, READ_REQUEST, size=0)


def marked(pair: Pair) -> None:
    """A packet that has come before, marked: answered as ever, after the notification."""
    packet = genie_core.Packet(
        opcode=WRITE_MIDDLE, psn=(pair.expected_psn - 1) % (1 << 24), payload_bytes=MTU, congested=True
    )
    pair.receive(packet, 0)


def too_long(pair: Pair) -> None:
    """More than the RETH has announced."""
    if pair.expected_psn == 1:
        request(pair, WRITE_MIDDLE, 1, ask=False)
        request(pair, WRITE_MIDDLE, 2, ask=False)
        request(pair, WRITE_MIDDLE, 3)
    else:
        expected(pair, WRITE_ONLY_IMM, size=MTU, message=MTU - 1)


RESPONDER_EVENTS: list[Event] = [
    ("WRITE first", "9.7.4.1", lambda pair: expected(pair, WRITE_FIRST)),
    ("WRITE first, nobody asks", "9.7.5.1.2", lambda pair: expected(pair, WRITE_FIRST, ask=False)),
    ("WRITE middle", "9.7.4.1", lambda pair: expected(pair, WRITE_MIDDLE)),
    ("WRITE only, immediate", "9.7.4.1", lambda pair: expected(pair, WRITE_ONLY_IMM, message=MTU)),
    ("SEND only", "9.7.4.1", lambda pair: expected(pair, SEND_ONLY)),
    ("SEND last", "9.7.4.1", lambda pair: expected(pair, SEND_LAST)),
    ("short middle", "9.7.4.1", lambda pair: expected(pair, WRITE_MIDDLE, size=MTU - 1)),
    ("too long", "9.7.4.1", too_long),
    ("no receive posted", "9.7.5.2.8", no_receive),
    ("may not write there", "9.7.5.2.4", may_not_write),
    ("READ request", "9.7.5.1.4", lambda pair: expected(pair, READ_REQUEST, size=0)),
    ("READ, may not read there", "9.7.5.2.4", may_not_read),
    ("duplicate READ request", "9.7.5.1.5", lambda pair: request(pair, READ_REQUEST, pair.expected_psn - 3, size=0)),
    ("atomic", "9.7.5.2.2", lambda pair: expected(pair, FETCH_ADD, size=0)),
    ("CE in the IP header", "A17.9.3", marked),
    ("duplicate", "9.7.5.1.3", lambda pair: request(pair, WRITE_ONLY_IMM, pair.expected_psn - 1, message=MTU)),
    ("ahead", "9.7.5.2", lambda pair: request(pair, WRITE_MIDDLE, pair.expected_psn + 2)),
    ("CNP", "A17.9.3", lambda pair: request(pair, CNP, 0, size=0)),
]


def responder_row(state_name: str, enter: State, what_happens: Event) -> Row:
    event, section, happen = what_happens
    pair = new_pair()
    enter(pair)
    pair.effects()
    happen(pair)
    effects = pair.effects()
    placed = sum(what[2] for what in effects if what[0] == "place")
    done = ", ".join("SEND" if what[3] else "WRITE" for what in effects if what[0] == "delivered")
    said = [spoken(response) for response in iter(pair.take_control, None)]
    sent = span(take(pair))
    if sent:
        said.append(f"data {sent}")
        said += [spoken(response) for response in iter(pair.take_control, None)]
    return (state_name, event, str(pair.expected_psn), "; ".join(said), str(placed or ""), done, section)


def spoken(response: genie_core.Packet) -> str:
    if response.opcode == CNP:
        return "CNP"
    return f"{SYNDROMES[response.syndrome]} {signed(response.psn)}, MSN {response.msn}"


def signed(psn: int) -> int:
    return psn if psn < 1 << 23 else psn - (1 << 24)


# -- text ----------------------------------------------------------------------------------------------------


def lay_out(heads: Row, rows: list[Row]) -> list[str]:
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    lines = []
    for number, row in enumerate([heads, *rows]):
        if number == 0 or row[0] != rows[number - 2][0]:
            lines.append("  ".join("-" * width for width in widths) if number else "")
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return lines


def transition_table() -> str:
    """The whole table as text."""
    requester = [requester_row(*state, event) for state in REQUESTER_STATES for event in REQUESTER_EVENTS]
    responder = [responder_row(*state, event) for state in RESPONDER_STATES for event in RESPONDER_EVENTS]
    heads: Row = ("state", "event", "next state", "unacked", "PSNs sent", "messages over", "timer armed", "section")
    lines = [
        "Requester: messages A, B, C of two packets (WRITEs; when reading A is a READ), window of four packets",
        *lay_out(heads, requester),
    ]
    heads = ("state", "event", "expects", "response", "bytes placed", "delivered", "section")
    lines += ["", "", "Responder: WRITEs and READs of three packets, path MTU 256", *lay_out(heads, responder)]
    return "\n".join(lines) + "\n"
