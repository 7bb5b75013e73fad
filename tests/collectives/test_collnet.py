"""CollNet: the order of its messages is proven, each byte leaves and enters a server once, and NCCL's rule has it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from drawing import drawn
from hypothesis import given
from hypothesis import strategies as st

from genie.collectives.check import prove_order
from genie.collectives.nccl.collnet import collnet_cut
from genie.collectives.nccl.shape import NcclShape, choose_nccl, lower_nccl
from genie.collectives.nccl.tuning import COLLNET, COLLNET_CHAIN, COLLNET_DIRECT, SIMPLE, Server, Tuner

KIB, MIB = 1 << 10, 1 << 20
H100 = Server("h100", "2.30", 450.0, 50.0)


def shape(algorithm: str, channels: int = 2, **more: object) -> NcclShape:
    return NcclShape(channels, collnet=True, allowed=(("all_reduce", (algorithm,)),), **more)  # type: ignore[arg-type]


@drawn(150, 60)
@given(
    st.sampled_from(COLLNET),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 2 * MIB),
    st.sampled_from([None, H100]),
)
def test_order_of_drawn_groups_in_every_timing(
    algorithm: str, nodes: int, local: int, channels: int, size_bytes: int, server: Server | None
) -> None:
    """No message overtakes another, and no member ends before all have begun."""
    given_shape, members = shape(algorithm, channels, server=server), nodes * local
    parts = [lower_nccl("all_reduce", given_shape, members, at, size_bytes, local=local) for at in range(members)]
    assert {name.split()[1] for name, *_ in parts} == {algorithm}
    prove_order("all_reduce", [template for _, template, _ in parts], [sizes for *_, sizes in parts])


@pytest.mark.parametrize("algorithm", COLLNET)
@pytest.mark.parametrize(("nodes", "local"), [(2, 1), (5, 1), (4, 4), (3, 8)])
def test_each_byte_leaves_and_enters_a_server_once(algorithm: str, nodes: int, local: int) -> None:
    """As to and from a reducing switch, by the NIC of each channel's leader; a ring needs nearly twice that."""
    size_bytes, members, channels = 8 * MIB, nodes * local, 2 * local
    out: Counter[int] = Counter()
    came: Counter[int] = Counter()
    for at in range(members):
        template, sizes = lower_nccl("all_reduce", shape(algorithm, channels), members, at, size_bytes, local=local)[1:]
        assert not template.credit.any()
        for action, peer, base, block in zip(
            template.action, template.peer, template.block_base, template.block, strict=True
        ):
            moved = int(sizes[base + block])
            if moved > 1:  # not a word
                assert int(peer) // local != at // local
                (out if action == 0 else came)[at] += moved
    assert out == came
    assert out == Counter(dict.fromkeys(range(members), size_bytes // local))


def test_nccls_latency() -> None:
    """Two hops of 3.7 us and 0.4 us for each other GPU, and 31 us. A chain has 2.8 us a hop, and 30 us."""
    tuner = Tuner(H100, "all_reduce", 32, 8, 16)
    direct, chain = (tuner._candidate(name, SIMPLE, 1) for name in COLLNET)
    assert direct is not None
    assert chain is not None
    assert direct.latency_us == pytest.approx(2 * (3.7 + 7 * 0.4) + 31)
    assert chain.latency_us == pytest.approx(2 * 7 * 2.8 + 30)


def test_the_choice_has_collnet_only_where_switches_reduce() -> None:
    able = NcclShape(16, ranks_per_node=8, server=H100, collnet=True)
    found = {choose_nccl("all_reduce", 256, size, able, 8).algorithm for size in (KIB, MIB, 16 * MIB, 64 * MIB)}
    assert found & set(COLLNET)
    without = replace(able, collnet=False)
    assert not {choose_nccl("all_reduce", 256, MIB << at, without, 8).algorithm for at in range(8)} & set(COLLNET)
    forced = replace(without, allowed=(("all_reduce", COLLNET),))
    assert choose_nccl("all_reduce", 256, MIB, forced, 8).algorithm == "ring"


@pytest.mark.parametrize(("members", "local"), [(8, 8), (32, 16), (1, 1)])
def test_groups_without_collnet(members: int, local: int) -> None:
    for server in (None, H100):
        found = choose_nccl("all_reduce", members, MIB, shape(COLLNET_DIRECT, server=server), local)
        assert found.algorithm not in COLLNET


@pytest.mark.parametrize(
    ("algorithm", "size_bytes", "local", "wanted"),
    [(COLLNET_DIRECT, 1 << 30, 8, 512 * KIB), (COLLNET_DIRECT, MIB, 8, 32 * KIB),
     (COLLNET_CHAIN, 1 << 30, 1, 256 * KIB), (COLLNET_CHAIN, MIB // 2, 8, 32 * KIB)],
)  # fmt: skip
def test_chunks(algorithm: str, size_bytes: int, local: int, wanted: int) -> None:
    assert collnet_cut(algorithm, size_bytes, 2, local, 4 * MIB).chunk_bytes == wanted
