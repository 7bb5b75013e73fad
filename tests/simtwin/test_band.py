"""The band: an iteration at shorter and longer compute times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_runs import in_this_process, rings
from twin_fabrics import leaf_spine, twin_of

from genie.compute.operators import Timed
from genie.generate.degrees import Degrees
from genie.generate.shipped import find_model
from genie.generate.step import Step
from genie.generate.training import Training
from genie.record import open_run
from genie.workload.classes import RankViews
from genie.workload.graph import Kind, Op, RankGraph
from genie.workload.synthetic import collective
from simtwin.play.band import BAND, has_compute, with_compute_times
from simtwin.play.run import simulated
from simtwin.play.watching import Watch
from simtwin.report import simulation_report

COLLECTIVES, COMPUTE_NS = 4, 1_000_001


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("band")
    trace = rings(folder / "trace", 4, collectives=COLLECTIVES, compute_ns=COMPUTE_NS)
    ended = in_this_process("simulate", trace, "--rate", "100Gb/s", "--band", "-n", "2", "-o", str(folder / "run"))
    assert ended.code == 0, ended
    own_ms, low_ms, high_ms = (f"{end_ns / 1e6:.3f} ms" for end_ns in ends(folder / "run"))
    words = f"{own_ms} an iteration ({low_ms} at compute times x 0.85, {high_ms} at x 1.15)"
    assert words in " ".join(ended.stdout.split())
    return folder / "run"


def ends(folder: Path) -> list[int]:
    """The longest iteration at 1, 0.85 and 1.15 times the compute times."""
    found = open_run(folder)
    return [found.timeline["end_ns"].max(), *(max(play["ends_ns"]) for play in found.info["band"])]  # type: ignore[list-item]


def test_compute_is_scaled_and_communication_is_not(run: Path) -> None:
    """All ranks compute, then reduce: an iteration is the sum of both."""
    own, low, high = ends(run)
    compute = [round(COMPUTE_NS * factor) * COLLECTIVES for factor in (1, *BAND)]
    assert own - compute[0] == low - compute[1] == high - compute[2] > 0


def test_the_record_has_each_iteration_and_the_page_the_band(run: Path) -> None:
    found = open_run(run)
    assert [play["compute_scale"] for play in found.info["band"]] == list(BAND)
    assert [len(play["ends_ns"]) for play in found.info["band"]] == [2, 2]
    own, low, high = (f"{end_ns / 1e6:.3g} ms" for end_ns in ends(run))
    page = simulation_report(run)
    assert page.count(f"{low} at compute times x 0.85, {high} at x 1.15") >= 2  # heading and tile
    assert f"{own} an iteration ({low}" in page


def test_classes_stay_classes_and_only_durations_change() -> None:
    job = Training(replace(find_model("llama3-8b"), layers=2), Degrees(8, tensor=2, pipeline=2), 512, micro_batches=2)
    workload = Step(job, lambda _: Timed(1000, "drawn")).workload("job")
    scaled = with_compute_times(workload, 0.85)
    assert isinstance(scaled.ranks, RankViews)
    for rank in (0, 7):
        one, other = workload.ranks[rank], scaled.ranks[rank]
        computes = one.kind == Kind.COMP
        assert (other.duration_ns[computes] == 850).all()
        assert np.array_equal(other.duration_ns[~computes], one.duration_ns[~computes])
        for column in RankGraph.__dataclass_fields__:
            if column not in ("duration_ns", "group", "peer", "rank"):
                assert getattr(one, column) is getattr(other, column), column


def test_a_workload_without_compute_is_told(tmp_path: Path) -> None:
    assert not has_compute(collective(Op.ALL_REDUCE, 2, 1024))
    trace = rings(tmp_path / "trace", 2, compute_ns=0)
    ended = in_this_process("simulate", trace, "--rate", "100Gb/s", "--band", "-o", str(tmp_path / "run"))
    assert "--band: the workload has no compute times" in ended.stderr


@pytest.mark.parametrize("other", [("--stop-after", "1ms"), ("--follow", "runs/live")])
def test_fixed_times_are_refused(tmp_path: Path, other: tuple[str, str]) -> None:
    ended = in_this_process("simulate", "t", "--rate", "1Gb/s", "--band", *other, "-o", str(tmp_path / "run"))
    assert ended.code == 2
    assert f"--band: {other[0]} fixes times" in ended.stderr


def test_a_stop_during_the_band_keeps_the_run_without_one() -> None:
    twin = twin_of(leaf_spine(2, 1, 2))
    told: list[str] = []
    watch = Watch(stop=lambda: "enough" if told else None, begins=told.append)
    workload = collective(Op.ALL_REDUCE, 4, 1 << 20, count=4, compute_ns=1000)
    found = simulated(twin, workload, workload_path="rings", band=True, watch=watch)
    assert told == ["compute times x 0.85: "]
    assert found.info["complete"]
    assert found.info["band"] is None
    assert found.timeline["end_ns"].min() > 0  # type: ignore[operator]
