"""Oracle 13 with all that a fabric has switched on: what scaling and relabelling may not change; also oracles 2, 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from twin_fabrics import GBPS, NS, US, incast, run_native, transmission_ps, twin_of, wire_bytes

from genie.config.congestion import Control, Dcqcn, Dctcp, Hpcc, Swift
from genie.config.units import Duration, Rate, Size
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.schema import (
    Ecn,
    Fabric,
    LeafSpine,
    Link,
    Path,
    Pfc,
    Priority,
    SingleSwitch,
    Switch,
    Transport,
)

KIB, MIB = 1 << 10, 1 << 20


def dcqcn(scale: int) -> Dcqcn:
    """With every timer and rate of it at `scale` times the time."""
    return Dcqcn(
        cnp_interval=Duration(50 * US * scale),
        minimum_rate=Rate(64_000_000 // scale),
        additive=Rate(64_000_000 // scale),
        hyper=Rate(640_000_000 // scale),
        alpha_timer=Duration(55 * US * scale),
        increase_timer=Duration(55 * US * scale),
    )


def lossless(scale: int = 1, control: Control | None = None, **more: object) -> Fabric:
    return Fabric(
        topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=4),
        link=Link(Rate(100 * GBPS // scale), Duration(500 * NS * scale)),
        transport=Transport(mtu=1024, ack_every_packets=1, ack_timeout=Duration(10_000 * US * scale)),
        switch=Switch(shared_buffer=Size(600 * KIB)),
        ecn=Ecn(minimum=Size(20 * KIB), maximum=Size(80 * KIB), probability=0.5),
        pfc=Pfc(),
        priority=Priority(data=3, control=6),
        congestion=control or dcqcn(scale),
        **more,  # type: ignore[arg-type]
    )


def scaled(scale: int, controls: tuple[Control, Control]) -> tuple[list[Any], list[dict[str, list[int]]]]:
    """Traces, with times over the scale, and link counters at a scale of 1 and at `scale`."""
    lowering = Lowering(algorithms={"all_to_all": "direct"})
    traces, links = [], []
    for factor, control in zip((1, scale), controls, strict=True):
        workload = collective(Op.ALL_TO_ALL, 8, 4 * MIB, count=2, compute_ns=3_000 * factor)
        result = twin_of(lossless(factor, control)).play(workload, lowering=lowering, keep_trace=True)
        traces.append([(entry[0] / factor, *entry[1:]) for entry in result.traces[0]])
        links.append(result.counters["links"])
    assert sum(links[0]["marked"]) > 0
    assert sum(links[0]["pauses"]) > 0
    return traces, links


@pytest.mark.parametrize("scale", [2, 16])
def test_a_lossless_fabric_scales_with_all_its_timers(scale: int) -> None:
    """Pauses and marks included: the same packets, each at `scale` times the time, exactly."""
    traces, links = scaled(scale, (Dctcp(), Dctcp()))
    assert traces[0] == traces[1]
    for name, values in links[0].items():
        assert [value * (scale if name == "paused_ps" else 1) for value in values] == links[1][name], name


@pytest.mark.parametrize("scale", [2, 16])
def test_rates_of_dcqcn_scale_up_to_the_rounding_of_its_gaps(scale: int) -> None:
    """Gaps between packets are rounded to whole picoseconds, of which a scaled one has more."""
    traces, links = scaled(scale, (dcqcn(1), dcqcn(scale)))
    assert len(traces[0]) == pytest.approx(len(traces[1]), rel=0.001)
    assert traces[0][:20_000] == traces[1][:20_000]
    assert traces[0][-1][0] == pytest.approx(traces[1][-1][0], rel=0.02)
    assert sum(links[0]["marked"]) == pytest.approx(sum(links[1]["marked"]), rel=0.05)


FLOWS = [
    (0, 4, 0),
    (1, 5, 1),
    (2, 4, 0),
    (3, 6, 1),
    (4, 1, 0),
    (6, 1, 1),
    (7, 2, 0),
    (5, 3, 1),
]  # source, target, spine


def finished_at(flows: list[tuple[int, int, int]], control: Control) -> list[tuple[int, int]]:
    """First and last arrival of each flow, ps; flow n starts 1,009 ns after flow n - 1. Marks begin at a step."""
    names = [(f"host{source}", f"host{target}", f"spine{spine}") for source, target, spine in flows]
    ways = {(a, b): s for a, b, s in names} | {(b, a): s for a, b, s in names}
    paths = [
        Path(a, b, (f"leaf{int(a[4:]) // 4}", *([spine, f"leaf{int(b[4:]) // 4}"] if crosses else [])))
        for (a, b), spine in ways.items()
        for crosses in [int(a[4:]) // 4 != int(b[4:]) // 4]
    ]
    fabric = Fabric(
        topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=4),
        link=Link(Rate(100 * GBPS), Duration(500 * NS)),
        transport=Transport(mtu=1024, ack_every_packets=1),
        switch=Switch(shared_buffer=Size(1200 * KIB)),
        ecn=Ecn(minimum=Size(30_000), maximum=Size(30_000), probability=1.0),
        pfc=Pfc(),
        priority=Priority(data=3, control=6),
        congestion=control,
        path=paths,
    )
    workload = Workload("flows", 8, [Group("0", tuple(range(8)))], {})
    builders = [RankBuilder(rank) for rank in range(8)]
    for number, (source, target, _) in enumerate(flows):
        sleep = builders[source].add(2 * number, "sleep", Kind.COMP, duration_ns=1_009 * (number + 1))
        size = 100_003 + 17_011 * number
        builders[source].add(2 * number + 1, "send", Kind.SEND, (sleep,), size_bytes=size, peer=target, tag=number)
        builders[target].add(2 * number, "receive", Kind.RECV, size_bytes=size, peer=source, tag=number)
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    run = run_native(twin_of(fabric), workload)
    assert run.links["longest_queue_bytes"].max() > 30_000
    return sorted(
        (int(first), int(last))
        for record in run.records
        for first, last in zip(record["receives"]["first_ps"], record["receives"]["last_ps"], strict=True)
    )


@pytest.mark.parametrize("control", [Dcqcn(), Dctcp(), Swift(), Hpcc()], ids=lambda control: type(control).__name__)
@pytest.mark.parametrize(
    ("hosts", "spines"),
    [([3, 1, 0, 2, 4, 5, 6, 7], [0, 1]), ([4, 5, 6, 7, 0, 1, 2, 3], [0, 1]), ([6, 4, 7, 5, 2, 0, 3, 1], [1, 0])],
    ids=["within a leaf", "leaves", "all"],
)
def test_relabelling_a_fabric_with_pinned_paths_changes_nothing(
    hosts: list[int], spines: list[int], control: Control
) -> None:
    relabelled = [(hosts[source], hosts[target], spines[spine]) for source, target, spine in FLOWS]
    assert finished_at(relabelled, control) == finished_at(FLOWS, control)


@pytest.mark.parametrize(("senders", "size_bytes"), [(2, MIB), (8, MIB), (16, 2 * MIB)])
def test_a_lossless_incast_is_bound_by_the_receivers_link(senders: int, size_bytes: int) -> None:
    """Oracle 3 with a shared buffer that pauses: last FCT within 2 % of N x S_wire x 8 / C + base delay, no drop."""
    rate, delay = 100 * GBPS, 500 * NS
    fabric = Fabric(
        topology=SingleSwitch(senders + 1),
        link=Link(Rate(rate), Duration(delay)),
        switch=Switch(shared_buffer=Size(2 * MIB)),
        pfc=Pfc(),
        transport=Transport(window_packets=4096, ack_timeout=Duration(10**11)),
    )
    run = run_native(twin_of(fabric), incast(senders, size_bytes))
    assert run.dropped == 0
    assert run.links["pauses"].sum() > 0
    last = int(run.records[senders]["receives"]["last_ps"].max())
    bound = 2 * delay + transmission_ps(min(wire_bytes(size_bytes)), rate)
    bound += transmission_ps(senders * sum(wire_bytes(size_bytes)), rate)
    assert bound <= last <= 1.02 * bound


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_lindleys_recursion_waits_as_md1_does_to_one_percent(load: float) -> None:
    """Oracle 2, the half without the twin: test_oracles.py shows its waits to be Lindley's, packet by packet."""
    draw, waited, packets = np.random.default_rng(3), 0.0, 0
    for _ in range(12):
        times = np.cumsum(draw.exponential(1 / load, 1_000_000))
        busy = np.arange(times.size)
        waited += float((np.maximum.accumulate(times - busy) + busy - times).sum())
        packets += times.size
    assert waited / packets == pytest.approx(load / (2 * (1 - load)), rel=0.01)
