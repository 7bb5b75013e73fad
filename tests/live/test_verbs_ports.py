"""RDMA ports from a tree like the kernel's /sys/class/infiniband, and which of them a rank takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from genie.live.verbs.gids import ROCE_V2
from genie.live.verbs.hca import Port, parse_hca
from genie.live.verbs.ports import PortInfo, choose_port, cpus_of_node, hardware_counters, list_ports

pytestmark = pytest.mark.live


def add_port(root: Path, device: str, number: int = 1, address: int = 1, **more: str) -> None:
    """Files of one port; `address`: the last byte of its IPv4 address."""
    port = root / device / "ports" / str(number)
    gid = f"0000:0000:0000:0000:0000:ffff:0a4d:{address:04x}"
    files = {"state": "4: ACTIVE", "link_layer": "Ethernet", "lid": "0x0", **more}
    files |= {"gids/0": "fe80:" + "0000:" * 6 + "0001", "gids/1": gid, "gids/2": "0000:" * 7 + "0000"}
    files |= {"gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/types/1": "RoCE v2", "hw_counters/rcvd_pkts": "17"}
    files |= {"hw_counters/lifespan": "10"}
    for name, text in files.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text + "\n")
    (root / device / "device").mkdir(exist_ok=True)
    (root / device / "device" / "numa_node").write_text("1\n")


@pytest.fixture
def ports(tmp_path: Path) -> list[PortInfo]:
    add_port(tmp_path, "mlx5_10", address=10)
    add_port(tmp_path, "mlx5_2", address=2)
    add_port(tmp_path, "mlx5_2", 2, address=3, state="1: DOWN")
    return list_ports(tmp_path)


def test_what_the_kernel_shows(ports: list[PortInfo], tmp_path: Path) -> None:
    assert [info.port for info in ports] == [Port("mlx5_2", 1), Port("mlx5_2", 2), Port("mlx5_10", 1)]
    assert [info.active for info in ports] == [True, False, True]
    first = ports[0]
    assert (first.link_layer, first.lid, first.numa_node) == ("Ethernet", 0, 1)
    assert [(entry.index, str(entry.address)) for entry in first.gids] == [(0, "fe80::1"), (1, "10.77.0.2")]
    assert first.gids[1].kind == ROCE_V2
    assert hardware_counters(first.port, tmp_path) == {"rcvd_pkts": 17}
    assert list_ports(tmp_path / "none") == []


def test_an_infiniband_port(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx5_0", link_layer="InfiniBand", lid="0x1a")
    (info,) = list_ports(tmp_path)
    assert (info.link_layer, info.lid) == ("InfiniBand", 26)
    # Its address need not be among its GIDs.
    assert choose_port([info], parse_hca(""), "10.1.1.1", 0, "NCCL_IB_HCA") is info


@pytest.mark.parametrize(
    ("hca", "address", "place", "device"),
    [("", "10.77.0.2", 1, "mlx5_2"), ("", "10.77.0.10", 0, "mlx5_10"), ("mlx5_10", "10.77.0.10", 5, "mlx5_10")],
)
def test_the_rank_address_says_which_port(
    ports: list[PortInfo], hca: str, address: str, place: int, device: str
) -> None:
    assert choose_port(ports, parse_hca(hca), address, place, "NCCL_IB_HCA").port == Port(device, 1)


def test_without_an_address_ranks_take_rails_in_turn(ports: list[PortInfo]) -> None:
    taken = [choose_port(ports, parse_hca("mlx5_10:1:0,mlx5_2:1:1"), "", place, "x").port.device for place in range(4)]
    assert taken == ["mlx5_10", "mlx5_2", "mlx5_10", "mlx5_2"]


@pytest.mark.parametrize(
    ("hca", "address", "says"),
    [
        ("efa", "10.77.0.2", "NCCL_IB_HCA takes no RDMA port; there are mlx5_2 port 1 (active), mlx5_2 port 2 (down)"),
        ("=mlx5_2:2", "10.77.0.2", "no RDMA port that NCCL_IB_HCA takes is active"),
        ("", "10.77.0.9", "no RDMA port has the address 10.77.0.9: mlx5_2 port 1 has 10.77.0.2, mlx5_10 port 1 has"),
    ],
)
def test_no_port_is_said_with_those_that_are_there(ports: list[PortInfo], hca: str, address: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        choose_port(ports, parse_hca(hca), address, 0, "NCCL_IB_HCA")


def test_cpus_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("0-2,8,10-11\n")
    assert cpus_of_node(1, tmp_path) == {0, 1, 2, 8, 10, 11}
    assert cpus_of_node(-1, tmp_path) == set()
