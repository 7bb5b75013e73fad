"""Hosts a and b in network namespaces, three routers between them: r, then s or t by a hash of the ports, to b."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_numbers = itertools.count()
# Each cable is a /30 of its own: 10.81.CABLE.1 at the first node, .2 at the second.
CABLES = (("a", "r"), ("r", "s"), ("r", "t"), ("s", "u"), ("t", "u"), ("u", "b"))
NODES = "arstub"
ADDRESSES = {
    name: [f"10.81.{at}.{1 + ends.index(name)}" for at, ends in enumerate(CABLES) if name in ends] for name in NODES
}


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=120)


@dataclass(frozen=True)
class Routed:
    """Namespaces by node."""

    names: dict[str, str]

    def run(self, node: str, *argv: str) -> None:
        call("ip", "netns", "exec", self.names[node], *argv)

    def silence(self, node: str) -> None:
        """It says nothing any more when a packet's time is over."""
        self.run(node, "nft", "add table ip quiet; add chain ip quiet out { type filter hook output priority 0; }; "
                              "add rule ip quiet out icmp type time-exceeded drop")  # fmt: skip

    def speak(self, node: str) -> None:
        self.run(node, "nft", "delete table ip quiet")

    def slow(self, first: str, second: str, rate: str) -> None:
        """A token bucket on the way from one node to a neighbour."""
        self.run(first, "tc", "qdisc", "replace", "dev", device(first, second), "root", "tbf", "rate", rate, "burst",
                 "4kb", "limit", "4mb")  # fmt: skip

    def fast(self, first: str, second: str) -> None:
        self.run(first, "tc", "qdisc", "del", "dev", device(first, second), "root")


def device(node: str, other: str) -> str:
    return f"c{next(at for at, ends in enumerate(CABLES) if {node, other} == set(ends))}"


@contextmanager
def routed() -> Iterator[Routed]:
    number = next(_numbers)
    made = Routed({name: f"genie{os.getpid()}r{number}{name}" for name in NODES})
    names = made.names
    try:
        for node, name in names.items():
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
            for key, value in (("ip_forward", int(node not in "ab")), ("fib_multipath_hash_policy", 1),
                               ("icmp_ratelimit", 0), ("conf.all.rp_filter", 0)):  # fmt: skip
                made.run(node, "sysctl", "-q", "-w", f"net.ipv4.{key}={value}")
        for at, (one, two) in enumerate(CABLES):
            call("ip", "link", "add", f"c{at}", "netns", names[one], "type", "veth", "peer", "name", f"c{at}", "netns",
                 names[two])  # fmt: skip
            for end, node in enumerate((one, two)):
                call("ip", "-n", names[node], "addr", "add", f"10.81.{at}.{1 + end}/30", "dev", f"c{at}")
                call("ip", "-n", names[node], "link", "set", f"c{at}", "up")
        for node, target, *ways in (
            ("a", "default", "10.81.0.2"), ("b", "default", "10.81.5.1"),
            ("r", "10.81.5.0/30", "10.81.1.2", "10.81.2.2"), ("u", "10.81.0.0/30", "10.81.3.1", "10.81.4.1"),
            ("s", "10.81.5.0/30", "10.81.3.2"), ("t", "10.81.5.0/30", "10.81.4.2"),
            ("s", "10.81.0.0/30", "10.81.1.1"), ("t", "10.81.0.0/30", "10.81.2.1"),
        ):  # fmt: skip
            hops = [word for way in ways for word in ("nexthop", "via", way)] if len(ways) > 1 else ["via", *ways]
            call("ip", "-n", names[node], "route", "add", target, *hops)
        yield made
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=120)
