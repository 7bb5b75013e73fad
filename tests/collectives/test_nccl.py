"""NCCL's messages: every template is proven, their sizes are NCCL's arithmetic, and nodes with several members play."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import genie_core
import numpy as np
import pytest
from drawing import drawn
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genie.collectives import LoweringError, Template
from genie.collectives.check import check_sizes, meaning_of, prove, prove_order
from genie.collectives.nccl.shape import NCCL_ALGORITHMS, NcclShape, lower_nccl
from genie.collectives.nccl.sizes import PROTOCOLS, cut_of, message_chunks, over_channels
from genie.collectives.nccl.steps import NOBODY, double_binary_tree, message_steps
from genie.collectives.nccl.tuning import Server
from genie.collectives.player import POLICIES, play
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering, members_per_node
from genie.workload.graph import Op
from genie.workload.synthetic import collective

KIB, MIB = 1 << 10, 1 << 20
CASES = [(op, algorithm) for op, known in NCCL_ALGORITHMS.items() for algorithm in known]
DRAWS = drawn(400, 150)


def lowered(
    op: str, shape: NcclShape, members: int, size_bytes: int, root: int = 0
) -> tuple[list[Template], list[NDArray[np.int64]]]:
    parts = [lower_nccl(op, shape, members, position, size_bytes, root)[1:] for position in range(members)]
    return [template for template, _ in parts], [sizes for _, sizes in parts]


def messages(template: Template, sizes: NDArray[np.int64], position: int = 0) -> list[int]:
    """Bytes of each message that a member sends."""
    sends = template.action == 0
    place = position if template.relative else 0
    block = (template.block[sends] + place) % template.members if template.relative else template.block[sends]
    found = sizes[template.block_base[sends] + block]
    return [int(size) for size in found if size]


@DRAWS
@given(
    st.sampled_from(CASES),
    st.integers(1, 9),
    st.integers(1, 5),
    st.one_of(st.integers(0, 100), st.integers(0, 3 * MIB)),
    st.sampled_from([64 * KIB, 256 * KIB, 4 * MIB]),
    st.data(),
)
def test_proof_of_drawn_collectives(
    case: tuple[str, str], members: int, channels: int, size_bytes: int, buffer_bytes: int, data: st.DataObject
) -> None:
    op, algorithm = case
    root = data.draw(st.integers(0, members - 1))
    shape = NcclShape(channels, buffer_bytes=buffer_bytes, allowed=((op, (algorithm,)),))
    templates, sizes = lowered(op, shape, members, size_bytes, root)
    meaning = meaning_of(op, templates, root)
    check_sizes(meaning, sizes, size_bytes, None)
    traffic = prove(meaning, templates, sizes)
    if members <= 4 and size_bytes < MIB:
        policy = data.draw(st.sampled_from(sorted(POLICIES)))
        assert play(meaning, templates, sizes, policy) == traffic.bytes_sent


def test_an_all_reduce_of_64_mib_on_eight_members_has_slices_of_a_mebibyte() -> None:
    """Loops of 2 channels x 8 members x 2 MiB: two of them, each of 14 rounds of two slices."""
    templates, sizes = lowered("all_reduce", NcclShape(channels=2, algorithm="ring"), 8, 64 * MIB)
    for position in range(8):
        sent = messages(templates[position], sizes[position], position)
        assert Counter(sent) == {MIB: 2 * 2 * 14 * 2}


def test_the_last_loop_has_even_chunks_of_multiples_of_16_bytes() -> None:
    size_bytes = 16 * MIB + 1_000_001
    templates, sizes = lowered("all_reduce", NcclShape(channels=1, algorithm="ring"), 8, size_bytes)
    table = sizes[0].reshape(2, 2, 8)  # loops, slices, chunks
    assert (table[0] == MIB).all()
    chunks = table[1].sum(axis=0)
    assert chunks.sum() == 1_000_001
    assert (chunks[:7] == 125_008).all()  # an eighth, up to the next multiple of 16
    assert chunks[7] == 1_000_001 - 7 * 125_008
    # Halves of 64-byte units, the larger first.
    assert table[1, 0, 0] == -(-125_008 // 128) * 64
    assert len(messages(templates[0], sizes[0])) == 2 * 14 * 2


def test_all_gather_and_reduce_scatter_have_a_round_less_than_members() -> None:
    for op in ("all_gather", "reduce_scatter"):
        share = 4 * MIB if op == "all_gather" else 32 * MIB
        templates, sizes = lowered(op, NcclShape(channels=2), 8, share)
        assert Counter(messages(templates[3], sizes[3], 3)) == {MIB: 7 * 4}


def test_trees_and_chains_have_messages_of_a_step() -> None:
    templates, sizes = lowered("all_reduce", NcclShape(channels=2, algorithm="tree"), 8, 8 * MIB)
    sent = [messages(template, table) for template, table in zip(templates, sizes, strict=True)]
    assert {size for each in sent for size in each} == {512 * KIB}
    # Each byte goes up an edge and comes down again, over the seven edges of its tree.
    assert sum(map(sum, sent)) == 2 * 7 * 8 * MIB
    templates, sizes = lowered("broadcast", NcclShape(channels=1), 4, 3 * MIB, 1)
    assert messages(templates[1], sizes[1]) == [512 * KIB] * 6
    assert messages(templates[0], sizes[0]) == []  # stands before the root


@pytest.mark.parametrize(("protocol", "step", "factor"), [("ll", 64 * KIB, 2.0), ("ll128", 614_400, 16 / 15)])
def test_low_latency_protocols_send_flags_too(protocol: str, step: int, factor: float) -> None:
    templates, sizes = lowered("all_reduce", NcclShape(1, "ring", protocol), 4, 32 * MIB)
    sent = messages(templates[0], sizes[0])
    assert max(sent) == step
    assert sum(sent) == pytest.approx(factor * 2 * 3 / 4 * 32 * MIB, rel=1e-3)


def test_channels_share_a_buffer_by_cells() -> None:
    assert over_channels(64 * MIB, 4, 2).tolist() == [16 * MIB] * 4
    assert over_channels(10_000, 8, 2).tolist() == [10_000], "less than 32 KiB of traffic does not pay for two"
    assert over_channels(0, 8, 2).tolist() == []
    for size_bytes in (1, 16 * KIB, 100_000, 5 * MIB + 7):
        shares = over_channels(size_bytes, 5, 2)
        assert shares.sum() == size_bytes
        assert (shares > 0).all()
        assert (shares[:-1] % 16 == 0).all()


@pytest.mark.parametrize(
    ("size_bytes", "chunks"),
    [
        (100 * KIB, [32 * KIB] * 3 + [4 * KIB]),
        (128 * KIB, [64 * KIB] * 2),
        (MIB, [128 * KIB] * 8),
        (MIB - 1, [64 * KIB] * 15 + [64 * KIB - 1]),
        (0, [0]),
    ],
)
def test_point_to_point_chunks(size_bytes: int, chunks: list[int]) -> None:
    assert message_chunks(size_bytes, 128 * KIB).tolist() == chunks


def test_an_all_to_all_has_eight_pairs_at_once() -> None:
    """The first pair of the next eight waits for the first pair of these."""
    template, sizes = lower_nccl("all_to_all", NcclShape(), 20, 0, 20 * 128 * KIB)[1:]
    assert Counter(messages(template, sizes)) == {64 * KIB: 19 * 2}
    first = {int(template.peer[step]): step for step in reversed(range(len(template))) if template.action[step] == 0}

    def waits(peer: int) -> list[int]:
        return template.deps[template.dep_start[first[peer]] : template.dep_start[first[peer] + 1]].tolist()

    assert not any(waits(peer) for peer in range(1, 9))
    assert {int(template.peer[step]) for step in waits(9)} == {1, 19}


def test_members_of_an_all_to_all_share_the_layout_of_their_steps() -> None:
    members = 23 * 8  # that no other test lowers
    before = message_steps.cache_info()
    for position in range(0, members, 23):
        lower_nccl("all_to_all", NcclShape(), members, position, members * MIB, local=8)
    after = message_steps.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (2, 14)


def test_window_is_a_buffer() -> None:
    for buffer_bytes in (10_000, 1_000_000, 2_500_000):  # chunks are rounded, what is in flight is no more for it
        assert cut_of("all_reduce", "ring", PROTOCOLS["simple"], buffer_bytes).window == 4
    assert cut_of("all_reduce", "ring", PROTOCOLS["simple"], 4 * MIB).window == 4
    assert cut_of("all_reduce", "tree", PROTOCOLS["simple"], 4 * MIB).window == 8
    assert cut_of("all_reduce", "ring", PROTOCOLS["ll"], 4 * MIB).window == 8
    template, _ = lower_nccl("all_gather", NcclShape(channels=1), 4, 0, 64 * MIB)[1:]
    receives = [step for step in range(len(template)) if template.action[step]]
    for number, step in enumerate(receives):
        waits = template.deps[template.dep_start[step] : template.dep_start[step + 1]].tolist()
        assert (receives[number - 4] in waits) if number >= 4 else not waits


@pytest.mark.parametrize("nodes", range(1, 40))
def test_double_binary_trees(nodes: int) -> None:
    """Both span all nodes, parents and children agree, and none but the root's neighbour is inside both."""
    for which in (0, 1):
        found = [double_binary_tree(nodes, node, which) for node in range(nodes)]
        roots = [node for node, (up, _) in enumerate(found) if up == NOBODY]
        assert len(roots) == 1
        for node, (up, down) in enumerate(found):
            assert len(down) == len(set(down)) <= 2
            assert all(found[child][0] == node for child in down)
            assert up == NOBODY or node in found[up][1]
        seen, todo = set(roots), list(roots)
        while todo:
            todo += found[todo.pop()][1]
            seen.update(todo)
        assert seen == set(range(nodes))
    inside = [sum(bool(double_binary_tree(nodes, node, which)[1]) for which in (0, 1)) for node in range(nodes)]
    assert sum(count == 2 for count in inside) <= 2


@pytest.mark.parametrize(("members", "local"), [(4, 2), (8, 4), (8, 2), (6, 3), (4, 4)])
@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.NONE, Op.BARRIER)])
def test_nodes_of_several_members_play_to_their_end(op: Op, members: int, local: int) -> None:
    for shape in (
        NcclShape(1, "ring", ranks_per_node=local),
        NcclShape(3, "tree", ranks_per_node=local, pxn=False, slice_delay_ns=1000),
        NcclShape(5, ranks_per_node=local),
        NcclShape(8, ranks_per_node=local, server=Server("h100", "2.19", 450.0, 25.0)),
        NcclShape(8, ranks_per_node=local, server=Server("h100", "2.30", 450.0, 25.0)),
    ):
        for size_bytes in (8, 100_000, 9 * MIB):
            plan = build_plan(collective(op, members, size_bytes), lowering=Lowering(nccl=shape))
            assert genie_core.walk_alone(plan.native)["problems"] == []


@DRAWS
@given(
    st.sampled_from(CASES),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 300_000),
    st.booleans(),
    st.sampled_from([None, Server("h100", "2.30", 450.0, 25.0)]),
    st.data(),
)
def test_nodes_of_several_members_in_every_timing(
    case: tuple[str, str],
    nodes: int,
    local: int,
    channels: int,
    more_bytes: int,
    pxn: bool,
    server: Server | None,
    data: st.DataObject,
) -> None:
    """No message overtakes another, and nobody ends without those who have not begun: blocks of at least a byte."""
    op, algorithm = case
    members = nodes * local
    root = data.draw(st.integers(0, members - 1))
    blocks = channels * members
    # Each block but the last is rounded up to 16 bytes. LL sends nothing for a last block that is empty: in NCCL, too,
    # no member then waits for it. Simple posts its step all the same.
    size_bytes = 16 * blocks * (blocks if server else 1) + more_bytes
    shape = NcclShape(channels, buffer_bytes=64 * KIB, pxn=pxn, server=server, allowed=((op, (algorithm,)),))
    parts = [lower_nccl(op, shape, members, at, size_bytes, root, local=local)[1:] for at in range(members)]
    prove_order(op, [template for template, _ in parts], [sizes for _, sizes in parts], root)


def _crossing(op: str, shape: NcclShape, members: int, size_bytes: int, local: int) -> tuple[list[int], set[int]]:
    """Bytes that each member sends out of its node, and what members of one node send each other."""
    out, inside = [], set()
    for position in range(members):
        template, sizes = lower_nccl(op, shape, members, position, size_bytes, 0, None, local)[1:]
        sends = template.action == 0
        peer, block = template.peer[sends], template.block[sends]
        if template.relative:
            peer, block = (peer + position) % members, (block + position) % members
        bytes_sent = sizes[template.block_base[sends] + block]
        away = peer // local != position // local
        out.append(int(bytes_sent[away].sum()))
        inside.update(bytes_sent[~away].tolist())
        if op != "all_to_all" or shape.pxn:  # rails: leader to leader
            assert (peer[away] % local == position % local).all()
    return out, inside


def test_only_what_leaves_a_node_is_sent() -> None:
    """A ring of 8 members crosses a node's boundary with 2 (n - 1) / n of each channel's bytes, whatever is inside."""
    out, inside = _crossing("all_reduce", NcclShape(channels=2, algorithm="ring"), 8, 32 * MIB, 4)
    each = 2 * 7 * 32 * MIB // 8 // 2
    assert out == [each, each, 0, 0] * 2
    assert inside == {1}
    out, _ = _crossing("all_gather", NcclShape(channels=4), 8, 4 * MIB, 4)
    assert out == [7 * MIB] * 8


def test_relays_send_by_the_rail_of_the_receiver() -> None:
    size_bytes = 8 * 128 * KIB
    for pxn in (True, False):
        out, inside = _crossing("all_to_all", NcclShape(pxn=pxn), 8, size_bytes, 4)
        assert out == [4 * 128 * KIB] * 8
        assert inside <= {0, 1}


def test_members_per_node() -> None:
    assert members_per_node(range(8), 4) == 4
    assert members_per_node([0, 1, 4, 5], 4) == 2
    assert members_per_node([0, 4], 4) == 1
    assert members_per_node([0, 1, 4], 4) == 1, "nodes differ"
    assert members_per_node([0, 4, 1, 5], 4) == 1, "not in order"
    assert members_per_node(range(4), 1) == 1


def test_a_slice_waits_for_the_gpu() -> None:
    """Each of the 2 (n - 1) rounds of a ring adds the delay once."""
    workload = collective(Op.ALL_REDUCE, 4, 64 * KIB)
    ends: Sequence[int] = [
        genie_core.walk_alone(
            build_plan(workload, lowering=Lowering(nccl=NcclShape(1, "ring", slice_delay_ns=delay))).native
        )["end_ps"]
        for delay in (0, 10_000)
    ]
    assert ends[1] - ends[0] == 6 * 10_000_000


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(LoweringError, match=r"65 channels; allowed are 1\.\.64"):
        NcclShape(channels=65)
    with pytest.raises(LoweringError, match="protocol 'fast'; known: simple, ll, ll128"):
        NcclShape(protocol="fast")
    with pytest.raises(LoweringError, match="unknown collective 'all_sum'"):
        lower_nccl("all_sum", NcclShape(), 4, 0, 100)
    with pytest.raises(LoweringError, match="split sizes are for all_to_all only"):
        lower_nccl("gather", NcclShape(), 2, 0, 8, 0, ([4, 4], [4, 4]))
