"""Device counters: from a tree like the kernel's /sys/class/infiniband, and from real interfaces."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cable import Cable, cable, inside

from genie.live.counters import devices
from genie.live.counters.devices import INTERFACE, RDMA, Device, Watched, devices_of, key_of
from genie.live.counters.ethtool import driver_of, statistics, telling
from genie.live.counters.netlink import interface_of, interfaces
from genie.live.counters.rdma import port_counters, ports, rdma_driver

pytestmark = pytest.mark.live


def add(root: Path, device: str, driver: str = "", *, port: int = 1, **counters: int | str) -> None:
    """Files of a device; counters are those of its hw_counters, or of counters where their names begin with port."""
    folder = root / device
    for name, value in counters.items():
        kind = "counters" if name.startswith("port") else "hw_counters"
        path = folder / "ports" / str(port) / kind / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    if driver:
        behind = root / "pci" / device
        behind.mkdir(parents=True, exist_ok=True)
        (behind / "driver").symlink_to(root / "drivers" / driver)
        (folder / "device").symlink_to(behind)


def test_counters_of_a_port(tmp_path: Path) -> None:
    add(tmp_path, "mlx5_0", out_of_buffer=4, lifespan=10, active_qps=7, odd="N/A", port_xmit_data=2**40)
    assert port_counters("mlx5_0", 1, tmp_path) == {"out_of_buffer": 4, "port_xmit_data": 2**40}
    assert port_counters("mlx5_0", 2, tmp_path) == {}
    assert ports(tmp_path) == [("mlx5_0", 1)]


@pytest.mark.parametrize(
    ("behind", "driver"),
    [("mlx5_core", "mlx5"), ("bnxt_en", "bnxt_re"), ("ice", "irdma"), ("efa", "efa"), ("hns", "hns")],
)
def test_drivers_by_what_is_behind_the_device(tmp_path: Path, behind: str, driver: str) -> None:
    add(tmp_path, "dev0", behind, some=1)
    assert rdma_driver("dev0", tmp_path) == driver
    assert rdma_driver("none", tmp_path) == ""


def test_rxe_is_known_by_the_interface_that_it_names(tmp_path: Path) -> None:
    add(tmp_path, "rxe0", "mlx5_core", sent_pkts=1)
    assert rdma_driver("rxe0", tmp_path) == "mlx5"
    (tmp_path / "rxe0" / "parent").write_text("eth0\n")
    assert rdma_driver("rxe0", tmp_path) == "rxe"


def test_of_ranks_that_share_a_device_the_first_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "mlx5_0", "mlx5_core", out_of_buffer=2**32 - 4, rx_write_requests=100)
    monkeypatch.setattr(Device.read, "__defaults__", (tmp_path,))
    shared, own = devices_of("", "mlx5_0:1", tmp_path)[0], Device(RDMA, "mlx5_1:1", "mlx5")
    assert shared == Device(RDMA, "mlx5_0:1", "mlx5")
    everyone = [[key_of(own)], [key_of(shared)], [key_of(shared)]]
    first, second = Watched(1, "host3", [shared], everyone), Watched(2, "host3", [shared], everyone)
    add(tmp_path, "mlx5_0", out_of_buffer=8, rx_write_requests=101)
    assert second.counted() == []
    assert first.counted() == [
        {"host": "host3", "device": "mlx5_0:1", "kind": "rdma", "driver": "mlx5", "ranks": [1, 2],
         "counters": {"out_of_buffer": 12, "rx_write_requests": 1}}
    ]  # fmt: skip


def test_a_device_of_the_same_name_elsewhere_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    here = key_of(Device(INTERFACE, "eth0", ""))
    monkeypatch.setattr(devices, "place", lambda: "another machine")
    assert key_of(Device(INTERFACE, "eth0", "")) != here


def test_loopback_counts_what_is_sent_on_it() -> None:
    (device,) = devices_of("127.64.3.9", "")
    assert device == Device(INTERFACE, "lo", "")
    watched = Watched(0, "here", [device], [[key_of(device)]])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.64.3.9", 0))
        for _ in range(10):
            one.sendto(bytes(1000), one.getsockname())
    counted = watched.counted()[0]["counters"]
    assert counted["rx_packets"] >= 10
    assert counted["tx_bytes"] >= 10_000


def test_interfaces_are_those_that_the_kernel_shows() -> None:
    found = {each.name: each for each in interfaces()}
    assert dict(socket.if_nameindex()) == {each.index: each.name for each in found.values()}
    shown = Path("/sys/class/net/lo/statistics")
    assert set(found["lo"].statistics) <= {path.name for path in shown.iterdir()}
    assert interface_of("127.9.9.9", interfaces()) == interface_of("127.0.0.1", interfaces())
    assert interface_of("198.51.100.7", interfaces()) is None
    assert driver_of("lo") == ""
    assert statistics("lo") == {}
    assert statistics("no-such-thing") == {}


@pytest.fixture(scope="module")
def pair(as_root: None) -> Iterator[Cable]:
    with cable() as made:
        yield made


def test_a_cable_between_two_namespaces(pair: Cable) -> None:
    """/sys shows this process's namespace; netlink and ethtool must show the one that the rank is in."""
    name = pair.names[0]
    (device,) = inside(name, lambda: devices_of(pair.ipv4[0], ""))
    assert device == Device(INTERFACE, "cable", "veth")
    assert inside(name, lambda: devices_of(pair.ipv6[0], "")) == [device]
    before = inside(name, device.read)
    sender = inside(name, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    deadline = time.monotonic() + 10
    with sender:
        # The first packets ask for the neighbour's address.
        while inside(name, device.read)["tx_packets"] < before["tx_packets"] + 10:
            assert time.monotonic() < deadline
            sender.sendto(bytes(100), (pair.ipv4[1], 9))
            time.sleep(0.01)
    assert inside(name, device.read)["tx_bytes"] >= before["tx_bytes"] + 1000
    # The device's own statistics are asked for and not kept queue by queue.
    own = inside(name, lambda: statistics("cable"))
    assert own["peer_ifindex"] > 0
    assert not any(counter.startswith("rx_queue") for counter in telling(own))


def test_namespaces_of_one_machine_are_different_places(pair: Cable) -> None:
    keys = {inside(name, lambda: key_of(Device(INTERFACE, "cable", "veth"))) for name in pair.names}
    assert len(keys) == 2


def test_what_of_ethtool_is_kept() -> None:
    kept = ["rx_prio3_bytes", "tx_prio0_packets", "rx_prio3_pause", "tx_prio3_pause_duration", "rx_prio5_discards",
            "rx_prio5_buf_discard", "rx_discards_phy", "rx_out_of_buffer", "link_down_events_phy", "rx_crc_errors_phy",
            "port.rx_dropped", "tx_pause_storm_error_events", "tx_priority_3_xoff.nic", "rx_bytes_pri3",
            "tx_pfc_ena_frames_pri3", "rx_fcs_err_frames"]  # fmt: skip
    left = ["rx0_drops", "rx_queue_3_drops", "ch1_poll", "rx_packets_phy", "tx12_cqe_err", "[3]: rx_discards",
            "tx_queue_0_xdp_drops", "queue_7_rx_drops"]  # fmt: skip
    assert set(telling(dict.fromkeys([*kept, *left], 1))) == set(kept)
