"""Estimated skips: errors within what they say, and packets where no estimate holds."""

from __future__ import annotations

import json
from pathlib import Path

import genie_core
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_runs import in_this_process
from native.skip_error import SENDERS, compare, incast, incast_of, play
from twin_fabrics import crowded

from genie.config.units import Duration, Rate
from genie.plan.build import build_plan
from genie.workload.flows import Flow
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from genie.workload.write import save
from simtwin.fabric.schema import Fabric, LeafSpine, Link, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play.batch_means import (
    Batches,
    correlation_of,
    drawn_noise,
    independent_batches,
    longest,
    pools_of,
    t_quantile,
)
from simtwin.play.estimating import Estimator
from simtwin.play.traffic import Incast, workload_on
from simtwin.play.twin import Twin

MB = 10**6
LINK = Link(Rate(100 * 10**9), Duration(10**6))


def batches_of(packets: np.ndarray) -> Batches:
    return Batches(packets, np.ones_like(packets), 10**9, 1.0)


@pytest.mark.parametrize(("freedom", "expected"), [(7, 2.3646), (10, 2.2281), (30, 2.0423), (1000, 1.9623)])
def test_quantiles_of_students_distribution(freedom: int, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, rel=2e-3)


def test_correlated_batches_become_longer_ones() -> None:
    draw = np.random.default_rng(1)
    steps = np.zeros((512, 8))
    for at in range(1, len(steps)):
        steps[at] = 0.9 * steps[at - 1] + draw.standard_normal(8)
    counted = np.stack([steps + 100, np.ones_like(steps)], axis=1)
    found = independent_batches(counted, 10**6)
    assert found is not None
    assert found.batch_ps >= 8 * 10**6
    assert correlation_of(found.packets) <= 0.4
    assert independent_batches(np.cumsum(counted, axis=0), 10**6) is None


def test_flows_with_unlike_rates_have_no_common_mean() -> None:
    packets = np.random.default_rng(2).normal(100, 3, (16, 8))
    assert not isinstance(pools_of(batches_of(packets), np.zeros(8, int)), str)
    packets[:, 3] += 20
    assert pools_of(batches_of(packets), np.zeros(8, int)) == "flows on alike paths keep unlike rates"

    assert not isinstance(pools_of(batches_of(packets), np.arange(8)), str)


def test_rates_that_rise_have_no_mean() -> None:
    packets = np.random.default_rng(2).normal(100, 1, (64, 8))
    packets += np.repeat([0, 60], 32)[:, None]
    assert pools_of(batches_of(packets), np.zeros(8, int)) == "rates rise or fall"
    packets = np.random.default_rng(2).normal(100, 1, (64, 8))
    falling = Batches(packets, np.linspace(1000, 10, 64)[:, None] + packets, 10**9, 1.0)
    assert pools_of(falling, np.zeros(8, int)) == "congestion control still raises or lowers rates"


def test_means_are_within_their_errors_as_often_as_said() -> None:
    within = []
    for seed in range(400):
        packets = np.random.default_rng(seed).normal(100, 5, (32, 16))
        pools = pools_of(batches_of(packets), np.zeros(16, int))
        if not isinstance(pools, str):
            within.append(abs(pools[0].mean / 100 - 1) <= pools[0].error)
    assert len(within) > 300
    assert np.mean(within) > 0.93


def test_noise_keeps_the_sum_of_flows_that_share_a_link() -> None:
    draw = np.random.default_rng(3)
    packets = draw.normal(100, 5, (16, 8))
    packets += (800 - packets.sum(axis=1))[:, None] / 8
    pools = pools_of(batches_of(packets), np.zeros(8, int))
    assert not isinstance(pools, str)
    noise = np.array([drawn_noise(batches_of(packets), pools, draw) for _ in range(400)])
    assert abs(noise.sum(axis=1)).max() < 1e-9
    assert noise.std() == pytest.approx(pools[0].deviation, rel=0.1)


@given(
    st.lists(st.tuples(st.floats(1, 1000), st.floats(-100, 100), st.floats(0, 1e6)), min_size=1, max_size=8),
)
def test_no_flow_gets_more_than_it_has_left(flows: list[tuple[float, float, float]]) -> None:
    mean, noise, room = (np.array(column) for column in zip(*flows, strict=True))
    count = longest(mean, noise, room)
    assert (mean * count + noise * count**0.5 <= room * (1 + 1e-9) + 1e-6).all()


@pytest.mark.parametrize("control", ["dcqcn", "swift"])
def test_ends_of_an_incast_are_within_their_bounds(control: str) -> None:
    rows = [compare(control, seed, 300 * MB, 0.01) for seed in range(1, 5)]
    assert all(row["is_within"] for row in rows), rows
    assert all(row["last_error"] < 0.02 for row in rows), rows
    assert sum(row["packets"] for row in rows) > 0.5 * len(rows) * SENDERS * (300 * MB // 4096), rows


def ends_ps(flows: list[Flow], error: float, seed: int = 3) -> tuple[list[int], Estimator | None]:
    """Play flows, with estimates if `error` is above 0; the ends of their messages, and what was estimated."""
    simulator = incast_of("dcqcn", seed, flows)
    estimator = Estimator(simulator, genie_core.Recurrence(simulator), error, seed) if error else None
    run = simulator.run if estimator is None else estimator.run
    simulator.start()
    while run(200_000):
        pass
    return [int(simulator.records(flow.source)["sends"]["acked_ps"][0]) for flow in flows], estimator


def test_messages_that_others_outlast_are_played() -> None:
    """Rates change where the short messages end. Only the long ones, which are left, end together."""
    flows = [Flow(rank, 0, (800 if rank % 2 else 150) * MB) for rank in range(1, SENDERS + 1)]
    (played, _), (skipped, estimator) = ends_ps(flows, 0.0), ends_ps(flows, 0.05)
    assert estimator is not None
    assert estimator.skips > 0
    assert estimator.has_bound
    assert {error.rank % 2 for error in estimator.errors} == {1}
    assert skipped[1::2] == played[1::2]
    for error in estimator.errors:
        assert error.apart is not None
        assert skipped[error.rank - 1] == pytest.approx(played[error.rank - 1], rel=error.apart)


@pytest.mark.parametrize("sizes_mb", [(300, 900), (200, 200, 200, 200, 1000)], ids=["two", "five"])
def test_rates_that_rise_after_an_end_are_in_the_bounds(sizes_mb: tuple[int, ...]) -> None:
    flows = [Flow(rank, 0, size_mb * MB) for rank, size_mb in enumerate(sizes_mb, start=1)]
    bounded = 0
    for seed in range(1, 7):
        (played, _), (skipped, estimator) = ends_ps(flows, 0.0, seed), ends_ps(flows, 0.1, seed)
        assert estimator is not None
        for error in estimator.errors:
            assert error.apart is not None
            at = error.rank - 1
            assert skipped[at] == pytest.approx(played[at], rel=error.apart), (seed, error)
            bounded += 1
    assert bounded > 0


def test_a_bound_is_a_share_of_time_where_a_message_was_faster_before() -> None:
    """A message alone, then with others that begin later and end with it. Seeds are some in which it is moved."""
    flows = [Flow(1, 0, 2140 * MB), *(Flow(rank, 0, 250 * MB, 158 * 10**6) for rank in range(2, 17))]
    moved = 0
    for seed in (49, 52, 54):
        (played, _), (skipped, estimator) = ends_ps(flows, 0.0, seed), ends_ps(flows, 0.1, seed)
        assert estimator is not None
        for error in estimator.errors:
            if error.apart is None:
                continue
            start_ps = flows[error.rank - 1].start_ns * 1000
            takes_ps = [ends[error.rank - 1] - start_ps for ends in (played, skipped)]
            assert takes_ps[1] == pytest.approx(takes_ps[0], rel=error.apart), (seed, error)
            moved += error.rank == 1
    assert moved > 0


@pytest.mark.parametrize(("start_ms", "is_bounded"), [(200, False), (600, True)], ids=["meanwhile", "afterwards"])
def test_ends_have_no_bound_where_a_message_begins_after_a_skip(start_ms: int, is_bounded: bool) -> None:
    """`is_bounded`: whether the ends of those that were moved are, which are over after 410 ms."""
    flows = [Flow(rank, 0, 300 * MB) for rank in range(1, SENDERS + 1)]
    _, estimator = ends_ps([*flows, Flow(0, 1, 300 * MB, start_ms * 10**6)], 0.01)
    assert estimator is not None
    assert estimator.skips > 0
    assert not estimator.has_bound
    assert [error.apart is not None for error in estimator.errors] == [is_bounded] * SENDERS


def test_hpcc_goes_on_with_its_readings_of_ports() -> None:
    _, played, _ = play("hpcc", 1, 200 * MB, 0.0)
    _, skipped, estimator = play("hpcc", 1, 200 * MB, 0.02)
    assert estimator is not None
    assert estimator.skips > 0
    assert skipped.mean() == pytest.approx(played.mean(), rel=0.05)


@pytest.mark.parametrize(
    ("control", "size_bytes", "skips", "share"), [("dcqcn", 1000 * MB, 2, 0.4), ("swift", 600 * MB, 1, 0.8)]
)
def test_counters_go_on_as_before(control: str, size_bytes: int, skips: int, share: float) -> None:
    """`share`: of the events, at most, that are handled with estimates."""
    simulators = []
    for error in (0.0, 0.01):
        simulator = incast(control, 2, size_bytes)
        recurrence = genie_core.Recurrence(simulator)
        estimator = Estimator(simulator, recurrence, error, 2)
        run = estimator.run if error else simulator.run
        simulator.start()
        while run(200_000):
            pass
        simulators.append(simulator)
    played, skipped = simulators
    assert estimator.skips >= skips
    assert skipped.data_packets == played.data_packets == SENDERS * -(-size_bytes // 4096)
    for rank in range(1, SENDERS + 1):
        assert skipped.counters(rank)["data_sent"] == played.counters(rank)["data_sent"]
    assert skipped.counters(0)["data_received"] == played.counters(0)["data_received"]
    for name, tolerance in (("packets", 0.02), ("size_bytes", 0.02), ("marked", 0.2)):
        assert sum(skipped.links()[name]) == pytest.approx(sum(played.links()[name]), rel=tolerance), name
    assert skipped.events < share * played.events


def test_no_more_events_are_handled_than_asked_for() -> None:
    simulator = incast("dcqcn", 1, 300 * MB)
    simulator.start()
    estimator = Estimator(simulator, genie_core.Recurrence(simulator), 0.01, 1)
    before = 0
    while estimator.run(20_000):
        assert simulator.events - before < 60_000
        before = simulator.events


def test_collectives_beside_estimates_come_to_their_end() -> None:
    """Steps of a walker do not go on by an estimate."""
    fabric = crowded(SingleSwitch(hosts=3))
    twin = Twin(fabric, build_network(fabric), list(range(3)))
    simulator = twin.simulator(build_plan(collective(Op.ALL_REDUCE, 3, 68 * MB)))
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    estimator = Estimator(simulator, genie_core.Recurrence(simulator), 0.1, 1)
    while estimator.run(200_000):
        pass
    assert simulator.done
    for rank in range(3):
        assert simulator.records(rank)["sends"]["messages"].tolist() == [4]


def test_flows_are_alike_by_their_paths_and_what_shares_them() -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=8), link=LINK)
    twin = Twin(fabric, build_network(fabric), list(range(8)))
    workload = workload_on(fabric, Incast(size=64 * MB, senders=3))  # type: ignore[arg-type]
    simulator = twin.simulator(build_plan(workload))
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    simulator.run(10**6, 10**6)
    steady = genie_core.SteadyFlows(simulator)
    flows = steady.flows(10**6)
    assert flows["peer"].tolist() == [0, 0, 0]
    assert len(set(steady.classes(flows["queue_pair"].tolist()))) == 1
    leaves = Fabric(topology=LeafSpine(leaves=2, spines=1, hosts_per_leaf=4), link=LINK)
    simulator = Twin(leaves, build_network(leaves), list(range(8))).simulator(
        build_plan(workload_on(leaves, Incast(size=64 * MB)))  # type: ignore[arg-type]
    )
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    simulator.run(10**6, 10**6)
    steady = genie_core.SteadyFlows(simulator)
    near, far = np.split(np.array(steady.classes(steady.flows(10**6)["queue_pair"].tolist())), [3])
    assert len(set(near)) == len(set(far)) == 1
    assert near[0] != far[0]


def test_many_short_messages_are_not_estimated() -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=4), link=LINK)
    twin = Twin(fabric, build_network(fabric), list(range(4)))
    results = []
    for error in (0.0, 0.05):
        simulator = twin.simulator(build_plan(collective(Op.ALL_REDUCE, 4, 4 * MB)))
        assert isinstance(simulator, genie_core.Simulator)
        simulator.start()
        estimator = Estimator(simulator, genie_core.Recurrence(simulator), error, 1)
        while estimator.run(200_000) if error else simulator.run(200_000):
            pass
        results.append(simulator.now_ps)
        assert estimator.skips == 0
    assert results[0] == results[1]


STAR = """
[topology]
kind = "single-switch"
hosts = 9
[link]
rate = "100Gb/s"
delay = "1us"
[congestion]
kind = "dcqcn"
"""


@pytest.fixture(scope="module")
def senders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("incast")
    fabric = Fabric(topology=SingleSwitch(hosts=9))
    save(workload_on(fabric, Incast(size=400 * MB)), folder / "trace")  # type: ignore[arg-type]
    (folder / "star.toml").write_text(STAR)
    return str(folder / "trace"), str(folder / "star.toml")


def test_the_command_says_how_near_it_is(senders: tuple[str, str], tmp_path: Path) -> None:
    trace, fabric = senders
    out = tmp_path / "run"
    ended = in_this_process("simulate", trace, "--fabric", fabric, "--skip-error", "2%", "-o", str(out))
    assert ended.code == 0, ended
    skip = json.loads((out / "run.json").read_text())
    estimates = skip["skip"]["estimates"]
    assert estimates["skips"] > 0
    assert estimates["error"] <= 0.02
    assert skip["error_bound"] == pytest.approx(estimates["apart"], abs=1e-6)
    assert {(each["rank"], each["peer"]) for each in estimates["messages"]} == {(rank, 0) for rank in range(1, 9)}
    assert "same bits" not in ended.stdout
    assert f"of level packet ({estimates['confidence']:.0%} confidence, if" in ended.stdout


def test_the_command_estimates_in_one_thread(senders: tuple[str, str], tmp_path: Path) -> None:
    trace, fabric = senders
    ended = in_this_process(
        "simulate", trace, "--fabric", fabric, *["--skip-error", "10%", "--threads", "2", "-o"], str(tmp_path / "run")
    )
    assert ended.code == 0, ended
    assert "--skip-error needs one thread: --threads 1 is used" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--skip-error 11%", "--skip-error 11%: must be a percentage from 0 to 10, such as 1%"),
        ("--skip-error -1", "--skip-error -1: must be a percentage from 0 to 10"),
        ("--skip-error nan", "--skip-error nan: must be a percentage from 0 to 10"),
        ("--skip-error much", "--skip-error much: must be a percentage from 0 to 10"),
        ("--skip-error 1% --level packet", "--skip-error: level packet skips nothing; give --level packet+skip"),
        ("--skip-error 1% --series 10us", "--skip-error: samples of --series would end each estimate"),
        ("--skip-error 1% --verify-skip", "--verify-skip: estimates differ from level packet"),
    ],
)
def test_wrong_errors_are_refused(options: str, said: str, senders: tuple[str, str], tmp_path: Path) -> None:
    trace, fabric = senders
    ended = in_this_process("simulate", trace, "--fabric", fabric, *options.split(), "-o", str(tmp_path / "run"))
    assert ended.code == 2, ended
    assert said in "".join(ended.said), ended
