"""Fabric files for labs, and what runs on their hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from genie.lab import Lab

HOST_RATE_BPS = 20_000_000
SPINE_RATE_BPS = 40_000_000


def leaf_spine(leaves: int = 2, hosts_per_leaf: int = 2, *, spines: int = 2, more: str = "") -> str:
    """A fabric file: host links of 20 Mb/s, leaf to spine 40 Mb/s."""
    return f"""
name = "small"
[topology]
kind = "leaf-spine"
leaves = {leaves}
spines = {spines}
hosts_per_leaf = {hosts_per_leaf}
[topology.spine_link]
rate = "{SPINE_RATE_BPS}b/s"
[link]
rate = "{HOST_RATE_BPS}b/s"
[switch]
buffer = "256KiB"
{more}
"""


SEND = """
import socket, struct, sys, time
_, address, port, source, size, count, tos, pause = sys.argv
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(tos))
it.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, never fragment
it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30000)  # it blocks when the host's own queue is as long
it.bind(("", int(source)))
for number in range(int(count)):
    it.sendto(struct.pack("=qq", time.monotonic_ns(), number).ljust(int(size), b"\\0"), (address, int(port)))
    time.sleep(float(pause))
"""

RECEIVE = """
import json, socket, struct, sys, time
_, port, count, patience = sys.argv
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
it.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
it.bind(("", int(port)))
print("ready", flush=True)
it.settimeout(float(patience))
times, sizes, marks, latencies, numbers, classes = [], [], 0, [], [], set()
try:
    while len(times) < int(count):
        data, more, _, _ = it.recvmsg(9000, 100)
        times.append(time.monotonic())
        sizes.append(len(data))
        marks += more[0][2][0] & 3 == 3
        classes.add(more[0][2][0] >> 2)
        sent_ns, number = struct.unpack("=qq", data[:16])
        latencies.append(time.monotonic_ns() - sent_ns)
        numbers.append(number)
        it.settimeout(0.4)
except TimeoutError:
    pass
took = times[-1] - times[0] if times else 0.0
overtaken = sum(later < sooner for sooner, later in zip(numbers, numbers[1:]))
print(json.dumps({"packets": len(times), "marks": marks, "payload": sum(sizes[1:]), "took_s": took,
    "least_ns": min(latencies, default=0), "overtaken": overtaken, "dscp": sorted(classes)}))
"""

PORT = 9999


def send(
    lab: Lab, source: str, target: str, *, size: int = 1000, count: int = 100, tos: int = 0, source_port: int = 7777,
    pause_s: float = 0.0, patience_s: float = 1.5,
) -> dict[str, Any]:  # fmt: skip
    """Datagrams from one host of a lab to another: how many came, how many marked or overtaken, and in how long."""
    receive = lab.inside(target, sys.executable, "-I", "-S", "-c", RECEIVE, *map(str, (PORT, count, patience_s)))
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            words = [lab.addresses[target][0], PORT, source_port, size, count, tos, pause_s]
            sender = lab.inside(source, sys.executable, "-I", "-S", "-c", SEND, *map(str, words))
            subprocess.run(sender, check=True, timeout=120)
            found: dict[str, Any] = json.loads(receiver.stdout.readline())
            return found
        finally:
            with suppress(ProcessLookupError):
                receiver.kill()


def carried(lab: Lab, link: str) -> int:
    """Bytes that a link has carried: what its device has sent."""
    chosen = next(each for each in lab.plan.links if each.name == link)
    line = lab.inside(lab.plan.nodes[chosen.source], "ip", "-s", "-j", "link", "show", "dev", chosen.device)
    shown = json.loads(subprocess.run(line, check=True, capture_output=True, timeout=120).stdout)
    return int(shown[0]["stats64"]["tx"]["bytes"])


def written(folder: Path, text: str, name: str = "fabric.toml") -> Path:
    """A fabric file."""
    path = folder / name
    path.write_text(text)
    return path
