"""Checkpoints of plays at level packet+skip: plays of what something has joined go on from them."""

from __future__ import annotations

import itertools

import pytest
from common.episode_cases import draw_job
from common.skip_cases import FREE_PACKETS, SkipCase, first_difference, play
from twin_fabrics import GBPS, MIB

from genie.config.units import Duration, Rate
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from simtwin.fabric.schema import Fabric, Link, SingleSwitch

LINK = Link(Rate(100 * GBPS), Duration(500_000))


@pytest.mark.parametrize(
    ("kind", "size_factor", "seed"),
    [("stages", 24, 31000), ("stages", 24, 31006), ("stages", 24, 31036), ("buckets", 24, 31008), ("job", 8, 31039)],
)
def test_plays_go_on_from_checkpoints(kind: str, size_factor: int, seed: int) -> None:
    case = draw_job(seed, size_factor, kind=kind)
    skipped = play(case, skips=True, checkpoint_packets=512, free_packets=FREE_PACKETS)
    assert skipped.unusable == ""
    assert skipped.resumed > 10
    replay = f"benchmarks/native/skip_bits.py --{kind} --first {seed} --cases 1 --size-factor {size_factor}"
    difference = first_difference(play(case, skips=False), skipped)
    assert not difference, f"{difference}: python {replay} --checkpoint-packets 512"


def test_a_play_goes_on_from_parts_that_have_become_one() -> None:
    case = draw_job(31000, 24, kind="stages")
    skipped = play(case, skips=True, checkpoint_packets=512, free_packets=FREE_PACKETS)
    assert skipped.unusable == ""
    assert skipped.joined > 0
    assert not first_difference(play(case, skips=False), skipped)


def turns(sends: list[tuple[int, int, int]], *, rounds: int) -> Workload:
    """Sums of all six ranks; then one of ranks 4 and 5, beside one of ranks 2 and 3, and messages.

    `sends`: sender, receiver and time, in microseconds.
    """
    groups = [Group("first", (4, 5)), Group("second", (2, 3)), Group("all", tuple(range(6)))]
    sums = [(0, 1), (1, 100)]  # group and time
    graphs: dict[int, RankGraph] = {}
    for rank in range(6):
        builder, numbers = RankBuilder(rank), itertools.count()
        last: tuple[int, ...] = ()
        for _ in range(rounds):
            wait = builder.add(next(numbers), "wait", Kind.COMP, last, duration_ns=100_000)
            last = (
                builder.add(
                    next(numbers), "all", Kind.COLL, (wait,), size_bytes=6 * MIB, op=Op.ALL_REDUCE, group=2, stream=0
                ),
            )
        for tag, (sender, receiver, time_us) in enumerate(sends):
            if rank == sender:
                wait = builder.add(
                    next(numbers), "wait", Kind.COMP, last, duration_ns=(500 + time_us) * 1000, stream=2 * tag
                )
                builder.add(
                    next(numbers), "send", Kind.SEND, (wait,), size_bytes=MIB // 8, peer=receiver, tag=tag,
                    stream=2 * tag + 1,
                )  # fmt: skip
            if rank == receiver:
                builder.add(
                    next(numbers), "recv", Kind.RECV, last, size_bytes=MIB // 8, peer=sender, tag=tag,
                    stream=2 * tag + 1,
                )  # fmt: skip
        for group, time_us in sums:
            if rank not in groups[group].ranks:
                continue
            stream = 2 * len(sends)
            wait = builder.add(
                next(numbers), "wait", Kind.COMP, last, duration_ns=(500 + time_us) * 1000, stream=stream
            )
            builder.add(
                next(numbers), "sum", Kind.COLL, (wait,), size_bytes=16 * MIB, op=Op.ALL_REDUCE, group=group,
                stream=stream + 1,
            )  # fmt: skip
        graphs[rank], _ = builder.finish()
    return Workload("turns", 6, groups, graphs)


@pytest.mark.parametrize("packets", [64, 256])
@pytest.mark.parametrize(
    "sends",
    [
        # Messages to ranks 4 and 5 belong to the first sum, those from 2 and 3 to the second; the last joins both.
        [(0, 4, 40), (2, 0, 200), (0, 5, 350), (3, 4, 500)],
        [(2, 0, 150), (0, 5, 250), (3, 0, 400), (1, 4, 450), (3, 1, 600), (2, 5, 900)],
    ],
    ids=["once", "twice"],
)
def test_parts_that_take_turns_at_a_host_become_one(sends: list[tuple[int, int, int]], packets: int) -> None:
    workload = turns(sends, rounds=40)
    case = SkipCase("turns", Fabric(topology=SingleSwitch(hosts=6), link=LINK), workload, Lowering(), 1, ())
    skipped = play(case, skips=True, checkpoint_packets=packets, free_packets=FREE_PACKETS)
    assert skipped.unusable == ""
    assert skipped.joined > 0
    assert not first_difference(play(case, skips=False), skipped)


def test_a_play_that_goes_on_plays_less() -> None:
    case = draw_job(31000, 24, kind="stages")
    whole, resumed = (
        play(case, skips=True, checkpoint_packets=packets, free_packets=FREE_PACKETS) for packets in (1 << 40, 512)
    )
    assert whole.unusable == resumed.unusable == ""
    assert whole.resumed == 0
    assert whole.episodes == resumed.episodes > 0
    assert resumed.skipped > whole.skipped
