"""NCCL's choice of algorithm and protocol, and the costs of GPUs: against NCCL's published constants."""

from __future__ import annotations

import genie_core
import numpy as np
import pytest

from genie.collectives import Action, LoweringError
from genie.collectives.nccl.shape import NcclShape, choose_nccl, lower_nccl
from genie.collectives.nccl.tuning import (
    LL,
    LL128,
    NVLS,
    NVLS_TREE,
    RING,
    SAME_GENERATION,
    SIMPLE,
    TREE,
    Server,
    Tuner,
    gpus,
    versions,
)
from genie.compute.gpus import gpus as find_gpus
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.synthetic import collective

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SENDS_APART_PS = 1000  # of one channel: dilation does not stretch it


def shape(local: int = 4, version: str = "2.19", nic: float = 25.0, **more: object) -> NcclShape:
    """Servers of H100 with a NIC of 200 Gb/s for each GPU."""
    server = Server("h100", version, 450.0, nic)
    return NcclShape(channels=2 * local, ranks_per_node=local, server=server, **more)  # type: ignore[arg-type]


def test_every_version_and_gpu_has_all_constants() -> None:
    for version in versions():
        for gpu in set(gpus()) - {"gb10"}:
            tuner = Tuner(Server(gpu, version, 450.0, 50.0), "all_reduce", 32, 8, 16)
            for size_bytes in (1, 256, 64 * KIB, 8 * MIB, 16 * GIB):
                choice = tuner.choose(size_bytes, (RING, TREE, NVLS_TREE), (LL, LL128, SIMPLE))
                assert choice.costs.start_ps >= 0
                assert choice.costs.send_ps > 0
                assert 1 <= choice.channels <= 16


@pytest.mark.parametrize(
    ("nodes", "size_bytes", "expected"),
    [
        (4, 256, (TREE, LL)), (4, 64 * KIB, (TREE, LL)), (4, MIB, (TREE, LL128)), (4, 64 * MIB, (RING, LL128)),
        (4, GIB, (RING, SIMPLE)), (16, 8 * MIB, (TREE, LL128)), (1, 8 * MIB, (NVLS, SIMPLE)), (1, 1 * KIB, (RING, LL)),
    ],
)  # fmt: skip
def test_choice_by_size_as_in_nccls_model(nodes: int, size_bytes: int, expected: tuple[str, str]) -> None:
    """Small sizes take few steps, large ones the most bandwidth."""
    found = choose_nccl("all_reduce", 4 * nodes, size_bytes, shape(), 4)
    assert (found.algorithm, found.protocol) == expected


def test_two_servers_of_eight_reduce_in_their_switches() -> None:
    """The bus bandwidth of 450 to 471 GB/s that was published for two servers of H100 is above the ring's line rate."""
    for size_bytes in (GIB, 16 * GIB):
        assert choose_nccl("all_reduce", 16, size_bytes, shape(8, "2.23", 50.0), 8).algorithm == NVLS_TREE


def test_variables_limit_the_choice() -> None:
    forced = shape(algorithm="ring")
    assert choose_nccl("all_reduce", 16, 256, forced, 4).algorithm == RING
    without = shape(protocols=(SIMPLE,))
    assert choose_nccl("all_reduce", 16, 256, without, 4).protocol == SIMPLE


def test_latencies_of_the_model() -> None:
    """A ring of 4 x 4 ranks has 30 steps, 6 of them over the network."""
    tuner = Tuner(Server("h100", "2.19", 450.0, 25.0), "all_reduce", 16, 4, 8)
    ring = tuner._candidate(RING, LL, 256)
    tree = tuner._candidate(TREE, LL, 256)
    assert ring is not None
    assert tree is not None
    assert ring.latency_us == pytest.approx(6.6 + 24 * 1.0 + 6 * 2.7)
    assert tree.latency_us == pytest.approx(6.8 + 2 * (3 * 0.6 + 2 * 5.0))


def test_a_ring_takes_the_costs_of_its_steps() -> None:
    """Where the network takes no time: the start, then each of 2 (n - 1) steps at its ends and for its bytes."""
    one_gpu = NcclShape(channels=1, algorithm="ring", server=Server("h100", "2.30", 450.0, 25.0), protocols=(SIMPLE,))
    members, size_bytes = 4, 64 * KIB
    costs = choose_nccl("all_reduce", members, size_bytes, one_gpu).costs
    plan = build_plan(collective(Op.ALL_REDUCE, members, size_bytes), lowering=Lowering(nccl=one_gpu))
    template, sizes = lower_nccl("all_reduce", one_gpu, members, 0, size_bytes)[1:]
    sends = np.flatnonzero(template.action == Action.SEND)
    slices = len(sends) // (2 * (members - 1))
    assert slices == 2
    slice_bytes = int(sizes[sizes > 0].max())
    # The second slice of a step waits until its channel has worked on the first.
    work_ps = slice_bytes * costs.work_ps_per_kib // KIB
    step_ps = work_ps + costs.send_ps + costs.receive_ps
    expected = costs.start_ps + 2 * (members - 1) * step_ps + work_ps
    assert genie_core.walk_alone(plan.native)["end_ps"] == pytest.approx(expected, rel=0.02)


def test_a_collective_inside_a_server_takes_the_models_time() -> None:
    lowering = Lowering(nccl=shape())
    workload = collective(Op.ALL_REDUCE, 4, MIB)
    expected = choose_nccl("all_reduce", 4, MIB, shape(), 4).costs.finish_ps
    assert expected > 20_000_000
    assert genie_core.walk_alone(build_plan(workload, lowering=lowering).native)["end_ps"] == pytest.approx(
        expected, abs=SENDS_APART_PS * 4
    )


def walked_ps(op: Op, members: int, size_bytes: int, given: NcclShape) -> int:
    plan = build_plan(collective(op, members, size_bytes), lowering=Lowering(nccl=given))
    return int(genie_core.walk_alone(plan.native)["end_ps"])


RACK = NcclShape(channels=64, ranks_per_node=72, server=Server("gb200", "2.30", 900.0, 50.0))


@pytest.mark.parametrize("op", [Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER])
def test_messages_inside_a_domain_of_72_take_the_time_of_its_links(op: Op) -> None:
    """Start, one hop, and 71 MiB at 721.8 GB/s, whatever the number of messages at once."""
    size_bytes = MIB if op is Op.GATHER else 72 * MIB
    wanted = (8.4 + 3.4) * 1e6 + 71 * MIB / 721.8 * 1e3
    assert walked_ps(op, 72, size_bytes, RACK) == pytest.approx(wanted, rel=0.002)


def test_an_all_to_all_of_two_domains_takes_the_time_inside_them_too() -> None:
    """Where the network takes no time, only its ends do; half of the data stays inside a domain."""
    inside = choose_nccl("all_to_all", 144, 144 * MIB, RACK, 72).costs
    assert inside.finish_ps == pytest.approx(3.4e6 + 71 * MIB / 721.8 * 1e3, rel=0.1)
    took = walked_ps(Op.ALL_TO_ALL, 144, 144 * MIB, RACK)
    assert took == pytest.approx(inside.start_ps + max(inside.finish_ps, inside.send_ps), rel=0.05)


def test_a_domain_of_72_reduces_in_its_switch() -> None:
    assert choose_nccl("all_reduce", 72, GIB, RACK, 72).algorithm == NVLS
    assert choose_nccl("all_reduce", 144, GIB, RACK, 72).algorithm == NVLS_TREE
    # NVLS: 2 * 721.8 GB/s * 0.74 * 71/72 of bus bandwidth, of a buffer that crosses it 2 * 71/72 times.
    took_us = choose_nccl("all_reduce", 72, GIB, RACK, 72).costs.finish_ps / 1e6
    assert took_us == pytest.approx(25 + GIB / (721.8e3 * 0.74), rel=0.01)


@pytest.mark.parametrize("local", [1, 4])
def test_an_all_gather_takes_the_time_of_a_reduce_scatter_of_the_whole(local: int) -> None:
    """The size of an all-gather is that of one member."""
    gathered, scattered = (
        choose_nccl(op, 4, size_bytes, shape(), local)
        for op, size_bytes in (("all_gather", 16 * MIB), ("reduce_scatter", 4 * 16 * MIB))
    )
    assert gathered == scattered


def test_dilation_stretches_the_costs() -> None:
    lowering = Lowering(nccl=shape())
    ends = [
        genie_core.walk_alone(
            build_plan(collective(Op.ALL_REDUCE, 16, 256 * KIB), lowering=lowering, time_factor=factor).native
        )["end_ps"]
        for factor in (1, 3)
    ]
    assert ends[1] == pytest.approx(3 * ends[0], rel=1e-4)


def test_without_gpus_nothing_takes_time() -> None:
    template, _ = lower_nccl("all_reduce", NcclShape(ranks_per_node=4), 16, 0, MIB, local=4)[1:]
    assert template.timing is None


def test_all_operations_have_costs() -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter"):
        for members, local in ((16, 4), (4, 4), (4, 1)):
            found = [lower_nccl(op, shape(), members, at, 64 * KIB, local=local)[1] for at in range(members)]
            timings = [template.timing for template in found if template.timing is not None]
            assert timings, (op, members, local)
            assert all((timing.delay_ps >= 0).all() for timing in timings)


def test_unknown_names_are_refused_with_the_list() -> None:
    with pytest.raises(LoweringError, match=r"GPU 'h42': NCCL's costs on it are not known; known: gb10, a100, h100"):
        Server("h42", "2.30", 450.0, 50.0)
    with pytest.raises(LoweringError, match=r"gb300; give h100, of the same generation, and domain\.rate as on h800$"):
        Server("h800", "2.30", 200.0, 50.0)
    assert set(SAME_GENERATION.values()) <= set(gpus())
    assert set(SAME_GENERATION).isdisjoint(gpus())
    assert set(SAME_GENERATION) <= set(find_gpus()), "the names are those of genie generate"
    with pytest.raises(LoweringError, match=r"NCCL 1\.0: its constants are not known; known: 2\.19, 2\.23, 2\.30"):
        Server("h100", "1.0", 450.0, 50.0)
    with pytest.raises(LoweringError, match="GPU gb10: has a server of its own; this one has 8 of them"):
        Tuner(Server("gb10", "2.30", 450.0, 50.0), "all_reduce", 8, 8, 16)
    with pytest.raises(LoweringError, match="no algorithm among tree with protocol ll"):
        Tuner(Server("h100", "2.30", 450.0, 50.0), "all_reduce", 8, 8, 16).choose(64, (TREE,), (LL,))


def test_times_that_do_not_fit_a_template_are_refused() -> None:
    plan = genie_core.Plan()
    column = np.zeros(1, np.int32)
    plan.add_template(
        2, False, False, np.zeros(1, np.uint8), np.ones(1, np.int32), column, column, np.zeros(1, np.uint8),
        np.zeros(1, np.uint8), np.zeros(2, np.int32), np.zeros(0, np.int32),
    )  # fmt: skip
    none, negative = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    plan.set_timing(0, 0, none, none, none)
    for times in ((0, negative, none, none), (-1, none, none, none), (0, np.zeros(2, np.int64), none, none)):
        with pytest.raises(ValueError, match="times of GPUs"):
            plan.set_timing(0, *times)
