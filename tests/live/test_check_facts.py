"""Facts about a rank's own host: ranks that share an address, and /sys of another namespace."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from check_scenes import settings

from genie.check import facts
from genie.check.facts import facts_of, switched_off

pytestmark = pytest.mark.live

OWN = "02:00:00:00:00:0a"


@pytest.fixture
def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_one_of_the_ranks_of_an_address_asks_for_its_port(free_port: int) -> None:
    asked = settings(2, addresses=["127.0.0.1"] * 2, udp_port=free_port)
    assert [facts_of(asked, rank).roce_port for rank in (0, 1)] == ["", ""]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:  # as the first rank asks at the same time
        first.bind(("127.0.0.1", free_port))
        assert [facts_of(asked, rank).roce_port for rank in (0, 1)] == ["is in use", ""]


def test_loopback_has_all_of_its_addresses() -> None:
    found = facts_of(settings(2, addresses=["127.7.0.1", "127.7.0.2"]), 1)
    assert (found.interface, found.is_up, found.duplicate_owner) == ("lo", True, "")
    assert "127.0.0.1" in found.addresses["lo"]
    assert facts_of(settings(2, addresses=["127.7.0.1", "192.0.2.7"]), 1).interface == ""


def test_a_kernel_that_lists_nothing_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "interfaces", list)
    with pytest.raises(OSError, match="does not list its interfaces"):
        facts_of(settings(2, addresses=["127.0.0.1"] * 2), 0)


@pytest.mark.parametrize(
    ("own", "off"), [(OWN, ["roce_np priority 3", "roce_rp priority 5"]), ("02:00:00:00:00:0b", [])]
)
def test_switches_are_those_of_the_own_interface(
    own: str, off: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "own_ethernet", lambda: {bytes.fromhex(own.replace(":", ""))})
    for side, priority in (("roce_np", 3), ("roce_rp", 5)):
        folder = tmp_path / "eth0/ecn" / side / "enable"
        folder.mkdir(parents=True)
        for number in range(8):
            (folder / str(number)).write_text(f"{int(number != priority)}\n")
    assert switched_off("eth0", tmp_path) == []  # no address: no interface
    (tmp_path / "eth0/address").write_text(f"{OWN}\n")
    assert switched_off("eth0", tmp_path) == off
