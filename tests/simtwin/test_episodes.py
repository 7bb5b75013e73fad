"""Episodes at level packet+skip: parts of a job that are played apart, with the bits of level packet."""

from __future__ import annotations

import genie_core
import numpy as np
import polars as pl
import pytest
from common.episode_cases import draw_job
from common.skip_cases import FREE_PACKETS, Played, SkipCase, first_difference, play, run_to_the_end, twin_of_case
from twin_fabrics import GBPS, MIB, twin_of

from genie.collectives.nccl.shape import NcclShape
from genie.collectives.nccl.tuning import Server
from genie.config.units import Duration, Rate
from genie.plan.build import Plan, build_plan
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.schema import (
    Domain,
    Fabric,
    LeafSpine,
    Link,
    Priority,
    RailOptimized,
    SingleSwitch,
    Switch,
    Transport,
)
from simtwin.play.twin import Twin
from simtwin.play.watching import Watch

LINK = Link(Rate(100 * GBPS), Duration(500_000))
NCCL = Lowering(nccl=NcclShape(ranks_per_node=2, buffer_bytes=1 << 18))
RAILS = Fabric(
    topology=RailOptimized(servers=4, rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25_000))), link=LINK
)


def job(rounds: int, *, compute_ns: int = 100_000, size_bytes: int = 4 * MIB) -> Workload:
    """Four servers of two ranks: a collective on each rail in each round, after some compute."""
    groups = [Group(f"rail{rail}", tuple(range(rail, 8, 2))) for rail in range(2)]
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(rounds):
            if compute_ns:
                last = (builder.add(2 * number, "compute", Kind.COMP, last, duration_ns=compute_ns),)
            last = (
                builder.add(
                    2 * number + 1, "sum", Kind.COLL, last, size_bytes=size_bytes, op=Op.ALL_REDUCE, group=rank % 2
                ),
            )
        graphs[rank], _ = builder.finish()
    return Workload("rounds", 8, groups, graphs)


def played_with(twin: Twin, plan: Plan, episodes: genie_core.Episodes) -> genie_core.Simulator:
    """Play a plan to its end, with nothing that would not fit."""
    simulator = twin.simulator(plan)
    assert isinstance(simulator, genie_core.Simulator)
    episodes.attach(simulator)
    simulator.start()
    while simulator.run(100_000):
        pass
    assert not episodes.begins_again(simulator, 0)
    assert simulator.done
    return simulator


def compare(case: SkipCase) -> tuple[int, int, str]:
    """Check the bits of a case; its episodes, packets that were not played, and why there are no episodes."""
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped), case.name
    return skipped.episodes, skipped.skipped, skipped.unusable


def check_drawn_job(seed: int, size_factor: int = 1, kind: str = "job", checkpoint_packets: int = 1 << 20) -> Played:
    case = draw_job(seed, size_factor, kind)
    skipped = play(case, skips=True, checkpoint_packets=checkpoint_packets, free_packets=FREE_PACKETS)
    difference = first_difference(play(case, skips=False), skipped)
    option = {"job": "--jobs", "pipeline": "--pipelines"}.get(kind, f"--{kind}")
    replay = f"skip_bits.py {option} --first {seed} --cases 1 --size-factor {size_factor}"
    assert not difference, (
        f"{case.name}: {difference[:400]}; replay: {replay} --checkpoint-packets {checkpoint_packets}"
    )
    return skipped


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_drawn_jobs_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 10):
        check_drawn_job(seed)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_drawn_jobs_whose_collectives_wait_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 10):
        check_drawn_job(seed, kind="buckets")


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_drawn_jobs_whose_stages_end_one_after_the_other_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 10):
        check_drawn_job(seed, kind="stages")


@pytest.mark.parametrize("kind", ["job", "buckets", "stages", "pipeline"])
def test_drawn_jobs_whose_plays_stop_and_go_on_have_the_same_bits(kind: str) -> None:
    played = [check_drawn_job(seed, 24, kind, checkpoint_packets=64) for seed in range(60, 70)]
    assert sum(own.continued for own in played) > 10
    assert sum(own.resumed for own in played) > 10


@pytest.mark.parametrize("seed", [96_007, 96_016, 96_022])
def test_plays_stop_before_an_order_that_is_not_known(seed: int) -> None:
    check_drawn_job(seed, 24, "pipeline", checkpoint_packets=64)


@pytest.mark.parametrize("first", [0, 10])
def test_drawn_jobs_whose_stages_send_messages_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 10):
        check_drawn_job(seed, kind="pipeline")


@pytest.mark.parametrize(("kind", "seed"), [("job", 17), ("pipeline", 2), ("pipeline", 44)])
def test_a_job_that_begins_again_too_often_plays_without_episodes(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, made, simulator_of = draw_job(seed, 4, kind=kind), [], Twin.simulator
    monkeypatch.setattr(Twin, "simulator", lambda *of, **options: made.append(simulator_of(*of, **options)) or made[-1])
    run = run_to_the_end(twin_of_case(case), build_plan(case.workload, lowering=case.lowering), skips=True)
    assert run.episodes is not None
    assert run.episodes.unusable == "the job has begun again too often"
    *lost, _ = [simulator.data_packets for simulator in made[:-1]]
    assert sum(lost) <= made[-1].data_packets / 4, (lost, made[-1].data_packets)


def test_an_episode_that_is_known_in_part_stands_for_those_that_are_alike() -> None:
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    plan = build_plan(job(20), lowering=NCCL)
    episodes = twin.episodes(plan, checkpoint_packets=512)
    played_with(twin, plan, episodes)
    assert episodes.report["continued"] > 0
    assert episodes.report["replayed"] == 40
    assert episodes.report["distinct"] <= 4


def test_packets_after_what_was_played_apart_meet_its_order_of_inputs() -> None:
    # In the third beginning a collective is played packet by packet, after others that were played apart.
    check_drawn_job(3143, 2)


def test_what_comes_again_on_each_rail_and_in_each_round_is_played_once() -> None:
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    plan = build_plan(job(20), lowering=NCCL)
    episodes = twin.episodes(plan)
    simulator = played_with(twin, plan, episodes)
    report = episodes.report
    assert report["replayed"] == 40
    assert report["distinct"] <= 4  # the order of a switch's inputs differs in the first rounds
    assert report["played"] < 0.2 * simulator.data_packets
    compare(SkipCase("rounds", RAILS, job(20), NCCL, 1, ()))


def test_collectives_that_follow_at_once_are_played_together() -> None:
    case = SkipCase("chain", RAILS, job(4, compute_ns=0), NCCL, 1, ())
    episodes, _, unusable = compare(case)
    assert episodes == 2 or unusable


def buckets(rounds: int, waiting: int) -> Workload:
    """In each round collectives on each rail that are ready at once, and wait for their ranks' slots."""
    groups = [Group(f"rail{rail}", tuple(range(rail, 8, 2))) for rail in range(2)]
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        number = 0
        for _ in range(rounds):
            computed = (builder.add(number, "compute", Kind.COMP, last, duration_ns=100_000),)
            last = tuple(
                builder.add(at, "sum", Kind.COLL, computed, size_bytes=MIB, op=Op.ALL_REDUCE, group=rank % 2)
                for at in range(number + 1, number + 1 + waiting)
            )
            number += 1 + waiting
        graphs[rank], _ = builder.finish()
    return Workload("buckets", 8, groups, graphs)


def stages_apart(
    buckets: tuple[int, ...], apart_ns: int, servers: int = 4, size_bytes: int = 64 * MIB
) -> tuple[Fabric, Workload]:
    """Stages of some servers, each later than the one before: buckets on each rail, then a small sum of all ranks."""
    per_stage, ranks = 2 * servers, 2 * servers * len(buckets)
    groups = [
        Group(f"stage{stage} rail{rail}", tuple(range(stage * per_stage + rail, (stage + 1) * per_stage, 2)))
        for stage in range(len(buckets))
        for rail in range(2)
    ]
    groups.append(Group("all", tuple(range(ranks))))
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        stage = rank // per_stage
        last = (builder.add(0, "compute", Kind.COMP, (), duration_ns=1_000 + apart_ns * stage),)
        for number in range(1, buckets[stage] + 1):
            last = (
                builder.add(number, "bucket", Kind.COLL, last, size_bytes=size_bytes, op=Op.REDUCE_SCATTER,
                            group=2 * stage + rank % 2),
            )  # fmt: skip
        builder.add(buckets[stage] + 1, "sum", Kind.COLL, last, size_bytes=4, op=Op.ALL_REDUCE, group=len(groups) - 1)
        graphs[rank], _ = builder.finish()
    topology = RailOptimized(
        servers=servers * len(buckets), rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25_000))
    )
    return Fabric(topology=topology, link=LINK), Workload("stages", ranks, groups, graphs)


@pytest.mark.parametrize(("buckets", "apart_ns"), [((3, 6), 700_000), ((2, 2, 4), 900_000), ((1, 2, 1, 3), 550_000)])
def test_stages_of_one_episode_recur_each_for_itself(buckets: tuple[int, ...], apart_ns: int) -> None:
    # The sum's first messages reach stages that are busy, so that all of a rail is one episode.
    fabric, workload = stages_apart(buckets, apart_ns)
    case = SkipCase(f"stages {buckets}", fabric, workload, NCCL, 1, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped), case.name
    # Where all must recur at once, it is 52 % at most, and where only one group at a time is watched, 58 % at least.
    assert skipped.skipped > 0.75 * skipped.packets


@pytest.mark.parametrize(("buckets", "size_bytes", "least"), [((2, 3), 72 * MIB, 0.84), ((1, 2), 96 * MIB, 0.66)])
def test_what_a_sum_delays_goes_round_the_rings_of_stages(
    buckets: tuple[int, ...], size_bytes: int, least: float
) -> None:
    fabric, workload = stages_apart(buckets, 700_000, servers=32, size_bytes=size_bytes)
    case = SkipCase(f"rings {buckets}", fabric, workload, NCCL, 1, ())
    skipped = play(case, skips=True)
    assert not first_difference(play(case, skips=False), skipped), case.name
    # Where looks are equally far apart, it is 82 and 63 %.
    assert skipped.skipped > least * skipped.packets


def test_collectives_that_wait_for_a_slot_are_played_with_those_that_they_wait_for() -> None:
    waiting = 32
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    workload = buckets(4, waiting)
    plan = build_plan(workload, lowering=NCCL)
    episodes = twin.episodes(plan)
    played_with(twin, plan, episodes)
    assert episodes.report["distinct"] < waiting / 2  # one for each that begins would be 32 and more
    compare(SkipCase("buckets", RAILS, workload, NCCL, 1, ()))


def stages(rounds: int) -> Workload:
    """Stages of two servers of two ranks. Each reduces on its rails, for longer than the stage before, then in its
    servers, then with all others."""
    groups = [Group(f"server{at}", (2 * at, 2 * at + 1)) for at in range(8)]
    groups += [Group(f"stage{at} rail{rail}", (4 * at + rail, 4 * at + 2 + rail)) for at in range(4) for rail in (0, 1)]
    groups.append(Group("all", tuple(range(16))))
    graphs: dict[int, RankGraph] = {}
    for rank in range(16):
        builder = RankBuilder(rank)
        stage = rank // 4
        last: tuple[int, ...] = ()
        sums = [
            (8 * MIB * (1 + stage), Op.REDUCE_SCATTER, 8 + 2 * stage + rank % 2),
            (64 << 10, Op.ALL_REDUCE, rank // 2),
            (1 << 10, Op.ALL_REDUCE, 16),
        ]
        for number in range(0, 4 * rounds, 4):
            last = (builder.add(number, "compute", Kind.COMP, last, duration_ns=100_000 * (1 + stage)),)
            for at, (size_bytes, op, group) in enumerate(sums, start=number + 1):
                last = (builder.add(at, "sum", Kind.COLL, last, size_bytes=size_bytes, op=op, group=group),)
        graphs[rank], _ = builder.finish()
    return Workload("stages", 16, groups, graphs)


def test_the_sum_of_all_is_played_with_those_that_lead_to_it_on_other_rails() -> None:
    topology = RailOptimized(servers=8, rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25_000)))
    fabric = Fabric(topology=topology, link=LINK)
    twin = Twin(fabric, twin_of(fabric).network, list(range(16)))
    plan = build_plan(stages(4), lowering=NCCL)
    episodes = twin.episodes(plan)
    simulator = played_with(twin, plan, episodes)
    # One for each start of the sum's members on another rail would be 42, and more packets than there are.
    assert episodes.report["distinct"] <= 20
    assert episodes.report["played"] < 0.5 * simulator.data_packets
    compare(SkipCase("stages", fabric, stages(4), NCCL, 1, ()))


def test_episodes_are_forgotten_beyond_their_memory() -> None:
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    plan = build_plan(job(10), lowering=NCCL)
    distinct, ends = [], []
    for memory_bytes in (1 << 30, 0):
        episodes = twin.episodes(plan, memory_bytes=memory_bytes)
        simulator = played_with(twin, plan, episodes)
        distinct.append(episodes.report["distinct"])
        ends.append(simulator.now_ps)
    assert distinct[0] < distinct[1]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("fabric", "reason"),
    [
        (Fabric(topology=SingleSwitch(hosts=8), link=LINK, transport=Transport(congestion="swift")), "have learned"),
        (Fabric(topology=SingleSwitch(hosts=8), link=LINK, transport=Transport(queue_pairs=2)), "several paths"),
        (Fabric(topology=SingleSwitch(hosts=8), link=LINK, switch=Switch(cut_through=True)), "cut through"),
        (
            Fabric(topology=SingleSwitch(hosts=8), link=LINK, priority=Priority(2, 5, data_weight=3, control_weight=1)),
            "weighted classes",
        ),
    ],
)
def test_reasons_why_nothing_is_played_apart(fabric: Fabric, reason: str) -> None:
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)))
    assert reason in twin.episodes(build_plan(job(2), lowering=NCCL)).unusable


def test_a_single_collective_is_not_played_apart() -> None:
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    plan = build_plan(collective(Op.ALL_REDUCE, 8, MIB))
    assert twin.episodes(plan).unusable == "no collective comes again"


def test_nodes_that_links_without_any_time_join() -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=8), link=Link(Rate(0), Duration(0)))
    episodes, _, unusable = compare(SkipCase("no time", fabric, job(3), NCCL, 1, ()))
    assert (episodes, unusable) == (0, "links without any time join nodes")


def test_members_that_end_before_the_last_has_begun() -> None:
    """A gather: its root is late, and messages beside it give the others something to hear of."""
    groups = [Group("all", tuple(range(8)))]
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(0, 32, 4):
            late_ns = 2_000_000 if rank == 0 else 1_000
            wait = builder.add(number, "compute", Kind.COMP, last, duration_ns=late_ns, stream=0)
            ends = [builder.add(number + 1, "gather", Kind.COLL, (wait,), size_bytes=MIB, op=Op.GATHER, group=0)]
            if rank == 1:
                ends.append(builder.add(number + 2, "send", Kind.SEND, (wait,), size_bytes=MIB, peer=2, tag=number))
            if rank == 2:
                ends.append(builder.add(number + 3, "recv", Kind.RECV, (wait,), size_bytes=MIB, peer=1, tag=number))
            last = tuple(ends)
        graphs[rank], _ = builder.finish()
    workload = Workload("late root", 8, groups, graphs)
    compare(SkipCase("late root", Fabric(topology=SingleSwitch(hosts=8), link=LINK), workload, Lowering(), 1, ()))


def test_several_threads_play_without_episodes() -> None:
    case = SkipCase("threads", RAILS, job(3), NCCL, 2, ())
    assert compare(case) == (0, compare(case)[1], "several threads play")


def test_samples_and_a_stop_are_those_of_level_packet() -> None:
    results = []
    for skips in (False, True):
        twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
        watch = Watch(stop_after_ps=700_000_000)
        results.append(twin.play(job(5), lowering=NCCL, watch=watch, skips=skips))
    played, skipped = results
    assert skipped.timeline.equals(played.timeline)
    assert skipped.counters["links"] == played.counters["links"]
    assert skipped.skipped is not None
    assert "no episodes: samples, and a stop at a time, need all packets in one simulator" in skipped.skipped.reasons


def test_the_twin_tells_how_many_episodes_there_were() -> None:
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    skipped = twin.play(job(10), lowering=NCCL, iterations=(0, 1), skips=True)
    played = twin.play(job(10), lowering=NCCL, iterations=(0, 1), skips=False)
    assert skipped.skipped is not None
    assert skipped.timeline.equals(played.timeline)
    assert skipped.transfers.equals(played.transfers)
    assert skipped.counters["links"] == played.counters["links"]
    facts = skipped.skipped.facts(skipped.counters["data_packets"])
    assert facts["episodes"]["replayed"] == 40
    assert facts["share"] > 0.5
    assert np.all(np.asarray(skipped.timeline["end_ns"]) >= 0)


def test_iterations_whose_paths_differ_have_episodes_of_their_own() -> None:
    fabric = Fabric(topology=LeafSpine(leaves=2, spines=4, hosts_per_leaf=4), link=LINK)
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)))
    played, skipped = (
        twin.play(job(6), lowering=NCCL, iterations=(0, 1, 2), skips=skips).timeline for skips in (False, True)
    )
    ends = [played.filter(pl.col("iteration") == iteration)["end_ns"].to_list() for iteration in (0, 1, 2)]
    assert ends[0] != ends[1]
    assert skipped.equals(played)


def test_a_collective_that_waits_leaves_its_links_to_others() -> None:
    rounds = 8
    groups = [Group("pair", (1, 3)), Group("all", tuple(range(8)))]
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(rounds if rank in (1, 3) else 0):  # the other ranks wait for these
            last = (builder.add(2 * number, "compute", Kind.COMP, last, duration_ns=100_000),)
            last = (builder.add(2 * number + 1, "sum", Kind.COLL, last, size_bytes=4 * MIB, op=Op.ALL_REDUCE, group=0),)
        builder.add(99, "all", Kind.COLL, last, size_bytes=MIB, op=Op.ALL_REDUCE, group=1)
        graphs[rank], _ = builder.finish()
    workload = Workload("waits", 8, groups, graphs)
    case = SkipCase("waits", RAILS, workload, NCCL, 1, ())
    assert not first_difference(play(case, skips=False), play(case, skips=True))
    plan = build_plan(workload, lowering=NCCL)
    twin = Twin(RAILS, twin_of(RAILS).network, list(range(8)))
    episodes = twin.episodes(plan)
    simulator = played_with(twin, plan, episodes)
    # Some rounds and the last collective are played apart, not each round with all that came before it.
    assert episodes.report["distinct"] < rounds / 2
    assert episodes.report["played"] < 0.6 * simulator.data_packets


@pytest.mark.parametrize("members", [(2, 3, 0, 1), (2, 5, 3), (7, 6, 5, 4, 3, 2, 1, 0)], ids=str)
def test_members_of_a_group_are_in_any_order(members: tuple[int, ...]) -> None:
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(8 if rank in members else 0):
            last = (builder.add(2 * number, "compute", Kind.COMP, last, duration_ns=100_000 + 7_000 * rank),)
            last = (builder.add(2 * number + 1, "sum", Kind.COLL, last, size_bytes=MIB, op=Op.ALL_REDUCE, group=0),)
        graphs[rank], _ = builder.finish()
    workload = Workload("any order", 8, [Group("some", members)], graphs)
    case = SkipCase("any order", RAILS, workload, Lowering(channels=1, credit=False), 1, ())
    skipped = play(case, skips=True)
    assert skipped.unusable == ""
    assert skipped.episodes > 0
    assert not first_difference(play(case, skips=False), skipped)


@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 16, 4 * MIB])
def test_collectives_on_gpus_take_as_long_whenever_they_begin(size_bytes: int) -> None:
    """An episode has its own time 0, at which a GPU's first message leaves as at any other."""
    graphs: dict[int, RankGraph] = {}
    for rank in range(8):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(3):
            op, group = Op.ALL_REDUCE, rank // 2
            last = (builder.add(2 * number, "sum", Kind.COLL, last, size_bytes=size_bytes, op=op, group=group),)
            last = (builder.add(2 * number + 1, "compute", Kind.COMP, last, duration_ns=50_000),)
        graphs[rank], _ = builder.finish()
    groups = [Group(f"server{at}", (2 * at, 2 * at + 1)) for at in range(4)]
    gpus = Lowering(nccl=NcclShape(ranks_per_node=2, server=Server("h100", "2.30", 200.0, 12.5)))
    case = SkipCase("gpus", RAILS, Workload("gpus", 8, groups, graphs), gpus, 1, ())
    skipped = play(case, skips=True)
    assert not first_difference(play(case, skips=False), skipped)
    assert skipped.episodes > 0
