"""The page of a simulation that stopped early: nothing of it counts as ended that had not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from twin_fabrics import leaf_spine

from genie.record import open_run
from genie.record.played import iteration_ends
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.topology import build_network
from simtwin.play import watching
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import Twin
from simtwin.play.watching import Watch
from simtwin.report import simulation_report
from simtwin.report.collectives import collective_rows
from simtwin.report.loads import link_loads


def _at(calls: int) -> Watch:
    """Return a watch that stops at the call of this number."""
    left = iter(range(calls))
    return Watch(stop=lambda: None if next(left, None) is not None else "told to")


def _stopped(folder: Path, level: str, watch: Watch, iterations: int = 1) -> Path:
    fabric = leaf_spine(2, 2, 2)
    twin = Twin(fabric, build_network(fabric), range(4), level=level)
    workload = collective(Op.ALL_REDUCE, 4, 1 << 20, count=3, compute_ns=50_000)
    simulate_to_folder(twin, workload, folder, workload_path="jobs/rings", watch=watch, iterations=iterations)
    return folder


def _columns(page: str, name: str) -> list[str]:
    """Return a column of the page's first table of collectives, as text."""
    table = page[page.index('id="collectives"') :].partition("</table>")[0]
    header, *rows = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr")[1:])
    at = [re.sub("<[^>]*>", "", cell) for cell in header].index(name)
    return [re.sub("<[^>]*>", "", row[at]) for row in rows]


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_links_are_busy_for_no_more_than_the_time(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of many stops: a collective that was cut off has all of its bytes, and a part of its time."""
    monkeypatch.setattr(watching, "EVENTS_PER_CALL", 10)
    cut = counts = 0
    for calls in range(1, 12):
        stops = Watch(stop_after_ps=calls * 30_000_000) if level == "packet" else _at(calls)
        folder = _stopped(tmp_path / str(calls), level, stops)
        run, page = open_run(folder), simulation_report(folder)
        if run.info["complete"]:
            break
        in_progress = set(run.timeline.filter((run.timeline["kind"] == "coll") & (run.timeline["end_ns"] < 0))["seq"])
        cut += bool(in_progress)
        network = build_network(leaf_spine(2, 2, 2))
        assert link_loads(run, network)["mean"].max() <= 1  # type: ignore[operator]
        rows = collective_rows(run, network)
        ended = set(run.timeline.filter(run.timeline["kind"] == "coll")["seq"]) - in_progress
        assert sum(row.count for row in rows) == len(ended)
        assert all(row.link_share <= 1 for row in rows), rows
        counts += bool(rows)
        if rows:
            assert all(float(busy.removesuffix("%").strip()) <= 100 for busy in _columns(page, "busy"))
            assert "Collectives that were in progress at the stop are left out." in page
        else:
            assert "No collective had ended at the stop." in page
    assert cut > 2
    assert counts > 2


def test_an_iteration_that_was_cut_off_has_no_duration_and_no_critical_path(tmp_path: Path) -> None:
    page = simulation_report(_stopped(tmp_path / "run", "packet", Watch(stop_after_ps=150_000_000)))
    assert '<span class="label">Stopped after</span><b>150 µs</b><span>in iteration 0; 4 ranks</span>' in page
    assert "An iteration" not in page
    assert "The iteration that was cut off has no critical path." in page
    assert "Critical path of" not in page
    assert '"has_path":false' in page.replace(" ", "")


def test_whole_iterations_before_the_stop_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVENTS_PER_CALL", 10)
    calls = [0]

    def stop() -> str | None:
        calls[0] += 1
        return "told to" if calls[0] > until else None

    until = 10**6
    _stopped(tmp_path / "whole", "flow", Watch(stop=stop))
    until, calls[0] = calls[0] + 3, 0
    folder = _stopped(tmp_path / "run", "flow", Watch(stop=stop), iterations=3)
    run, page = open_run(folder), simulation_report(folder)
    assert run.info["stopped_iteration"] == 1
    assert len(iteration_ends(run)) == 2
    assert re.search(r"<span>in iteration 1, after 1 whole iteration of [^;]*; 4 ranks</span>", page)
    assert "Critical path of iteration 0, " in page
