"""Ranks that run in a lab: the main job, calibration, and what is left when a run is ended."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_fabrics import leaf_spine, written
from live_runs import Ended, genie, played, rings, started

from genie.config.hosts import Calibration
from genie.lab import down, find, names_of, parse_change, state, up
from genie.record import open_run
from genie.workload.graph import Op

pytestmark = [pytest.mark.live, pytest.mark.extended]

FEW = ("-n", "5", "--warmup", "1")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All to all: in a ring of four, what a slow link holds up would be slow too."""
    return rings(tmp_path_factory.mktemp("rings"), size_bytes=131072, op=Op.ALL_TO_ALL)


@pytest.fixture
def fabric(as_root: None, tmp_path: Path) -> Iterator[Path]:
    path = written(tmp_path, leaf_spine())
    yield path
    left = [name for name in state.all_names() if name.startswith(state.name_of(path))]
    for name in {*names_of(path), *left}:
        down(name)
    assert [name for name in left if "-run-" in name] == []


def validate(trace: str, fabric: Path, out: Path, *more: str) -> Ended:
    return genie("validate", trace, "--lab", str(fabric), "-o", str(out), *FEW, *more)


def test_the_main_job_in_a_lab_of_its_own(trace: str, fabric: Path, tmp_path: Path) -> None:
    ended = validate(trace, fabric, tmp_path / "clean", "--require-coverage", "nics")
    assert (ended.code, ended.left) == (0, []), ended
    assert ended.stdout.startswith("PASS 4 of 4 NICs and 8 of 8 links between switches judged: none is slower")
    shutil.rmtree(tmp_path / "clean" / "probe")
    by_default = genie("diff", str(tmp_path / "clean" / "live"), str(tmp_path / "clean" / "twin"))
    assert by_default.code == 4
    # How many NICs reach their full rate depends on the hosts' load.
    nics = r"4 of 4 NICs(?: \(\d not at full rate: a slower one may not show\))?"
    assert re.match(f"INCONCLUSIVE {nics} and 0 of 8 links between switches judged; not judged", by_default.stdout), (
        by_default
    )
    twin, expected = open_run(tmp_path / "clean" / "twin"), open_run(tmp_path / "clean" / "expected")
    assert (twin.info["follow"], expected.info["follow"], expected.info["iterations"]) == (True, False, 1)
    assert twin.paths is not None
    assert expected.paths is not None
    assert expected.paths.equals(twin.paths)
    live = open_run(tmp_path / "clean" / "live")
    assert live.info["settings"]["lab"]["faults"] == {}
    assert live.info["settings"]["offload"] is False
    assert [host["address"] for host in live.info["hosts"]] == [f"10.0.{rank}.1" for rank in range(4)]
    assert [host["port"] for host in live.info["hosts"]] == [f"host{rank}" for rank in range(4)]
    lab = json.loads((tmp_path / "clean" / "live" / "lab.json").read_text())
    assert lab["addresses"]["host3"] == ["10.0.3.1"]
    assert lab["links"]["leaf0->spine1"]["rate"] == "40Mb/s"

    slow = validate(trace, fabric, tmp_path / "clean", "--lab-fault", "host1->leaf0 rate=40%", "--source-ports", "pair")
    assert (slow.code, slow.left) == (1, []), slow
    assert "FAIL rank 1: its NIC (host1/nic0) or link (host1->leaf0)" in slow.stdout
    live = open_run(tmp_path / "clean" / "live")
    assert live.info["settings"]["lab"]["faults"] == {"host1->leaf0": "rate 8Mb/s"}
    assert live.info["rate_bps"] == 20_000_000, "the NIC does not know"


def test_a_lab_that_is_up_stays_as_it_is(trace: str, fabric: Path, tmp_path: Path) -> None:
    lab, _ = up(fabric)
    lab.set([parse_change("leaf0-spine0 loss=1%", lab.plan.links)])
    out = str(tmp_path / "run")
    ended = genie("run", trace, "--lab", str(fabric), "-o", out, "--lab-fault", "leaf0->spine0 down mtu=8000")
    assert (ended.code, ended.left) == (0, []), ended
    noted = json.loads((tmp_path / "run" / "lab.json").read_text())["faults"]
    assert noted == {"leaf0->spine0": "loss 1 %, packets above 8000 B dropped, down", "spine0->leaf0": "loss 1 %"}
    found = find(fabric)
    assert found is not None
    assert {name: fault.words() for name, fault in found.faults.items()} == {
        "leaf0->spine0": "loss 1 %",
        "spine0->leaf0": "loss 1 %",
    }
    assert found.state.pid == lab.state.pid


def test_calibration_is_without_the_faults_and_kept_with_the_lab(fabric: Path, tmp_path: Path) -> None:
    lab, _ = up(fabric)
    lab.set([parse_change("host0-leaf0 rate=10%", lab.plan.links)])
    ended = genie("calibrate", "--lab", str(fabric), "-o", str(tmp_path / "calibration"))
    assert (ended.code, ended.left) == (0, []), ended
    assert "faults are lifted during the calibration" in ended.stderr
    found = find(fabric)
    assert found is not None
    kept = found.places(4).calibration
    assert isinstance(kept, Calibration)
    assert kept.rate == "20Mb/s"
    # A tenth of the rate would be milliseconds a packet.
    assert 0 < kept.packet_latency_ns < 1_000_000
    assert found.faults == lab.faults


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_lab(number: signal.Signals, trace: str, fabric: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started("run", trace, "--lab", str(fabric), "-o", str(out), "-n", "500") as command:
        command.until(lambda: played(out, 0, 0))
        (name,) = [name for name in state.all_names() if name.startswith(state.name_of(fabric))]
        known = state.load(name)
        assert known is not None
        command.process.send_signal(number)
        ended = command.end()
    assert ended.code != 0
    assert ended.left == [] or number == signal.SIGKILL  # mpirun may take a while when nobody is there to end it
    deadline = time.monotonic() + 10
    while state.started_at(known.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not state.started_at(known.pid)
    assert name not in state.all_names()


WRONG = {
    "--lab-fault host9-leaf0": "host9-leaf0: nothing to set",
    "--lab-fault leaf0-spine0=down": "nothing to set: give rate=40%",
    "--rate 30Mb/s": "--rate 30Mb/s: the links of",
    "--hosts hosts.toml": "has its own hosts: leave --hosts out",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_options_are_said_before_anything_runs(given: str, trace: str, fabric: Path, tmp_path: Path) -> None:
    option, _, value = given.partition(" ")
    ended = genie("run", trace, "--lab", str(fabric), option, value, "-o", str(tmp_path / "run"))
    assert (ended.code, len(ended.stderr.splitlines()), ended.left) == (2, 1, [])
    assert WRONG[given] in ended.stderr
    assert not (tmp_path / "run").exists()


def test_more_ranks_than_hosts(fabric: Path, tmp_path: Path) -> None:
    six = rings(tmp_path / "six", 6)
    ended = genie("run", six, "--lab", str(fabric), "-o", str(tmp_path / "run"))
    assert ended.code == 2
    assert "6 ranks cannot be shared out among 4 hosts" in ended.stderr
