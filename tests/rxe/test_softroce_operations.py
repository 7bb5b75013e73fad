"""softroce and the kernel's RDMA stack exchange every operation, both ways, with and without loss."""

from __future__ import annotations

from pathlib import Path

import pytest
from roce_pcaps import judge
from rxe.peer import TIMEOUT, Peer
from rxe.rig import Rig
from softroce_end import (
    MTU,
    OF_STALLED_GUESTS,
    PATIENT_PS,
    VERBS,
    MakeSoft,
    SoftEnd,
    assert_undisturbed,
    meet,
    play,
)

pytestmark = [pytest.mark.guests, pytest.mark.extended]

SIZES = [0, 1, MTU, MTU + 1, 100_003]
# Opcodes at a message's end: of the only packet of a short one, of the last packet of a long one.
LAST_OPCODES = {"send": (4, 2), "send_imm": (5, 3), "write": (10, 8), "write_imm": (11, 9), "read": (16, 15)}
READ_REQUEST, ACKNOWLEDGE = 0x0C, 0x11
FROM_SOFTROCE, FROM_THE_GUEST = "from_softroce", "from_the_guest"

pytest_plugins = ["softroce_fixtures"]


def ends(soft: SoftEnd, peer: Peer, direction: str) -> tuple[SoftEnd | Peer, SoftEnd | Peer]:
    """Source and target."""
    return (soft, peer) if direction == FROM_SOFTROCE else (peer, soft)


@pytest.mark.parametrize("way", ["plain", "strict", "ipv6"])
@pytest.mark.parametrize("direction", [FROM_SOFTROCE, FROM_THE_GUEST])
def test_every_size_of_every_operation(
    rig: Rig, peers: list[Peer], make_soft: MakeSoft, tshark: str, tmp_path: Path, direction: str, way: str
) -> None:
    """softroce sends nothing again: nothing is lost and timeouts are long."""
    soft = make_soft(v6=way == "ipv6", strict=way == "strict", ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0])
    with rig.capture(tmp_path / "operations.pcap", guest=0) as capture:
        for verb in VERBS:
            for size in SIZES:
                play(*ends(soft, peers[0], direction), verb, size)
    counters = soft.counters()
    assert_undisturbed(counters, OF_STALLED_GUESTS if direction == FROM_THE_GUEST else ())
    seen = judge(capture.path, tshark)
    # An acknowledgement is sent again to say that there are receives now (section 9.7.7.2.3).
    again = sum(seen.opcodes[each] - seen.distinct[each] for each in seen.opcodes if each != ACKNOWLEDGE)
    assert again == counters["duplicates"]
    short = sum(size <= MTU for size in SIZES)
    long = len(SIZES) - short
    assert seen.distinct[READ_REQUEST] == 2 * len(SIZES)
    for verb, (only, last) in LAST_OPCODES.items():
        assert (seen.distinct[only], seen.distinct[last]) == (2 * short, 2 * long), verb
    # Of what a plain socket gets over IPv4 it cannot see the identification.
    assert (counters["identifications_unseen"] > 0) == (way == "plain")


@pytest.mark.parametrize("direction", [FROM_SOFTROCE, FROM_THE_GUEST])
@pytest.mark.parametrize("strict", [False, True])
def test_two_percent_loss_is_made_good(
    rig: Rig, peers: list[Peer], make_soft: MakeSoft, tshark: str, tmp_path: Path, direction: str, strict: bool
) -> None:
    soft = make_soft(strict=strict, ack_timeout_ps=20 * 10**9)
    meet(soft, peers[0], timeout=TIMEOUT)
    count, size = 4, 100_003  # 2,000 packets in all: chance leaves them whole once in 10^17 times
    rig.network.lose(2)
    with rig.capture(tmp_path / "loss.pcap", guest=0) as capture:
        for verb in VERBS:
            play(*ends(soft, peers[0], direction), verb, size, count, limit_s=60)
    assert rig.network.lost_packets() > 0
    assert judge(capture.path, tshark).packets > len(VERBS) * count * (size // MTU)
    counters = soft.counters()
    assert counters["bad_icrc"] == counters["malformed"] == counters["strangers"] == counters["refused"] == 0
    sent_again = counters["retransmitted"] if direction == FROM_SOFTROCE else counters["out_of_sequence"]
    assert sent_again > 0


@pytest.mark.parametrize("direction", [FROM_SOFTROCE, FROM_THE_GUEST])
def test_a_mebibyte(
    rig: Rig, peers: list[Peer], make_soft: MakeSoft, tshark: str, tmp_path: Path, direction: str
) -> None:
    soft = make_soft(ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[1])
    with rig.capture(tmp_path / "mebibyte.pcap", guest=0) as capture:
        play(*ends(soft, peers[1], direction), "write_imm", 0)  # the neighbours know each other
        play(*ends(soft, peers[1], direction), "write_imm", 1 << 20, 1)
    assert_undisturbed(soft.counters(), OF_STALLED_GUESTS if direction == FROM_THE_GUEST else ())
    assert judge(capture.path, tshark).distinct[7] == 1022  # RDMA WRITE middle


@pytest.mark.parametrize("mtu_bytes", [256, 512, 2048, 4096])
def test_every_path_mtu(
    rig: Rig, peers: list[Peer], make_soft: MakeSoft, tshark: str, tmp_path: Path, mtu_bytes: int
) -> None:
    if mtu_bytes > MTU:
        rig.set_mtu(4200)
    soft = make_soft(mtu_bytes=mtu_bytes, ack_timeout_ps=PATIENT_PS)
    meet(soft, peers[0], mtu_bytes=mtu_bytes)
    with rig.capture(tmp_path / "mtu.pcap", guest=0) as capture:
        for direction in (FROM_SOFTROCE, FROM_THE_GUEST):
            for verb in ("send", "write", "read"):
                play(*ends(soft, peers[0], direction), verb, 10 * mtu_bytes + 1, 1)
    assert_undisturbed(soft.counters())
    seen = judge(capture.path, tshark).distinct
    assert all(seen[middle] == 2 * 9 for middle in (1, 7, 14))  # SEND, RDMA WRITE, READ response


@pytest.mark.parametrize("way", ["plain", "ipv6"])
def test_psns_wrap(rig: Rig, peers: list[Peer], make_soft: MakeSoft, way: str) -> None:
    soft = make_soft(v6=way == "ipv6", psn=0xFFFFF0, ack_timeout_ps=PATIENT_PS)
    for direction in (FROM_SOFTROCE, FROM_THE_GUEST):
        for verb in ("write_imm", "read", "send"):
            meet(soft, peers[0], psn=0xFFFFF0)
            play(*ends(soft, peers[0], direction), verb, 50 * MTU, 2)
    assert_undisturbed(soft.counters())
    assert peers[0].ask("status")["send_psn"] == (0xFFFFF0 + 100) % (1 << 24)
