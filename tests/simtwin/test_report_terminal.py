"""The lines that `genie simulate` prints: collectives of alike groups together, and the exposed communication."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from live_runs import in_this_process
from twin_fabrics import leaf_spine

from genie.record import open_run
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder, simulated
from simtwin.play.twin import Twin
from simtwin.report import simulation_report
from simtwin.report.collectives import LIMITED_MAX, PAGE_ROWS_MAX, CollectiveRow, _limited, groups_together, kinds_first
from simtwin.report.limits import Limit
from simtwin.report.rank_time import NETWORK, mean_iteration
from simtwin.report.terminal import ROWS_MAX, exposed_line, table_lines
from simtwin.sweep.communication import communication_of


def _row(group: str, time_ns: float = 1e6, op: str = "all_reduce", **more: object) -> CollectiveRow:
    row = CollectiveRow(op, group, 8, 1 << 20, 3, time_ns, 3 * time_ns, 1e9, 2e9, time_ns, "host0->leaf0", 0.5)
    return replace(row, **more)  # type: ignore[arg-type]


def test_rows_that_differ_in_their_group_alone_are_one() -> None:
    rows = [*(_row(f"tp{number}", 1e6 + number) for number in range(16)), _row("dp0", op="all_gather")]
    lines = table_lines(rows)
    assert len(lines) == 1 + 2
    assert lines[1].split()[:8] == ["all_reduce", "16", "groups", "8", "1", "MiB", "3", "1"]
    assert lines[2].split()[:2] == ["all_gather", "dp0"]


@pytest.mark.parametrize("other", [
    _row("b", op="all_gather"), _row("b", size_bytes=4096), _row("b", members=4), _row("b", count=4), _row("b", 1.02e6),
    _row("b", chosen="ring, ll, 1 channel"),
])  # fmt: skip
def test_rows_that_differ_in_more_stay_apart(other: CollectiveRow) -> None:
    assert len(groups_together([_row("a"), other])) == 2
    assert len(groups_together([_row("a"), replace(other, op="all_reduce"), _row("c", 1.005e6)])[0]) >= 2


def test_cells_in_which_groups_differ_say_so() -> None:
    limits = (Limit("wire", 0, 60, 0, 40), Limit("waiting", 80, 20, 0, 0))
    rows = [
        _row("a", limit=limits[0]),
        _row("b", limit=limits[1], exposed_ns=2e6, link="host4->leaf1"),
        _row("c", limit=limits[0]),
    ]
    (_, line) = table_lines(rows)
    assert "1 ms to 2 ms  differs  host0->leaf0, others" in line
    (_, line) = table_lines([rows[0], rows[2]])
    assert "1 ms     wire 60 %  host0->leaf0   50 %" in line
    (_, line) = table_lines([rows[0], replace(rows[2], limit=Limit("wire", 0, 70, 0, 30))])
    assert "  wire 60 % to 70 %  " in line
    (_, line) = table_lines([replace(row, limit=None) for row in rows])
    assert "  –  " in line


def test_rows_that_are_not_printed_are_counted_by_group() -> None:
    rows = [_row(f"g{number}", size_bytes=1 << number) for number in range(ROWS_MAX + 1)]
    rows += [_row(f"h{number}", size_bytes=1 << 30) for number in range(4)]
    lines = table_lines(rows)
    assert lines[-1] == "5 more collectives, by operation, group and size: --report shows them"
    assert len(lines) == 1 + ROWS_MAX + 1
    assert table_lines([]) == []
    many = [_row(f"g{number}", size_bytes=1 << 10) for number in range(PAGE_ROWS_MAX)] + rows
    shown = f"--report shows {PAGE_ROWS_MAX} rows, with those that differ in their group alone last"
    assert table_lines(many)[-1] == f"6 more collectives, by operation, group and size: {shown}"


def test_a_page_has_one_row_of_each_kind_first() -> None:
    rows = [_row(f"g{number}", size_bytes=1 << (20 - number // 3), link="") for number in range(7)]
    assert [row.group for row in kinds_first(groups_together(rows))] == ["g0", "g3", "g6", "g1", "g2", "g4", "g5"]
    rows[4] = replace(rows[4], link="host0->leaf0")
    assert [row.group for row in kinds_first(groups_together(rows))] == ["g0", "g4", "g6", "g1", "g2", "g3", "g5"]


def _twin(level: str = "analytic") -> Twin:
    fabric = leaf_spine(2, 2, 2)
    return Twin(fabric, build_network(fabric), range(4), level=level)


def _work(compute_ns: int) -> Workload:
    return collective(Op.ALL_REDUCE, 4, 1 << 20, count=3, compute_ns=compute_ns)


def test_exposed_communication_is_that_of_a_sweep_and_of_the_page(tmp_path: Path) -> None:
    run = simulated(_twin(), _work(50_000), workload_path="trace", iterations=2)
    found = mean_iteration(run)
    assert found.took_ns == pytest.approx(run.completion_s * 1e9)
    assert communication_of(run)["exposed_s"] == pytest.approx(found.exposed_ns / 1e9)
    assert found.exposed_ns == pytest.approx(found.took_ns - 150_000, rel=0.01), "all but three times 50 us"
    run.write(tmp_path / "run")
    line = exposed_line(open_run(tmp_path / "run"))
    network = f"{100 * found.shares[NETWORK]:.0f} %"
    assert line.startswith("Exposed communication: ")
    assert f" ({network}), mean of 4 ranks; computing " in line
    assert f'<span class="label">Waiting for the network</span><b>{network}</b>' in simulation_report(tmp_path / "run")


def test_without_compute_there_is_no_line(tmp_path: Path) -> None:
    run = simulate_to_folder(_twin(), _work(0), tmp_path / "run", workload_path="trace")
    assert exposed_line(run) == ""


def test_recorded_ranks_are_named(tmp_path: Path) -> None:
    run = simulate_to_folder(_twin(), _work(50_000), tmp_path / "run", workload_path="trace")
    recorded = {"ranks": [0, 1], "which": "first", "group_sizes": {"0": 4}}
    ranks = run.timeline["rank"].is_in([0, 1])
    few = replace(run, info=run.info | {"ranks": 1024, "recorded": recorded}, timeline=run.timeline.filter(ranks))
    line = exposed_line(few)
    assert ", mean of 2 of 1,024 ranks; computing " in line
    assert line.endswith("; waiting for ranks that are not recorded counts as communication")
    few.info["recorded"] = recorded | {"which": "last to end"}
    assert "not recorded" not in exposed_line(few)


def test_the_command_prints_the_line_and_both_times(tmp_path: Path) -> None:
    line = ("simulate", "examples/transformer", "--fabric", "hosts/fabrics/leaf-spine.toml", "--level", "analytic")
    ended = in_this_process(*line, "-o", str(tmp_path / "run"))
    first, *lines = ended.stdout.splitlines()
    played, whole = first.partition(", level analytic, ")[2].partition(" in all;")[0].split(" of simulation, ")
    assert _seconds(played) < _seconds(whole)
    assert sum(line.startswith("Exposed communication: ") for line in lines) == 1


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


def test_limits_are_looked_for_in_each_operation_and_size_first() -> None:
    table = pl.DataFrame({"op": ["all_to_all"] * 30 + ["all_reduce"], "members": 2, "size_bytes": 1024})
    assert _limited(table) == {*range(LIMITED_MAX - 1), 30}
