"""Where check's paths lead, through routers in network namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cable import inside
from check_scenes import settings
from routed import ADDRESSES, Routed, routed

from genie.check.traces import traces_to

pytestmark = pytest.mark.live

A, B = ADDRESSES["a"][0], ADDRESSES["b"][0]
OWNER = {address: name for name, addresses in ADDRESSES.items() for address in addresses}


@pytest.fixture(scope="module")
def network(as_root: None) -> Iterator[Routed]:
    with routed() as made:
        yield made


def traced(network: Routed, port: int = 4791) -> dict[int, list[str]]:
    """By path: the nodes on it."""
    asked = settings(2, addresses=[A, B], paths=16)
    beats: list[None] = []
    found = inside(network.names["a"], lambda: traces_to(asked, 0, [1], port, lambda: beats.append(None)))
    assert beats == [None]
    assert {(each.source, each.target) for each in found} == {(0, 1)}
    return {each.path: [OWNER.get(hop, hop) for hop in each.hops] for each in found}


def test_each_path_and_each_port_has_its_way(network: Routed) -> None:
    ways = traced(network)
    assert len(ways) == 16
    assert {tuple(way) for way in ways.values()} == {("r", "s", "u"), ("r", "t", "u")}
    assert traced(network) == ways
    assert traced(network, 40000) != ways


def test_behind_a_silent_router_a_path_goes_on(network: Routed) -> None:
    network.silence("r")
    try:
        assert {tuple(way) for way in traced(network).values()} == {("", "s", "u"), ("", "t", "u")}
    finally:
        network.speak("r")
