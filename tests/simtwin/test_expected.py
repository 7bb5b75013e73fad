"""`--dry-run`: the counts of the simulation, and nothing written."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import genie_core
import numpy as np
import pytest
from live_runs import in_this_process

from genie.collectives.nccl.shape import NcclShape
from genie.config.units import Duration, Rate
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.schema import Fabric, Link, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play import expected as expected_module
from simtwin.play import recorded_ranks
from simtwin.play.expected import Expected, expected_of
from simtwin.play.twin import Twin

ROOT = Path(__file__).parents[2]
FABRIC = Fabric(topology=SingleSwitch(hosts=8), link=Link(Rate(100 * 10**9), Duration(500_000)))


@pytest.fixture(autouse=True)
def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_module, "packets_per_s", lambda: 1e6)


def expected(op: Op, size_bytes: int, lowering: Lowering) -> tuple[Expected, genie_core.Simulator]:
    network = build_network(FABRIC)
    plan = build_plan(collective(op, 8, size_bytes), lowering=lowering)
    simulator = Twin(FABRIC, network, list(range(8))).simulator(plan)
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    while simulator.run(1_000_000):
        pass
    return expected_of(FABRIC, network, plan), simulator


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.BROADCAST])
@pytest.mark.parametrize("lowering", [Lowering(), Lowering(nccl=NcclShape())], ids=["plain", "nccl"])
def test_packets_are_those_that_are_played(op: Op, lowering: Lowering) -> None:
    found, simulator = expected(op, 1 << 22, lowering)
    assert found.packets == simulator.data_packets
    assert found.fastest_s == pytest.approx(0.7 * found.packets / 1e6)
    assert found.slowest_s == pytest.approx(8 * found.packets / 1e6)


def test_a_ring_has_two_queue_pairs_a_rank() -> None:
    found, _ = expected(Op.ALL_REDUCE, 1 << 20, Lowering())
    assert (found.queue_pairs, found.nodes, found.recorded_ranks) == (16, 8, 8)


def test_a_large_job_is_recorded_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build_plan(collective(Op.ALL_REDUCE, 8, 1 << 20))
    network = build_network(FABRIC)
    whole = expected_of(FABRIC, network, plan)
    monkeypatch.setattr(recorded_ranks, "RECORDED_NODES_MAX", 7)
    by_class = expected_of(FABRIC, network, plan)
    assert (whole.recorded_ranks, by_class.recorded_ranks) == (8, len(plan.classes))
    assert by_class.memory_bytes < whole.memory_bytes


def test_recorded_ranks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = collective(Op.ALL_REDUCE, 8, 64 << 20)
    twin = Twin(FABRIC, build_network(FABRIC), list(range(8)), level="packet+skip")
    whole = twin.play(workload, lowering=Lowering(nccl=NcclShape()))
    monkeypatch.setattr(recorded_ranks, "RECORDED_NODES_MAX", 7)
    part = twin.play(workload, lowering=Lowering(nccl=NcclShape()))
    assert part.recorded == [0]
    assert part.timeline.equals(whole.timeline.filter(whole.timeline["rank"] == 0))
    assert part.counters["last_end_ps"] // 1000 == whole.timeline["end_ns"].max()
    assert np.array_equal(part.counters["links"]["packets"], whole.counters["links"]["packets"])


def test_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = f"simulate {ROOT}/examples/transformer --rate 1Gb/s --dry-run -o {out}"
    ended = in_this_process(*line.split())
    assert ended.code == 0, ended
    assert not out.exists()
    lines = ended.stdout.splitlines()
    assert lines[0] == "transformer: 8 ranks on loopback8; --dry-run: nothing is simulated"
    assert re.fullmatch(
        r"an iteration: [\d,]+ nodes, [\d,]+ transfers, [\d,]+ data packets, [\d,]+ queue pairs", lines[1]
    )
    assert "level packet+skip takes less where it can skip" in lines[2]
    assert lines[3].startswith("memory: about 0.")


@pytest.mark.parametrize(
    ("level", "rest"),
    [
        ("flow", "the rest is not estimated at level flow, only at level packet; for large jobs analytic is fastest"),
        ("analytic", "the rest is not estimated at level analytic, only at level packet; for large jobs .*"),
        ("packet", r"level packet \d+ s( to \d+ s)? on one core"),
    ],
)
def test_the_set_up_is_measured(level: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.chain([0.0, 100.0], map(float, itertools.count(1000)))
    monkeypatch.setattr("genie.cli.simulate.time", SimpleNamespace(perf_counter=lambda: next(times)))
    ended = in_this_process(
        "simulate", f"{ROOT}/examples/transformer", "--rate", "1Gb/s", "--dry-run", "--level", level
    )
    assert ended.code == 0, ended
    line = next(line for line in ended.stdout.splitlines() if line.startswith("time: "))
    assert re.fullmatch(rf"time: 100 s of set-up after reading; {rest}", line), line
