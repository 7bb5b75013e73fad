"""Injected anomalies do to the wire what they say, to whom they say, when they say; dilation changes no timeline.

Limits are ratios within one run, so that a busy machine does not decide.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from live_runs import genie, loopback, rings

from genie.record import Run, open_run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Workload
from genie.workload.write import save

pytestmark = pytest.mark.exclusive

RANKS = 4
SIZE_BYTES = 262144
SENT_BYTES = 2 * (RANKS - 1) * SIZE_BYTES // RANKS  # by each rank of a ring all-reduce, to its right neighbour
RATE_BPS = 100_000_000


def played(tmp_path: Path, plan: str, *more: str, said: list[str] | None = None) -> Run:
    """A run of ring all-reduces at 100 Mb/s under a fault plan."""
    faults = tmp_path / "plan.toml"
    faults.write_text(plan)
    out = tmp_path / "out"
    trace = rings(tmp_path / "rings", RANKS, collectives=3, size_bytes=SIZE_BYTES, compute_ns=2_000_000)
    given = ("--hosts", loopback(tmp_path), "--rate", f"{RATE_BPS}b/s", "--algorithm", "all_reduce=ring")
    ended = genie("run", trace, *given, "--faults", str(faults), "-o", str(out), *more)
    assert (ended.code, ended.said) == (0, said or []), ended
    run = open_run(out)
    assert run.transfers["size_bytes"].unique().to_list() == [SENT_BYTES]
    return run


def median_by_source(run: Run, value: pl.Expr, rows: pl.Expr) -> list[float]:
    table = run.transfers.filter(rows).group_by("src").agg(value.median().alias("value")).sort("src")
    return table["value"].to_list()


def least_busy_ns(run: Run, rows: pl.Expr) -> list[float]:
    """The shortest transfer of each source: a pacer bounds it from below, and a busy machine only adds to it."""
    table = run.transfers.filter(rows).group_by("src").agg(pl.col("busy_ns").min()).sort("src")
    return table["busy_ns"].to_list()


def test_a_slow_nic_slows_its_own_rank_from_its_iteration_on(tmp_path: Path) -> None:
    run = played(tmp_path, "[[rate]]\nrank = 2\nfactor = 0.5\nfrom_iteration = 4\nuntil_iteration = 8\n", "-n", "10")
    slow = (pl.col("iteration") >= 4) & (pl.col("iteration") < 8)
    before = least_busy_ns(run, pl.col("iteration") == 3)  # the last before the fault, and the first after it
    during = least_busy_ns(run, slow)
    after = least_busy_ns(run, pl.col("iteration") == 8)
    assert 1.8 < during[2] / before[2] < 2.2
    for rank in (0, 1, 3):
        assert 0.8 < during[rank] / before[rank] < 1.25
    assert 0.8 < after[2] / before[2] < 1.25
    # Busy for as long as the bytes take at the rate, headers and acknowledgements included.
    goodput_bps = SENT_BYTES * 8 / (before[0] / 1e9)
    assert 0.85 * RATE_BPS < goodput_bps < RATE_BPS
    assert run.info["faults"]["rate"] == [
        {"rank": 2, "factor": 0.5, "from_iteration": 4, "until_iteration": 8, "from_s": 0.0, "until_s": None}
    ]


@pytest.mark.parametrize("dilation", [1, 3])
def test_a_slow_nic_within_an_iteration(dilation: int, tmp_path: Path) -> None:
    """The first all-reduce takes twice its 32 ms; the fault ends with it, whatever the dilation."""
    run = played(
        tmp_path, "[[rate]]\nrank = 1\nfactor = 0.5\nuntil_s = 0.067\n", "-n", "3", "--dilation", str(dilation)
    )
    first = least_busy_ns(run, pl.col("seq") == 0)
    third = least_busy_ns(run, pl.col("seq") == 2)
    assert 1.8 < first[1] / third[1] < 2.2
    assert 0.8 < first[3] / third[3] < 1.25


def test_lost_packets_are_sent_again(tmp_path: Path) -> None:
    run = played(tmp_path, "[[loss]]\nrank = 1\nevery = 50\n", "-n", "3")
    counters = run.counters["ranks"]
    sent = counters[1]["data_sent"]
    assert 0 < sent // 50 <= counters[1]["injected_losses"] <= sent // 50 + 1
    assert counters[1]["retransmitted"] >= counters[1]["injected_losses"]
    again = run.transfers.group_by("src").agg(pl.col("retransmits").sum()).sort("src")["retransmits"].to_list()
    assert again[1] > 0
    assert [again[rank] for rank in (0, 2, 3)] == [0, 0, 0]
    assert [each["injected_losses"] for each in counters if each is not counters[1]] == [0, 0, 0]
    assert (run.timeline["end_ns"] > 0).all()


def test_losses_on_one_path_only(tmp_path: Path) -> None:
    """Rank 1 of the ring sends data to rank 2 alone: losing what goes to rank 3 loses nothing."""
    said = ["genie: fault [[loss]] of rank 1 has no effect: it sends rank 3 no payload"]
    run = played(tmp_path, "[[loss]]\nrank = 1\npeer = 3\nevery = 2\n", "-n", "1", said=said)
    assert run.counters["ranks"][1]["injected_losses"] == 0


def test_the_slowest_nic_is_not_an_unlimited_one(tmp_path: Path) -> None:
    """A factor that leaves less than a bit per second: nothing arrives before patience ends."""
    faults = tmp_path / "plan.toml"
    faults.write_text("[[rate]]\nrank = 1\nfactor = 1e-9\n")
    trace = rings(tmp_path / "rings", 2, collectives=1, size_bytes=SIZE_BYTES, compute_ns=0)
    given = ("--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--faults", str(faults), "--stall", "1")
    ended = genie("run", trace, *given, "-o", str(tmp_path / "out"))
    assert ended.code == 1, ended
    assert "gave up sending" in ended.stderr or "nothing came for 1 s" in ended.stderr


def test_a_delayed_path_adds_its_delay(tmp_path: Path) -> None:
    run = played(tmp_path, "[[delay]]\nrank = 1\npeer = 2\ndelay_us = 3000\n", "-n", "3")
    took = median_by_source(run, pl.col("first_ns") - pl.col("post_ns"), pl.lit(True))
    usual = max(took[0], took[2], took[3])
    assert took[1] - usual == pytest.approx(3_000_000, rel=0.15)
    # A delay is no loss: where the machine stalls for as long as a timeout, single transfers are sent again.
    assert run.transfers.filter(pl.col("src") == 1)["retransmits"].median() == 0


@pytest.mark.extended
def test_dilation_gives_the_same_timeline(tmp_path: Path) -> None:
    plain, stretched = (
        played(folder, "", "-n", "4", "--warmup", "1", "--dilation", str(k))
        for k, folder in ((1, tmp_path / "plain"), (4, tmp_path / "stretched"))
        if folder.mkdir() is None
    )
    assert (plain.info["dilation"], stretched.info["dilation"]) == (1, 4)
    assert plain.info["rate_bps"] == stretched.info["rate_bps"] == RATE_BPS  # as asked for, not as divided
    spans = []
    for run in (plain, stretched):
        table = run.timeline.filter((pl.col("kind") == "coll") & (pl.col("iteration") >= 1))
        spans.append(table.select((pl.col("end_ns") - pl.col("start_ns")).median()).item())
        assert run.timeline.filter(pl.col("kind") == "comp").select(
            (pl.col("end_ns") - pl.col("start_ns")).median()
        ).item() == pytest.approx(2_000_000, rel=0.02)
    # The time that wake-ups add is divided by K with everything else: the stretched run is nearer to the wire.
    wire_ns = SENT_BYTES * 8 / RATE_BPS * 1e9
    assert wire_ns < spans[1] < 1.1 * wire_ns
    assert spans[1] == pytest.approx(spans[0], rel=0.15)


def test_sleeps_end_on_time(tmp_path: Path, record_property: pytest.FixtureRequest) -> None:
    """Compute nodes only: 50 us at the median are asked for where real-time scheduling is given and cores are free."""
    workload = Workload("sleeps", RANKS, [Group("world", tuple(range(RANKS)))], {})
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for _ in range(100):
            last = (builder.add(len(builder), "sleep", Kind.COMP, last, duration_ns=700_000 + 100_000 * rank),)
        workload.ranks[rank], _ = builder.finish()
    save(workload, tmp_path / "sleeps", "sleeps")
    out = tmp_path / "out"
    ended = genie("run", str(tmp_path / "sleeps"), "--hosts", loopback(tmp_path), "-n", "3", "-o", str(out))
    assert ended.code == 0, ended
    run = open_run(out)
    overshoot_ns = run.timeline["overshoot_ns"].median()
    assert isinstance(overshoot_ns, float)
    record_property("overshoot_median_ns", overshoot_ns)  # type: ignore[operator]
    assert run.timeline["overshoot_ns"].min() >= 0  # type: ignore[operator]
    assert overshoot_ns < (50_000 if run.info["scheduling"] == ["SCHED_FIFO"] else 1_000_000)
    # Lateness does not add up: a hundred sleeps end when their sum says.
    for rank in range(RANKS):
        ends = run.timeline.filter(pl.col("rank") == rank).group_by("iteration").agg(pl.col("end_ns").max())["end_ns"]
        assert ends.median() == pytest.approx(100 * (700_000 + 100_000 * rank), rel=0.02)
