"""Source ports: a device's own, from captures of a real stack; pinned, swept and drawn ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from roce_pcaps import ip_packets

from genie.config.source_ports import SourcePorts, rdma_source_port

pytestmark = pytest.mark.live

UDP, ROCE, CAPTURES = 17, 4791, 14


def flows(pcap: Path) -> dict[bytes, tuple[int, set[int]]]:
    """By source address: the UDP source port, and the queue pairs that are sent to. One connection at a time."""
    found: dict[bytes, tuple[int, set[int]]] = {}
    for packet in ip_packets(pcap):
        port, destination = struct.unpack_from("!HH", packet, 20)
        if packet[9] == UDP and destination == ROCE:
            found.setdefault(packet[12:16], (port, set()))[1].add(int.from_bytes(packet[33:36], "big"))
            assert found[packet[12:16]][0] == port
    return found


def test_the_ports_of_a_real_stack(shared_data: Path) -> None:
    """Every capture of the kernel's own connections: each end's port follows from both queue pairs' numbers."""
    seen = set()
    for pcap in sorted((shared_data / "roce-captures").glob("rc_*.pcap")):
        (port, theirs), (other_port, ours) = flows(pcap).values()
        (their_qpn,), (our_qpn,) = theirs, ours
        assert port == rdma_source_port(our_qpn, their_qpn), pcap.name
        assert other_port == rdma_source_port(their_qpn, our_qpn), pcap.name
        seen.add((our_qpn, their_qpn))
    assert len(seen) > CAPTURES // 2


def test_nccl_pinned_and_swept() -> None:
    def ports(rule: str) -> list[int]:
        rules = SourcePorts(rule)
        return [rules.port(0, peer, k, 4, 0x10000 + k, 0x10100 + k) for peer in range(3) for k in range(4)]

    assert ports("50000") == [50000] * 12
    assert ports("50000-50004") == [50000 + number % 5 for number in range(12)]
    assert ports("nccl")[:4] == [rdma_source_port(0x10000 + k, 0x10100 + k) for k in range(4)]
    assert len(set(ports("pair"))) == 12
    assert all(0xC000 <= port <= 0xFFFF for port in ports("pair") + ports("nccl"))


def test_sprayed() -> None:
    def ports(rule: str) -> list[int]:
        return SourcePorts(rule).sprayed(0, 1, 8, 0x10000, 0x10100)

    first = rdma_source_port(0x10000, 0x10100)
    assert ports("nccl") == [0xC000 | first + place & 0x3FFF for place in range(8)]
    assert ports("pair") == [SourcePorts("pair").port(0, 1, place, 8, 0, 0) for place in range(8)]
    assert ports("50000-50031") == list(range(50008, 50016))
    assert SourcePorts("50000-50007").spray_problem(8) == ""
    assert (
        SourcePorts("50000").spray_problem(2).startswith("source ports '50000' are 1, and packets are sprayed over 2")
    )
    assert SourcePorts("pinned", {1: [50001, 50002]}).sprayed(0, 1, 2, 0, 0) == [50001, 50002]
    assert [SourcePorts(rule).exact for rule in ("pair", "nccl", "50000")] == [False, True, True]
    assert [4791 in SourcePorts(rule) for rule in ("pair", "nccl", "4791", "4700-4800", "4792")] == [
        False, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("rule", ["", "ecmp", "80", "50000-49999", "50000-70000", "-1", "50000,50001"])
def test_a_rule_that_is_none_is_named(rule: str) -> None:
    with pytest.raises(ValueError, match=f"source ports '{rule}': must be pair, nccl, a port from 1024"):
        SourcePorts(rule)
