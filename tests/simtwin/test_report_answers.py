"""The answer of a simulation: collectives, their bandwidths and limiting links, the critical path, equal fabrics."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_runs import genie

from genie.record import Run, open_run
from genie.record.bus_bandwidth import algorithm_bytes, bus_bytes
from genie.workload.graph import Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.network import Network
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import Twin
from simtwin.report.collectives import HEADER, collective_rows, words_of
from simtwin.report.critical_path import IDLE, Segment, critical_path, in_words, slices_of
from simtwin.report.fabric_change import why_equal

FABRIC = """
name = "pair-of-leaves"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 2
[topology.spine_link]
rate = "{spine}Gb/s"
[link]
rate = "25Gb/s"
delay = "500ns"
"""


def simulated(folder: Path, workload: Workload, spine: int = 50, level: str = "packet") -> tuple[Run, Network]:
    fabric = parse_fabric(FABRIC.format(spine=spine))
    twin = Twin(fabric, build_network(fabric), range(workload.world_size), level=level)
    simulate_to_folder(twin, workload, folder, workload_path="trace")
    return open_run(folder), twin.network


def work(op: Op = Op.ALL_REDUCE, size: int = 1 << 20, count: int = 3, compute_ns: int = 50_000) -> Workload:
    return collective(op, 4, size, count=count, compute_ns=compute_ns)


def test_bandwidths_are_those_of_nccl_tests(tmp_path: Path) -> None:
    for op, algorithm, bus in (
        (Op.ALL_REDUCE, 1.0, 1.5),
        (Op.ALL_GATHER, 4.0, 3.0),
        (Op.REDUCE_SCATTER, 1.0, 0.75),
        (Op.ALL_TO_ALL, 1.0, 0.75),
    ):
        run, network = simulated(tmp_path / op.name, work(op))
        (row,) = collective_rows(run, network)
        assert (row.op, row.members, row.size_bytes, row.count) == (op.name.lower(), 4, 1 << 20, 3)
        assert row.algorithm_bytes_per_s == pytest.approx(algorithm * (1 << 20) / row.time_ns * 1e9)
        assert row.bus_bytes_per_s == pytest.approx(bus * (1 << 20) / row.time_ns * 1e9)
    assert algorithm_bytes("gather", 10, 4) == 40
    assert bus_bytes("broadcast", 10, 4) == 10


def test_a_collective_of_uneven_splits_is_one_row(tmp_path: Path) -> None:
    """Its size is the most bytes that a member sends, and no link is busy for longer than it takes."""
    workload = collective(Op.ALL_TO_ALL, 4, 4 << 20, count=2, compute_ns=50_000)
    for rank, graph in workload.ranks.items():
        sent, received = np.full(4, rank + 1 << 18), np.arange(1, 5) << 18
        for row in range(len(graph)):
            if graph.kind[row] == Kind.COLL:
                graph.splits[row] = (sent, received)
                graph.size_bytes[row] = sent.sum()
    times = []
    for level in ("packet", "flow", "analytic"):
        run, network = simulated(tmp_path / level, workload, level=level)
        (row,) = collective_rows(run, network)
        assert (row.members, row.size_bytes, row.count) == (4, 4 << 20, 2)
        assert row.link_share <= 1
        times.append(row.time_ns)
    least_ns = (3 << 20) * 8 / 25  # the last rank's bytes for the others
    assert min(times) >= least_ns
    assert max(times) < 1.4 * least_ns  # with headers, and hashed paths that meet


def test_the_limiting_link_is_that_of_most_time_and_no_faster_than_its_rate(tmp_path: Path) -> None:
    run, network = simulated(tmp_path / "hosts", work())
    (row,) = collective_rows(run, network)
    assert row.link.startswith("host") or row.link.endswith(("host0", "host1", "host2", "host3"))
    assert 0.5 < row.link_share <= 1
    run, network = simulated(tmp_path / "spines", work(Op.ALL_TO_ALL), spine=5)
    (slow,) = collective_rows(run, network)
    assert "spine" in slow.link
    assert slow.link_share > row.link_share / 2
    assert words_of(slow)[HEADER.index("limiting link")] == slow.link
    run, network = simulated(tmp_path / "formula", work(), level="analytic")
    (unknown,) = collective_rows(run, network)
    assert (unknown.link, words_of(unknown)[-1]) == ("", "–")


def test_exposed_time_is_what_no_computation_covers(tmp_path: Path) -> None:
    run, network = simulated(tmp_path / "run", work(count=1))
    (alone,) = collective_rows(run, network)
    assert alone.exposed_ns == pytest.approx(alone.time_ns, rel=0.05)
    collectives = run.timeline.filter(pl.col("kind") == "coll")
    start, end = collectives.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    beside = run.timeline.filter(pl.col("kind") == "comp").with_columns(
        start_ns=pl.lit(start, pl.Int64), end_ns=pl.lit((start + end) // 2, pl.Int64), node_id=pl.lit(99, pl.UInt64)
    )
    # Two streams compute the same half: it is covered once.
    run.timeline = pl.concat([run.timeline, beside, beside])
    (half,) = collective_rows(run, network)
    assert half.exposed_ns == pytest.approx(alone.exposed_ns / 2, rel=0.1)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.sampled_from([Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.BROADCAST]), st.integers(1, 4), st.integers(0, 300_000),
    st.integers(10, 20), st.sampled_from(["packet", "flow", "analytic"]),
)  # fmt: skip
def test_a_critical_path_is_whole(
    tmp_path_factory: pytest.TempPathFactory, op: Op, count: int, compute_ns: int, bits: int, level: str
) -> None:
    run, _ = simulated(tmp_path_factory.mktemp("path") / "run", work(op, 1 << bits, count, compute_ns), level=level)
    path = critical_path(run, 0)
    assert path[0].start_ns == 0
    assert path[-1].end_ns == run.timeline["end_ns"].max()
    assert all(one.end_ns == other.start_ns for one, other in pairwise(path))
    assert all(each.end_ns > each.start_ns for each in path)
    assert sum(each.kind == "coll" for each in path) == count


def test_a_late_rank_is_on_the_critical_path(tmp_path: Path) -> None:
    run, _ = simulated(tmp_path / "run", work(count=1))
    shift = 10_000_000
    late = (pl.col("rank") == 2).cast(pl.Int64) * shift
    is_comp = pl.col("kind") == "comp"
    run.timeline = run.timeline.with_columns(
        start_ns=pl.col("start_ns") + pl.when(is_comp).then(0).otherwise(late),
        end_ns=pl.col("end_ns") + pl.when(is_comp).then(late).otherwise(shift),
    )
    path = critical_path(run, 0)
    assert [(each.rank, each.kind) for each in path if each.kind == "comp"] == [(2, "comp")]
    words = in_words(path, 0)
    assert words.startswith("Critical path of iteration 0, 10.")
    assert " computing, " in words
    assert "in 1 collective (all_reduce " in words


def test_a_message_leads_back_to_its_sender() -> None:
    columns = ("rank", "kind", "start_ns", "end_ns", "name", "op", "group", "seq", "iteration")
    rows = [
        (0, "comp", 0, 50, "forward", None, None, None, 0),
        (0, "send", 50, 60, "send", None, None, None, 0),
        (1, "recv", 5, 90, "recv", None, None, None, 0),
        (1, "comp", 95, 120, "backward", None, None, None, 0),
    ]
    timeline = pl.DataFrame(rows, schema=list(columns), orient="row")
    none = pl.Series([None], dtype=pl.Int32)
    transfers = pl.DataFrame({"iteration": [0], "src": [0], "dst": [1], "seq": none, "post_ns": [50], "last_ns": [88]})
    run = Run(Path(), {}, timeline, transfers, {})
    path = critical_path(run, 0)
    assert [(each.rank, each.kind, each.start_ns, each.end_ns) for each in path] == [
        (0, "comp", 0, 50), (1, "recv", 50, 90), (1, IDLE, 90, 95), (1, "comp", 95, 120),
    ]  # fmt: skip
    assert in_words(path, 0) == "Critical path of iteration 0, 120 ns: 75 ns computing, 40 ns in 1 message, 5 ns idle"
    assert critical_path(run, 7) == []
    assert in_words([], 0) == ""


def test_slices_leave_out_what_is_too_short_to_draw() -> None:
    path = [Segment(0, "comp", 0, 100), Segment(0, "coll", 100, 101, op="all_reduce"), Segment(1, IDLE, 101, 500)]
    assert slices_of(path, 8, 2) == [[0, 8, "comp", 0, 100, 0, "rank 0: comp", ""]]


def test_fabrics_of_equal_time_are_explained(tmp_path: Path) -> None:
    fast, faster, slow = (tmp_path / str(spine) for spine in (50, 100, 5))
    for folder in (fast, faster, slow):
        simulated(folder, work(), spine=int(folder.name))
    same = genie("compare", str(fast), str(faster))
    assert same.code == 0
    assert "8 links of the two fabrics differ; the busiest of them, " in same.stdout
    assert "no collective is limited by one of them: host" in same.stdout
    assert "links of the two fabrics" not in genie("compare", str(fast), str(slow)).stdout, "they are not equal"
    assert why_equal(fast, fast) == ""
    inside = collective(Op.ALL_REDUCE, 2, 1 << 16, count=1)
    for folder in (fast, faster):
        simulated(folder / "inside", inside, spine=int(folder.name))
    assert why_equal(fast / "inside", faster / "inside") == (
        "8 links of the two fabrics differ, and carried nothing in either run"
    )


def test_two_fabrics_that_differ_beside_their_links_say_in_what(tmp_path: Path) -> None:
    simulated(tmp_path / "one", work())
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "one").iterdir():
        (tmp_path / "other" / path.name).write_bytes(path.read_bytes())
    described = tmp_path / "other" / "fabric.toml"
    described.write_text(described.read_text() + '\n[ecn]\nminimum = "100KiB"\nmaximum = "400KiB"\n')
    said = "the links of the two fabrics are the same, and what differs in [ecn] did not matter here"
    assert why_equal(tmp_path / "one", tmp_path / "other") == said


def test_level_analytic_says_nothing_of_single_links(tmp_path: Path) -> None:
    for spine in (50, 100):
        simulated(tmp_path / str(spine), work(), spine=spine, level="analytic")
    said = "8 links of the two fabrics differ; level analytic does not know what each of them carried"
    assert why_equal(tmp_path / "50", tmp_path / "100") == said


def test_the_command_prints_the_answer(tmp_path: Path) -> None:
    line = ("simulate", "examples/transformer", "--fabric", "hosts/fabrics/leaf-spine.toml", "--level", "flow")
    lines = genie(*line, "-o", str(tmp_path / "run")).stdout.splitlines()
    assert lines[1].split()[:3] == ["collective", "group", "ranks"]
    assert any(line.startswith("Critical path of iteration 0, ") for line in lines)
    assert lines[-1] == "level flow leaves out packets: queues, drops, marks, pauses and congestion control"
    quiet = genie("-q", *line, "-o", str(tmp_path / "quiet"))
    assert len(quiet.stdout.splitlines()) == 1
