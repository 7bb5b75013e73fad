"""PAT: proven for drawn groups, with as few rounds as it promises, in NCCL's order, and chosen as NCCL chooses it."""

from __future__ import annotations

from dataclasses import replace

import genie_core
import numpy as np
import pytest
from drawing import drawn
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genie.collectives import Template
from genie.collectives.check import check, check_sizes, lower_all, meaning_of, prove
from genie.collectives.meaning import CheckError
from genie.collectives.nccl.shape import NcclShape, choose_nccl, lower_nccl
from genie.collectives.nccl.tuning import PAT, RING, SIMPLE, Server
from genie.collectives.pat import Aggregation, aggregation, messages, whole_aggregation
from genie.collectives.player import POLICIES, play
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.synthetic import collective

KIB, MIB = 1 << 10, 1 << 20
OPS = ("all_gather", "reduce_scatter")
DRAWS = drawn(300, 100)


def shape(op: str, channels: int = 1, **more: object) -> NcclShape:
    return NcclShape(channels, allowed=((op, (PAT,)),), **more)  # type: ignore[arg-type]


def lowered(op: str, given: NcclShape, members: int, size_bytes: int) -> tuple[list[Template], list[NDArray[np.int64]]]:
    parts = [lower_nccl(op, given, members, position, size_bytes) for position in range(members)]
    assert {name for name, *_ in parts} == {"nccl pat"}
    return [template for _, template, _ in parts], [sizes for *_, sizes in parts]


@DRAWS
@given(
    st.sampled_from(OPS),
    st.integers(2, 24),
    st.integers(1, 4),
    st.one_of(st.integers(1, 100), st.integers(1, 4 * MIB)),
    st.sampled_from([64 * KIB, 4 * MIB]),
    st.sampled_from(sorted(POLICIES)),
)
def test_proof_of_nccls_messages(
    op: str, members: int, channels: int, size_bytes: int, buffer_bytes: int, policy: str
) -> None:
    templates, sizes = lowered(op, shape(op, channels, buffer_bytes=buffer_bytes), members, size_bytes)
    meaning = meaning_of(op, templates)
    check_sizes(meaning, sizes, size_bytes, None)
    traffic = prove(meaning, templates, sizes)
    blocks = [table[: meaning.channels * meaning.rows].reshape(-1, members).sum(axis=0) for table in sizes]
    for position, (sent, own) in enumerate(zip(traffic.bytes_sent, blocks, strict=True)):
        assert sent == own.sum() - own[position]
    if members <= 6 and size_bytes < MIB:
        assert play(meaning, templates, sizes, policy) == traffic.bytes_sent


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("members", range(2, 40))
def test_plain_pat_has_as_many_rounds_as_the_number_of_members_has_bits(op: str, members: int) -> None:
    traffic = check(op, PAT, members, 4000)
    assert traffic.messages_sent == [(members - 1).bit_length()] * members


@pytest.mark.parametrize("op", OPS)
def test_short_blocks_travel_together(op: str) -> None:
    """NCCL's messages of 16 members: 1, 2, 4 and 8 blocks, of 8 bytes each."""
    template, sizes = lower_nccl(op, shape(op), 16, 3, 8 if op == "all_gather" else 128)[1:]
    sends = template.action == 0
    sent = sizes[template.block_base[sends] + (template.block[sends] + 3) % 16].tolist()
    assert sorted(sent) == [8, 16, 32, 64]
    assert sent[0] == (8 if op == "all_gather" else 64)


def test_blocks_travel_far_first() -> None:
    """Depth first along the binomial tree of eight members, as NCCL 2.23 and 2.30 order their steps."""
    alone = Aggregation(1, 1)
    assert [each.first for each in messages("all_gather", 8, alone)] == [4, 6, 7, 5, 2, 3, 1]
    assert [each.first for each in messages("reduce_scatter", 8, alone)] == [7, 6, 5, 4, 3, 2, 1]
    assert [each.distance for each in messages("all_gather", 8, alone)] == [4, 2, 1, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("members", "blocks", "depth", "wanted"),
    [(16, 1, 1, (1, 1)), (16, 1, 8, (8, 1)), (64, 1, 8, (8, 1)), (64, 4, 8, (32, 4)), (64, 1000, 8, (32, 32)),
     (2, 100, 8, (1, 1)), (5, 100, 1, (2, 2))],
)  # fmt: skip
def test_trees_side_by_side(members: int, blocks: int, depth: int, wanted: tuple[int, int]) -> None:
    assert aggregation(members, blocks, depth) == Aggregation(*wanted)


@given(st.integers(2, 300), st.integers(1, 200), st.sampled_from(OPS))
def test_each_block_is_sent_once_by_each_member(members: int, blocks: int, op: str) -> None:
    for how in (aggregation(members, blocks, 8), whole_aggregation(members)):
        found = [each.first + at * each.stride for each in messages(op, members, how) for at in range(each.blocks)]
        assert sorted(found) == list(range(1, members))
        assert all(each.blocks <= how.batch for each in messages(op, members, how))


def test_long_blocks_go_in_chunks_of_a_step() -> None:
    template, sizes = lower_nccl("all_gather", shape("all_gather"), 8, 0, 4 * MIB)[1:]
    sends = template.action == 0
    assert set(sizes[template.block_base[sends] + template.block[sends]].tolist()) == {512 * KIB}
    assert sends.sum() == 7 * 8


def test_a_bundle_of_a_wrong_size_is_rejected() -> None:
    templates, sizes = lower_all("all_gather", PAT, 4, 64)
    sizes[1][-1] += 4
    with pytest.raises(CheckError, match="is not as large as its blocks"):
        prove(meaning_of("all_gather", templates), templates, sizes)


def test_a_bundle_of_wrong_blocks_is_rejected() -> None:
    templates, sizes = lower_all("reduce_scatter", PAT, 4, 64)
    wrong = replace(templates[1].bundles[0], stride=1)
    templates[1] = replace(templates[1], bundles=(wrong,))
    with pytest.raises(CheckError):
        prove(meaning_of("reduce_scatter", templates), templates, sizes)


@pytest.mark.parametrize("op", [Op.ALL_GATHER, Op.REDUCE_SCATTER])
@pytest.mark.parametrize("members", [2, 5, 8, 13])
def test_the_walker_plays_it_to_its_end(op: Op, members: int) -> None:
    name = op.name.lower()
    for lowering in (
        Lowering(2, True, {name: PAT}),
        Lowering(nccl=shape(name, 3)),
        Lowering(nccl=shape(name, 2, server=Server("h100", "2.30", 450.0, 25.0))),
    ):
        for size_bytes in (3, 100_000, 9 * MIB):
            plan = build_plan(collective(op, members, size_bytes), lowering=lowering)
            assert genie_core.walk_alone(plan.native)["problems"] == []


def gpus(version: str, local: int = 1) -> NcclShape:
    return NcclShape(2 * local, server=Server("h100", version, 450.0, 50.0))


def test_nccl_takes_pat_for_few_members_and_short_blocks() -> None:
    """NCCL's model by hand: 8 µs, 4 µs a round and 2.8 µs a member, against 15 steps of 14 µs (Simple), 8.5 (LL128)."""
    found = choose_nccl("all_gather", 16, 64 * KIB, gpus("2.30"))
    assert (found.algorithm, found.protocol) == (PAT, SIMPLE)
    assert found.costs.start_ps == 8_000_000
    assert found.costs.send_ps == found.costs.receive_ps == 1_400_000
    block_kib = 64 / found.channels
    assert found.costs.work_ps_per_kib * block_kib == pytest.approx(2_800_000, rel=0.4)
    assert choose_nccl("all_gather", 16, 64 * MIB, gpus("2.30")).algorithm == RING


@pytest.mark.parametrize(("op", "local", "version"), [
    ("all_gather", 8, "2.30"), ("all_gather", 1, "2.19"), ("all_reduce", 1, "2.30"), ("broadcast", 1, "2.30"),
])  # fmt: skip
def test_nccl_has_pat_for_one_gpu_a_server_from_2_23_on(op: str, local: int, version: str) -> None:
    assert choose_nccl(op, 16, 64 * KIB, gpus(version, local), local).algorithm != PAT
    forced = replace(gpus(version, local), allowed=((op, (PAT,)),))
    assert choose_nccl(op, 16, 64 * KIB, forced, local).algorithm != PAT


def test_nodes_of_several_members_have_the_ring() -> None:
    assert lower_nccl("all_gather", shape("all_gather"), 8, 0, 100, local=4)[0] == "nccl ring"
    assert lower_nccl("all_gather", shape("all_gather"), 8, 0, 0)[0] == "nccl ring"
