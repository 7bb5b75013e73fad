"""Hops of real paths through network namespaces: each flow's own, silent ones, and trains that find the slow link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from cable import inside
from routed import ADDRESSES, Routed, routed

from genie.live.paths.probe import Answer, Flow, PathProber, trace, train

pytestmark = pytest.mark.live

A, B, PORT = ADDRESSES["a"][0], ADDRESSES["b"][0], 4791
OWNER = {address: name for name, addresses in ADDRESSES.items() for address in addresses}


@pytest.fixture(scope="module")
def network(as_root: None) -> Iterator[Routed]:
    with routed() as made:
        yield made


@pytest.fixture
def prober(network: Routed) -> PathProber:
    """Its sockets are opened where it is used: in the namespace of a."""
    return PathProber(A, PORT)


def traced(network: Routed, prober: PathProber, ports: list[int], limit_s: float = 5) -> dict[int, list[str]]:
    found = inside(network.names["a"], lambda: trace(prober, [(B, port) for port in ports], limit_s))
    prober.close()
    return {port: [OWNER.get(hop, hop) for hop in hops] for (_, port), hops in found.items()}


def test_each_port_has_its_path_and_keeps_it(network: Routed, prober: PathProber) -> None:
    ports = list(range(50000, 50020))
    paths = traced(network, prober, ports)
    assert {tuple(path) for path in paths.values()} == {("r", "s", "u"), ("r", "t", "u")}
    assert traced(network, prober, ports) == paths


def test_a_silent_hop_is_a_hole(network: Routed, prober: PathProber) -> None:
    network.silence("r")
    try:
        paths = traced(network, prober, [50000, 50001])
        assert all(path in (["", "s", "u"], ["", "t", "u"]) for path in paths.values())
    finally:
        network.speak("r")


def test_a_destination_that_nobody_reaches_ends_within_the_limit(network: Routed, prober: PathProber) -> None:
    found = inside(network.names["a"], lambda: trace(prober, [("10.81.5.2", 50000), ("10.99.0.1", 50000)], 1))
    prober.close()
    assert [OWNER[hop] for hop in found["10.99.0.1", 50000]] in ([], ["r"])
    assert len(found[B, 50000]) == 3


class Late(PathProber):
    """The first hop answers a probe only when the next hop is asked."""

    def __init__(self) -> None:
        super().__init__(A, PORT)
        self.asked: list[int] = []

    def open(self, ports: Iterable[int]) -> set[int]:
        return set(ports)

    def send(self, flow: Flow, payload: bytes, ttl: int) -> None:
        self.asked.append(ttl)

    def hear(self, limit_s: float) -> list[Answer]:
        found = [Answer(50000, B, "r", False, 1, 2, 0)] if self.asked.count(2) == 1 else []
        found += [Answer(50000, B, "s", False, 2, 1, 0)] if self.asked.count(2) == 2 else []
        return found + ([Answer(50000, B, B, True, 3, 0, 0)] if 3 in self.asked else [])


def test_an_answer_that_comes_late_is_no_hop_further_on() -> None:
    assert trace(Late(), [(B, 50000)], 5) == {(B, 50000): ["", "s"]}


@pytest.mark.parametrize(("slow", "at"), [(("r", "s"), 1), (("s", "u"), 2)])
def test_a_train_is_stretched_where_a_link_is_slow(
    network: Routed, prober: PathProber, slow: tuple[str, str], at: int
) -> None:
    port = next(port for port, path in traced(network, prober, list(range(50000, 50020))).items() if "s" in path)
    network.slow("a", "r", "100mbit")
    try:
        network.slow(*slow, "60mbit")

        def measured() -> list[int]:
            return train(prober, (B, port), 3, count=40, size_bytes=1400, trials=4)

        times = inside(network.names["a"], measured)
        prober.close()
    finally:
        for ends in (("a", "r"), slow):
            network.fast(*ends)
    assert times[0] > 0.8 * 40 * 1400 * 8 / 100e6 * 1e9
    before, after = times[at - 1], times[at]
    assert after / before > 1.3
    for other in {1, 2} - {at}:
        assert times[other] / times[other - 1] < 1.15
