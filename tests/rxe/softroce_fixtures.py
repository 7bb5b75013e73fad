"""Fixtures of the tests of softroce against the kernel's RDMA stack."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from rxe.machine import call
from rxe.network import HOST_END
from rxe.peer import Peer
from rxe.rig import Rig
from softroce_end import MakeSoft, SoftEnd, open_guest_peers


@pytest.fixture(scope="module")
def peers(booted: Rig) -> Iterator[list[Peer]]:
    """An end in each guest. Not for longer than a module: others take the guests' devices away."""
    opened = open_guest_peers(booted.guests, booted)
    yield opened
    for peer in opened:
        peer.close()


@pytest.fixture
def draws(request: pytest.FixtureRequest) -> random.Random:
    """The test's own random numbers, the same each time."""
    return random.Random(request.node.name)


def switch(rig: Rig, port: str, **how: str) -> None:
    """Turn offloads of a port "on" or "off"."""
    words = [word for name, value in how.items() for word in (name.replace("_", "-"), value)]
    call(rig.network.inside("ethtool", "-K", port, *words), what=f"offloads of {port}")


def segment_late(rig: Rig, how: str) -> None:
    """ "on": the host's end hands offloaded sends to the bridge whole, "off": as the packets that they become."""
    switch(rig, HOST_END, tx_udp_segmentation=how)


@pytest.fixture
def segmented_late(rig: Rig, make_soft: MakeSoft) -> Iterator[None]:
    """Softroce's packets cross the bridge whole and are cut at the guest's tap; those it gets are put together."""
    segment_late(rig, "on")
    switch(rig, HOST_END, gro="on")
    # tcpdump's room is for few frames where they may be long.
    switch(rig, rig.network.tap(1), gso="off", gro="off")
    yield
    switch(rig, rig.network.tap(1), gso="on", gro="on")
    switch(rig, HOST_END, gro="off")
    segment_late(rig, "off")


@pytest.fixture
def make_soft(rig: Rig, draws: random.Random) -> Iterator[MakeSoft]:
    """Makes ends of softroce, whose first PSNs are the test's own, so that nothing late is taken for theirs."""
    segment_late(rig, "off")  # each packet is lost or captured by itself
    made: list[SoftEnd] = []

    def make(**words: object) -> SoftEnd:
        made.append(SoftEnd(rig, **{"psn": draws.getrandbits(24), **words}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for soft in made:
        soft.close()
