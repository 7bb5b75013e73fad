"""Packets that routers mark, between softroce and the kernel's RDMA stack, which knows no congestion notifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import genie_core
import pytest
from roce_pcaps import ip_packets, judge
from rxe.machine import call
from rxe.peer import Peer
from rxe.rig import Rig
from softroce_end import MTU, PATIENT_PS, MakeSoft, assert_undisturbed, meet, play

pytestmark = [pytest.mark.guests, pytest.mark.extended]

pytest_plugins = ["softroce_fixtures"]

CNP = 0x81
SIZE = 100_003
PACKETS = -(-SIZE // MTU)
MARK_ALL = """
    table bridge marks {
        chain forward {
            type filter hook forward priority 10;
            udp dport 4791 ip ecn set ce
            udp dport 4791 ip6 ecn set ce
        }
    }
"""


@pytest.fixture
def marked(rig: Rig) -> Iterator[None]:
    """The bridge marks every packet as a router under load would."""
    call(rig.network.inside("nft", "-f", "-"), what="marks on the bridge", stdin=MARK_ALL)
    yield
    call(rig.network.inside("nft", "delete", "table", "bridge", "marks"), what="marks on the bridge")


@pytest.mark.parametrize(("way", "psn"), [("plain", 0x1000), ("strict", 0xA00000), ("ipv6", 0xFFFF80)])
def test_marks_harm_nobody_and_notifications_are_left_unread(
    rig: Rig,
    marked: None,
    peers: list[Peer],
    make_soft: MakeSoft,
    tshark: str,
    tmp_path: Path,
    way: str,
    psn: int,
) -> None:
    """softroce notifies the guest, which drops that and goes on; the guest, marked too, notifies nobody.

    A CNP has PSN 0, which lies among those of long ago at first, then among those to come.
    """
    dcqcn = genie_core.CongestionConfig()
    dcqcn.control, dcqcn.line_rate_bps = "dcqcn", 10**9
    soft = make_soft(v6=way == "ipv6", strict=way == "strict", ack_timeout_ps=PATIENT_PS, congestion=dcqcn)
    meet(soft, peers[0], psn=psn)
    with rig.capture(tmp_path / "marks.pcap", guest=0) as capture:
        play(peers[0], soft, "write_imm", SIZE, 3)
        play(peers[0], soft, "read", SIZE, 1)
        play(soft, peers[0], "write_imm", SIZE, 3)
        play(soft, peers[0], "read", SIZE, 1)
    counters = soft.counters()
    assert_undisturbed(counters)
    # Requests, and data that it asked for; acknowledgements too are marked, which nobody is notified of.
    assert counters["congestion_marks"] >= 4 * PACKETS
    assert counters["cnps_sent"] > 0
    assert counters["cnps_received"] == 0
    assert judge(capture.path, tshark).opcodes[CNP] == counters["cnps_sent"]
    packets = ip_packets(capture.path)
    classes = {packet[1] if packet[0] >> 4 == 4 else packet[1] >> 4 & 15 for packet in packets}
    assert 0b11 in {each & 0b11 for each in classes}
