"""The benchmark of truth: its worlds in fabric files, its summary, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.topology import build_network

pytestmark = [pytest.mark.exclusive, pytest.mark.extended]

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
TRUTH = BENCHMARKS / "truth.py"


@pytest.fixture
def truth() -> Iterator[Any]:
    """The benchmark as a module."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import truth

        yield truth
    finally:
        sys.path.remove(str(BENCHMARKS))


def rates_bps(text: str) -> dict[str, int]:
    network = build_network(parse_fabric(text))
    return dict(zip(network.link_names, network.rate_bps.tolist(), strict=True))


def test_loopbacks_fabric_limits_what_leaves(truth: Any) -> None:
    rates = rates_bps(truth.Loopback().fabric(4, slow=True))
    assert rates["host0->switch"] * 2 == rates["host3->switch"] == 200_000_000
    assert rates["switch->host0"] == rates["switch->host3"] == 0


def test_a_slow_cable_is_slow_both_ways_and_its_nic_does_not_know(truth: Any) -> None:
    world = sys.modules["common.truth_worlds"].Namespaces("x", 4)
    rates = rates_bps(world.fabric(4, slow=True))
    assert rates["host0->port0"] == rates["host3->port3"] == rates["port3->bridge"] == rates["bridge->port3"]
    assert rates["port0->bridge"] == rates["bridge->port0"] == rates["port3->bridge"] // 2
    network = build_network(parse_fabric(world.fabric(4, slow=True)))
    buckets = dict(zip(network.link_names, network.burst_bytes.tolist(), strict=True))
    assert (buckets["host0->port0"], buckets["port0->bridge"], buckets["bridge->port0"]) == (0, 8192, 8192)


def test_points_that_are_starved_count_only_as_such(truth: Any) -> None:
    def point(ratio: float, starved: bool = False) -> dict[str, Any]:
        return {"world": "w", "operation": "o", "ratio": ratio, "starved": starved}

    good = [point(1.04)] * 9
    assert truth.summary_of([*good, point(3.0, starved=True)])["met"]
    assert not truth.summary_of([*good[2:], *[point(3.0, starved=True)] * 2])["met"]
    assert not truth.summary_of([*good[:8], *[point(1.3)] * 2])["met"]
    assert not truth.summary_of([point(1.06)] * 10)["met"]
    assert not truth.summary_of([point(1.0, starved=True)])["met"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--worlds", "moon"), "argument --worlds: moon: give some of loopback, namespaces"),
        (("--sizes", "7"), "argument --sizes: 7: give some of 64, 256, 1024, 4096, 16384"),
        (("--json", "."), "argument --json: . is a folder: give a file's name in a folder that is there"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(tmp_path: Path, words: tuple[str, str], line: str) -> None:
    argv = [sys.executable, str(TRUTH), *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"truth.py: error: {line}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_namespaces_end_with_an_interrupted_run(as_root: None, number: signal.Signals) -> None:
    argv = [sys.executable, str(TRUTH), "--worlds", "namespaces", "--ranks", "4", "--sizes", "64"]
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_heed_signals
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not ranks_of(process.pid):
            assert time.monotonic() < deadline, "no rank was started"
            time.sleep(0.1)
        ranks = ranks_of(process.pid)
        process.send_signal(number)
        assert process.wait(120) != 0
    finally:
        process.kill()
        process.wait(120)
    assert not [name for name in os.listdir("/run/netns") if name.startswith(f"genie-truth-{process.pid}-")]
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]


def _heed_signals() -> None:
    """As a terminal's shell starts a command, whoever started the tests, and however."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def ranks_of(pid: int) -> list[int]:
    """Processes in the namespaces of a run."""
    found: list[int] = []
    for name in os.listdir("/run/netns") if Path("/run/netns").is_dir() else []:
        if name.startswith(f"genie-truth-{pid}-"):
            argv = ["ip", "netns", "pids", name]
            listed = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False).stdout
            found += map(int, listed.split())
    return found
