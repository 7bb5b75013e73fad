"""Collectives that are measured in a lab, beside the twin or in the twin alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from lab_fabrics import leaf_spine, written
from live_runs import genie, in_this_process

from genie.cli.bench.worlds import LiveWorld, TwinWorld
from genie.config.hosts import Calibration
from genie.job import site as labs
from genie.lab import down, find, state, up

pytestmark = [pytest.mark.exclusive, pytest.mark.extended]

SMALL = ("-b", "16K", "-e", "64K", "-f", "4", "-n", "5", "-w", "2")


@pytest.fixture
def fabric(as_root: None, tmp_path: Path) -> Iterator[Path]:
    path = written(tmp_path, leaf_spine())
    yield path
    left = [name for name in state.all_names() if name.startswith(state.name_of(path))]
    for name in left:
        down(name)
    assert [name for name in left if "-run-" in name] == []


def test_the_twin_of_a_lab_of_its_own_has_hosts_that_cost_what_they_cost(fabric: Path, tmp_path: Path) -> None:
    """Another program on the processor makes a few collectives slower: one of three runs is undisturbed."""
    path = tmp_path / "report.json"
    ratios = []
    for _ in range(3):
        ended = genie("bench", "all_reduce", "--lab", str(fabric), "--compare", *SMALL, "-J", str(path))
        assert (ended.code, ended.left) == (0, []), ended
        assert "genie: no calibrated host latency given: measuring it first" in ended.said
        report = json.loads(path.read_text())["genie"]
        (latency_ns,) = set(report["twin"]["packet_latency_ns"])
        assert latency_ns > 0
        assert f"# Hosts cost {latency_ns / 1000:.1f} us a packet, as calibrated" in ended.stdout
        ratios.append([each["bus_bw_ratio"] for each in report["compared"]])
        if ratios[-1] == pytest.approx([1, 1], abs=0.15):
            return
    pytest.fail(f"bus bandwidths over the twin's: {ratios}")


def test_only_what_is_measured_has_the_labs_faults(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up(fabric)
    seen: dict[str, set[str]] = {}
    for world in (LiveWorld, TwinWorld):

        def play(self: Any, *given: Any, played: Any = world.play) -> Any:
            lab = find(fabric)
            assert lab is not None
            seen.setdefault(type(self).__name__, set()).update(fault.words() for fault in lab.faults.values())
            return played(self, *given)

        monkeypatch.setattr(world, "play", play)
    slow = ("--lab-fault", "host0->leaf0 rate=40%")
    ended = in_this_process("bench", "all_reduce", "--lab", str(fabric), "--compare", *SMALL, *slow)
    assert ended.code == 0, ended.stderr
    assert seen == {"LiveWorld": {"rate 8Mb/s"}, "TwinWorld": set()}
    lab = find(fabric)
    assert lab is not None
    kept = lab.state.calibration
    assert isinstance(kept, Calibration), "later runs need not measure it"
    again = in_this_process("bench", "all_reduce", "--lab", str(fabric), "--simulate", *SMALL)
    assert (again.code, again.stderr) == (0, "")
    assert f"# Hosts cost {kept.packet_latency_ns / 1000:.1f} us a packet" in again.stdout


@pytest.mark.parametrize("bench", ["all_reduce", "pairs"])
def test_the_twin_alone_needs_no_lab(bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, leaf_spine())
    monkeypatch.setattr(labs, "up_for", lambda _: nullcontext(pytest.fail("a lab was built")))
    sizes = SMALL if bench == "all_reduce" else ("-s", "16K")
    ended = in_this_process("bench", bench, "--simulate", "--lab", str(path), *sizes)
    assert ended.code == 0, ended.stderr
    assert f"fabric small ({path})" in ended.stdout
    hint = f"the twin's hosts cost nothing (genie lab up {path}, then genie calibrate --lab {path})"
    assert ended.stderr == f"genie: no calibrated host latency given: {hint}\n"


WRONG = {
    "--simulate --lab-fault x": "--lab-fault: has no effect with --simulate, which starts no ranks: leave it out",
    "--simulate --hosts hosts.toml": "has its own hosts: leave --hosts out",
    "--transport verbs": "--lab: namespaces have no RDMA devices: leave --transport verbs out",
}


@pytest.mark.parametrize("bench", ["all_reduce", "pairs"])
@pytest.mark.parametrize("given", WRONG)
def test_wrong_options_are_said_before_anything_runs(bench: str, given: str, tmp_path: Path) -> None:
    path = written(tmp_path, leaf_spine())
    ended = in_this_process("bench", bench, "--lab", str(path), *given.split())
    assert (ended.code, len(ended.stderr.splitlines()), ended.stdout) == (2, 1, "")
    assert WRONG[given] in ended.stderr
