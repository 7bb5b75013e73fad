"""Attributes requested of a device when a rank opens it and when a queue pair is connected."""

from __future__ import annotations

from typing import Any

import pytest

from genie.bench.pair import PairEndpointInfo
from genie.live.settings import RunSettings, VerbsSettings
from genie.live.transport import TransportError
from genie.live.verbs import opening
from genie.live.verbs.device import DeviceError
from genie.live.verbs.gids import ROCE_V2, GidEntry
from genie.live.verbs.hca import Port
from genie.live.verbs.ports import PortInfo

pytestmark = pytest.mark.live

PORT = PortInfo(Port("fake0", 1), True, "Ethernet", 0, (), -1)
GID = GidEntry(1, "::ffff:10.0.0.1", ROCE_V2)
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0002"


class Recorder:
    """A device that only notes what is asked of it."""

    def __init__(self, *made_with: object) -> None:
        self.made_with = made_with

    def path_to(self, *asked: object) -> tuple[object, ...]:
        return asked

    def connect(self, *asked: object, **attributes: int) -> None:
        self.asked, self.attributes = asked, attributes


@pytest.mark.parametrize(
    ("address", "gid", "lid", "to"),
    [("10.0.0.2", "", 0, MAPPED), ("10.0.0.9", "::ffff:10.0.0.2", 0, MAPPED), ("", "", 7, "")],
)
def test_every_attribute_of_a_connection(address: str, gid: str, lid: int, to: str) -> None:
    device: Any = Recorder()
    verbs = VerbsSettings(service_level=3, traffic_class=104, timeout=14, retry_count=5, rnr_retry=6, min_rnr_timer=11)
    endpoint = PairEndpointInfo(address=address, queue_pairs=[], first_psns=[], rkey=1, gid=gid, lid=lid)
    opening.connect(device, GID, verbs, "queue pair", endpoint, number=17, psns=(100, 200), mtu_bytes=2048)
    assert device.asked == ("queue pair", (to, lid, GID, 3, 104))
    assert device.attributes == {
        "dest_qp_num": 17, "path_mtu": 4, "sq_psn": 100, "rq_psn": 200, "min_rnr_timer": 11, "timeout": 14,
        "retry_cnt": 5, "rnr_retry": 6,
    }  # fmt: skip
    assert opening.gid_on(endpoint) == to


@pytest.mark.parametrize("numa_bind", [False, True])
def test_a_rank_runs_beside_its_device_when_asked_to(numa_bind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[PortInfo] = []
    asked: list[object] = []

    def found(*given: object) -> tuple[PortInfo, GidEntry]:
        asked.append(given)
        return PORT, GID

    monkeypatch.setattr(opening, "find_port", found)
    monkeypatch.setattr(opening, "bind_to_node", bound.append)
    monkeypatch.setattr(opening, "Pyverbs", lambda: "library")
    monkeypatch.setattr(opening, "Device", Recorder)
    settings = run_settings(VerbsSettings(numa_bind=numa_bind))
    device: Any
    device, gid = opening.open_device(settings, 1, 4096)
    assert (device.made_with, gid, asked) == (("library", PORT), GID, [(settings, 1, 4096)])
    assert bound == [PORT] * numa_bind


def test_a_device_that_does_not_open_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("fake0 port 1 cannot be opened: busy")

    monkeypatch.setattr(opening, "find_port", lambda *given: (PORT, GID))
    monkeypatch.setattr(opening, "Pyverbs", lambda: None)
    monkeypatch.setattr(opening, "Device", refuse)
    with pytest.raises(TransportError, match=r"^rank 1: fake0 port 1 cannot be opened: busy$") as told:
        opening.open_device(run_settings(VerbsSettings()), 1, 4096)
    assert told.value.code == 3


@pytest.mark.parametrize(
    ("completion", "with_core", "without"), [("auto", False, True), ("poll", False, False), ("channel", True, True)]
)
def test_who_sleeps(completion: Any, with_core: bool, without: bool) -> None:
    verbs = VerbsSettings(completion=completion)
    assert (verbs.sleeps(spin=True), verbs.sleeps(spin=False)) == (with_core, without)


def run_settings(verbs: VerbsSettings) -> RunSettings:
    return RunSettings(
        workload="w", out="o", ranks=2, addresses=["10.0.0.1", "10.0.0.2"], ports=[None, None],
        host_names=["a", "b"], transport="verbs", verbs=verbs,
    )  # fmt: skip
