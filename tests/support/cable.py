"""Two network namespaces with a cable between them, packet captures on it, and NICs of this process at its ends."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import genie_core

CLONE_NEWNET = 0x40000000
RKEY = 0x5EED
_numbers = itertools.count()
T = TypeVar("T")


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=120)


@dataclass(frozen=True)
class Cable:
    """Ends 0 and 1: their namespaces and addresses. The device is called `cable` at both."""

    names: tuple[str, str]
    ipv4: tuple[str, str] = ("10.78.0.1", "10.78.0.2")
    ipv6: tuple[str, str] = ("fd78::1", "fd78::2")

    def run(self, end: int, *argv: str) -> None:
        call("ip", "netns", "exec", self.names[end], *argv)

    def rule(self, end: int, text: str) -> None:
        """Add an nft rule to what arrives at an end; table `genie`, of both families."""
        self.run(end, "nft", f"add table inet genie; add chain inet genie in {{ type filter hook input priority 0; }}; "
                             f"add rule inet genie in {text}")  # fmt: skip

    def clear(self, end: int) -> None:
        self.run(end, "nft", "delete table inet genie")


@contextmanager
def cable(mtu_bytes: int = 9000) -> Iterator[Cable]:
    """A cable whose devices segment nothing: what is offloaded is segmented before it, as a wire needs it."""
    number = next(_numbers)
    made = Cable((f"genie{os.getpid()}x{number}", f"genie{os.getpid()}y{number}"))
    try:
        for name in made.names:
            call("ip", "netns", "add", name)
        call("ip", "link", "add", "cable", "netns", made.names[0], "type", "veth", "peer", "name", "cable",
             "netns", made.names[1])  # fmt: skip
        for end, name in enumerate(made.names):
            call("ip", "-n", name, "link", "set", "cable", "mtu", str(mtu_bytes), "gso_max_segs", "1", "up")
            call("ip", "-n", name, "link", "set", "lo", "up")
            call("ip", "-n", name, "addr", "add", f"{made.ipv4[end]}/24", "dev", "cable")
            call("ip", "-n", name, "addr", "add", f"{made.ipv6[end]}/64", "dev", "cable", "nodad")
        yield made
    finally:
        for name in made.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=120)


def inside(name: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, called by a thread in the namespace: its sockets stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    made: list[T] = []
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            with open(f"/run/netns/{name}") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns {name}")
            made.append(make())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return made[0]


@contextmanager
def capture(name: str, device: str, path: Path) -> Iterator[None]:
    """A pcap of the RoCE packets that come to or leave a device of a namespace."""
    argv = [
        "tcpdump",
        "-i",
        device,
        "-w",
        str(path),
        "-U",
        "--immediate-mode",
        "-s",
        "9100",
        "-B",
        "65536",
        "udp port 4791",
    ]
    process = subprocess.Popen(["ip", "netns", "exec", name, *argv], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while "listening on" not in (line := process.stderr.readline()):
            assert line, "tcpdump has ended"
        yield
        # Wait until tcpdump's buffer is written.
        before = -1
        while (now := path.stat().st_size) != before:
            before = now
            time.sleep(0.5)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


class Nics:
    """Two soft NICs that are connected to each other by as many queue pairs as there are in `config`."""

    def __init__(
        self,
        addresses: tuple[str, str],
        names: tuple[str | None, str | None] = (None, None),
        *,
        memory_bytes: int = 1 << 22,
        pair: genie_core.QueuePairConfig | None = None,
        queue_pairs: int = 1,
        receives_counted: bool = False,
        **nic: object,
    ) -> None:
        self.ends: list[genie_core.Endpoint] = []
        self.events: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])  # of both, while until() works
        self.pair = pair or genie_core.QueuePairConfig()
        for end in (0, 1):
            config = genie_core.NicConfig()
            config.address, config.rkey = addresses[end], RKEY
            config.memory_bytes = config.writable_bytes = config.readable_bytes = memory_bytes
            for key, value in nic.items():
                setattr(config, key, value)
            self.ends.append(_made(names[end], config, self.pair, queue_pairs, receives_counted, addresses[1 - end]))

    def stream(self, size_bytes: int, messages: int, *, verb: str = "write", depth: int = 16) -> list[int]:
        """End 0 sends to end 1; what end 1 got: messages, bytes, ps from its first packet to its last."""
        got: list[list[int]] = []
        over = threading.Event()

        def receive() -> None:
            got.append(self.ends[1].serve(60, messages))
            while not over.wait(0):
                self.ends[1].poll(0.005)

        receiver = threading.Thread(target=receive)
        receiver.start()
        queue_pairs = list(range(self._queue_pairs()))
        took = self.ends[0].stream(queue_pairs, verb, size_bytes, messages=messages, depth=depth, rkey=RKEY)
        over.set()
        receiver.join()
        assert took > 0, self.ends[0].error
        return got[0]

    def _queue_pairs(self) -> int:
        count = 0
        try:
            while True:
                self.ends[0].qpn(count)
                count += 1
        except ValueError:
            return count

    def until(self, what: Callable[[], bool], limit_s: float = 20) -> None:
        """Both ends work, in turn, until something holds."""
        deadline = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < deadline, "it does not come"
            for end, events in zip(self.ends, self.events, strict=False):  # tests may take an end away
                events += end.poll(0.001)


def _made(
    name: str | None,
    config: genie_core.NicConfig,
    pair: genie_core.QueuePairConfig,
    count: int,
    counted: bool,
    peer: str,
) -> genie_core.Endpoint:
    def make() -> genie_core.Endpoint:
        nic = genie_core.Endpoint(config)
        nic.open()
        for number in range(count):
            queue_pair = nic.add_queue_pair(pair, counted)
            nic.connect(queue_pair, address=peer, qpn=1 << 16 | number, first_psn=7, peer_first_psn=7)
        return nic

    return inside(name, make) if name else make()
