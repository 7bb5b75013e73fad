"""Costs of NICs (`[nic]`): of messages, of what is read over PCIe, of packets; at levels packet and flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from twin_fabrics import GBPS, NS, US, run_native, transmission_ps, twin_of, wire_bytes

from genie.bench.streams import bandwidth_in, streams
from genie.config.units import Duration, Rate, Size
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Workload
from genie.workload.synthetic import point_to_point
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.schema import Domain, Fabric, LeafSpine, Link, Nic, SingleSwitch, Transport
from simtwin.fabric.text import to_toml
from simtwin.fabric.topology import build_network
from simtwin.levels.names import ANALYTIC, Level
from simtwin.play.twin import Twin

MIB = 1 << 20
RATE, DELAY, PCIE = 100 * GBPS, 500 * NS, 200 * GBPS


def fabric(nic: Nic | None = None, **more: Any) -> Fabric:
    """Two hosts on a switch."""
    return Fabric(topology=SingleSwitch(2), link=Link(Rate(RATE), Duration(DELAY)), nic=nic, **more)


def first_and_last(nic: Nic | None, size_bytes: int) -> tuple[int, int]:
    """Arrivals of a message's first and last packets, in ps."""
    receives = run_native(twin_of(fabric(nic)), point_to_point(0, 1, size_bytes)).records[1]["receives"]
    return int(receives["first_ps"][0]), int(receives["last_ps"][0])


def gbps(nic: Nic | None, size_bytes: int, count: int = 200, level: str = "packet", **transport: Any) -> float:
    """Bandwidth of a stream from host 0 to host 1."""
    built = fabric(nic, transport=Transport(**transport))
    pairs = built.transport.queue_pairs or 1
    played = Twin(built, build_network(built), [0, 1], level=level).play(
        streams([(0, 1)], size_bytes, count, 64 * pairs)
    )
    return bandwidth_in(played.transfers, (0, 1), pairs).average_bytes_per_s * 8e-9


def goodput_gbps(size_bytes: int) -> float:
    """Of the line, without headers."""
    return size_bytes / sum(wire_bytes(size_bytes)) * RATE / 1e9


def test_a_nic_without_costs_changes_no_bit() -> None:
    plain, with_table = (run_native(twin_of(fabric(nic)), point_to_point(0, 1, MIB)) for nic in (None, Nic()))
    for before, after in zip(plain.records, with_table.records, strict=True):
        for table, columns in before.items():
            for name, values in columns.items():
                assert np.array_equal(values, after[table][name]), (table, name)


@pytest.mark.parametrize("size_bytes", [2, 4096, 20_000, 32_768, MIB])
def test_a_message_leaves_when_its_beginning_has_been_read(size_bytes: int) -> None:
    plain = first_and_last(None, size_bytes)
    read_ps = transmission_ps(min(size_bytes, 32_768), PCIE)
    nic = Nic(pcie_rate=Rate(PCIE), prefetch=Size(32_768))
    assert first_and_last(nic, size_bytes) == (plain[0] + read_ps, plain[1] + read_ps)


def test_a_full_packet_is_read_before_it_leaves() -> None:
    first = first_and_last(None, MIB)[0]
    assert first_and_last(Nic(pcie_rate=Rate(PCIE)), MIB)[0] == first + transmission_ps(4096, PCIE)


def test_what_is_read_more_slowly_than_the_line_leaves_at_that_rate() -> None:
    assert gbps(Nic(pcie_rate=Rate(40 * GBPS)), MIB, 50) == pytest.approx(40, rel=0.005)
    assert gbps(Nic(pcie_rate=Rate(PCIE)), MIB, 50) == pytest.approx(goodput_gbps(MIB), rel=0.005)


def test_messages_of_a_queue_pair_start_apart() -> None:
    nic = Nic(message_time=Duration(US))
    assert gbps(nic, 1024) == pytest.approx(8.192, rel=0.02)
    assert gbps(nic, 1024, 800, queue_pairs=4) == pytest.approx(4 * 8.192, rel=0.02)
    assert gbps(nic, MIB, 20) == pytest.approx(goodput_gbps(MIB), rel=0.01)


def test_packets_of_a_port_start_apart() -> None:
    """Also those of several queue pairs; the longest of line, PCIe and packet counts."""
    nic = Nic(packet_time=Duration(500 * NS))
    assert gbps(nic, MIB, 20) == pytest.approx(4096 * 8 / 500, rel=0.01)
    assert gbps(nic, 1024, 800, queue_pairs=4) == pytest.approx(1024 * 8 / 500, rel=0.01)
    assert gbps(Nic(packet_time=Duration(100 * NS)), MIB, 20) == pytest.approx(goodput_gbps(MIB), rel=0.005)


def test_messages_of_a_queue_pair_keep_their_order() -> None:
    """A short message that is posted after a long one is read sooner, and leaves after it."""
    workload = Workload("two", 2, [Group("0", (0, 1))], {})
    sender, receiver = RankBuilder(0), RankBuilder(1)
    for at, size_bytes in enumerate((MIB, 8)):
        sender.add(at, "send", Kind.SEND, size_bytes=size_bytes, peer=1, tag=at, stream=at)
        receiver.add(at, "recv", Kind.RECV, size_bytes=size_bytes, peer=0, tag=at, stream=at)
    workload.ranks.update({0: sender.finish()[0], 1: receiver.finish()[0]})
    receives = run_native(twin_of(fabric(Nic(pcie_rate=Rate(PCIE), prefetch=Size(MIB)))), workload).records[1][
        "receives"
    ]
    assert int(receives["last_ps"][0]) < int(receives["last_ps"][1])


def test_links_inside_a_server_are_no_ports_of_nics() -> None:
    nic = Nic(message_time=Duration(US), pcie_rate=Rate(GBPS), packet_time=Duration(US))

    def arrival(target: int, nic: Nic | None) -> int:
        built = Fabric(
            topology=LeafSpine(
                leaves=2, spines=1, hosts_per_leaf=2, hosts_per_server=2, domain=Domain(Rate(900 * GBPS))
            ),
            link=Link(Rate(RATE), Duration(DELAY)),
            nic=nic,
        )
        receives = run_native(twin_of(built, target + 1), point_to_point(0, target, MIB)).records[target]["receives"]
        return int(receives["last_ps"][0])

    assert arrival(1, nic) == arrival(1, None)
    assert arrival(2, nic) > 10 * arrival(2, None)


@pytest.mark.parametrize(
    "nic",
    [
        Nic(pcie_rate=Rate(40 * GBPS)),
        Nic(pcie_rate=Rate(PCIE), prefetch=Size(65_536)),
        Nic(message_time=Duration(2 * US)),
        Nic(packet_time=Duration(500 * NS)),
    ],
)
@pytest.mark.parametrize("size_bytes", [8192, MIB])
def test_level_flow_has_the_same_costs(nic: Nic, size_bytes: int) -> None:
    assert gbps(nic, size_bytes, 100, "flow") == pytest.approx(gbps(nic, size_bytes, 100), rel=0.02)


def test_level_analytic_says_that_it_has_none() -> None:
    [text] = Level(ANALYTIC).warnings(fabric(Nic(message_time=Duration(US))))
    assert "[nic]" in text


def test_a_written_table_is_read_back() -> None:
    nic = Nic(Duration(258 * NS), Duration(5 * NS), Rate(PCIE), Size(26_290))
    assert parse_fabric(to_toml(fabric(nic))).nic == nic
    assert "[nic]" not in to_toml(fabric())
