"""Two guests for all tests of this room, booted once, each with their network at rest before every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from roce_pcaps import judge
from rxe.capture import stop_all
from rxe.failure import RigError
from rxe.guest import PACKAGES
from rxe.image import find_image
from rxe.machine import missing
from rxe.packages import COMMANDS, build_wheel, collect
from rxe.rig import MTU_BYTES, Rig
from rxe.warm import WarmPython
from verbs_jobs import ONE_THREAD, RANK_IMPORTS

ROOT = Path(__file__).resolve().parent.parent.parent

REQUIRED = os.environ.get("GENIE_REQUIRE_ALL") == "1"


@pytest.fixture(scope="session")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two guests; the first run on a machine makes their image, which takes about a minute."""
    if lacking := missing(build=find_image() is None):
        if REQUIRED:
            pytest.fail(f"the rxe rig lacks {lacking}, and GENIE_REQUIRE_ALL=1")
        pytest.skip(f"the rxe rig lacks {lacking}")
    share, packages = tmp_path_factory.mktemp("share"), tmp_path_factory.mktemp("packages")
    with Rig(guests=2, share=share, packages=packages) as rig:
        yield rig


@pytest.fixture(scope="session")
def guest_environment(
    booted: Rig, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Environment in which guests have Genie: the wheel that GENIE_WHEEL names, or one that is built here.

    Where a test of this session wants a clean wheel anyway it is that one: the other is faster, but only again.
    """
    assert booted.packages is not None
    if given := os.environ.get("GENIE_WHEEL"):
        wheel = Path(given)
    elif any("clean_wheel" in getattr(item, "fixturenames", ()) for item in request.session.items):
        wheel = request.getfixturevalue("clean_wheel").wheel
    else:
        wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    collect(booted.packages, wheel)
    return {"PYTHONPATH": PACKAGES, "PATH": f"{PACKAGES}/{COMMANDS}:/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.fixture(scope="session")
def warm(booted: Rig, guest_environment: dict[str, str]) -> list[WarmPython]:
    """In each guest a Python that has imported what ranks do, for tests of all but how users start them."""
    started = [WarmPython(guest, RANK_IMPORTS, {**guest_environment, **ONE_THREAD}) for guest in booted.guests]
    for each in started:
        each.wait_ready(120)
    return started


@pytest.fixture
def rig(booted: Rig, request: pytest.FixtureRequest, tmp_path: Path, tshark: str) -> Iterator[Rig]:
    """The two guests, without loss before and after, and with Ethernet's usual MTU after.

    When the test is over, every RoCE packet that guests sent or got is dissected, and its ICRC checked. Tests that send
    wrong packets are marked `unjudged` and left out.
    """
    booted.network.lose(0)
    guests = () if request.node.get_closest_marker("unjudged") else (1, 2)
    seen = [booted.capture(tmp_path / f"guest{guest}.pcap", guest) for guest in guests]
    yield booted
    with suppress(RigError):  # frames that a busy machine did not capture: the others are judged
        stop_all(seen)
    for capture in seen:
        judge(capture.path, tshark)
    booted.network.lose(0)
    if booted.network.mtu_bytes != MTU_BYTES:
        booted.set_mtu(MTU_BYTES)
