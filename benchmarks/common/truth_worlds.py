"""Live worlds of the truth benchmark, and the fabric files that describe them.

Loopback: one paced soft NIC per rank. Nothing limits arriving packets, and a known slow link is a NIC at half its rate.

Namespaces: one network namespace per host, with a cable to a bridge in a namespace of its own. A token bucket (tc's
tbf) limits each cable in both directions. A known slow link is a cable at half the rate of the others, which its NIC
does not know.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from genie.config.hosts import Hosts, parse_hosts
from genie.live.launch.loopback import free_loopback_hosts
from genie.live.settings import Faults, RateFault

UDP_PORT = 4791
SLOW_RANK = 0  # the incast's receiver; in rings and all-to-alls all ranks are alike
SLOW_FACTOR = 0.5
MTU_BYTES = 4096

LOOPBACK_RATE_BPS = 200_000_000
CABLE_RATE_BPS = 100_000_000
# Late packets catch up as long as the bucket is not full: at least a quarter of a millisecond.
BURST_BYTES = 8 * 1024
QUEUE_BYTES = 4 * 1024 * 1024  # tbf's limit: more than all windows together at one port
WINDOW_PACKETS = 64
HEADER_BYTES = 14  # all that the link layer adds by tbf's count
DEVICE_MTU_BYTES = 9000


class World(Protocol):
    """A place where live ranks play."""

    @property
    def name(self) -> str: ...

    @property
    def operations(self) -> tuple[str, ...]: ...

    @property
    def offload(self) -> bool:
        """Whether the kernel segments packets (offload)."""

    @property
    def wrapper(self) -> tuple[str, ...]:
        """Words before each rank's command."""

    def hosts(self, ranks: int) -> Hosts:
        """Places of the ranks."""

    def fabric(self, ranks: int, slow: bool) -> str:
        """Text of the fabric file."""

    def prepare(self, slow: bool) -> Faults:
        """Make the known link slow, or equal to the others; return the faults that a live run needs for it."""


@dataclass(frozen=True)
class Loopback:
    """Addresses of 127/8."""

    name: str = "loopback"
    operations: tuple[str, ...] = ("all_reduce", "all_to_all")
    offload: bool = True
    wrapper: tuple[str, ...] = ()

    def hosts(self, ranks: int) -> Hosts:
        return free_loopback_hosts(ranks, UDP_PORT)

    def fabric(self, ranks: int, slow: bool) -> str:
        text = 'name = "loopback"\n'
        text += '\n[topology]\nkind = "explicit"\n\n[[topology.switch]]\nname = "switch"\n'
        for rank in range(ranks):
            text += f'\n[[topology.host]]\nname = "host{rank}"\n'
            text += f'\n[[topology.link]]\na = "host{rank}"\nb = "switch"\n'
            text += f'rate = "{_rate_bps(LOOPBACK_RATE_BPS, rank, slow)}b/s"\nrate_back = "unlimited"\n'
        return text + f"\n[transport]\nmtu = {MTU_BYTES}\n"

    def prepare(self, slow: bool) -> Faults:
        return Faults(rate=[RateFault(SLOW_RANK, SLOW_FACTOR)] if slow else [])


@dataclass(frozen=True)
class Namespaces:
    """Namespaces made by namespaces(); the host of rank r is NAME-r."""

    prefix: str
    size: int
    name: str = "namespaces"
    operations: tuple[str, ...] = ("all_reduce", "all_to_all", "incast")
    offload: bool = False  # so that the bucket counts the same packets as the twin

    @property
    def wrapper(self) -> tuple[str, ...]:
        return ("sh", "-c", f'exec ip netns exec {self.prefix}-$PMI_RANK "$@"', "sh")

    def hosts(self, ranks: int) -> Hosts:
        assert ranks <= self.size
        text = f'[[host]]\nname = "localhost"\nranks = "0-{ranks - 1}"\naddress = "10.79.0.{{rank+1}}"\n'
        return parse_hosts(text + 'port = "host{rank}"\n')

    def fabric(self, ranks: int, slow: bool) -> str:
        """A NIC sends into the queue of its host's tbf, `port`; the cable is behind it."""
        text = 'name = "namespaces"\n\n[topology]\nkind = "explicit"\n'
        for name in ["bridge", *(f"port{rank}" for rank in range(ranks))]:
            text += f'\n[[topology.switch]]\nname = "{name}"\n'
        for rank in range(ranks):
            text += f'\n[[topology.host]]\nname = "host{rank}"\n'
            text += f'\n[[topology.link]]\na = "host{rank}"\nb = "port{rank}"\n'
            text += f'rate = "{CABLE_RATE_BPS}b/s"\nrate_back = "unlimited"\n'
            text += f'\n[[topology.link]]\na = "port{rank}"\nb = "bridge"\n'
            text += f'rate = "{_rate_bps(CABLE_RATE_BPS, rank, slow)}b/s"\nburst = "{BURST_BYTES}B"\n'
        text += f'\n[switch]\nbuffer = "{QUEUE_BYTES}B"\n\n[frame]\noverhead_bytes = {HEADER_BYTES}\n'
        # A queue of all windows takes most of a second at half the rate.
        return text + f'\n[transport]\nmtu = {MTU_BYTES}\nwindow_packets = {WINDOW_PACKETS}\nack_timeout = "2s"\n'

    def prepare(self, slow: bool) -> Faults:
        self.limit(SLOW_RANK, _rate_bps(CABLE_RATE_BPS, SLOW_RANK, slow))
        return Faults()

    def limit(self, rank: int, rate_bps: int) -> None:
        """Limit a host's cable to a rate, in both directions."""
        bucket = f"root tbf rate {rate_bps}bit burst {BURST_BYTES}b limit {QUEUE_BYTES}b".split()
        _call("tc", "-n", f"{self.prefix}-{rank}", "qdisc", "replace", "dev", "cable", *bucket)
        _call("tc", "-n", f"{self.prefix}-bridge", "qdisc", "replace", "dev", f"cable{rank}", *bucket)


def _rate_bps(rate_bps: int, rank: int, slow: bool) -> int:
    return int(rate_bps * SLOW_FACTOR) if slow and rank == SLOW_RANK else rate_bps


@contextmanager
def namespaces(size: int) -> Iterator[Namespaces]:
    """Make namespaces for `size` hosts and a bridge between them; remove them at the end. Needs root."""
    made = Namespaces(f"genie-truth-{os.getpid()}", size)
    bridge = f"{made.prefix}-bridge"
    names = [bridge, *(f"{made.prefix}-{rank}" for rank in range(size))]
    try:
        for name in names:
            _call("ip", "netns", "add", name)
            # No neighbour or router discovery during the traffic.
            _call("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                  "net.ipv6.conf.default.disable_ipv6=1")  # fmt: skip
            _call("ip", "-n", name, "link", "set", "lo", "up")
        _call("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        for rank, name in enumerate(names[1:]):
            _call("ip", "link", "add", "cable", "address", _ethernet(rank), "netns", name, "type", "veth",
                  "peer", "name", f"cable{rank}", "netns", bridge)  # fmt: skip
            mtu = ("mtu", str(DEVICE_MTU_BYTES))
            _call("ip", "-n", bridge, "link", "set", f"cable{rank}", *mtu, "master", "bridge", "up")
            _call("ip", "-n", name, "addr", "add", f"{_ip(rank)}/24", "dev", "cable")
            _call("ip", "-n", name, "link", "set", "cable", *mtu, "up")
            # All neighbours are static: a request for an address would wait in the queues, and packets would wait for
            # its answer.
            _call("bridge", "-n", bridge, "fdb", "replace", _ethernet(rank), "dev", f"cable{rank}", "master", "static")
            for peer in set(range(size)) - {rank}:
                _call("ip", "-n", name, "neigh", "add", _ip(peer), "lladdr", _ethernet(peer), "dev", "cable",
                      "nud", "permanent")  # fmt: skip
            made.limit(rank, CABLE_RATE_BPS)
        _call("ip", "-n", bridge, "link", "set", "bridge", "up")
        yield made
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


def _ip(rank: int) -> str:
    return f"10.79.0.{rank + 1}"


def _ethernet(rank: int) -> str:
    return f"02:00:0a:4f:00:{rank + 1:02x}"


def _call(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise SystemExit(f"truth: {' '.join(argv)}: {done.stderr.strip() or done.returncode}")


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run truth.py.")
