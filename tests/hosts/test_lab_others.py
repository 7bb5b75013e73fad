"""Traffic of other jobs on a link: it slows the run, and the verdict does not call the link faulty."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab_fabrics import PORT, carried, send, written
from live_runs import genie

from genie.lab import Lab, down, names_of, up

pytestmark = [pytest.mark.live, pytest.mark.extended]

LINK = "leaf0->spine1"
HOST_RATE_BPS = 100_000_000
# Host -> leaf: the job runs on the first eight, others on the last four.
LEAVES = (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1)
OTHERS = (("host8", "host11"), ("host9", "host12"), ("host10", "host13"))
# As on machines of their own: ranks under SCHED_FIFO do not silence them. A burst waits as a whole in its host's queue.
# The host's token bucket sends it at the line rate, and the script needs little processor time.
BURSTS = """
import os, random, socket, sys, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(15))  # above the ranks
_, address, port, source, seed, rate_bps = sys.argv
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.setsockopt(socket.SOL_SOCKET, 32, 1 << 21)  # SO_SNDBUFFORCE
it.bind(("", int(source)))
draw = random.Random(int(seed))
while True:
    until = time.monotonic() + (burst_s := draw.uniform(0.01, 0.04)) + draw.uniform(0.01, 0.05)
    for _ in range(round(burst_s * int(rate_bps) / 8 / 4096)):
        it.sendto(bytes(4096), (address, int(port)))
    time.sleep(max(0, until - time.monotonic()))
"""
SINK = """
import signal, socket, sys
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.bind(("", int(sys.argv[1])))
print("ready", flush=True)
signal.pause()  # the kernel drops what comes
"""


def fabric_text() -> str:
    hosts = "".join(f'[[topology.host]]\nname = "host{number}"\n' for number in range(len(LEAVES)))
    switches = "".join(f'[[topology.switch]]\nname = "{name}"\n' for name in ("leaf0", "leaf1", "spine0", "spine1"))
    cables = [(f"host{number}", f"leaf{leaf}", 100) for number, leaf in enumerate(LEAVES)]
    cables += [(f"leaf{leaf}", f"spine{spine}", 200) for leaf in (0, 1) for spine in (0, 1)]
    links = "".join(f'[[topology.link]]\na = "{a}"\nb = "{b}"\nrate = "{mbps}Mb/s"\n' for a, b, mbps in cables)
    switch = (
        '[link]\nrate = "100Mb/s"\n[switch]\nbuffer = "1MiB"\n[transport]\nwindow_packets = 64\nack_timeout = "2s"\n'
    )
    return f'name = "others"\n[topology]\nkind = "explicit"\n{hosts}{switches}{links}{switch}'


def port_over(lab: Lab, source: str, target: str) -> int:
    """A source port whose flows cross LINK."""
    for port in range(7000, 7020):
        before = carried(lab, LINK)
        send(lab, source, target, size=1000, count=20, source_port=port)
        if carried(lab, LINK) - before > 15_000:
            return port
    raise AssertionError("no port's flow crosses the link")


def sent_by_others(lab: Lab) -> int:
    """Bytes that the other hosts have sent so far."""
    return sum(carried(lab, f"{source}->leaf0") for source, _ in OTHERS)


@contextmanager
def busy(lab: Lab) -> Iterator[None]:
    """Three hosts that send bursts over LINK as fast as their NICs can: together they fill it at times."""
    with ExitStack() as stack:
        ports = {source: port_over(lab, source, target) for source, target in OTHERS}  # while nothing else is sent
        for seed, (source, target) in enumerate(OTHERS):
            line = lab.inside(target, sys.executable, "-I", "-S", "-c", SINK, str(PORT))
            sink = stack.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
            stack.callback(sink.kill)
            assert sink.stdout is not None
            assert sink.stdout.readline() == "ready\n"
            words = [lab.addresses[target][0], PORT, ports[source], seed, HOST_RATE_BPS]
            line = lab.inside(source, sys.executable, "-I", "-S", "-c", BURSTS, *map(str, words))
            sender = stack.enter_context(subprocess.Popen(line))
            stack.callback(sender.kill)
        before, began = sent_by_others(lab), time.monotonic()
        yield
        sent_bps = 8 * (sent_by_others(lab) - before) / (time.monotonic() - began)
        assert sent_bps > HOST_RATE_BPS, f"others have sent {sent_bps / 1e6:.0f} Mb/s: they do not fill the link"


def judge(fabric: Path, out: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    """Validate the job in a lab: exit code, verdict, and what was said."""
    ended = genie(
        "validate", "examples/transformer", "--lab", str(fabric), "-o", str(out), "-n", "6", *more, limit_s=200
    )
    return ended.code, json.loads((out / "verdict.json").read_text()), ended.stdout


@pytest.mark.timeout(800)
def test_a_link_that_others_fill_is_open_and_a_slow_link_beside_it_is_not(as_root: None, tmp_path: Path) -> None:
    fabric = written(tmp_path, fabric_text())
    try:
        lab, _ = up(fabric)
        with busy(lab):
            code, verdict, stdout = judge(fabric, tmp_path / "others")
        said = (stdout, [[each["name"], each["fault"], each["doubt"]] for each in verdict["suspects"]])
        assert verdict["suspects"], said
        first = verdict["suspects"][0]
        assert LINK in first["links"], said
        assert f"on the way over {LINK} while this job is silent, behind traffic of others" in first["doubt"], said
        assert (code, verdict["result"]) == (4, "inconclusive"), said

        code, verdict, stdout = judge(fabric, tmp_path / "slow", "--lab-fault", f"{LINK} rate=40%")
        (only,) = verdict["suspects"]
        assert (code, only["links"], only["fault"], only["doubt"]) == (1, [LINK], "rate", ""), stdout
    finally:
        for name in names_of(fabric):
            down(name)
