"""Figures of a simulation's page: links' loads, tiers, ranks' time, flows against an idle network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_fabrics import GBPS, incast, leaf_spine, single_switch, twin_of

from genie.record import RecordError, Run
from genie.record.played import iteration_ends
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder
from simtwin.report.loads import hottest, link_loads
from simtwin.report.queue_depths import POINTS_MAX, queue_depths
from simtwin.report.rank_time import COMPUTING, IDLE, NETWORK, OTHERS, rank_time, rows_of_ranks, strips
from simtwin.report.sentence import busy, sentence
from simtwin.report.tiers import drawing, kinds

MIB = 1 << 20


def _played(fabric: Fabric, workload: Workload, out: Path, iterations: int = 1) -> Run:
    return simulate_to_folder(twin_of(fabric), workload, out, workload_path="jobs/job", iterations=iterations)


# Where ranks' time goes


def _two_ranks(kind: Kind) -> Workload:
    """Rank 0 computes 30 us before it takes part, rank 1 does not."""
    workload = Workload("late", 2, [Group("0", (0, 1))], {})
    for rank in range(2):
        builder = RankBuilder(rank)
        deps: tuple[int, ...] = (builder.add(0, "kernel", Kind.COMP, duration_ns=30_000),) if rank == 0 else ()
        given: dict[str, Any] = {"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": 0}
        if kind is not Kind.COLL:
            given = {"kind": Kind.RECV if rank else Kind.SEND, "peer": 1 - rank, "tag": 1}
        builder.add(1, "together", deps=deps, size_bytes=MIB, **given)
        workload.ranks[rank], _ = builder.finish()
    return workload


@pytest.mark.parametrize("kind", [Kind.COLL, Kind.SEND])
def test_who_waits_for_a_rank_does_not_wait_for_the_network(kind: Kind, tmp_path: Path) -> None:
    run = _played(single_switch(2), _two_ranks(kind), tmp_path / "run")
    ends = iteration_ends(run)
    spent = rank_time(run)
    end = ends[0]
    took = {
        (rank, state): int((spent.end_ns - spent.start_ns)[(spent.rank == rank) & (spent.state == state)].sum())
        for rank in range(2)
        for state in (COMPUTING, NETWORK, OTHERS)
    }
    assert took[0, COMPUTING] == 30_000
    assert took[1, OTHERS] == 30_000
    assert took[0, OTHERS] == took[1, COMPUTING] == 0
    assert took[1, NETWORK] == pytest.approx(end - 30_000, abs=2_000)
    shares = spent.shares(ends, 2)
    assert sum(shares) == pytest.approx(1)
    assert shares[COMPUTING] == shares[OTHERS] == pytest.approx(30_000 / end / 2)


def test_a_strip_shows_what_its_ranks_did_longest(tmp_path: Path) -> None:
    run = _played(single_switch(2), _two_ranks(Kind.COLL), tmp_path / "run")
    end = iteration_ends(run)[0]
    spent = rank_time(run)
    assert strips(spent, 0, 60_000, [[0], [1]], 2) == [f"{COMPUTING}{NETWORK}", f"{OTHERS}{NETWORK}"]
    assert strips(spent, 0, 4 * end, [[0, 1]], 4)[0][1:] == f"{IDLE}" * 3
    assert strips(spent, 5, end, [[0, 1]], 3) == [f"{IDLE}" * 3]


@given(st.integers(1, 3000), st.integers(1, 200))
def test_every_rank_has_one_row(ranks: int, most: int) -> None:
    rows = rows_of_ranks(ranks, most)
    assert [rank for row in rows for rank in row] == list(range(ranks))
    assert len(rows) <= most


# Links


def test_loads_are_the_counters_over_the_time(tmp_path: Path) -> None:
    fabric = leaf_spine(2, 2, 2)
    run = _played(fabric, incast(3, MIB), tmp_path / "run", iterations=3)
    network = build_network(fabric)
    loads = link_loads(run, network)
    assert loads["link"].to_list() == list(network.link_names)
    assert loads["peak"].null_count() == len(loads)
    counted = {it["link"]: it["size_bytes"] for it in run.counters["links"]}
    top = hottest(loads, 3).row(0, named=True)
    assert top["link"] == "leaf1->host3"
    total_ns = sum(iteration_ends(run).values())
    assert len(iteration_ends(run)) == 3
    assert top["mean"] == pytest.approx(counted["leaf1->host3"] * 8e9 / (100 * GBPS) / total_ns)
    assert 0.9 < top["mean"] <= 1
    run.info["fabric"] = "small"
    said = sentence(run, iteration_ends(run), [0.0, 0.75, 0.0, 0.25], hottest(loads, 1))
    assert said.startswith("job on small: ")
    assert " an iteration; 75 % of it waiting for the network; hottest link leaf1->host3, 9" in said
    assert " % busy over " in said
    assert said.endswith("; no marks, pauses or drops")


def test_of_links_as_busy_as_each_other_the_one_with_the_highest_interval_is_hottest() -> None:
    """Even where another has the longer queue: what the sentence says of a link's peak holds for those beside it."""
    loads = pl.DataFrame(
        [
            ("busier", 0.3021, 0.5, 0), ("longer", 0.3002, 0.612, 9000), ("higher", 0.2998, 0.709, 0),
            ("even", 0.3, 0.614, 9500),
        ],
        schema=["link", "mean", "peak", "longest_queue_bytes"], orient="row",
    ).with_columns(size_bytes=1, to_port=False, number=pl.int_range(4))  # fmt: skip
    assert hottest(loads, 4)["link"].to_list() == ["busier", "higher", "even", "longer"]
    unknown = loads.with_columns(peak=pl.lit(None, pl.Float64))
    assert hottest(unknown, 4)["link"].to_list() == ["busier", "even", "longer", "higher"]


def test_counters_of_another_fabric_are_refused(tmp_path: Path) -> None:
    run = _played(leaf_spine(2, 2, 2), incast(3, 1000), tmp_path / "run")
    with pytest.raises(
        RecordError, match=r"counters\.json: its links are not those of fabric\.toml; make the run again"
    ):
        link_loads(run, build_network(leaf_spine(2, 3, 2)))


def _series(rows: list[dict[str, Any]]) -> pl.DataFrame:
    zero = {
        "sent_bytes": 0,
        "utilisation": 0.0,
        "longest_queue_bytes": 0,
        "marked": 0,
        "pauses": 0,
        "paused_ns": 0,
        "dropped": 0,
    }
    given = [{"iteration": 0, "kind": "link", "rate_bps": None, **zero, **row} for row in rows]
    return pl.DataFrame(given, schema_overrides={"rate_bps": pl.Int64, "utilisation": pl.Float64})


def test_a_series_says_for_how_long_a_link_was_full(tmp_path: Path) -> None:
    fabric = leaf_spine(2, 2, 2)
    run = _played(fabric, incast(3, MIB), tmp_path / "run")
    run.info["series_interval_ns"] = 10_000
    run.series = _series(
        [
            {"time_ns": 10_000, "name": "leaf1->host3", "sent_bytes": 100_000, "utilisation": 0.8},
            {"time_ns": 20_000, "name": "leaf1->host3", "sent_bytes": 125_000, "utilisation": 1.0},
            {"time_ns": 30_000, "name": "leaf1->host3", "longest_queue_bytes": 5},
        ]
    )
    loads = {it["link"]: it for it in link_loads(run, build_network(fabric)).iter_rows(named=True)}
    top, other = loads["leaf1->host3"], loads["host0->leaf0"]
    assert (top["peak"], top["full_ns"]) == (1.0, 10_000)
    assert (other["peak"], other["full_ns"]) == (0.0, 0)
    assert busy(top, 50_000).endswith(" busy over 50 µs, above 90 % for 10 µs")
    assert busy(other, 50_000).endswith(", never above 0 %")


def test_points_of_queues_keep_maxima_and_sums() -> None:
    rng = np.random.default_rng(5)
    count = 3 * POINTS_MAX
    rows = []
    for name, high in (("a->b", 900), ("b->c", 5000)):
        for at, queue in enumerate(rng.integers(0, high, count).tolist()):
            did = {"longest_queue_bytes": queue, "marked": queue // 100, "paused_ns": 7}
            rows.append({"time_ns": (at + 1) * 1000, "name": name, **did})
    rows.append({"time_ns": 1000, "name": "c->d", "sent_bytes": 5, "utilisation": 0.5})
    rows += [{"time_ns": 1000, "kind": "pair", "name": "rank0->rank1", "rate_bps": bps} for bps in (10, 30, 20)]
    series = _series(rows)
    drawn = queue_depths(series, {0: count * 1000}, 1000, {"a->b": [1, 2]})
    assert [link["name"] for link in drawn["links"]] == ["b->c", "a->b", "c->d"]
    assert drawn["step_ns"] == 3000
    assert drawn["links"][1]["ecn"] == [1, 2]
    for link in drawn["links"]:
        own = series.filter(pl.col("name") == link["name"])
        assert len(link["longest_queue_bytes"]) == POINTS_MAX
        assert max(link["longest_queue_bytes"]) == own["longest_queue_bytes"].max()
        assert sum(link["marked"]) == own["marked"].sum()
        assert sum(link["paused_ns"]) == own["paused_ns"].sum()
    assert drawn["links"][2]["utilisation"][:2] == [0.167, 0.0]  # half of one of three intervals
    assert [column[0] for column in drawn["rates"]] == [10, 20, 30]
    assert drawn["rates"][0][1] is None


# The drawing

TOPOLOGIES = {
    "single-switch": "hosts = 5",
    "leaf-spine": "leaves = 3\nspines = 2\nhosts_per_leaf = 2",
    "fat-tree": "k = 4",
    "rail-optimized": "servers = 4\nrails = 2\nspines = 2",
    "dual-plane": "leaves = 2\nspines = 2\nhosts_per_leaf = 3",
    "dragonfly": "routers = 2\nhosts_per_router = 2\nglobal_links = 1",
    "torus": "size = [3, 3]",
}


def _drawn(text: str) -> tuple[Any, dict[str, Any]]:
    fabric = parse_fabric(f'[topology]\n{text}\n[link]\nrate = "100Gb/s"\ndelay = "500ns"\n')
    network = build_network(fabric)
    zero = dict.fromkeys(
        ("size_bytes", "longest_queue_bytes", "marked", "trimmed", "pauses", "paused_ns", "dropped"), 0
    )
    loads = pl.DataFrame({"link": network.link_names, "rate_bps": network.rate_bps, "mean": 0.5, "peak": None, **zero})
    loads = loads.with_columns(size_bytes=pl.int_range(pl.len()))
    return network, drawing(network, loads)


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_every_link_is_drawn_once(kind: str) -> None:
    network, drawn = _drawn(f'kind = "{kind}"\n{TOPOLOGIES[kind]}')
    places = [trunk[4] for trunk in drawn["trunks"]]
    places += [place for cables in drawn["below"] for _, *ends in cables for place in ends]
    assert sorted(places) == list(range(network.links))
    assert sorted(drawn["links"]["link"]) == sorted(network.link_names)
    for cables, leaf in zip(drawn["below"], drawn["tiers"][0][1], strict=True):
        for host, up, down in cables:
            assert drawn["links"]["link"][up] == f"{host}->{leaf}"
            assert drawn["links"]["link"][down] == f"{leaf}->{host}"
    for tier, at, other, other_at, place in drawn["trunks"]:
        ends = f"{drawn['tiers'][tier][1][at]}->{drawn['tiers'][other][1][other_at]}"
        assert drawn["links"]["link"][place] == ends


def test_tiers_follow_from_the_distance_to_hosts() -> None:
    _, drawn = _drawn('kind = "fat-tree"\nk = 4')
    assert [(kind, len(names)) for kind, names in drawn["tiers"]] == [("edge", 8), ("aggregation", 8), ("core", 4)]


@pytest.mark.parametrize(("pxn", "inside"), [("false", 2), ("true", 6)])
def test_what_is_inside_a_server_is_drawn_apart(pxn: str, inside: int) -> None:
    network, drawn = _drawn(
        f'kind = "rail-optimized"\nservers = 3\nrails = 2\nspines = 2\ndomain = {{ rate = "1Tb/s", pxn = {pxn} }}'
    )
    assert [kind for kind, _ in drawn["tiers"]] == ["rail leaf", "spine"]
    assert [name for name, _ in drawn["inside"]] == ["server0", "server1", "server2"]
    assert [len(cables) for _, cables in drawn["inside"]] == [inside] * 3
    assert [len(cables) for cables in drawn["below"]] == [3, 3]
    assert len(set(drawn["links"]["link"])) == network.links


def test_hosts_of_a_large_network_are_drawn_by_their_switch() -> None:
    network, drawn = _drawn('kind = "fat-tree"\nk = 18')
    assert network.hosts == 1458
    assert drawn["one_by_one"] is False
    assert len(drawn["trunks"]) == 3000
    assert drawn["left_out"] == 2 * 2 * 1458 - 3000
    assert [len(cables) for cables in drawn["below"]] == [1] * 162
    ((name, up, _),) = drawn["below"][0]
    assert name == "9 cables"
    assert drawn["links"]["link"][up].startswith("9 links to edge0; the busiest is host0->edge0")
    assert drawn["links"]["size_bytes"][up] == sum(range(0, 18, 2))


def test_what_switches_are_called() -> None:
    assert kinds(["rail0leaf0", "rail1leaf0"]) == "rail leaf"
    assert kinds(["a", "b", "c", "d"]) == "switch"
    assert kinds(["7"]) == "7"
