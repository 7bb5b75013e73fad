"""Series: exact at every instant, the same for any number of threads, and without a trace in the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from twin_fabrics import GBPS, NS, US, crowded, incast, leaf_spine, single_switch, twin_of, wire_bytes

from genie.config.congestion import Dcqcn, Swift, Window
from genie.config.units import Duration, Rate
from genie.record import open_run
from genie.record.schemas import SERIES_SCHEMA
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import chain, collective, point_to_point
from simtwin.fabric.schema import Fabric, FatTree, Fault, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play import series as series_module
from simtwin.play.run import simulate_to_folder
from simtwin.play.series import Series
from simtwin.play.twin import Simulation, SimulationError, Twin
from simtwin.play.watching import Watch

KIB, MIB = 1 << 10, 1 << 20
IN_LINKS = [
    name for name, kind in SERIES_SCHEMA.items() if name not in ("iteration", "time_ns", "kind", "name", "rate_bps")
]


def played(
    built: Fabric, workload: Workload, interval_ps: int, *, threads: int = 1, stop_after_ps: int | None = None,
    iterations: Sequence[int] = (0,),
) -> tuple[pl.DataFrame, Simulation, Twin]:  # fmt: skip
    network = build_network(built)
    twin = Twin(built, network, range(workload.world_size), threads=threads)
    series = Series(interval_ps, network.link_names)
    result = twin.play(workload, watch=Watch(series=series, stop_after_ps=stop_after_ps), iterations=iterations)
    return series.table(), result, twin


def of(table: pl.DataFrame, name: str) -> pl.DataFrame:
    return table.filter(pl.col("name") == name)


# Content of rows


def test_a_link_that_sends_without_a_pause() -> None:
    """One message at 100 Gb/s: 12.5 bytes a nanosecond, wherever packets begin and end."""
    table, result, _ = played(single_switch(2), point_to_point(0, 1, MIB), US)
    assert dict(table.schema) == SERIES_SCHEMA
    link = of(table, "host0->switch")
    sent = sum(wire_bytes(MIB))
    assert link["sent_bytes"].sum() == sent
    whole = link.filter(pl.col("time_ns") * 12.5 <= sent)
    assert whole["time_ns"].to_list() == [1000 * (at + 1) for at in range(int(sent / 12_500))]
    assert (whole["sent_bytes"] - 12_500).abs().max() <= 1
    assert (whole["utilisation"] - 1).abs().max() < 1e-4
    rest = link.row(len(whole), named=True)
    assert rest["sent_bytes"] == pytest.approx(sent - 12_500 * len(whole), abs=1)
    assert rest["utilisation"] == pytest.approx(rest["sent_bytes"] / 12_500)
    assert link.height == len(whole) + 1, "an interval in which nothing happened has a row"
    assert (
        link.select("queue_bytes", "longest_queue_bytes", "marked", "pauses", "paused_ns", "dropped").sum().row(0)
        == (0,) * 6
    )
    pair = of(table, "rank0->rank1")
    assert set(pair["rate_bps"]) == {100 * GBPS}
    assert pair["time_ns"].to_list() == [1000 * (at + 1) for at in range(pair.height)]
    assert 0 <= result.transfers["acked_ns"].item() - pair["time_ns"].max() < 1000
    assert table.filter(kind="pair").select(IN_LINKS).null_count().row(0) == (pair.height,) * len(IN_LINKS)
    assert table.filter(kind="link")["rate_bps"].null_count() == table.filter(kind="link").height


def test_a_queue_as_it_grows_and_empties() -> None:
    """Four ports into one of the same rate: it grows by three times the rate, and empties at the rate."""
    table, result, twin = played(single_switch(5), incast(4, 256 * KIB), US // 2)
    link = of(table, "switch->host4")
    begins_ns = 500 + 342  # of the cable, and the first packet
    ends_ns = sum(wire_bytes(256 * KIB)) / 12.5 + 500
    growing = link.filter(pl.col("time_ns").is_between(begins_ns + 500, ends_ns))
    expected = 3 * 12.5 * (pl.col("time_ns") - begins_ns)
    assert growing.select((pl.col("queue_bytes") - expected).abs().max()).item() <= 4 * 4200
    assert growing.height >= 30
    emptying = link.filter(pl.col("time_ns") > ends_ns + 500)
    assert emptying["queue_bytes"].is_sorted(descending=True)
    assert (emptying["longest_queue_bytes"] >= emptying["queue_bytes"]).all()
    at = twin.network.link_names.index("switch->host4")
    assert link["longest_queue_bytes"].max() == result.counters["links"]["longest_queue_bytes"][at]
    assert result.counters["links"]["queue_bytes"][at] == 0


CASES: dict[str, tuple[Fabric, Workload]] = {
    "incast that pauses": (crowded(SingleSwitch(hosts=9)), incast(8, 256 * KIB)),
    "all-to-all on a fat tree": (crowded(FatTree(k=4)), collective(Op.ALL_TO_ALL, 16, 512 * KIB)),
    "links without a delay": (crowded(SingleSwitch(hosts=9), delay_ps=0), incast(8, 64 * KIB)),
    "drops": (single_switch(5, buffer_bytes=64 * KIB), incast(4, 256 * KIB)),
    "compute between": (leaf_spine(2, 2, 2), chain(20, ranks=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_add_up_and_change_nothing(case: str) -> None:
    built, workload = CASES[case]
    plain = twin_of(built, workload.world_size).play(workload)
    table, result, twin = played(built, workload, 7 * US + 300 * NS)
    assert result.timeline.equals(plain.timeline)
    assert result.transfers.equals(plain.transfers)
    timeless = {"wall_s": 0}
    assert result.counters | timeless == plain.counters | timeless
    links = result.counters["links"]
    sums = (
        table.filter(kind="link")
        .group_by("name")
        .agg(
            pl.col("sent_bytes", "marked", "pauses", "paused_ns", "dropped").sum(), pl.col("longest_queue_bytes").max()
        )
    )
    rows = {row["name"]: row for row in sums.iter_rows(named=True)}
    assert rows.keys() == {
        name for name, sent in zip(twin.network.link_names, links["size_bytes"], strict=True) if sent
    }
    for number, name in enumerate(twin.network.link_names):
        row = rows.get(name, dict.fromkeys(IN_LINKS, 0))
        assert row["sent_bytes"] == links["size_bytes"][number]
        assert row["paused_ns"] == links["paused_ps"][number] // 1000
        for column in ("marked", "pauses", "dropped", "longest_queue_bytes"):
            assert row[column] == links[column][number], (name, column)
    assert table["utilisation"].max() <= 1.0001  # type: ignore[operator]
    assert table["time_ns"].is_sorted()
    assert set((table["time_ns"] % 7300).unique()) - {0} <= {table["time_ns"].max() % 7300}  # type: ignore[operator]
    if "pauses" in case:
        assert table["pauses"].sum() > 0
        assert table["paused_ns"].sum() > 0
    if case == "drops":
        assert table["dropped"].sum() > 0


@pytest.mark.parametrize("case", ["incast that pauses", "all-to-all on a fat tree"])
def test_the_same_rows_for_any_number_of_threads(case: str) -> None:
    built, workload = CASES[case]
    one, *_ = played(built, workload, 3 * US)
    for threads in (2, 3):
        many, *_ = played(built, workload, 3 * US, threads=threads)
        assert many.equals(one, null_equal=True)


def test_a_link_that_gets_slower_is_never_used_more_than_whole() -> None:
    faults = [Fault(at=Duration(20 * US), until=Duration(60 * US), link="host0->switch", rate=Rate(10 * GBPS))]
    built = Fabric(topology=SingleSwitch(hosts=2), link=single_switch(2).link, fault=faults)
    table, *_ = played(built, point_to_point(0, 1, MIB), 7 * US)
    link = of(table, "host0->switch")
    assert link["sent_bytes"].sum() == sum(wire_bytes(MIB))
    # Packets that are on their way keep the rate that they began with: one of 4 KiB in 7 us.
    assert link["utilisation"].max() < 1.1  # type: ignore[operator]
    assert link.filter(pl.col("time_ns").is_between(28_000, 56_000))["sent_bytes"].max() < 7000 * 1.25 + 4200  # type: ignore[operator]


# Rates of congestion control


def control(chosen: Any, workload: Workload) -> pl.DataFrame:
    built = crowded(SingleSwitch(hosts=workload.world_size))
    built = Fabric(**{name: getattr(built, name) for name in built.__struct_fields__} | {"congestion": chosen})
    table, *_ = played(built, workload, 10 * US)
    return table.filter(kind="pair")


def test_rates_follow_congestion_control() -> None:
    free = control(Dcqcn(), point_to_point(0, 1, MIB))
    assert set(free["rate_bps"]) == {100 * GBPS}
    slowed = control(Dcqcn(), incast(8, MIB))
    assert slowed["name"].unique().sort().to_list() == [f"rank{rank}->rank8" for rank in range(8)]
    assert slowed["rate_bps"].min() < 30 * GBPS  # type: ignore[operator]
    assert slowed["rate_bps"].max() <= 100 * GBPS  # type: ignore[operator]


def test_a_limited_queue_pair_and_a_window() -> None:
    limited = control(Window(rate=Rate(3 * GBPS)), incast(2, 64 * KIB))
    assert set(limited["rate_bps"]) == {3 * GBPS}
    swift = control(Swift(), incast(8, MIB))
    assert 0 < swift["rate_bps"].min() < 50 * GBPS  # type: ignore[operator]


def test_without_any_limit_there_is_no_rate() -> None:
    table, *_ = played(single_switch(2, 0, 100 * NS), point_to_point(0, 1, MIB), 10 * NS)
    assert table.filter(kind="pair").height > 0
    assert table.filter(kind="pair")["rate_bps"].null_count() == table.filter(kind="pair").height
    assert set(table.filter(kind="link")["utilisation"]) == {0.0}


# Where they end


def test_a_simulation_that_is_stopped() -> None:
    """The part before a stop equals that of an unstopped run; nodes in progress are marked."""
    built, workload = crowded(FatTree(k=4)), chain(30, ranks=16, size_bytes=64 * KIB)
    whole, full, _ = played(built, workload, 5 * US, iterations=(0, 1))
    end_ns = int(full.timeline["end_ns"].max()) // 2 + 123  # type: ignore[call-overload]
    part, result, _ = played(built, workload, 5 * US, stop_after_ps=end_ns * 1000, iterations=(0, 1))
    assert result.stopped is not None
    assert (result.stopped.iteration, result.stopped.at_ps) == (0, end_ns * 1000)
    begun = full.timeline.filter((pl.col("start_ns") < end_ns) & (pl.col("iteration") == 0))
    ended = pl.when(pl.col("end_ns") < end_ns).then(pl.col("end_ns")).otherwise(-1)
    assert result.timeline.equals(begun.with_columns(end_ns=ended))
    assert 0 < result.timeline.filter(pl.col("end_ns") < 0).height < result.timeline.height
    assert part.filter(pl.col("time_ns") % 5000 == 0).equals(
        whole.filter((pl.col("time_ns") <= end_ns) & (pl.col("iteration") == 0)), null_equal=True
    )
    assert part["time_ns"].max() == end_ns


def test_somebody_who_says_stop() -> None:
    """In the middle, and before many short iterations are over."""
    built, workload = single_switch(4), collective(Op.ALL_REDUCE, 4, 64 * MIB)
    answers = iter([None, "enough"])
    result = twin_of(built).play(workload, watch=Watch(stop=lambda: next(answers)))
    assert result.stopped is not None
    assert (result.stopped.iteration, result.stopped.why) == (0, "enough")
    assert 0 < result.stopped.at_ps < 10**12
    assert result.timeline["end_ns"].to_list() == [-1] * 4
    answers = iter([None] * 5 + ["enough"])
    result = twin_of(built).play(
        collective(Op.ALL_REDUCE, 4, KIB), iterations=range(1000), watch=Watch(stop=lambda: next(answers))
    )
    assert result.stopped is not None
    assert 1 < result.stopped.iteration < 6
    ended = result.timeline.filter(pl.col("iteration") < result.stopped.iteration)
    assert ended["end_ns"].min() > 0  # type: ignore[operator]
    assert ended["iteration"].n_unique() == result.stopped.iteration


def test_a_level_that_cannot_stand_still_says_so() -> None:
    with pytest.raises(ValueError, match="this level has no packets: use series and stop_after_ps"):
        Watch(stop_after_ps=US).play(object(), 0)


def test_a_simulation_that_cannot_go_on_keeps_what_it_has() -> None:
    faults = [Fault(at=Duration(20 * US), cable=("host1", "switch"))]
    built = single_switch(3, ack_timeout=Duration(50 * US), retry_limit=2)
    built = Fabric(topology=built.topology, link=built.link, transport=built.transport, fault=faults)
    series = Series(US, build_network(built).link_names)
    with pytest.raises(SimulationError, match="host1 is down since 20us") as caught:
        twin_of(built).play(collective(Op.ALL_GATHER, 3, 4 * MIB), watch=Watch(series=series))
    partial = caught.value.partial
    assert partial is not None
    assert partial.stopped is not None
    assert partial.timeline["end_ns"].to_list() == [-1] * 3
    table = series.table()
    lost = of(table, "host1->switch").filter(pl.col("time_ns") > 20_000)
    assert lost["sent_bytes"].sum() < 4200, "more than the rest of the packet that was on its way"
    assert -1000 < table["time_ns"].max() - partial.stopped.at_ps // 1000 <= 1  # type: ignore[operator]


def test_no_more_rows_than_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built, workload = single_switch(5), incast(4, MIB)
    whole, *_ = played(built, workload, 2 * US, iterations=(0, 1))
    monkeypatch.setattr(series_module, "ROWS_MAX", 500)
    monkeypatch.setattr(series_module, "CHUNK_ROWS", 100)
    table, result, _ = played(built, workload, 2 * US, iterations=(0, 1))
    assert 500 <= table.height < 520
    assert table.equals(whole.head(table.height), null_equal=True)
    assert result.timeline["iteration"].unique().sort().to_list() == [0, 1]
    said = capsys.readouterr().err
    assert "the series of 2us would have about" in said
    assert "the series of 2us ends at" in said


# The run folder


def test_a_run_folder_has_them(tmp_path: Path) -> None:
    workload = incast(2, MIB)
    twin = twin_of(single_switch(3))
    series = Series(2 * US, twin.network.link_names)
    out = tmp_path / "with"
    run = simulate_to_folder(
        twin, workload, out, workload_path="incast", iterations=2, watch=Watch(series=series)
    )  # fmt: skip
    assert (run.info["series_interval_ns"], run.info["series_cut"], run.info["complete"]) == (2000, None, True)
    table = open_run(out).series
    assert table is not None
    assert dict(table.schema) == SERIES_SCHEMA
    assert table.equals(series.table(), null_equal=True)
    assert table["iteration"].unique().sort().to_list() == [0, 1]
    assert table["iteration"].is_sorted()
    without = simulate_to_folder(twin, workload, tmp_path / "without", workload_path="incast")
    assert without.series is None
    assert without.info["series_interval_ns"] is None
