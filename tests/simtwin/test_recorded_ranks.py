"""Level `analytic` of large workloads: what the record of a few ranks holds is what the record of all would."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from live_runs import in_this_process, rings
from twin_fabrics import leaf_spine

from genie.compute.operators import Timed
from genie.generate.degrees import Degrees
from genie.generate.shipped import find_model
from genie.generate.step import Step
from genie.generate.training import Training
from genie.plan.build import build_plan
from genie.record import Run
from genie.record.played import iteration_ends
from genie.workload.build import RankBuilder
from genie.workload.graph import Kind, Workload
from simtwin.fabric.topology import build_network
from simtwin.play import recorded_ranks as ranks_module
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import SimulationError, Twin
from simtwin.report.collectives import collective_rows
from simtwin.report.critical_path import critical_path
from simtwin.report.limits import no_limits
from simtwin.report.rank_time import rank_time, recorded_ranks
from simtwin.report.write import simulation_report

FABRIC = leaf_spine(4, 2, 4)


@pytest.fixture(scope="module")
def job() -> Workload:
    """16 ranks of 4 pipeline stages, unequal by their layers."""
    training = Training(find_model("qwen3-0.6b"), Degrees(16, tensor=2, pipeline=4), sequence=512, micro_batches=8)
    return Step(training, lambda operator: Timed(1000 + operator.flops // 10**6, "drawn")).workload("job")


def _played(job: Workload, folder: Path) -> Run:
    twin = Twin(FABRIC, build_network(FABRIC), list(range(16)), level="analytic")
    return simulate_to_folder(twin, job, folder, workload_path="job")


@pytest.fixture(scope="module")
def runs(job: Workload, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The record of all ranks, and of one rank a class."""
    folder = tmp_path_factory.mktemp("recorded")
    whole = _played(job, folder / "all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "RECORDED_NODES_MAX", 100)
        return whole, _played(job, folder / "few")


def test_many_transfers_are_recorded_for_one_rank_a_class_too(
    job: Workload, runs: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number that the plan gives is that of the table's rows of collectives."""
    transfers = build_plan(job).transfers
    assert transfers == runs[0].transfers["group"].is_not_null().sum()
    for limit, recorded in ((transfers, None), (transfers - 1, 4)):
        monkeypatch.setattr(ranks_module, "RECORDED_TRANSFERS_MAX", limit)
        run = _played(job, tmp_path / str(limit))
        assert (run.info["recorded"] and len(run.info["recorded"]["ranks"])) == recorded


def test_one_rank_a_class_is_recorded_with_the_last_of_all(runs: tuple[Run, Run]) -> None:
    whole, few = runs
    ranks = few.info["recorded"]["ranks"]
    assert whole.info["recorded"] is None
    assert len(ranks) == recorded_ranks(few) == 4
    assert [rank // 4 for rank in ranks] == [0, 1, 2, 3], "one of each pipeline stage"
    assert whole.timeline["end_ns"].max() == few.timeline["end_ns"].max()
    assert any("the timeline holds 4 of 16 ranks" in line for line in few.info["warnings"])


def test_the_rows_of_recorded_ranks_are_those_of_the_record_of_all(runs: tuple[Run, Run]) -> None:
    whole, few = runs
    ranks = few.info["recorded"]["ranks"]
    assert few.timeline.equals(whole.timeline.filter(pl.col("rank").is_in(ranks)))
    sent = whole.transfers.filter(pl.col("src").is_in(ranks))
    assert few.transfers.drop("first_ns", "last_ns").equals(sent.drop("first_ns", "last_ns"))


def test_times_of_collectives_and_of_ranks_are_those_of_the_record_of_all(runs: tuple[Run, Run]) -> None:
    whole, few = runs
    network = build_network(FABRIC)
    of_all = {(row.op, row.group, row.size_bytes): row for row in collective_rows(whole, network)}
    rows = collective_rows(few, network)
    assert rows
    for row in rows:
        same = of_all[row.op, row.group, row.size_bytes]
        assert (row.members, row.time_ns) == (same.members, same.time_ns)
        assert row.bus_bytes_per_s == same.bus_bytes_per_s
    collectives = pl.col("kind") == "coll"
    for each in runs:  # the states of a rank that only computes and takes part in collectives
        each.timeline = each.timeline.filter(collectives | (pl.col("kind") == "comp"))
    first, second = rank_time(whole), rank_time(few)
    for rank in few.info["recorded"]["ranks"]:
        spans = [
            list(zip(it.start_ns[it.rank == rank], it.end_ns[it.rank == rank], it.state[it.rank == rank], strict=True))
            for it in (first, second)
        ]
        assert spans[0]
        assert _state_times(spans[0]) == _state_times(spans[1])


def _state_times(spans: list[tuple[int, int, int]]) -> dict[int, int]:
    took: dict[int, int] = {}
    for start, end, state in spans:
        took[int(state)] = took.get(int(state), 0) + int(end - start)
    return took


def test_there_is_no_critical_path_of_some_ranks(runs: tuple[Run, Run]) -> None:
    whole, few = runs
    assert critical_path(whole, 0)
    assert critical_path(few, 0) == []
    page = simulation_report(few.path)
    assert "The last row is the critical path" not in page
    assert '"has_path":false' in page.replace(" ", "")
    assert re.search(r"<p[^>]*>The timeline holds 4 of 16 ranks, of each class the last to end\. Nodes ", page)
    whole_page = simulation_report(whole.path)
    assert "The last row is the critical path" in whole_page
    assert '"has_path":true' in whole_page.replace(" ", "")


def test_the_table_of_some_ranks_says_why_it_has_no_limits(
    job: Workload, runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, few = runs
    why = (
        "imits are not known: the tables hold 4 of 16 ranks, because the job has more than 8 million nodes or "
        "4 million transfers; for limits, simulate fewer layers and micro-batches, such as of genie generate MODEL "
        "--layers 16 --micro-batches 16"
    )
    assert no_limits(whole) == ""
    assert no_limits(few) == f"l{why}"
    options = re.findall(r"--[a-z-]+", why)
    assert options
    assert all(option in in_this_process("generate", "--help").stdout for option in options)
    assert f"L{why}." in simulation_report(few.path)
    assert why not in simulation_report(whole.path)
    out, line = tmp_path / "run", ("simulate", rings(tmp_path), "--rate", "1Gb/s", "--level", "analytic")
    assert "limits are not known" not in in_this_process(*line, "-o", str(out)).stdout
    monkeypatch.setattr(ranks_module, "RECORDED_NODES_MAX", 1)
    assert "\nlimits are not known: the tables hold 1 of " in in_this_process(*line, "-o", str(out)).stdout


def test_other_runs_without_limits_say_why(runs: tuple[Run, Run]) -> None:
    whole, _ = runs
    stopped, astra = (replace(whole, info=whole.info | more) for more in ({"complete": False}, {"model": "astra-sim"}))
    assert no_limits(stopped) == "limits are not known: the simulation stopped early"
    assert no_limits(astra).startswith("limits are not known: ASTRA-sim")


def test_iterations_end_alike(runs: tuple[Run, Run]) -> None:
    whole, few = runs
    assert iteration_ends(whole) == iteration_ends(few)


def test_a_deadlock_is_reported_with_few_ranks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_module, "RECORDED_NODES_MAX", 0)
    graphs = {}
    for rank in (0, 1):
        builder = RankBuilder(rank)
        builder.add(0, "never sent", Kind.RECV, size_bytes=1, peer=1 - rank)
        graphs[rank], _ = builder.finish()
    twin = Twin(FABRIC, build_network(FABRIC), [0, 1], level="analytic")
    with pytest.raises(SimulationError, match="receive of 1 bytes from rank 1"):
        twin.play(Workload("both wait", 2, [], graphs))
