"""Traffic of other jobs on a link: it slows the run, and the verdict does not call the link faulty."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from lab_fabrics import PORT, SEND, carried, send, written
from live_runs import genie

from genie.lab import Lab, up_for

pytestmark = [pytest.mark.live, pytest.mark.extended]

LINK = "leaf0->spine1"
# Host -> leaf: the job runs on the first eight, others on the last four.
LEAVES = (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1)
OTHERS = (("host8", "host10"), ("host9", "host11"))


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


@contextmanager
def busy(lab: Lab) -> Iterator[None]:
    """Two hosts that send over LINK as fast as their NICs can, and fill it."""
    with ExitStack() as stack:
        for source, target in OTHERS:
            words = [lab.addresses[target][0], PORT, port_over(lab, source, target), 4000, 10**9, 0, 0]
            line = lab.inside(source, sys.executable, "-I", "-S", "-c", SEND, *map(str, words))
            sender = stack.enter_context(subprocess.Popen(line))
            stack.callback(sender.kill)
        yield


def test_a_link_that_others_fill_is_open_and_a_slow_link_beside_it_is_not(as_root: None, tmp_path: Path) -> None:
    fabric = written(tmp_path, fabric_text())
    with up_for(fabric) as lab:
        with busy(lab):
            out = tmp_path / "others"
            ended = genie("validate", "examples/transformer", "--lab", str(fabric), "-o", str(out), "-n", "6")
        verdict = json.loads((out / "verdict.json").read_text())
        said = (ended.stdout, [[each["name"], each["fault"], each["doubt"]] for each in verdict["suspects"]])
        first = verdict["suspects"][0]
        assert LINK in first["links"], said
        assert first["doubt"].startswith("traffic of others crosses it: "), said
        assert (ended.code, verdict["result"]) == (4, "inconclusive"), said

        out = tmp_path / "slow"
        fault = ("--lab-fault", f"{LINK} rate=40%")
        ended = genie("validate", "examples/transformer", "--lab", str(fabric), "-o", str(out), "-n", "6", *fault)
        (only,) = json.loads((out / "verdict.json").read_text())["suspects"]
        assert (ended.code, only["links"], only["fault"], only["doubt"]) == (1, [LINK], "rate", ""), ended.stdout
