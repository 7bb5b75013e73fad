"""Fixtures of the tests of softroce against the kernel's RDMA stack."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
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


@pytest.fixture
def make_soft(rig: Rig, draws: random.Random) -> Iterator[MakeSoft]:
    """Makes ends of softroce, whose first PSNs are the test's own, so that nothing late is taken for theirs."""
    made: list[SoftEnd] = []

    def make(**words: object) -> SoftEnd:
        made.append(SoftEnd(rig, **{"psn": draws.getrandbits(24), **words}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for soft in made:
        soft.close()
