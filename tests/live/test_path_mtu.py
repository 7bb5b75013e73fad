"""The path MTU that ranks find: what routes say, what a hop on the way says, and what vanishes without a word."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from cable import inside
from fake_channels import FakeChannel, Post

from genie.errors import RankError
from genie.live.paths.mtu import HEADER_BYTES, discover, path_problem, route_mtu_bytes
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import RunSettings

pytestmark = pytest.mark.live

A, B = ("10.78.1.1", "fd78:1::1"), ("10.78.2.1", "fd78:2::1")


def settings(addresses: list[str]) -> RunSettings:
    return RunSettings(
        workload="w", out="o", ranks=len(addresses), addresses=addresses, ports=[None] * len(addresses),
        host_names=["h"] * len(addresses), mtu=0,
    )  # fmt: skip


def found(addresses: list[str], namespaces: list[str | None], limits: list[int] | None = None) -> list[Any]:
    """Return each rank's result, with a thread per rank, or the error that it raised."""
    from concurrent.futures import ThreadPoolExecutor

    post, run = Post(len(addresses)), settings(addresses)

    def rank_body(rank: int) -> Any:
        meet = Rendezvous(FakeChannel(post, rank, len(addresses)), 10.0)
        try:
            return discover(meet, run, rank, (limits or [4096] * len(addresses))[rank], over_ip=True)
        except RankError as error:
            return error

    def place(rank: int) -> Any:
        name = namespaces[rank]
        return rank_body(rank) if name is None else inside(name, lambda: rank_body(rank))

    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(place, range(len(addresses))))


def test_loopback_carries_the_most() -> None:
    assert found(["127.78.0.1", "127.78.0.2", "127.78.0.2", "127.78.0.3"], [None] * 4) == [4096] * 4


def test_a_device_may_take_less() -> None:
    assert found(["127.78.1.1", "127.78.1.2"], [None] * 2, [4096, 2048]) == [2048] * 2


def test_an_address_that_is_not_here() -> None:
    told = found(["127.78.2.1", "198.51.100.7"], [None] * 2)
    assert [each.code for each in told] == [2, 2]
    assert str(told[0]) == str(told[1])
    assert "no route from rank" in str(told[0])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=120)


@dataclass
class Line:
    """a - router - b: the router's side to b is the middle hop."""

    prefix: str
    names: list[str] = field(default_factory=list)

    def name(self, which: str) -> str:
        return self.prefix + which

    def mtu(self, ends: int, middle: int) -> None:
        """Of the cable at a and at b's own interface; and of the router's interface to b."""
        for space, link in (("a", "cable"), ("r", "to_a"), ("b", "cable")):
            ip("-n", self.name(space), "link", "set", link, "mtu", str(ends))
        ip("-n", self.name("r"), "link", "set", "to_b", "mtu", str(middle))
        if middle >= 1280:  # below, an interface loses its IPv6 addresses
            ip("-n", self.name("r"), "addr", "replace", "fd78:2::fe/64", "dev", "to_b", "nodad")
        for space in "ab":  # forget what ICMP has told
            for version in ("-4", "-6"):
                ip(version, "-n", self.name(space), "route", "flush", "cache")

    def filter(self, rule: str) -> None:
        """Rules of the router; "" for none."""
        text = "add table inet t\ndelete table inet t\n"
        if rule:
            text += f"table inet t {{\n{rule}\n}}\n"
        line = ["ip", "netns", "exec", self.name("r"), "nft", "-f", "-"]
        subprocess.run(line, input=text, text=True, check=True, capture_output=True, timeout=120)

    def finds(self, version: int = 0) -> list[Any]:
        return found([A[version], B[version]], [self.name("a"), self.name("b")])


@contextmanager
def made() -> Iterator[Line]:
    line = Line(f"gm{os.getpid()}")
    try:
        for which in "arb":
            ip("netns", "add", line.name(which))
            line.names.append(line.name(which))
            ip("-n", line.name(which), "link", "set", "lo", "up")
        for number, which in enumerate("ab", start=1):
            end, router = line.name(which), line.name("r")
            ip("link", "add", "cable", "netns", end, "type", "veth", "peer", "name", f"to_{which}", "netns", router)
            for space, link, host in ((end, "cable", 1), (router, f"to_{which}", 254)):
                ip("-n", space, "addr", "add", f"10.78.{number}.{host}/24", "dev", link)
                ip("-n", space, "addr", "add", f"fd78:{number}::{host:x}/64", "dev", link, "nodad")
                ip("-n", space, "link", "set", link, "up")
            ip("-n", end, "route", "add", "default", "via", f"10.78.{number}.254")
            ip("-n", end, "-6", "route", "add", "default", "via", f"fd78:{number}::fe")
        for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            line_of = ["ip", "netns", "exec", line.name("r"), "sysctl", "-qw", f"{key}=1"]
            subprocess.run(line_of, check=True, capture_output=True, timeout=120)
        yield line
    finally:
        for name in line.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def routed(as_root: None) -> Iterator[Line]:
    with made() as line:
        yield line


@pytest.fixture
def line(routed: Line) -> Iterator[Line]:
    routed.filter("")
    yield routed
    routed.filter("")


SILENT = (
    "chain o { type filter hook output priority 0; icmp type destination-unreachable drop; "
    "icmpv6 type packet-too-big drop; }"
)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("ends", "fits"), [(9000, 4096), (4096, 2048), (1500, 1024), (1280, 1024)])
def test_what_the_interfaces_carry(line: Line, ends: int, fits: int, version: int) -> None:
    line.mtu(ends, ends)
    assert line.finds(version) == [fits, fits]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("silent", [False, True])
def test_a_middle_hop_that_carries_less(line: Line, version: int, silent: bool) -> None:
    """From a to b; b's packets to a are not in its way. Whether or not the router may say so."""
    line.mtu(9000, 1500)
    line.filter(SILENT if silent else "")
    assert inside(line.name("a"), lambda: route_mtu_bytes(A[version], B[version], 4791)) == 9000
    assert line.finds(version) == [1024, 1024]
    if silent:  # routes have learned nothing: only trying finds this one
        told = inside(line.name("a"), lambda: path_problem([A[version], B[version]], 0, 4791, 4096))
        assert told == ""


@pytest.mark.extended
def test_each_size_is_found(line: Line) -> None:
    for mtu_bytes in (2048, 1024, 512, 256):
        longest = mtu_bytes + HEADER_BYTES[4]
        line.mtu(9000, longest)
        assert line.finds() == [mtu_bytes, mtu_bytes]
        if mtu_bytes > 256:
            line.mtu(9000, longest - 1)
            assert line.finds() == [mtu_bytes // 2, mtu_bytes // 2]


def test_loss_is_not_taken_for_a_limit(line: Line) -> None:
    line.mtu(9000, 9000)
    each = "".join(f"ip saddr {end[0]} meta l4proto udp numgen inc mod 4 < 3 drop; " for end in (A, B))
    line.filter(f"chain f {{ type filter hook forward priority 0; {each}}}")
    assert line.finds() == [4096, 4096]


def test_a_path_that_carries_nothing_is_named(line: Line) -> None:
    line.mtu(1500, 1500)
    line.filter("chain f { type filter hook forward priority 0; ip saddr 10.78.2.1 meta l4proto udp drop; }")
    told = line.finds()
    assert [each.code for each in told] == [3, 3]
    assert all("no datagram of 292 bytes comes from rank 1 at 10.78.2.1 to rank 0 at 10.78.1.1" in str(t) for t in told)
